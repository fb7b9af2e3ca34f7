package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// repeat sends a check or a batch with an Idempotency-Key.
func (w *world) repeat(path, key, body string) answer {
	return w.do(call{method: "POST", path: path, key: w.operator, body: body, header: map[string]string{"Idempotency-Key": key}})
}

func TestIdempotentChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.repeat("/v1/check", "k", login)
	if first.status != 200 || first.header.Get("Idempotent-Replayed") != "" || strings.Contains(first.body, "replayed") {
		t.Fatalf("%d %v %s", first.status, first.header, first.body)
	}
	w.now.Add((9 * time.Minute).Microseconds())
	for range 2 {
		again := w.repeat("/v1/check", "k", strings.Replace(login, ",", " , ", 1))
		if again.status != 200 || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("RateLimit") != first.header.Get("RateLimit") ||
			strings.Replace(again.body, `"replayed":true,`, "", 1) != first.body {
			t.Errorf("%d %v %s, first %s", again.status, again.header, again.body, first.body)
		}
	}
	other := w.repeat("/v1/check", "k", strings.Replace(login, "203.0.113.9", "203.0.113.10", 1))
	if other.status != 409 || !strings.Contains(other.body, `"code":"idempotency_key_reused"`) {
		t.Errorf("%d %s", other.status, other.body)
	}
	w.now.Add(time.Minute.Microseconds())
	if a := w.repeat("/v1/check", "k", login); a.status != 200 || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after 10 minutes: %d %v", a.status, a.header)
	}
	for _, key := range []string{strings.Repeat("k", 256), "a b", "a\x7f"} {
		for path, body := range map[string]string{"/v1/check": login, "/v1/check/batch": `{"checks":[` + login + `]}`, "/v1/explain": login} {
			if a := w.repeat(path, key, body); a.status != 400 || !strings.Contains(a.body, `"pointer":"Idempotency-Key"`) {
				t.Errorf("%s with key %q: %d %s", path, key, a.status, a.body)
			}
		}
	}
	if left := w.left(); left != `"login-per-ip";r=4;t=60` {
		t.Error(left)
	}
}

// A denial keeps no key, so that a caller may repeat the check until it passes.
func TestDenialsKeepNoIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	costs := func(cost int) string { return strings.Replace(login, `}}`, fmt.Sprintf(`},"cost":%d}`, cost), 1) }
	w.repeat("/v1/check", "first", costs(5))
	for range 2 {
		if a := w.repeat("/v1/check", "k", login); a.status != 429 || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%d %v", a.status, a.header)
		}
	}
	w.now.Add(time.Minute.Microseconds())
	for _, replayed := range []string{"", "true"} {
		if a := w.repeat("/v1/check", "k", login); a.status != 200 || a.header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("%d %v", a.status, a.header)
		}
	}
}

func TestIdempotentBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statuses := func(a answer) string {
		var out strings.Builder
		for _, part := range strings.Split(a.body, `{"kind":"`)[1:] {
			kind, _, _ := strings.Cut(part, `"`)
			fmt.Fprintf(&out, "%s %v, ", kind, strings.Contains(part, `"replayed":true`))
		}
		return out.String() + a.header.Get("Idempotent-Replayed")
	}
	other := strings.Replace(login, "203.0.113.9", "203.0.113.10", 1)
	for i, c := range []struct{ key, body, want string }{
		{"k", login + "," + login, "decision false, decision false, "},
		{"k", login + "," + login, "decision true, decision true, true"},
		{"k", login, "decision true, true"},
		{"k", login + "," + other, "decision true, problem false, "},
		{"k", login + "," + login + "," + login + `,{"tenant":"nobody"}`, "decision true, decision true, decision false, problem false, "},
		{"most", login + "," + login + "," + login, "decision false, decision false, denial false, "},
		{"most", login + "," + login + "," + login, "decision true, decision true, denial false, "},
	} {
		if got := statuses(w.repeat("/v1/check/batch", c.key, `{"checks":[`+c.body+`]}`)); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
	w.now.Add(time.Minute.Microseconds())
	atomic := func(body string) answer {
		return w.repeat("/v1/check/batch", "k", `{"atomic":true,"checks":[`+body+`]}`)
	}
	if got := statuses(atomic(login + "," + other)); got != "decision false, decision false, " {
		t.Errorf("atomic: %s", got)
	}
	if got := statuses(atomic(login + "," + other)); got != "decision true, decision true, true" {
		t.Errorf("atomic, again: %s", got)
	}
	if a := atomic(other + "," + login); a.status != 409 || !strings.Contains(a.body, `"code":"idempotency_key_reused"`) {
		t.Errorf("another atomic batch: %d %s", a.status, a.body)
	}
	if left := w.left(); left != `"login-per-ip";r=4;t=60` {
		t.Error(left)
	}
}

func TestTooManyIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(cfg *api.Config) {
		limiter := inprocess.New(inprocess.Config{Now: func() int64 { return cfg.Now().UnixMicro() }})
		cfg.Decider = enforcement.NewEngine(limiter, enforcement.Config{Now: cfg.Now, IdempotencyKeys: 2})
	})
	for i, status := range []int{200, 200, 503} {
		a := w.repeat("/v1/check", fmt.Sprint("k", i), login)
		if a.status != status {
			t.Errorf("key %d: %d %s", i, a.status, a.body)
		}
		if status == 503 && (a.header.Get("Retry-After") != "600" || !strings.Contains(a.body, `"code":"too_many_idempotency_keys"`)) {
			t.Errorf("%v %s", a.header, a.body)
		}
	}
	if a := w.repeat("/v1/check/batch", "batch", `{"checks":[`+login+`]}`); a.status != 200 || !strings.Contains(a.body, `"code":"too_many_idempotency_keys"`) {
		t.Errorf("a batch: %d %s", a.status, a.body)
	}
	if a := w.repeat("/v1/check/batch", "batch", `{"atomic":true,"checks":[`+login+`]}`); a.status != 503 || a.header.Get("Retry-After") != "600" {
		t.Errorf("an atomic batch: %d %v", a.status, a.header)
	}
	if left := w.left(); left != `"login-per-ip";r=3;t=60` {
		t.Error(left)
	}
}

// Of several checks with the same key at the same time, one is charged, and all get its
// decision.
func TestConcurrentIdempotentChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answers := make([]answer, 100)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.repeat("/v1/check", "k", login) })
	}
	all.Wait()
	charged := 0
	for _, a := range answers {
		if a.status != 200 || strings.Replace(a.body, `"replayed":true,`, "", 1) != strings.Replace(answers[0].body, `"replayed":true,`, "", 1) {
			t.Errorf("%d %s, another answer is %s", a.status, a.body, answers[0].body)
		}
		if a.header.Get("Idempotent-Replayed") == "" {
			charged++
		}
	}
	if left := w.left(); charged != 1 || left != `"login-per-ip";r=4;t=60` {
		t.Errorf("%d were charged; left %s", charged, left)
	}
}

// The client of a gateway sets the headers of a forward-auth request. Its key must not let
// many requests pass as one.
func TestForwardAuthIgnoresIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 6 {
		a := w.do(call{method: "GET", path: "/v1/forward-auth", key: w.acme, header: map[string]string{
			"Idempotency-Key": "k", "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/login", "X-Forwarded-For": "203.0.113.9",
		}})
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 5]; a.status != want {
			t.Errorf("request %d: %d %s", i, a.status, a.body)
		}
	}
}
