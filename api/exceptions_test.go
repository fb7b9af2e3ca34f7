package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
)

// Overrides, list entries, and blocks are created, listed, read, and ended. The next check
// uses them.
func TestExceptionsRows(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct{ body, shown, reason string }{
		"overrides": {
			`{"policy":"login-per-ip","attribute":"ip","prefix":"203.0.113.0/24","limits":[{"name":"l1","quota":0}],"reason":"r"}`,
			`"policy":"login-per-ip","prefix":"203.0.113.0/24"`, "cost_exceeds_quota",
		},
		"lists":  {`{"list":"deny","attribute":"ip","value":"203.0.113.9"}`, `"list":"deny"`, "denied_by_list"},
		"blocks": {`{"policy":"login-per-ip","key":{"ip":"::ffff:203.0.113.9"},"reason":"r"}`, `"key":{"ip":"203.0.113.9"}`, "blocked"},
	} {
		w := newWorld(t)
		at := "/v1/tenants/acme/" + kind
		made := w.do(call{method: "POST", path: at, key: w.operator, body: c.body})
		location := made.header.Get("Location")
		if made.status != 201 || !strings.HasPrefix(location, at+"/") || !strings.Contains(made.body, c.shown) || !strings.Contains(made.body, `"active":true`) {
			t.Fatalf("%s: %+v", kind, made)
		}
		for _, key := range []string{w.operator, w.operatorRead, w.acmeRead} {
			if a := w.do(call{method: "GET", path: location, key: key}); a.status != 200 || a.body != made.body {
				t.Errorf("%s: %d %s", location, a.status, a.body)
			}
			if a := w.do(call{method: "GET", path: at, key: key}); a.status != 200 || a.body != `{"data":[`+strings.TrimSpace(made.body)+`],"has_more":false}`+"\n" {
				t.Errorf("%s: %d %s", at, a.status, a.body)
			}
		}
		if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: login}); !strings.Contains(a.body, `"reason":"`+c.reason+`"`) {
			t.Errorf("%s: %s", kind, a.body)
		}
		if a := w.do(call{method: "DELETE", path: location, key: w.operator}); a.status != 204 || a.body != "" {
			t.Errorf("DELETE %s: %+v", location, a)
		}
		for _, method := range []string{"GET", "DELETE"} {
			if a := w.do(call{method: method, path: location, key: w.operator}); a.status != 404 {
				t.Errorf("%s %s: %d", method, location, a.status)
			}
		}
		if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: login}); a.status != 200 || !strings.Contains(a.body, `"reason":"ok"`) {
			t.Errorf("%s: %s", kind, a.body)
		}
	}
}

// Invalid input gets the right status and the place of the error. It creates nothing.
func TestExceptionsFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	override := func(more string) string { return `{"policy":"login-per-ip","reason":"r",` + more + `}` }
	for _, c := range []struct {
		kind, body string
		status     int
		pointer    string
	}{
		{"overrides", ``, 415, ""},
		{"overrides", `{}`, 400, "/policy"},
		{"overrides", override(`"factor":null`), 400, "/factor"},
		{"overrides", override(`"factor":"2"`), 400, "/factor"},
		{"overrides", override(`"factor":[]`), 400, "/factor"},
		{"overrides", override(`"factor":2,"expires_at":null`), 400, "/expires_at"},
		{"overrides", override(`"factor":2,"expires_at":""`), 400, "/expires_at"},
		{"overrides", override(`"factor":2,"expires_at":"never"`), 400, "/expires_at"},
		{"overrides", override(`"factor":2,"id":"x"`), 400, "/id"},
		{"overrides", override(`"limits":[{"name":"l1","Quota":1}]`), 400, "/limits/0/Quota"},
		{"overrides", override(`"limits":[{"name":"l1","quota":1.5}]`), 400, "/limits/0/quota"},
		{"overrides", override(`"limits":[{"name":"l1","quota":null}]`), 400, "/limits/0/quota"},
		{"overrides", override(`"factor":0`), 422, "/factor"},
		{"overrides", override(`"factor":-1`), 422, "/factor"},
		{"overrides", override(`"factor":1.0005`), 422, "/factor"},
		{"overrides", override(`"factor":1e1`), 422, "/factor"},
		{"overrides", override(`"factor":1000.001`), 422, "/factor"},
		{"overrides", override(`"factor":2,"limits":[{"name":"l1","quota":1}]`), 422, "/factor"},
		{"overrides", override(`"attribute":"ip","value":"203.0.113.9"`), 422, "/factor"},
		{"overrides", override(`"factor":2,"expires_at":"2026-11-21T09:00:00Z"`), 422, "/expires_at"},
		{"overrides", override(`"factor":2,"expires_at":"2020-01-01T00:00:00Z"`), 422, "/expires_at"},
		{"overrides", override(`"factor":2,"expires_at":"2027-11-22T09:00:01Z"`), 422, "/expires_at"},
		{"overrides", override(`"factor":2,"attribute":"user","value":"u"`), 422, "/attribute"},
		{"overrides", override(`"factor":2,"attribute":"ip"`), 422, "/value"},
		{"overrides", override(`"factor":2,"attribute":"ip","value":"1.2.3.4","prefix":"1.2.3.0/24"`), 422, "/value"},
		{"overrides", override(`"factor":2,"attribute":"ip","value":"1.2.3"`), 422, "/value"},
		{"overrides", override(`"factor":2,"attribute":"ip","prefix":"1.2.3.4/24"`), 422, "/prefix"},
		{"overrides", override(`"factor":2,"value":"1.2.3.4"`), 422, "/value"},
		{"overrides", override(`"limits":[{"name":"l9","quota":1}]`), 422, "/limits/0/name"},
		{"overrides", override(`"limits":[{"name":"l1","burst":1}]`), 422, "/limits/0/burst"},
		{"overrides", override(`"limits":[{"name":"l1","quota":1,"burst":0}]`), 422, "/limits/0/burst"},
		{"overrides", override(`"limits":[{"name":"l1","window":"1 minute"}]`), 422, "/limits/0/window"},
		{"overrides", override(`"limits":[{"name":"l1"}]`), 422, "/limits/0"},
		{"overrides", override(`"limits":[{"name":"l1","quota":-1}]`), 422, "/limits/0/quota"},
		{"overrides", override(`"limits":[{"name":"l1","quota":-1,"window":"2m"}]`), 422, "/limits/0/quota"},
		{"overrides", override(`"limits":[{"name":"l1","quota":1,"burst":-1}]`), 422, "/limits/0/burst"},
		{"overrides", override(`"limits":[]`), 422, "/limits"},
		{"overrides", override(`"factor":2,"limits":[]`), 422, "/limits"},
		{"overrides", `{"policy":"nothing","reason":"r","factor":2}`, 422, "/policy"},
		{"overrides", `{"policy":"login-per-ip","reason":"","factor":2}`, 422, "/reason"},
		{"overrides", `{"policy":"login-per-ip","reason":"` + strings.Repeat("ä", 501) + `","factor":2}`, 422, "/reason"},
		{"overrides", override(`"factor":` + strings.Repeat("1", 64<<10)), 413, ""},
		{"lists", `{"list":"maybe","attribute":"user","value":"u"}`, 422, "/list"},
		{"lists", `{"list":"deny","attribute":"ip","value":"198.51.100.0/33"}`, 422, "/value"},
		{"lists", `{"list":"deny","attribute":"ip","value":"198.51.100.1/24"}`, 422, "/value"},
		{"lists", `{"list":"deny","attribute":"ip","value":"2001:db8::1/32"}`, 422, "/value"},
		{"lists", `{"list":"deny","attribute":"user","value":""}`, 422, "/value"},
		{"lists", `{"list":"deny","attribute":"","value":"u"}`, 422, "/attribute"},
		{"lists", `{"list":"deny","attribute":"user","value":"u","expires_at":null}`, 400, "/expires_at"},
		{"lists", `{"list":"deny","attribute":"user","value":"u","expires_at":"2020-01-01T00:00:00Z"}`, 422, "/expires_at"},
		{"lists", `{"list":"deny","attribute":"user","value":"u","reason":""}`, 422, "/reason"},
		{"blocks", `{"policy":"reports-per-user","key":{"user":"u"}}`, 400, "/reason"},
		{"blocks", `{"policy":"reports-per-user","reason":"r"}`, 400, "/key"},
		{"blocks", `{"policy":"reports-per-user","reason":"r","key":null}`, 400, "/key"},
		{"blocks", `{"policy":"reports-per-user","reason":"r","key":{"user":1}}`, 400, "/key/user"},
		{"blocks", `{"policy":"reports-per-user","reason":"r","key":{"user":"a","user":"b"}}`, 400, "/key/user"},
		{"blocks", `{"policy":"reports-per-user","reason":"r","key":{"ip":"1.2.3.4"}}`, 422, "/key/ip"},
		{"blocks", `{"policy":"reports-per-user","reason":"r","key":{"user":""}}`, 422, "/key/user"},
		{"blocks", `{"policy":"login-per-ip","reason":"r","key":{"ip":"1.2.3"}}`, 422, "/key/ip"},
		{"blocks", `{"policy":"nothing","reason":"r","key":{}}`, 422, "/policy"},
		{"blocks", `{"policy":"login-per-ip","reason":"r","key":{},"expires_at":"2020-01-01T00:00:00Z"}`, 422, "/expires_at"},
		{"grants", grant(`"units":1`, ""), 400, "/expires_at"},
		{"grants", grant(`"reason":"r"`, inAWeek), 400, "/units"},
		{"grants", grant(`"units":0`, inAWeek), 422, "/units"},
		{"grants", grant(`"units":1000000000001`, inAWeek), 422, "/units"},
		{"grants", grant(`"units":1.5`, inAWeek), 400, "/units"},
		{"grants", grant(`"units":1`, `,"expires_at":"2020-01-01T00:00:00Z"`), 422, "/expires_at"},
		{"grants", grant(`"units":1`, `,"expires_at":"2028-01-01T00:00:00Z"`), 422, "/expires_at"},
		{"grants", grant(`"units":1,"limit":"l2"`, inAWeek), 422, "/limit"},
		{"grants", grant(`"units":1,"limit":"L2"`, inAWeek), 422, "/limit"},
		{"grants", grant(`"units":1,"key":{"ip":"1.2.3.4"}`, inAWeek), 422, "/key/ip"},
		{"grants", grant(`"units":1,"left":1`, inAWeek), 400, "/left"},
		{"grants", `{"policy":"login-per-ip","units":1,"reason":"r"` + inAWeek + `}`, 422, "/limit"}, // a sliding log
		{"grants", `{"policy":"nothing","units":1,"reason":"r"` + inAWeek + `}`, 422, "/policy"},
		{"grants", `{"policy":"reports-per-user","units":1,"reason":""` + inAWeek + `}`, 422, "/reason"},
		{"reset", `{"policy":"login-per-ip"}`, 400, "/key"},
		{"reset", `{"policy":"nothing","key":{}}`, 422, "/policy"},
		{"reset", `{"policy":"login-per-ip","key":{"user":"u"}}`, 422, "/key/user"},
		{"reset", `{"policy":"login-per-ip","key":{},"reason":"` + strings.Repeat("r", 501) + `"}`, 422, "/reason"},
	} {
		a := w.do(call{method: "POST", path: "/v1/tenants/acme/" + c.kind, key: w.operator, body: c.body})
		if a.status != c.status || c.pointer != "" && !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s %.100s: %d, want %d at %q\n%s", c.kind, c.body, a.status, c.status, c.pointer, a.body)
		}
	}
	for _, c := range []struct {
		path, pointer string
	}{
		{"overrides?policy=A", "policy"},
		{"overrides?q=a", "q"},
		{"overrides?limit=0", "limit"},
		{"overrides?cursor=x", "cursor"},
		{"lists?list=all", "list"},
		{"lists?policy=a", "policy"},
		{"blocks?list=deny", "list"},
	} {
		if a := w.do(call{method: "GET", path: "/v1/tenants/acme/" + c.path, key: w.operator}); a.status != 400 || !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s: %d %s", c.path, a.status, a.body)
		}
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1})
	must(t, err)
	if strings.HasPrefix(lines[0].Action, "override.") || strings.HasPrefix(lines[0].Action, "block.") || strings.HasPrefix(lines[0].Action, "grant.") || strings.HasPrefix(lines[0].Action, "list_entry.") {
		t.Errorf("made: %+v", lines[0])
	}
}

// Issue 13: an override is changed and prolonged over REST. The change has an ETag and an audit line, and applies to the next check.
func TestChangeOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.made(someOverride)
	at := someOverride.path + "/" + id
	read := w.do(call{method: "GET", path: at, key: w.acmeRead})
	change := func(method, tag, body string) answer {
		return w.do(call{method: method, path: at, key: w.operator, body: body, header: map[string]string{"If-Match": tag}})
	}
	tag := read.header.Get("ETag")
	var documents []string
	for _, c := range []struct {
		method, body string
		want         []string
	}{
		{"PATCH", `{"expires_at":"2026-12-05T09:00:00Z"}`, []string{`"value":"203.0.113.77"`, `"factor":2.5`, `"expires_at":"2026-12-05T09:00:00.000Z"`}},
		{"PATCH", `{"factor":null,"limits":[{"name":"l1","quota":1}]}`, []string{`"limits":[{"name":"l1","quota":1}]`, `"reason":"a load test"`}},
		{"PATCH", `{"value":null,"prefix":"203.0.113.0/24"}`, []string{`"attribute":"ip"`, `"prefix":"203.0.113.0/24"`}},
		{"PATCH", `{}`, []string{`"prefix":"203.0.113.0/24"`, `"limits":[{"name":"l1","quota":1}]`, `"expires_at":"2026-12-05T09:00:00.000Z"`}},
		{"PATCH", `{"expires_at":null}`, []string{`"expires_at":"2026-11-28T09:00:00.000Z"`}},
		{"PUT", `{"factor":0.2,"reason":"r"}`, []string{`"policy":"login-per-ip","reason":"r","tenant_id"`, `"factor":0.2`, `"active":true`}},
	} {
		a := change(c.method, tag, c.body)
		now := a.header.Get("ETag")
		for _, want := range c.want {
			if a.status != 200 || !strings.Contains(a.body, want) || now == tag || now == "" {
				t.Fatalf("%s %s: %d %s %s, want %s", c.method, c.body, a.status, now, a.body, want)
			}
		}
		if shown := w.do(call{method: "GET", path: at, key: w.acmeRead}); shown.body != a.body || shown.header.Get("ETag") != now {
			t.Errorf("%s %s: shown is %s %s", c.method, c.body, shown.header.Get("ETag"), shown.body)
		}
		if a := change(c.method, tag, c.body); a.status != 412 {
			t.Errorf("%s %s with the former ETag: %d", c.method, c.body, a.status)
		}
		tag, documents = now, append(documents, a.body)
	}
	for i, want := range []string{`"reason":"ok"`, `"reason":"over_limit"`} { // a fifth of the quota 5 is 1
		if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: login}); !strings.Contains(a.body, want) {
			t.Errorf("check %d: %s", i, a.body)
		}
	}
	for _, c := range []struct {
		method, tag, body string
		status            int
		pointer           string
	}{
		{"PATCH", "", `{"factor":2}`, 428, ""},
		{"PATCH", "*", `{"factor":2,"limits":[{"name":"l1","quota":1}]}`, 422, "/factor"},
		{"PATCH", "*", `{"limits":[{"name":"l1","quota":1}]}`, 422, "/factor"},
		{"PATCH", "*", `{"factor":null}`, 422, "/factor"},
		{"PATCH", "*", `{"policy":"reports-per-user"}`, 400, "/policy"},
		{"PATCH", "*", `{"reason":null}`, 400, "/reason"},
		{"PATCH", "*", `{"attribute":"user","value":"u"}`, 422, "/attribute"},
		{"PATCH", "*", `{"expires_at":"2026-11-21T09:00:00Z"}`, 422, "/expires_at"},
		{"PUT", "*", `{"factor":2}`, 400, "/reason"},
		{"PUT", "*", `{"factor":2,"reason":"r","id":"x"}`, 400, "/id"},
	} {
		a := change(c.method, c.tag, c.body)
		if a.status != c.status || c.pointer != "" && !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s %s: %d, want %d at %q\n%s", c.method, c.body, a.status, c.status, c.pointer, a.body)
		}
	}
	if a := w.do(call{method: "GET", path: at, key: w.operator}); a.body != documents[len(documents)-1] {
		t.Errorf("a rejected change changed the override: %s", a.body)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "override.update", Limit: 100})
	must(t, err)
	if len(lines) != len(documents) || lines[0].Object != id || !strings.Contains(string(lines[0].After), `"factor":0.2`) ||
		!strings.Contains(string(lines[0].Before), `"quota":1`) {
		t.Errorf("%d audit lines: %+v", len(lines), lines)
	}
}

// A value that is on the list already is a conflict with a separate code.
func TestEntryTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := someEntry
	c.key = w.operator
	w.do(c)
	if a := w.do(c); a.status != 409 || !strings.Contains(a.body, `"code":"entry_exists"`) {
		t.Error(a)
	}
}

// The answer for a row of another tenant is equal, byte for byte, to the answer for a row
// that does not exist.
func TestExceptionsWalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	same := map[string]string{"X-Request-Id": "same"}
	paths := map[string]string{}
	for kind, c := range map[string]call{"overrides": someOverride, "lists": someEntry, "blocks": someBlock} {
		paths[kind] = w.made(c)
	}
	for kind, id := range paths {
		for _, method := range []string{"GET", "DELETE"} {
			ask := func(key, id string) answer {
				return w.do(call{method: method, path: "/v1/tenants/globex/" + kind + "/" + id, key: key, header: same})
			}
			foreign, nobodys := ask(w.operator, id), ask(w.operator, "01939c1e-0000-7000-8000-00000000ffff")
			if foreign.status != 404 || foreign.body != nobodys.body {
				t.Errorf("%s %s: %s and %s", method, kind, foreign.body, nobodys.body)
			}
			a, b := ask(w.acme, id), ask(w.acme, "01939c1e-0000-7000-8000-00000000ffff")
			if a.status != 403 || a.body != b.body {
				t.Errorf("%s %s by acme: %s and %s", method, kind, a.body, b.body)
			}
		}
		if kind == "overrides" {
			patch := func(id string) answer {
				return w.do(call{
					method: "PATCH", path: "/v1/tenants/globex/overrides/" + id, key: w.operator, body: `{"reason":"r"}`,
					header: map[string]string{"X-Request-Id": "same", "If-Match": "*"},
				})
			}
			if foreign, nobodys := patch(id), patch("01939c1e-0000-7000-8000-00000000ffff"); foreign.status != 404 || foreign.body != nobodys.body {
				t.Errorf("PATCH: %s and %s", foreign.body, nobodys.body)
			}
		}
		if a := w.do(call{method: "GET", path: "/v1/tenants/globex/" + kind, key: w.globex}); a.status != 200 || !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("%s of globex: %s", kind, a.body)
		}
		if a := w.do(call{method: "POST", path: "/v1/tenants/acme/" + kind, key: w.acme, body: `{}`}); a.status != 403 {
			t.Errorf("POST %s by acme: %+v", kind, a)
		}
	}
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"attributes":{"ip":"198.51.100.7"}}`}); a.status != 403 || strings.Contains(a.body, "198.51.100") {
		t.Errorf("%+v", a)
	}
}

// Consecutive pages have no gap, newest first. A cursor is only valid for its own listing.
func TestExceptionsPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.now.Add(1000)
		a := w.do(call{method: "POST", path: "/v1/tenants/acme/lists", key: w.operator, body: fmt.Sprintf(`{"list":"deny","attribute":"user","value":"u%d"}`, i)})
		if a.status != 201 {
			t.Fatal(a)
		}
	}
	w.do(call{method: "POST", path: "/v1/tenants/acme/lists", key: w.operator, body: `{"list":"allow","attribute":"user","value":"w"}`})
	var values []string
	var cursor string
	path := "/v1/tenants/acme/lists?limit=2&list=deny&q=u"
	for path != "" {
		a := w.do(call{method: "GET", path: path, key: w.acmeRead})
		var page struct {
			Data       []struct{ Value string }
			NextCursor string `json:"next_cursor"`
		}
		must(t, json.Unmarshal([]byte(a.body), &page))
		for _, e := range page.Data {
			values = append(values, e.Value)
		}
		if page.NextCursor != "" {
			cursor = page.NextCursor
		}
		path = strings.TrimPrefix(strings.TrimSuffix(a.header.Get("Link"), `>; rel="next"`), "<")
	}
	if got := strings.Join(values, " "); got != "u4 u3 u2 u1 u0" {
		t.Error(got)
	}
	for _, path := range []string{
		"/v1/tenants/acme/lists?cursor=", "/v1/tenants/acme/lists?list=allow&q=u&cursor=", "/v1/tenants/globex/lists?list=deny&q=u&cursor=",
		"/v1/tenants/acme/blocks?cursor=", "/v1/tenants/acme/overrides?cursor=", "/v1/audit?cursor=",
	} {
		if a := w.do(call{method: "GET", path: path + cursor, key: w.operator}); a.status != 400 || !strings.Contains(a.body, `"pointer":"cursor"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// Rows without effect contain the reason.
func TestInactive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	byLimit := call{method: "POST", path: someOverride.path, body: `{"policy":"login-per-ip","limits":[{"name":"l1","quota":9000}],"reason":"r"}`}
	byLimit.as = "second"
	w.made(someOverride)
	w.made(byLimit)
	w.made(someBlock)
	why := func(kind, as string) string {
		id := w.ids[as]
		a := w.do(call{method: "GET", path: "/v1/tenants/acme/" + kind + "/" + id, key: w.operator})
		if a.status != 200 {
			return fmt.Sprint(a.status)
		}
		active := strings.Contains(a.body, `"active":true`)
		text := between(a.body, `"inactive_because":"`, `"`)
		if active == (text != "") {
			t.Errorf("%s", a.body)
		}
		return text
	}
	expectWhy := func(when, first, second, block string) {
		t.Helper()
		for _, c := range []struct{ got, want string }{
			{why("overrides", someOverride.as), first}, {why("overrides", "second"), second}, {why("blocks", someBlock.as), block},
		} {
			if c.got != c.want {
				t.Errorf("%s: %q, want %q", when, c.got, c.want)
			}
		}
	}
	expectWhy("set", "", "", "")
	d := proDocument()
	d.Policies[0].CountBy = []string{"user"}
	d.Policies[0].Limits[0].Name = "minute"
	d.Policies = d.Policies[:1]
	w.publish(d)
	expectWhy("other plan", "no_attribute", "no_limit", "no_policy")
	d = proDocument()
	d.Policies[0].Limits[0] = enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}
	w.publish(d)
	expectWhy("back", "", "", "")
	w.now.Add((2 * time.Hour).Microseconds())
	expectWhy("two hours on", "", "", "ended")
	w.now.Add((7 * 24 * time.Hour).Microseconds())
	expectWhy("a week on", "ended", "ended", "ended")
}

// An override has an effect if the plan has any of its limits and its policy is active. A block
// has an effect if the policy can deny requests.
func TestInactiveInPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limits := []enforcement.Limit{
		{Name: "a", Algorithm: enforcement.FixedWindow, Quota: 5, Window: time.Minute},
		{Name: "b", Algorithm: enforcement.FixedWindow, Quota: 9, Window: time.Hour},
	}
	p := plans.Policy{Slug: "calls", Limits: limits}
	w.policies(p)
	w.made(call{method: "POST", path: someOverride.path, as: "both", body: `{"policy":"calls","limits":[{"name":"a","quota":1},{"name":"b","quota":2}],"reason":"r"}`})
	w.made(call{method: "POST", path: someBlock.path, as: "whole", body: `{"policy":"calls","key":{},"reason":"r"}`})
	for _, c := range []struct {
		when            string
		change          func(*plans.Policy)
		override, block string
	}{
		{"whole", func(*plans.Policy) {}, `"active":true`, `"active":true`},
		{"one limit less", func(p *plans.Policy) { p.Limits = limits[:1] }, `"active":true`, `"active":true`},
		{"in shadow", func(p *plans.Policy) { p.Mode = enforcement.PolicyShadow }, `"active":true`, `"inactive_because":"not_possible"`},
		{"off", func(p *plans.Policy) { p.Mode = enforcement.PolicyOff }, `"inactive_because":"not_possible"`, `"inactive_because":"not_possible"`},
	} {
		changed := p
		c.change(&changed)
		w.policies(changed)
		for path, want := range map[string]string{someOverride.path + "/" + w.ids["both"]: c.override, someBlock.path + "/" + w.ids["whole"]: c.block} {
			if a := w.do(call{method: "GET", path: path, key: w.operator}); a.status != 200 || !strings.Contains(a.body, want) {
				t.Errorf("%s: %d %s, want %s", c.when, a.status, a.body, want)
			}
		}
	}
}

// The responses to checks that lists and blocks denied, for every deny_status.
func TestExceptionsRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []call{
		{path: "lists", body: `{"list":"deny","attribute":"ip","value":"2001:db8::/32","reason":"a secret note"}`},
		{path: "lists", body: `{"list":"allow","attribute":"user","value":"root"}`},
		{path: "blocks", body: `{"policy":"login-per-ip","key":{"ip":"203.0.113.9"},"reason":"a secret note","expires_at":"2026-11-21T09:02:00.5Z"}`},
	} {
		if a := w.do(call{method: "POST", path: "/v1/tenants/acme/" + c.path, key: w.operator, body: c.body}); a.status != 201 {
			t.Fatal(a)
		}
	}
	denied := `{"tenant":"acme","attributes":{"ip":"2001:db8::9","user":"root"}}`
	for _, c := range []struct {
		body, reason, kind, detail, retry string
		status                            int
	}{
		{denied, "denied_by_list", "denied-by-list", "the attribute ip has a value that is on the tenant's deny list", "", 403},
		{login, "blocked", "blocked", "the key of policy login-per-ip is blocked until 2026-11-21T09:02:00.500Z", "121", 429},
	} {
		for query, status := range map[string]int{"": c.status, "?deny_status=429": 429, "?deny_status=403": 403, "?deny_status=200": 200} {
			a := w.do(call{method: "POST", path: "/v1/check" + query, key: w.operator, body: c.body})
			if a.status != status || !strings.Contains(a.body, `"reason":"`+c.reason+`"`) || a.header.Get("Retry-After") != c.retry || strings.Contains(a.body, "secret") {
				t.Errorf("%s%s: %+v", c.body, query, a)
			}
			if status != 200 && !strings.Contains(a.body, `"type":"/docs/problems/`+c.kind+`"`) || status != 200 && !strings.Contains(a.body, `"detail":"`+c.detail+`"`) {
				t.Errorf("%s%s: %s", c.body, query, a.body)
			}
		}
	}
	a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, `"ip"`, `"user":"root","ip"`, 1)})
	if a.status != 200 || !strings.Contains(a.body, `"reason":"allowed_by_list"`) || a.header.Get("RateLimit") != "" {
		t.Errorf("allowed: %+v", a)
	}
	_, words := w.batch(w.operator, "", `{"checks":[`+denied+`,`+login+`]}`)
	if fmt.Sprint(words) != "[403 denied_by_list 429 blocked]" {
		t.Error(words)
	}
}

// A reset deletes the counters of one key and writes an audit entry. If it fails, the response
// says so.
func TestReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spend := func(ip string) {
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, "}}", `},"cost":5}`, 1)})
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(strings.Replace(login, "203.0.113.9", ip, 1), "}}", `},"cost":5}`, 1)})
	}
	spend("203.0.113.10")
	reset := func(key, header string) answer {
		return w.do(call{
			method: "POST", path: "/v1/tenants/acme/reset", key: key, header: map[string]string{"X-Request-Id": header},
			body: `{"policy":"login-per-ip","key":{"ip":"203.0.113.9"},"reason":"locked out"}`,
		})
	}
	lines := func() []audit.Entry {
		l, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "counter.reset", Limit: 10})
		must(t, err)
		return l
	}
	if a := reset(w.acme, "a"); a.status != 403 || len(lines()) != 0 {
		t.Fatal(a)
	}
	w.counter.away.Store(true)
	a := reset(w.operator, "b")
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"code":"limiter_unavailable"`) || a.header.Get("Retry-After") == "" || len(lines()) != 1 {
		t.Errorf("away: %+v, %d lines", a, len(lines()))
	}
	w.counter.away.Store(false)
	if left := w.left(); left != `"login-per-ip";r=0;t=60` {
		t.Error("not reset:", left)
	}
	if a := reset(w.operator, "c"); a.status != 204 || a.body != "" {
		t.Error(a)
	}
	if left := w.left(); left != `"login-per-ip";r=5;t=0` {
		t.Error("reset:", left)
	}
	if other := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, "203.0.113.9", "203.0.113.10", 1)}); other.status != 429 {
		t.Error("the other key:", other)
	}
	l := lines()
	if len(l) != 2 || l[0].Origin.RequestID != "c" || l[0].Actor.Kind != "operator_key" || !strings.Contains(string(l[0].After), "locked out") || !strings.Contains(string(l[0].After), "203.0.113.9") {
		t.Errorf("%+v", l)
	}
}

// A node without these services answers with an error.
func TestWithoutExceptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Exceptions, c.Analytics, c.Usage = nil, nil, nil })
	for _, path := range []string{"/v1/tenants/acme/overrides", "/v1/tenants/acme/lists", "/v1/tenants/acme/blocks", "/v1/tenants/acme/usage", "/v1/analytics/traffic", "/v1/analytics/live", "/v1/analytics/refusals", "/v1/explain/01939c1e-0000-7000-8000-00000000ffff"} {
		if a := w.do(call{method: "GET", path: path, key: w.operator}); a.status != 503 || !strings.Contains(a.body, "this node does not") {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

// policies publishes the plan pro with these policies.
func (w *world) policies(p ...plans.Policy) {
	w.t.Helper()
	w.publish(plans.Content{Name: "Pro", Policies: p})
}
