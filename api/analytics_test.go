package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// span is the query for the two minutes in which the tests make their decisions.
const span = "from=2026-11-21T09:00:00Z&to=2026-11-21T09:02:00Z"

// A tally has the counts that the tests compare.
type tally struct {
	Requests, Allowed, Limited int64
	Blocked                    int64
	LimitedRate                *float64 `json:"limited_rate"`
	DeniedByList               int64    `json:"denied_by_list"`
	TenantSuspended            int64    `json:"tenant_suspended"`
}

type counted struct {
	Step, Policy, Route, Tenant string
	Total, Counts               tally
	Points                      []struct{ Counts tally }
	Policies, Routes, Tenants   []counted
	Seconds                     []struct{ Counts tally }
	Count                       int64
	Shared                      struct{ Count int64 }
}

// A ranked is a key in a ranking.
type ranked struct {
	Tenant, Policy string
	Key            map[string]string
	Redacted       bool
	Count, Error   int64
}

// keys reads a ranking of keys.
func (w *world) keys(key, question string) []ranked {
	w.t.Helper()
	a := w.do(call{method: "GET", path: "/v1/analytics/keys?" + question, key: key})
	var out struct{ Keys []ranked }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		w.t.Fatalf("%s: %d %s", question, a.status, a.body)
	}
	return out.Keys
}

// analytics returns the answer of an analytics operation.
func (w *world) analytics(key, question string) counted {
	w.t.Helper()
	a := w.do(call{method: "GET", path: "/v1/analytics/" + question, key: key})
	var out counted
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
		w.t.Fatalf("%s: %d %s", question, a.status, a.body)
	}
	return out
}

// traffic makes decisions with each result, for two tenants.
func (w *world) traffic() {
	w.t.Helper()
	w.set("lists", `{"list":"deny","attribute":"ip","value":"198.51.100.0/24"}`)
	w.set("blocks", `{"policy":"reports-per-user","key":{"user":"u9"},"reason":"r"}`)
	ask := func(n int, key, body string) {
		for range n {
			w.do(call{method: "POST", path: "/v1/check", key: key, body: body})
		}
	}
	ask(8, w.operator, login)
	ask(7, w.operator, strings.Replace(login, "203.0.113.9", "203.0.113.10", 1))
	ask(1, w.operator, `{"tenant":"acme","attributes":{"ip":"198.51.100.1"}}`)
	ask(2, w.acme, `{"path":"/v1/reports","attributes":{"user":"u9"}}`)
	ask(4, w.acme, `{"path":"/v1/reports/of/nothing"}`)
	ask(9, w.operator, strings.Replace(login, "}}", `},"mode":"peek"}`, 1))
	ask(3, w.globex, `{"path":"/v1/login"}`)
	w.flush()
}

// Each response counts every decision that it is about exactly once. Peeks are not counted.
func TestAnalytics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	if all := w.analytics(w.operator, "traffic?"+span); all.Total.Requests != 25 || len(all.Points) != 2 || all.Points[0].Counts.Requests != 25 {
		t.Errorf("all: %+v", all)
	}
	acme := w.analytics(w.operator, "traffic?tenant=acme&"+span)
	if c := acme.Total; c.Requests != 22 || c.Allowed != 14 || c.Limited != 5 || c.Blocked != 2 || c.DeniedByList != 1 || c.LimitedRate == nil || *c.LimitedRate != 0.227273 {
		t.Errorf("acme: %+v", c)
	}
	if quiet := acme.Points[1].Counts; quiet.Requests != 0 || quiet.LimitedRate != nil {
		t.Errorf("a minute without requests: %+v", quiet)
	}
	if hour := w.analytics(w.operator, "traffic?tenant=acme"); hour.Total != hour.Points[len(hour.Points)-2].Counts && hour.Total.Requests != 22 {
		t.Errorf("the last hour: %+v", hour.Total)
	}
	policy := w.analytics(w.operator, "traffic?tenant=acme&policy=login-per-ip&"+span)
	route := w.analytics(w.operator, "traffic?tenant=acme&route=/v1/login&"+span)
	if policy.Total.Requests != 15 || route.Total.Requests != 15 || policy.Total.Limited != 5 {
		t.Errorf("one policy: %+v, one route: %+v", policy.Total, route.Total)
	}
	if p := w.analytics(w.operator, "policies?tenant=acme&"+span).Policies; len(p) != 2 || p[0].Policy != "login-per-ip" || p[0].Total.Requests != 15 || p[1].Total.Blocked != 2 || len(p[0].Points) != 2 {
		t.Errorf("policies: %+v", p)
	}
	routes := w.analytics(w.operator, "routes?tenant=acme&limit=2&"+span).Routes
	if len(routes) != 2 || routes[0].Route != "/v1/login" || routes[1].Route != "(none)" {
		t.Errorf("routes: %+v", routes)
	}
	if h := w.analytics(w.operator, "retry-after?tenant=acme&"+span); h.Count != 7 {
		t.Errorf("retry-after: %+v", h)
	}
	if s := w.analytics(w.operator, "live?tenant=acme").Seconds; len(s) != 1 || s[0].Counts.Requests != 22 {
		t.Errorf("live: %+v", s)
	}
}

// Rankings name tenants by slug. They show keys in the form that blocks and resets accept.
func TestRankings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	for sort, want := range map[string]string{"": "acme", "&sort=rate": "acme", "&sort=requests": "acme globex"} {
		var names []string
		for _, x := range w.analytics(w.operator, "tenants?"+span+sort).Tenants {
			names = append(names, x.Tenant)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("tenants%s: %s, want %s", sort, got, want)
		}
	}
	keys := w.keys(w.operator, "tenant=acme&policy=login-per-ip&"+span)
	if len(keys) != 2 || keys[0].Key["ip"] != "203.0.113.9" || keys[0].Count != 3 || keys[0].Error != 0 || keys[0].Tenant != "acme" {
		t.Fatalf("keys: %+v", keys)
	}
	if allowed := w.keys(w.operator, "tenant=acme&outcome=allowed&limit=1&"+span); len(allowed) != 1 || allowed[0].Count != 5 {
		t.Errorf("allowed keys: %+v", allowed)
	}
	key, err := json.Marshal(keys[0].Key)
	must(t, err)
	w.set("blocks", `{"policy":"login-per-ip","key":`+string(key)+`,"reason":"the first of the ranking"}`)
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: login}); !strings.Contains(a.body, `"reason":"blocked"`) {
		t.Error(a.body)
	}
	w.do(call{method: "DELETE", path: "/v1/tenants/globex", key: w.operator, header: map[string]string{"If-Match": "*"}})
	if gone := w.analytics(w.operator, "tenants?sort=requests&"+span).Tenants; len(gone) != 2 || gone[1].Tenant != "deleted" {
		t.Errorf("after a deletion: %+v", gone)
	}
}

// A key of ip/64 is shown in the form that a block accepts. Attributes that were not sent
// are left out.
func TestKeysOfNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policies(plans.Policy{
		Slug: "net", CountBy: []string{"ip/64", "user"},
		Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 0, Window: 1e9}},
	})
	w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"attributes":{"ip":"2001:db8:0:1::9"}}`})
	w.flush()
	keys := w.keys(w.acmeRead, ""+span)
	if len(keys) != 1 || len(keys[0].Key) != 1 || keys[0].Key["ip"] != "2001:db8:0:1::/64" {
		t.Fatalf("%+v", keys)
	}
	w.set("blocks", `{"policy":"net","key":{"ip":"2001:db8:0:1::/64"},"reason":"the first of the ranking"}`)
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"attributes":{"ip":"2001:db8:0:1::7"}}`}); !strings.Contains(a.body, `"reason":"blocked"`) {
		t.Error(a.body)
	}
}

// With a tenant key, the analytics are those of its tenant, also if the request names no
// tenant. Data of another tenant looks as if it did not exist.
func TestAnalyticsWalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	same := map[string]string{"X-Request-Id": "same"}
	var first string
	for _, operation := range []string{"traffic", "policies", "routes", "keys", "retry-after", "remaining", "refusals", "live"} {
		own := w.do(call{method: "GET", path: "/v1/analytics/" + operation, key: w.acmeRead})
		if named := w.do(call{method: "GET", path: "/v1/analytics/" + operation + "?tenant=acme", key: w.acmeRead}); own.status != 200 || named.body != own.body {
			t.Errorf("%s: %d %s and %d %s", operation, own.status, own.body, named.status, named.body)
		}
		for _, other := range []string{"globex", "nobody"} {
			a := w.do(call{method: "GET", path: "/v1/analytics/" + operation + "?tenant=" + other, key: w.acmeRead, header: same})
			if first == "" {
				first = a.body
			}
			if a.status != 403 || a.body != first {
				t.Errorf("%s of %s: %d %s", operation, other, a.status, a.body)
			}
		}
		if a := w.do(call{method: "GET", path: "/v1/analytics/" + operation + "?tenant=nobody", key: w.operator}); a.status != 404 || !strings.Contains(a.body, `"pointer":"tenant"`) {
			t.Errorf("%s of nobody: %d %s", operation, a.status, a.body)
		}
	}
	if mine := w.analytics(w.globex, "traffic?"+span).Total; mine.Requests != 3 || mine.TenantSuspended != 3 {
		t.Errorf("globex: %+v", mine)
	}
	if keys := w.keys(w.globex, ""+span); len(keys) != 0 {
		t.Errorf("keys of globex: %+v", keys)
	}
}

// Invalid queries get status 400 with the name of the parameter.
func TestAnalyticsFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for query, pointer := range map[string]string{
		"traffic?from=2026-11-21T09:00:00Z&to=2026-11-21T08:00:00Z":             "to",
		"traffic?from=2026-11-21T09:00:00Z&to=2026-11-21T10:00:00%2B01:00":      "to",
		"refusals?from=2026-11-21T09:00:00Z&to=2026-11-21T08:00:00Z":            "to",
		"traffic?from=2026-11-21T09:00:00Z":                                     "from", // the range is empty: it starts now
		"traffic?from=2010-01-01T00:00:00Z":                                     "from", // too long
		"traffic?from=2026-10-01T00:00:00Z&to=2026-11-21T09:00:00Z&step=minute": "step",
		"traffic?from=yesterday":                                                "from",
		"traffic?step=second":                                                   "step",
		"traffic?step=":                                                         "step",
		"traffic?policy=A":                                                      "policy",
		"traffic?policy=a&route=/b":                                             "route",
		"traffic?limit=1":                                                       "limit",
		"policies?limit=0":                                                      "limit",
		"policies?limit=101":                                                    "limit",
		"policies?route=/a":                                                     "route",
		"keys?outcome=all":                                                      "outcome",
		"tenants?sort=name":                                                     "sort",
		"tenants?tenant=acme":                                                   "tenant",
		"remaining?route=/a":                                                    "route",
		"latency?tenant=acme":                                                   "tenant",
		"refusals?reason=fine":                                                  "reason",
		"refusals?cursor=abc":                                                   "cursor",
		"live?from=2026-11-21T08:00:00Z":                                        "from",
	} {
		if a := w.do(call{method: "GET", path: "/v1/analytics/" + query, key: w.operator}); a.status != 400 || !strings.Contains(a.body, `"pointer":"`+pointer+`"`) {
			t.Errorf("%s: %d %s, want %s", query, a.status, a.body, pointer)
		}
	}
	if a := w.do(call{method: "GET", path: "/v1/audit?from=2026-11-21T09:00:00Z&to=2026-11-21T09:00:00Z", key: w.operator}); a.status != 400 || !strings.Contains(a.body, `"pointer":"to"`) {
		t.Errorf("audit: %+v", a)
	}
}

// Kept denials are listed newest first, in pages without gaps and repetitions. Each is
// explained with the state of its time. The answers for the denial of another tenant, for
// an allowed decision, and for an unknown decision are equal.
func TestKeptRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	var ids, reasons []string
	var cursor string
	path := "/v1/analytics/refusals?limit=3&tenant=acme"
	for path != "" {
		a := w.do(call{method: "GET", path: path, key: w.operator})
		var page struct {
			Data []struct {
				ID     string `json:"decision_id"`
				Reason string
			}
			NextCursor string `json:"next_cursor"`
		}
		must(t, json.Unmarshal([]byte(a.body), &page))
		for _, r := range page.Data {
			ids, reasons = append(ids, r.ID), append(reasons, r.Reason)
		}
		if page.NextCursor != "" {
			cursor = page.NextCursor
		}
		path = strings.TrimPrefix(strings.TrimSuffix(a.header.Get("Link"), `>; rel="next"`), "<")
	}
	slices.Sort(reasons)
	if want := "blocked blocked denied_by_list over_limit over_limit over_limit over_limit over_limit"; strings.Join(reasons, " ") != want || !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Fatalf("%v %v", reasons, ids)
	}
	for _, path := range []string{"/v1/analytics/refusals?cursor=", "/v1/analytics/refusals?tenant=globex&cursor=", "/v1/audit?cursor="} {
		if a := w.do(call{method: "GET", path: path + cursor, key: w.operator}); a.status != 400 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for filter, n := range map[string]int{"reason=blocked": 2, "policy=login-per-ip": 5, "route=/v1/reports": 2, "from=2026-11-21T09:00:01Z": 0, "to=2026-11-21T09:00:01Z": 8, "policy=nothing": 0} {
		a := w.do(call{method: "GET", path: "/v1/analytics/refusals?" + filter, key: w.acmeRead})
		if got := strings.Count(a.body, `"decision_id"`); got != n {
			t.Errorf("%s: %d refusals, want %d: %s", filter, got, n, a.body)
		}
	}
	w.kept(ids)
}

// A listing with a tenant key is that of its tenant, also if the request names no tenant. Its
// cursors are invalid for other tenants.
func TestForeignCursorOfRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	a := w.do(call{method: "GET", path: "/v1/analytics/refusals?limit=3", key: w.acmeRead})
	next := strings.TrimPrefix(strings.TrimSuffix(a.header.Get("Link"), `>; rel="next"`), "<")
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	must(t, json.Unmarshal([]byte(a.body), &page))
	for key, c := range map[string]struct {
		path   string
		status int
	}{
		w.acmeRead: {next, 200},
		w.acme:     {"/v1/analytics/refusals?cursor=" + page.NextCursor, 200},
		w.globex:   {"/v1/analytics/refusals?cursor=" + page.NextCursor, 400},
		w.operator: {"/v1/analytics/refusals?cursor=" + page.NextCursor, 400},
	} {
		if a := w.do(call{method: "GET", path: c.path, key: key}); a.status != c.status || a.status == 400 && !strings.Contains(a.body, `"pointer":"cursor"`) {
			t.Errorf("%s: %d, want %d: %s", c.path, a.status, c.status, a.body)
		}
	}
}

// kept returns the stored denials of acme with these IDs.
func (w *world) kept(ids []string) {
	w.t.Helper()
	read := func(key, id string) answer {
		return w.do(call{method: "GET", path: "/v1/explain/" + id, key: key, header: map[string]string{"X-Request-Id": "same"}})
	}
	for _, id := range ids {
		mine, all := read(w.acmeRead, id), read(w.operator, id)
		if mine.status != 200 || mine.body != all.body || !strings.Contains(mine.body, `"policies":[{"`) {
			w.t.Errorf("%s: %+v", id, mine)
		}
	}
	allowed := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{}`})
	unknown := read(w.globex, "01939c1e-0000-7000-8000-00000000ffff")
	if unknown.status != 404 || !strings.Contains(unknown.body, "recorded for 24 hours, up to 100 per second and node, and 100,000 in all; of allowed requests, a sample is recorded") {
		w.t.Errorf("unknown: %+v", unknown)
	}
	for _, id := range []string{ids[0], between(allowed.body, `"decision_id":"`, `"`), "nothing"} {
		if a := read(w.globex, id); a.status != 404 || a.body != unknown.body {
			w.t.Errorf("%s by globex: %+v", id, a)
		}
	}
}

// Allowed requests of a tenant that samples them are listed by outcome, explained, and in the file.
func TestAllowedRequestsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant(func(d *tenants.Document) { d.SampleAllowed = 1 })
	w.traffic()
	list := func(key, question string) (all []struct {
		ID      string `json:"decision_id"`
		Allowed bool
		Reason  string
		Tenant  string
	},
	) {
		t.Helper()
		var out struct{ Data any }
		out.Data = &all
		a := w.do(call{method: "GET", path: "/v1/analytics/refusals?limit=100" + question, key: key})
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != 200 {
			t.Fatalf("%s: %d %s", question, a.status, a.body)
		}
		return all
	}
	denied, allowed, both := list(w.acmeRead, ""), list(w.acmeRead, "&outcome=allowed"), list(w.acmeRead, "&outcome=any")
	if len(denied) == 0 || len(allowed) == 0 || len(both) != len(denied)+len(allowed) || len(list(w.acmeRead, "&outcome=denied")) != len(denied) {
		t.Fatalf("%d denied, %d allowed, %d together", len(denied), len(allowed), len(both))
	}
	for _, r := range allowed {
		a := w.do(call{method: "GET", path: "/v1/explain/" + r.ID, key: w.acmeRead})
		foreign := w.do(call{method: "GET", path: "/v1/explain/" + r.ID, key: w.globex})
		if !r.Allowed || r.Tenant != "acme" || a.status != 200 || !strings.HasPrefix(a.body, `{"allowed":true,`) || !strings.Contains(a.body, `"reason":"`+r.Reason) || foreign.status != 404 {
			t.Errorf("%+v: %s, globex %d", r, a.body, foreign.status)
		}
	}
	if other := list(w.operator, "&outcome=allowed&tenant=globex"); len(other) != 0 {
		t.Errorf("globex samples nothing, and has %+v", other)
	}
	if degraded := list(w.acmeRead, "&outcome=any&degraded=true"); len(degraded) != 0 {
		t.Errorf("degraded: %+v", degraded)
	}
	file := w.do(call{method: "GET", path: "/v1/analytics/refusals.csv?outcome=allowed", key: w.acmeRead})
	if lines := strings.Count(file.body, "\n"); lines != 1+len(allowed) || !strings.Contains(file.body, ",true\n") {
		t.Errorf("%d lines: %s", lines, file.body)
	}
	if a := w.do(call{method: "GET", path: "/v1/analytics/refusals?outcome=refused", key: w.acmeRead}); a.status != 400 {
		t.Errorf("an unknown outcome: %+v", a)
	}
}

// The attribute values of a tenant with redact_values are not shown.
func TestRedactedRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant(func(d *tenants.Document) { d.RedactValues = true })
	w.traffic()
	a := w.do(call{method: "GET", path: "/v1/analytics/refusals?policy=login-per-ip&limit=1", key: w.acmeRead})
	if !strings.Contains(a.body, `"attributes":{"ip":""}`) || !strings.Contains(a.body, `"redacted":true`) {
		t.Error(a.body)
	}
	if keys := w.keys(w.acmeRead, ""+span); len(keys) == 0 || !keys[0].Redacted || strings.Contains(fmt.Sprint(keys), "203.0.113") {
		t.Errorf("%+v", keys)
	}
}

// For each sampled policy, the answer has the units that were left. Decisions are sampled,
// so the test makes enough of them to have a sample for certain.
func TestRemaining(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	checks := `{"checks":[` + strings.Repeat(login+",", 999) + login + `]}`
	w.batch(w.operator, "", checks)
	w.flush()
	a := w.do(call{method: "GET", path: "/v1/analytics/remaining?" + span, key: w.acmeRead})
	var out struct {
		Policies []struct {
			Policy  string
			Count   int64
			Buckets []struct{ From, To, Count int64 }
		}
	}
	must(t, json.Unmarshal([]byte(a.body), &out))
	if len(out.Policies) != 1 {
		t.Fatal(a.body)
	}
	if p := out.Policies[0]; p.Policy != "login-per-ip" || p.Count == 0 || len(p.Buckets) != 21 || p.Buckets[0].From != -1 || p.Buckets[0].Count == 0 {
		t.Error(a.body)
	}
	if a := w.do(call{method: "GET", path: "/v1/analytics/remaining?policy=reports-per-user&" + span, key: w.acmeRead}); !strings.Contains(a.body, `"policies":[]`) {
		t.Error(a.body)
	}
}

// The latency of the limiter is measured for its calls, for all tenants together.
func TestLatency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	if l := w.analytics(w.operator, "latency?from=2026-11-21T09:00:00Z&to=2026-11-21T09:03:00Z"); l.Count == 0 || l.Count != l.Shared.Count || len(l.Points) != 2 {
		t.Errorf("%+v", l)
	}
	if a := w.do(call{method: "GET", path: "/v1/analytics/latency", key: w.acme}); a.status != 403 {
		t.Error(a)
	}
}
