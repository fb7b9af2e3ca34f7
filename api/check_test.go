package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

const login = `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"}}`

// left returns the remaining units of login-per-ip for the IP address in login.
func (w *world) left() string {
	a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, `}}`, `},"mode":"peek","cost":0}`, 1)})
	return a.header.Get("RateLimit")
}

// Invalid bodies get the right status. None of them is charged or reaches the limiter.
func TestStrictInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	with := func(field string) string { return strings.Replace(login, `{"tenant"`, `{`+field+`,"tenant"`, 1) }
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%d":"v",`, i)
		}
		return strings.Replace(login, `"attributes":{`, `"attributes":{`+b.String(), 1)
	}
	for _, c := range []struct {
		body, pointer string
	}{
		{``, ""},
		{` `, ""},
		{`[]`, ""},
		{`"a"`, ""},
		{`null`, ""},
		{login + login, ""},
		{login + `x`, ""},
		{"\xef\xbb\xbf" + login, ""},
		{login[:len(login)-1], "/attributes"},
		{with(`"Cost":1`), "/Cost"},
		{with(`"cosst":1`), "/cosst"},
		{with(`"c\u006fsts":1`), "/costs"},
		{with(`"extra":{"deep":[1]}`), "/extra"},
		{with(`"cost":1,"cost":1`), "/cost"},
		{with(`"cost":1,"c\u006fst":2`), "/cost"},
		{with(`"tenant":"acme"`), "/tenant"},
		{with(`"cost":null`), "/cost"},
		{with(`"mode":null`), "/mode"},
		{strings.Replace(login, `"203.0.113.9"`, "null", 1), "/attributes/ip"},
		{with(`"cost":"1"`), "/cost"},
		{with(`"cost":1.0`), "/cost"},
		{with(`"cost":1e2`), "/cost"},
		{with(`"cost":-1`), "/cost"},
		{with(`"cost":-0`), "/cost"},
		{with(`"cost":2147483648`), "/cost"},
		{with(`"cost":99999999999999999999`), "/cost"},
		{with(`"cost":01`), ""},
		{with(`"cost":true`), "/cost"},
		{with(`"cost":[1]`), "/cost"},
		{with(`"cost":NaN`), "/cost"},
		{with(`"cost":+1`), "/cost"},
		{with(`"mode":"Peek"`), "/mode"},
		{with(`"mode":""`), "/mode"},
		{with(`"mode":"dry"`), "/mode"},
		{strings.Replace(login, "POST", "post", 1), "/method"},
		{strings.Replace(login, "POST", "", 1), "/method"},
		{strings.Replace(login, "POST", "PO ST", 1), "/method"},
		{strings.Replace(login, "POST", strings.Repeat("A", 33), 1), "/method"},
		{strings.Replace(login, "/v1/login", "v1/login", 1), "/path"},
		{strings.Replace(login, "/v1/login", "", 1), "/path"},
		{strings.Replace(login, "/v1/login", "/v1/../../login", 1), "/path"},
		{strings.Replace(login, "/v1/login", `/v1\\login`, 1), "/path"},
		{strings.Replace(login, "/v1/login", "/v1/%5clogin", 1), "/path"},
		{strings.Replace(login, "/v1/login", "/v1/%zz", 1), "/path"},
		{strings.Replace(login, "/v1/login", "/v1/..%2flogin", 1), "/path"},
		{strings.Replace(login, "/v1/login", "/"+strings.Repeat("a", 9000), 1), "/path"},
		{strings.Replace(login, "203.0.113.9", "203.0.113.9:80", 1), "/attributes/ip"},
		{strings.Replace(login, "203.0.113.9", "fe80::1%eth0", 1), "/attributes/ip"},
		{strings.Replace(login, "203.0.113.9", "localhost", 1), "/attributes/ip"},
		{many(16), "/attributes/ip"},
		{strings.Replace(login, `"ip"`, `""`, 1), "/attributes/"},
		{strings.Replace(login, `"ip"`, `"`+strings.Repeat("n", 65)+`"`, 1), "/attributes/" + strings.Repeat("n", 65)},
		{with(`"attributes":{"user":"` + strings.Repeat("v", 1025) + `"}`), "/attributes/user"},
		{strings.Replace(login, `{"ip":"203.0.113.9"}`, `["ip"]`, 1), "/attributes"},
		{strings.Replace(login, `"203.0.113.9"`, `1`, 1), "/attributes/ip"},
		{strings.Replace(login, "acme", "", 1), "/tenant"},
		{strings.Replace(login, `"acme"`, "1", 1), "/tenant"},
		{`{"method":"POST"}`, "/tenant"},
		{strings.Replace(login, "acme", "ac\xffme", 1), ""},
		{strings.Replace(login, "acme", `ac\u0000me`, 1), ""},
		{strings.Replace(login, "acme", "ac\x00me", 1), ""},
		{strings.Replace(login, "acme", `\ud800`, 1), ""},
		{strings.Replace(login, "acme", "\xed\xa0\x80", 1), ""},
		{strings.Replace(login, "acme", `\x`, 1), ""},
		{with(`"x":[[[[[[[[[]]]]]]]]]`), "/x"},
		{strings.Repeat("[", 60000), ""},
		{`{'tenant':'acme'}`, ""},
		{strings.Replace(login, ",", ",,", 1), ""},
		{strings.Replace(login, "}}", "},}", 1), ""},
		{"// a\n" + login, ""},
	} {
		a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: c.body, header: map[string]string{"Content-Type": "application/json"}})
		if a.status != 400 {
			t.Errorf("%.120s: %d %s", c.body, a.status, a.body)
			continue
		}
		var p struct{ Errors []struct{ Pointer string } }
		must(t, json.Unmarshal([]byte(a.body), &p))
		if len(p.Errors) != 1 || c.pointer != "" && p.Errors[0].Pointer != c.pointer {
			t.Errorf("%.120s: %s, want the pointer %s", c.body, a.body, c.pointer)
		}
	}
	for _, c := range []struct {
		status int
		header map[string]string
		body   string
		path   string
	}{
		{413, nil, `{"tenant":"` + strings.Repeat("a", 64<<10) + `"}`, ""},
		{413, nil, login + strings.Repeat(" ", 64<<10), ""},
		{415, map[string]string{"Content-Type": "text/plain"}, login, ""},
		{415, map[string]string{"Content-Type": "application/json; charset=latin1"}, login, ""},
		{415, map[string]string{"Content-Type": "application/json; v=1"}, login, ""},
		{415, map[string]string{"Content-Type": "application/problem+json"}, login, ""},
		{415, map[string]string{"Content-Type": ""}, login, ""},
		{415, map[string]string{"Content-Encoding": "gzip"}, login, ""},
		{400, nil, login, "?dryrun=1"},
		{400, nil, login, "?deny_status=404"},
		{400, nil, login, "?deny_status="},
		{400, nil, login, "?deny_status=200&deny_status=200"},
		{400, nil, login, "?Deny_Status=200"},
		{400, nil, login, "?a%zz"},
	} {
		a := w.do(call{method: "POST", path: "/v1/check" + c.path, key: w.operator, body: c.body, header: c.header})
		if a.status != c.status {
			t.Errorf("%v %s: %d %s", c.header, c.path, a.status, a.body)
		}
	}
	if n := w.counter.asked.Load(); n != 0 {
		t.Errorf("the limiter was asked %d times", n)
	}
	if left := w.left(); left != `"login-per-ip";r=5;t=0` {
		t.Errorf("left: %s", left)
	}
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: login, header: map[string]string{"Content-Type": "application/json; charset=UTF-8", "Content-Encoding": "identity"}}); a.status != 200 {
		t.Errorf("charset: %d %s", a.status, a.body)
	}
}

// Unusual bodies that are valid.
func TestLenientWhereItMayBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []call{
		{key: w.acme, body: `{}`},
		{key: w.acme, body: `{"tenant":"acme"}`},
		{key: w.operator, body: ` {"tenant" : "acme"}` + "\n"},
		{key: w.acme, body: `{"attributes":{}}`},
		{key: w.acme, body: `{"attributes":{"ip":""}}`},
		{key: w.acme, body: `{"attributes":{"ip":"::ffff:1.2.3.4"}}`},
		{key: w.acme, body: `{"method":"M-SEARCH","path":"/a;b=c?q#f"}`},
		{key: w.acme, body: `{"cost":0}`},
		{key: w.acme, body: `{"cost":2147483647}`},
		{key: w.acme, body: `{"attributes":{"\u0075ser":"\ud83d\ude00 \" \u0001"}}`},
	} {
		c.method, c.path = "POST", "/v1/check"
		if a := w.do(c); a.status != 200 || !strings.Contains(a.body, `"reason":"no_policy"`) {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
	}
}

// Different spellings of a path share one counter.
func TestPathsAreOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1/login", "/v1//login", "/v1/login/", "/v1/./login", "/v1/%6Cogin", "/x/../v1/login?next=/"} {
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, "/v1/login", path, 1)})
	}
	if left := w.left(); !strings.HasPrefix(left, `"login-per-ip";r=0`) {
		t.Error(left)
	}
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := func(query, body string) answer {
		return w.do(call{method: "POST", path: "/v1/check" + query, key: w.operator, body: body})
	}
	a := ask("", login)
	id := between(a.body, `decision_id":"`, `"`)
	want := `{"kind":"decision","allowed":true,"decision_id":"` + id + `","request_id":"` + id + `","tenant":"acme","plan":"pro","plan_version":1,"mode":"enforce",` +
		`"reason":"ok","retry_after_ms":0,"delay_ms":0,"degraded":false,"limits":[{"policy":"login-per-ip","limit":"l1","algorithm":"sliding_window_log",` +
		`"quota":5,"window_ms":60000,"cost":1,"remaining":4,"reset_after_ms":60000,"retry_after_ms":0,"allowed":true,"mode":"enforce"}]}`
	if a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
	if got := a.header.Get("X-Request-Id"); got != id {
		t.Errorf("X-Request-Id is %q, and the decision %q", got, id)
	}
	expect(t, a, 200, "application/json", `"login-per-ip";q=5;w=60`, `"login-per-ip";r=4;t=60`, "")
	for _, path := range []string{"/v1/check", "/v1/check/batch", "/v1/explain"} {
		body := login
		if strings.HasSuffix(path, "batch") {
			body = `{"checks":[` + login + `]}`
		}
		a := w.do(call{method: "POST", path: path, key: w.operator, body: strings.Replace(body, `"tenant"`, `"mode":"peek","tenant"`, 1), header: map[string]string{"X-Request-Id": "trace-7"}})
		if a.header.Get("X-Request-Id") != "trace-7" || strings.Count(a.body, `"request_id":"trace-7"`) != 1 {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	full := strings.Replace(login, `}}`, `},"cost":4}`, 1)
	expect(t, ask("", full), 200, "application/json", `"login-per-ip";q=5;w=60`, `"login-per-ip";r=0;t=60`, "")
	w.now.Add(1_500_000)
	a = ask("", login)
	expect(t, a, 429, "application/problem+json", `"login-per-ip";q=5;w=60`, `"login-per-ip";r=0;t=59`, "59")
	prefix := `{"kind":"denial","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"over the limit of policy login-per-ip","violated-policies":["login-per-ip"],"allowed":false,"decision_id":`
	if !strings.HasPrefix(a.body, prefix) || !strings.Contains(a.body, `"reason":"over_limit","retry_after_ms":58500,`) {
		t.Error(a.body)
	}
	if peek := ask("", strings.Replace(login, `}}`, `},"mode":"peek"}`, 1)); peek.status != 429 || peek.header.Get("Retry-After") != "59" || peek.header.Get("RateLimit") != a.header.Get("RateLimit") {
		t.Error("peek:", peek)
	}
	expect(t, ask("?deny_status=403", login), 403, "application/problem+json", `"login-per-ip";q=5;w=60`, `"login-per-ip";r=0;t=59`, "59")
	a = ask("?deny_status=200", login)
	expect(t, a, 200, "application/json", `"login-per-ip";q=5;w=60`, `"login-per-ip";r=0;t=59`, "59")
	if !strings.HasPrefix(a.body, `{"kind":"decision","allowed":false,`) {
		t.Error(a.body)
	}
	a = ask("", strings.Replace(login, `}}`, `},"mode":"force"}`, 1))
	expect(t, a, 200, "application/json", `"login-per-ip";q=5;w=60`, "", "")
	if !strings.Contains(a.body, `"remaining":0`) || !strings.Contains(a.body, `"allowed":false,"mode":"enforce"}]`) {
		t.Error("force:", a.body)
	}
	a = ask("", strings.Replace(login, `}}`, `},"cost":6}`, 1))
	expect(t, a, 429, "application/problem+json", "", `"login-per-ip";r=0`, "")
	if !strings.Contains(a.body, `"reason":"cost_exceeds_quota","retry_after_ms":null`) || !strings.Contains(a.body, `"type":"/docs/problems/cost-exceeds-quota"`) {
		t.Error(a.body)
	}
}

func expect(t *testing.T, a answer, status int, media, policy, state, retry string) {
	t.Helper()
	for name, want := range map[string]string{"Content-Type": media, "RateLimit-Policy": policy, "RateLimit": state} {
		if got := a.header.Get(name); want != "" && got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if a.status != status || a.header.Get("Retry-After") != retry {
		t.Errorf("%d, Retry-After %q, want %d, %q\n%s", a.status, a.header.Get("Retry-After"), status, retry, a.body)
	}
}

// Denials without a limit have status 403. deny_status does not change it, except for the
// reasons that it covers.
func TestOtherRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	tenant.NoPolicy = tenants.Deny
	_, err = w.tenants.UpdateTenant(t.Context(), "acme", tenant.Document, tenant.Revision)
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	for _, c := range []struct{ key, body, reason, kind string }{
		{w.globex, `{"path":"/a"}`, "tenant_suspended", "tenant-suspended"},
		{w.operator, `{"tenant":"globex","path":"/a"}`, "tenant_suspended", "tenant-suspended"},
		{w.acme, `{"path":"/v1/reports"}`, "missing_attribute", "missing-attribute"},
		{w.acme, `{"path":"/nothing"}`, "no_policy", "no-policy"},
	} {
		for query, status := range map[string]int{"": 403, "?deny_status=429": 429, "?deny_status=200": 200} {
			a := w.do(call{method: "POST", path: "/v1/check" + query, key: c.key, body: c.body})
			if a.status != status || !strings.Contains(a.body, `"reason":"`+c.reason+`"`) || a.header.Get("Retry-After") != "" {
				t.Errorf("%s%s: %d %s", c.body, query, a.status, a.body)
			}
			if status != 200 && !strings.Contains(a.body, `"type":"/docs/problems/`+c.kind+`"`) {
				t.Errorf("%s", a.body)
			}
		}
	}
}

// If the limiter is unavailable, a policy with on_failure closed answers 503 with
// Retry-After, never 429.
func TestLimiterAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	d := p.Draft.Content()
	d.Policies[0].OnFailure = enforcement.OnFailureClosed
	w.publish(d)
	w.counter.away.Store(true)
	for _, query := range []string{"", "?deny_status=200", "?deny_status=429"} {
		a := w.do(call{method: "POST", path: "/v1/check" + query, key: w.operator, body: login})
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"degraded":true`) {
			t.Errorf("%s: %+v", query, a)
		}
	}
}

// Envoy takes 503 for a failure of Headgate, and lets the request pass. A denial of the failure mode closed must deny.
func TestLimiterAwayForEnvoy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.TrustedProxy = func(*http.Request) bool { return true } })
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	d := p.Draft.Content()
	d.Policies[0].OnFailure = enforcement.OnFailureClosed
	w.publish(d)
	w.counter.away.Store(true)
	for path, want := range map[string]int{"/v1/forward-auth/v1/login": 429, "/v1/forward-auth": 503} {
		r, rec := httptest.NewRequest("POST", path, nil), httptest.NewRecorder()
		for name, value := range map[string]string{"Authorization": "Bearer " + w.acme, "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/login"} {
			r.Header.Set(name, value)
		}
		w.api.ServeHTTP(rec, r)
		if rec.Code != want || rec.Header().Get("Retry-After") != "1" || !strings.Contains(rec.Body.String(), `"reason":"limiter_unavailable"`) {
			t.Errorf("%s: %d %v %s", path, rec.Code, rec.Header(), rec.Body)
		}
	}
}

func TestPublicURLStandsBeforeTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.PublicURL = "https://gate.example/" })
	a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"path":"/v1/reports"}`})
	if !strings.Contains(a.body, `"type":"https://gate.example/docs/problems/missing-attribute"`) {
		t.Error(a.body)
	}
	a = w.do(call{method: "POST", path: "/v1/check", body: `{}`})
	if !strings.Contains(a.body, `"type":"https://gate.example/docs/problems/unauthenticated"`) {
		t.Error(a.body)
	}
}

// A policy with several limits is named slug.limit in the headers. A shadow policy is in the
// body and not in the headers. The order is that of the plan.
func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "seen", Mode: enforcement.PolicyShadow, Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 0, Window: 1e9}}},
		{Slug: "two", Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: 1e9, Burst: 20}, {Algorithm: enforcement.FixedWindow, Quota: 3000, Window: 1_500_000_000}}},
	}})
	a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"path":"/"}`})
	expect(t, a, 200, "", `"two.l1";q=10;w=1, "two.l2";q=3000`, `"two.l1";r=19;t=1, "two.l2";r=2999;t=2`, "")
	var d struct {
		Limits []struct {
			Policy, Limit, Mode string
			Burst               *int
			Allowed             bool
		}
	}
	must(t, json.Unmarshal([]byte(a.body), &d))
	names := []string{}
	for _, l := range d.Limits {
		names = append(names, l.Policy+"."+l.Limit+" "+l.Mode)
	}
	if !slices.Equal(names, []string{"seen.l1 shadow", "two.l1 enforce", "two.l2 enforce"}) || d.Limits[0].Allowed || d.Limits[1].Burst == nil {
		t.Error(a.body)
	}
}

// FuzzCheckBody checks that no body panics, and that each accepted body is JSON within the
// bounds.
func FuzzCheckBody(f *testing.F) {
	f.Add(login)
	f.Add(`{"cost":0,"mode":"force","attributes":{"a":"\ud83d\ude00"},"path":"/%2e"}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, c, err := api.DecodeCheck(text)
		if err != nil {
			return
		}
		var loose struct {
			Cost       *int64
			Attributes map[string]string
		}
		if err := json.Unmarshal([]byte(text), &loose); err != nil {
			t.Fatalf("encoding/json refuses: %v", err)
		}
		if c.Cost < 0 || c.Cost > enforcement.MaxCost || len(c.Attributes) > enforcement.MaxAttributes || len(loose.Attributes) != len(c.Attributes) {
			t.Fatalf("%+v", c)
		}
		if loose.Cost != nil && *loose.Cost != c.Cost {
			t.Fatalf("cost %d, encoding/json %d", c.Cost, *loose.Cost)
		}
		for _, a := range c.Attributes {
			if a.Name != "ip" && loose.Attributes[a.Name] != a.Value {
				t.Fatalf("%q is %q, encoding/json %q", a.Name, a.Value, loose.Attributes[a.Name])
			}
		}
		if c.Path != "" && c.Path[0] != '/' {
			t.Fatalf("path %q", c.Path)
		}
	})
}

// publish publishes a document as the current version of the plan pro.
func (w *world) publish(d plans.Content) {
	w.t.Helper()
	ctx := w.t.Context()
	p, err := w.plans.Plan(ctx, "pro")
	must(w.t, err)
	p, err = w.plans.SaveDraft(ctx, p.ID, plans.New(d), p.DraftRevision)
	must(w.t, err)
	_, _, err = w.plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	must(w.t, err)
	must(w.t, w.watcher.Refresh(ctx))
}

// If a policy can never allow the request, the detail says so of that policy, also if another
// policy denies the request too. Both are in the list of violated policies.
func TestDetailNamesWhatCanNeverHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "small", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 2, Window: time.Minute}}},
		{Slug: "large", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 3, Window: time.Minute}}},
	}})
	ask := func(cost string) answer {
		return w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"cost":` + cost + `}`})
	}
	ask("2")
	if a := ask("2"); !strings.Contains(a.body, `"detail":"over the limit of policy small, large","violated-policies":["small","large"]`) {
		t.Error(a.body)
	}
	if a := ask("3"); !strings.Contains(a.body, `"detail":"policy small can never hold this cost","violated-policies":["small","large"]`) {
		t.Error(a.body)
	}
}

// A tenant requires a method and a path of each check, until its setting says otherwise: a
// caller must not pass the policies of a route by leaving it out.
func TestRouteIsRequired(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	ask := func(path, body string) answer {
		return w.do(call{method: "POST", path: path, key: w.operator, body: body})
	}
	for _, c := range []struct{ path, body, pointer string }{
		{"/v1/check", `{"tenant":"acme"}`, "/method"},
		{"/v1/check", `{"tenant":"acme","path":"/v1/login"}`, "/method"},
		{"/v1/check", `{"tenant":"acme","method":"POST"}`, "/path"},
		{"/v1/explain", `{"tenant":"acme","method":"POST"}`, "/path"},
		{"/v1/check/batch", `{"checks":[{"tenant":"acme","method":"POST","path":"/v1/login"},{"tenant":"acme","method":"POST"}]}`, "/checks/1/path"},
		{"/v1/check/batch", `{"atomic":true,"checks":[{"tenant":"acme","path":"/v1/login"}]}`, "/checks/0/method"},
	} {
		if a := ask(c.path, c.body); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
	}
	if n := w.counter.asked.Load(); n != 0 {
		t.Errorf("%d requests reached the limiter", n)
	}
	if a := ask("/v1/check", `{"tenant":"none"}`); a.status != http.StatusNotFound {
		t.Errorf("an unknown tenant: %d", a.status)
	}
	if a := w.do(call{
		method: "PATCH", path: "/v1/tenants/acme", key: w.operator, body: `{"require_route":false}`, header: map[string]string{"If-Match": "*"},
	}); a.status != http.StatusOK {
		t.Fatal(a.status, a.body)
	}
	for path, body := range map[string]string{"/v1/check": `{"tenant":"acme"}`, "/v1/check/batch": `{"checks":[{"tenant":"acme"}]}`} {
		if a := ask(path, body); a.status != http.StatusOK || !strings.Contains(a.body, `"reason":"no_policy"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A policy charges its own cost: of the check, of an attribute, or its default. An
// attribute that is no cost is rejected on every path, and nothing is charged. A key with
// a largest cost cannot send more by the attribute.
func TestCostOfPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	five := int64(5)
	day := []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: 24 * time.Hour}}
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "requests", Limits: day}, {Slug: "tokens", CostFrom: "tokens/day", Cost: &five, Limits: day},
	}})
	ask := func(path, key, body string) answer {
		return w.do(call{method: "POST", path: path, key: key, body: body})
	}
	costs := regexp.MustCompile(`"cost":(\d+),"remaining":(\d+)`)
	for _, c := range []struct{ members, want string }{
		{`"attributes":{"tokens/day":"700"}`, `["cost":1,"remaining":999 "cost":700,"remaining":300]`},
		{`"cost":2`, `["cost":2,"remaining":997 "cost":2,"remaining":298]`},
		{`"mode":"enforce"`, `["cost":1,"remaining":996 "cost":5,"remaining":293]`},
	} {
		body := `{"method":"POST","path":"/v1/chat",` + c.members + `}`
		explained := ask("/v1/explain", w.acme, body)
		if a := ask("/v1/check", w.acme, body); a.status != 200 || fmt.Sprint(costs.FindAllString(a.body, -1)) != c.want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		} else if fmt.Sprint(costs.FindAllString(explained.body, -1)) != c.want {
			t.Errorf("%s: explained %s", body, explained.body)
		}
	}
	asked := w.counter.asked.Load()
	for _, value := range []string{"five", "-5", "1.5", "2147483648", "007"} {
		one := `{"method":"POST","path":"/v1/chat","attributes":{"tokens/day":"` + value + `"}}`
		for path, body := range map[string]string{
			"/v1/check": one, "/v1/explain": one, "/v1/check/batch": `{"checks":[{"method":"POST","path":"/v1/chat"},` + one + `]}`,
		} {
			pointer := map[bool]string{true: "/checks/1"}[path == "/v1/check/batch"] + "/attributes/tokens~1day"
			if a := ask(path, w.acme, body); a.status != http.StatusBadRequest || !strings.Contains(a.body, `"pointer":"`+pointer+`"`) {
				t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
			}
		}
		a := w.do(call{method: "GET", path: "/v1/forward-auth?attributes=tokens/day:header:X-Tokens", key: w.acme, header: map[string]string{
			"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/chat", "X-Tokens": value,
		}})
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "tokens~1day") {
			t.Errorf("forward-auth: %d %s", a.status, a.body)
		}
	}
	if n := w.counter.asked.Load(); n != asked {
		t.Errorf("%d rejected checks reached the limiter", n-asked)
	}
	k, token, err := w.tenants.CreateKey(t.Context(), "acme", tenants.NewKey{Name: "n", Scopes: []tenants.Scope{tenants.ScopeCheck}, Bounds: tenants.Bounds{MaxCost: 3}})
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	for tokens, status := range map[string]int{"3": 200, "4": 403} {
		a := ask("/v1/check", token, `{"method":"POST","path":"/v1/chat","attributes":{"tokens/day":"`+tokens+`"}}`)
		if a.status != status || status == 403 && !strings.Contains(a.body, `"code":"key_max_cost"`) {
			t.Errorf("%s with %s tokens: %d %s", k.ID, tokens, a.status, a.body)
		}
	}
}
