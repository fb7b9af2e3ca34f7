package api_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// explanation holds the members of an explanation that the tests compare.
type explanation struct {
	Decision json.RawMessage
	Status   int
	Route    string
	PassesAt *time.Time `json:"passes_at"`
	List     *struct{ List, Attribute, Value, Reason string }
	Policies []struct {
		Policy, Mode, Consistency, Why, Detail, Attribute string
		Matches, Applies                                  bool
		ReplacedBy                                        string `json:"replaced_by"`
		Override                                          *struct{ Factor json.Number }
		Block                                             *struct{ Reason string }
		Limits                                            []struct {
			Limit     string
			Quota     int64
			Burst     *int64
			Remaining int64
		}
	}
}

func (w *world) explain(key, body string) (explanation, answer) {
	w.t.Helper()
	a := w.do(call{method: "POST", path: "/v1/explain", key: key, body: body})
	var x explanation
	must(w.t, json.Unmarshal([]byte(a.body), &x))
	return x, a
}

var decisionID = regexp.MustCompile(`"(?:decision|request)_id":"[0-9a-f-]{36}"`)

// sameBut compares two bodies, except for the decision ID.
func sameBut(a, b string) bool {
	return decisionID.ReplaceAllString(a, "") == decisionID.ReplaceAllString(b, "")
}

// mixed returns a plan with which every value of why can occur.
func mixed() []plans.Policy {
	window := func(quota int64) []enforcement.Limit {
		return []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: quota, Window: time.Minute}}
	}
	return []plans.Policy{
		{Slug: "base", CountBy: []string{"user"}, Limits: window(3)},
		{Slug: "idle", Mode: enforcement.PolicyOff, Limits: window(1)},
		{Slug: "posts", Match: plans.Match{Methods: []string{"POST", "PUT"}}, Limits: window(5)},
		{Slug: "search", Match: plans.Match{Path: "/v1/search/{index}"}, Replaces: []string{"base"}, Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 20}}},
		{Slug: "free", Consistency: enforcement.Leased, Match: plans.Match{Attributes: map[string]string{"tier": "free"}}, Limits: window(2)},
		{Slug: "seen", Mode: enforcement.PolicyShadow, CountBy: []string{"ip/64"}, Missing: enforcement.MissingSkip, Limits: window(0)},
		{Slug: "strict", Match: plans.Match{Path: "/v1/strict"}, CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Limits: window(9)},
	}
}

// whys returns the policies of an explanation, each with its why.
func (x *explanation) whys() string {
	var words []string
	for _, p := range x.Policies {
		word := p.Policy + ":" + p.Why
		if p.Attribute != "" {
			word += "(" + p.Attribute + ")"
		}
		if p.ReplacedBy != "" {
			word += "<" + p.ReplacedBy
		}
		if p.Override != nil {
			word += "x" + p.Override.Factor.String()
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// For every world, request, and mode: the explanation has the body and status of the check,
// it charges nothing, and the check passes at passes_at and not before.
func TestExplainAgreesWithCheck(t *testing.T) {
	t.Parallel()
	worlds := map[string]func(*world){
		"plain": func(*world) {},
		"lists": func(w *world) {
			w.set("lists", `{"list":"deny","attribute":"ip","value":"203.0.113.0/24","reason":"<scrapers & co>"}`)
			w.set("lists", `{"list":"allow","attribute":"user","value":"root"}`)
		},
		"blocks": func(w *world) {
			w.set("blocks", `{"policy":"base","key":{"user":"u1"},"reason":"r","expires_at":"2026-11-21T09:00:30Z"}`)
			w.set("blocks", `{"policy":"search","key":{},"reason":"r","expires_at":"2026-11-21T10:00:00Z"}`)
		},
		"overrides": func(w *world) {
			w.set("overrides", `{"policy":"base","factor":2.5,"reason":"r"}`)
			w.set("overrides", `{"policy":"base","attribute":"user","value":"u1","limits":[{"name":"l1","quota":0}],"reason":"r","expires_at":"2026-11-21T09:00:20Z"}`)
			w.set("overrides", `{"policy":"search","limits":[{"name":"l1","burst":1}],"reason":"r"}`)
		},
		"suspended": func(w *world) { w.tenant(func(d *tenants.Document) { d.Status = tenants.Suspended }) },
		"denying": func(w *world) {
			search := mixed()[3]
			search.Replaces = nil
			w.policies(search)
			w.tenant(func(d *tenants.Document) { d.NoPolicy = tenants.Deny })
		},
		"no plan":      func(w *world) { w.tenant(func(d *tenants.Document) { d.Plan = "" }) },
		"limiter away": func(w *world) { w.counter.away.Store(true) },
	}
	requests := []string{
		`{"tenant":"acme"}`,
		`{"tenant":"acme","method":"POST","path":"/v1/items","attributes":{"user":"u1","ip":"203.0.113.9"}}`,
		`{"tenant":"acme","method":"GET","path":"/v1/search/all","attributes":{"user":"u1","tier":"free"}}`,
		`{"tenant":"acme","method":"GET","path":"/v1/search/all","attributes":{"user":"root"},"cost":21}`,
		`{"tenant":"acme","path":"/v1/strict","attributes":{"ip":"2001:db8::1"}}`,
		`{"tenant":"acme","attributes":{"user":"u2"},"cost":3}`,
		`{"tenant":"acme","attributes":{"user":"u2"},"cost":0}`,
	}
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policies(mixed()...)
			change(w)
			for _, body := range requests {
				w.agree(body)
			}
		})
	}
}

// agree sends a check several times, each time after an explanation of it.
func (w *world) agree(body string) {
	w.t.Helper()
	for range 5 {
		x, a := w.explain(w.operator, body)
		if a.status != 200 {
			w.t.Fatalf("%s: %+v", body, a)
		}
		peek := strings.Replace(body, `{"tenant"`, `{"mode":"peek","tenant"`, 1)
		y, _ := w.explain(w.operator, peek)
		b := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: peek})
		if b.status != y.Status || !sameBut(string(y.Decision), b.body) {
			w.t.Errorf("%s: explained as %d %s\nanswered %d %s", peek, y.Status, y.Decision, b.status, b.body)
		}
		c := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: body})
		if c.status != x.Status || x.Status != 200 && !sameBut(string(x.Decision), c.body) {
			w.t.Errorf("%s: explained as %d %s\nanswered %d %s", body, x.Status, x.Decision, c.status, c.body)
		}
		if c.status == 429 {
			w.passesAt(peek, x)
			return
		}
	}
}

// passesAt moves the clock to the time passes_at of an explanation, and back.
func (w *world) passesAt(peek string, x explanation) {
	w.t.Helper()
	if x.PassesAt == nil {
		return
	}
	now := w.now.Load()
	for at, passes := range map[time.Time]bool{*x.PassesAt: true, x.PassesAt.Add(-2 * time.Millisecond): false} {
		w.now.Store(at.UnixMicro())
		if a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: peek}); (a.status == 200) != passes {
			w.t.Errorf("%s at %s: %d, it passes at %s", peek, at, a.status, x.PassesAt)
		}
	}
	w.now.Store(now)
}

// set creates an override, a list entry or a block for acme.
func (w *world) set(kind, body string) {
	w.t.Helper()
	if a := w.do(call{method: "POST", path: "/v1/tenants/acme/" + kind, key: w.operator, body: body}); a.status != 201 {
		w.t.Fatalf("%s %s: %+v", kind, body, a)
	}
}

// tenant changes acme.
func (w *world) tenant(change func(*tenants.Document)) {
	w.t.Helper()
	x, err := w.tenants.Tenant(w.t.Context(), "acme")
	must(w.t, err)
	change(&x.Document)
	_, err = w.tenants.UpdateTenant(w.t.Context(), "acme", x.Document, x.Revision)
	must(w.t, err)
	must(w.t, w.watcher.Refresh(w.t.Context()))
}

// Explanations say why each policy applies or not, with its exceptions and the remaining quota.
func TestExplainWhys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policies(mixed()...)
	w.set("overrides", `{"policy":"posts","factor":0.5,"reason":"r"}`)
	w.set("blocks", `{"policy":"free","key":{},"reason":"unpaid","expires_at":"2026-11-21T10:00:00Z"}`)
	w.set("lists", `{"list":"deny","attribute":"user","value":"evil","reason":"abuse","expires_at":"2026-11-22T00:00:00Z"}`)
	for body, want := range map[string]string{
		`{}`:                                     "base:applies idle:off posts:method search:path free:attribute(tier) seen:skipped(ip/64) strict:path",
		`{"method":"PUT","path":"/v1/search/x"}`: "base:replaced<search idle:off posts:appliesx0.5 search:applies free:attribute(tier) seen:skipped(ip/64) strict:path",
		`{"path":"/v1/strict","attributes":{"tier":"free"}}`:            "base:applies idle:off posts:method search:path free:blocked seen:skipped(ip/64) strict:missing(user)",
		`{"attributes":{"user":"evil","ip":"203.0.113.9","tier":"no"}}`: "base:list idle:off posts:method search:path free:attribute(tier) seen:list strict:path",
	} {
		x, a := w.explain(w.acmeRead, body)
		if got := x.whys(); got != want && got != strings.ReplaceAll(want, "(ip/64)", "(ip)") {
			t.Errorf("%s: %s\nwant %s", body, got, want)
		}
		for _, p := range x.Policies {
			if p.Detail == "" || (len(p.Limits) > 0) != p.Matches {
				t.Errorf("%s: %s %+v", body, a.body, p)
			}
			if want := map[bool]string{true: "leased", false: "exact"}[p.Policy == "free"]; p.Consistency != want {
				t.Errorf("%s: the consistency of %s is %q, want %q", body, p.Policy, p.Consistency, want)
			}
		}
	}
	x, a := w.explain(w.acmeRead, `{"method":"POST","attributes":{"tier":"free"}}`)
	if x.Policies[2].Limits[0].Quota != 2 || x.Policies[2].Limits[0].Remaining != 2 || x.Policies[4].Block.Reason != "unpaid" || x.Status != 429 {
		t.Error(a.body)
	}
	x, a = w.explain(w.acmeRead, `{"attributes":{"user":"evil"}}`)
	if x.Status != 403 || x.PassesAt != nil && !x.PassesAt.Equal(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)) || x.List == nil || x.List.List != "deny" || x.List.Reason != "abuse" {
		t.Error(a.body)
	}
	if want := "the deny list decided before any policy"; x.Policies[0].Detail != want {
		t.Error(a.body)
	}
	x, a = w.explain(w.acmeRead, `{"path":"/v1/search/x"}`)
	if l := x.Policies[3].Limits; x.Route != "/v1/search/{index}" || len(l) != 1 || l[0].Burst == nil || *l[0].Burst != 20 || l[0].Remaining != 20 {
		t.Error(a.body)
	}
}

// An explanation validates its input like a check, and changes nothing.
func TestExplainInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		call
		status  int
		pointer string
	}{
		{call{body: `{"method":"GET"}`}, 400, "/tenant"},
		{call{body: `{"tenant":"acme","cosst":1}`}, 400, "/cosst"},
		{call{body: `{"tenant":"acme","mode":null}`}, 400, "/mode"},
		{call{body: `{"tenant":"nobody"}`}, 404, "/tenant"},
		{call{body: `{"tenant":"globex"}`, key: w.acme}, 403, ""},
		{call{body: `{"tenant":"acme"}`, key: w.acmeCheck}, 403, ""},
		{call{body: login, header: map[string]string{"Idempotency-Key": "k"}}, 400, "Idempotency-Key"},
		{call{body: login, path: "?deny_status=200"}, 400, "deny_status"},
		{call{body: login + strings.Repeat(" ", 64<<10)}, 413, ""},
		{call{body: login, header: map[string]string{"Content-Type": "text/plain"}}, 415, ""},
		{call{body: `{}`, key: w.globex}, 200, ""},
	} {
		c.method, c.path = "POST", "/v1/explain"+c.path
		if c.key == "" {
			c.key = w.operator
		}
		if a := w.do(c.call); a.status != c.status || c.pointer != "" && !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%.100s: %d %s", c.body, a.status, a.body)
		}
	}
	for range 9 {
		w.explain(w.acme, login)
	}
	if left := w.left(); left != `"login-per-ip";r=5;t=0` {
		t.Error("charged:", left)
	}
	x, a := w.explain(w.operator, strings.Replace(login, "}}", `},"mode":"force"}`, 1))
	if x.Status != 200 || !strings.Contains(string(x.Decision), `"mode":"peek"`) || a.header.Get("Cache-Control") != "no-store" || a.header.Get("RateLimit") != "" {
		t.Error(a)
	}
	if fmt.Sprint(x.PassesAt) != fmt.Sprint(start) {
		t.Error(x.PassesAt)
	}
}
