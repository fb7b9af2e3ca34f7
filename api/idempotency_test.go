package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/tenants"
)

// createCall returns the first example of an operation that creates an object.
func createCall(t *testing.T, w *world, r api.RouteRow) call {
	t.Helper()
	op := operationOf(t, r.Operation)
	for _, p := range []string{" page", " channel", " rule", " test", " repeat"} {
		for _, c := range before[r.Operation+p] {
			w.made(c)
		}
	}
	if strings.Contains(r.Path, "/members") || strings.HasPrefix(r.Path, "/v1/people") {
		w.populatePeople()
	}
	path := placeholders.ReplaceAllStringFunc(r.Path, func(name string) string { return "{" + name[1:] + "}" })
	c := call{method: r.Method, path: exampleAddress(w, path, op), key: w.operator, header: map[string]string{"Idempotency-Key": "k-1"}}
	if op.RequestBody != nil {
		c.body = string(firstExample(t, r.Operation))
	}
	return c
}

// Each operation that creates an object answers a repeated request with the first response,
// including a secret that is shown once. It creates nothing. Of 100 requests at the same time,
// one creates the object.
func TestRepeatedCreations(t *testing.T) {
	t.Parallel()
	creations := 0
	for _, r := range newWorld(t).api.RouteTable() {
		if !r.Idempotent {
			continue
		}
		creations++
		t.Run(r.Operation, func(t *testing.T) {
			t.Parallel()
			w := newStrictWorld(t)
			c := createCall(t, w, r)
			w.ids = maps.Clone(w.ids)
			c.key = w.operatorKey(t.Context(), "caller", tenants.ScopeCheck, tenants.ScopeManage) // not one that the example rotates
			must(t, w.watcher.Refresh(t.Context()))
			revision := func() int64 {
				n, err := w.store.Revision(t.Context())
				must(t, err)
				lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1000})
				must(t, err)
				return n*1000 + int64(len(lines))
			}
			answers := make([]answer, 100) // to requests at the same time
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() { answers[i] = w.do(c) })
			}
			all.Wait()
			first, created := answers[0], 0
			for _, a := range answers {
				if a.status != http.StatusCreated && a.status != http.StatusAccepted || a.body != first.body {
					t.Fatalf("%s %s: %d %s, another answer is %s", c.method, c.path, a.status, a.body, first.body)
				}
				if a.header.Get("Idempotent-Replayed") == "" {
					created++
				}
			}
			if created != 1 {
				t.Errorf("%d requests created an object", created)
			}
			made := revision()
			w.now.Add((23 * time.Hour).Microseconds())
			again := w.do(c)
			if again.status != first.status || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("again: %d %q\n%s\nfirst: %d\n%s", again.status, again.header.Get("Idempotent-Replayed"), again.body, first.status, first.body)
			}
			for _, name := range []string{"ETag", "Location", "Content-Type", "Cache-Control"} {
				if !slices.Equal(again.header.Values(name), first.header.Values(name)) {
					t.Errorf("%s: %v, first %v", name, again.header.Values(name), first.header.Values(name))
				}
			}
			if now := revision(); now != made {
				t.Errorf("the repetition changed something: %d, was %d", now, made)
			}
			if c.body == "" {
				return
			}
			c.body += " "
			if other := w.do(c); other.status != http.StatusConflict || !strings.Contains(other.body, `"code":"idempotency_key_reused"`) {
				t.Errorf("another body: %d %s", other.status, other.body)
			}
		})
	}
	if creations < 15 {
		t.Errorf("%d operations", creations)
	}
}

// A key is only valid for its caller and URL, has a bounded length, and expires after 24 hours.
// A response to a request that created nothing is not stored.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := func(key, id, path, slug string) answer {
		return w.do(call{
			method: "POST", path: path, key: key, header: map[string]string{"Idempotency-Key": id},
			body: `{"name":"` + slug + `","scopes":["read"]}`,
		})
	}
	const acme, own = "/v1/tenants/acme/keys", "/v1/operator-keys"
	for _, c := range []struct{ key, id, path string }{
		{w.operator, "a", acme}, {w.acme, "a", acme}, {w.operator, "a", own}, {w.operator, "b", own}, {w.operator, strings.Repeat("a", 255), own},
	} {
		if a := create(c.key, c.id, c.path, "n"); a.status != http.StatusCreated || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s %s: %d %s", c.path, c.id, a.status, a.body)
		}
	}
	for _, id := range []string{strings.Repeat("a", 256), "a b", "ä", "a\x7f"} {
		if a := create(w.operator, id, own, "n"); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"pointer":"Idempotency-Key"`) {
			t.Errorf("%q: %d %s", id, a.status, a.body)
		}
	}
	if a := create(w.acme, "c", "/v1/tenants/acme/keys", ""); a.status != http.StatusUnprocessableEntity {
		t.Fatal(a.status)
	}
	if a := create(w.acme, "c", "/v1/tenants/acme/keys", "n"); a.status != http.StatusCreated {
		t.Errorf("a corrected request: %d %s", a.status, a.body)
	}
	w.now.Add((24*time.Hour + time.Second).Microseconds())
	if a := create(w.operator, "a", own, "another"); a.status != http.StatusCreated || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after 24 hours: %d %s", a.status, a.body)
	}
}

// If the draft is unchanged, publishing returns the current version and creates no new one.
func TestPublishUnchangedDraft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	publish := func() answer { return w.do(call{method: "POST", path: "/v1/plans/pro/publish", key: w.operator}) }
	first, again := publish(), publish()
	if first.status != http.StatusOK || again.status != first.status || again.body != first.body || !strings.Contains(first.body, `"version":2`) {
		t.Errorf("%d %s\nagain: %d %s", first.status, first.body, again.status, again.body)
	}
	if a := w.do(call{method: "GET", path: "/v1/plans/pro", key: w.operator}); !strings.Contains(a.body, `"latest_version":2`) {
		t.Error(a.body)
	}
}
