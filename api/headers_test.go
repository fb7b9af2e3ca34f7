package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

func state(name string, quota int64, window time.Duration, remaining, reset, retry int64, allowed bool, mode enforcement.PolicyMode) enforcement.LimitState {
	return enforcement.LimitState{
		Rule:      &enforcement.Rule{RuleSpec: enforcement.RuleSpec{Policy: name, Mode: mode}},
		Limit:     &enforcement.RuleLimit{Limit: enforcement.Limit{Quota: quota, Window: window}, HeaderName: name},
		Remaining: remaining, ResetAfter: reset, RetryAfter: retry, Allowed: allowed,
	}
}

func TestHeaderValues(t *testing.T) {
	t.Parallel()
	const enforce, shadow = enforcement.PolicyEnforce, enforcement.PolicyShadow
	for _, c := range []struct {
		limits         []enforcement.LimitState
		policy, states string
	}{
		{nil, "", ""},
		{[]enforcement.LimitState{state("s", 1, time.Second, 0, 0, 0, true, shadow)}, "", ""},
		{[]enforcement.LimitState{state("a", 5, time.Minute, 0, 41000, 1340, false, enforce)}, `"a";q=5;w=60`, `"a";r=0;t=2`},
		{[]enforcement.LimitState{state("a", 5, time.Minute, 4, 41001, 0, true, enforce)}, `"a";q=5;w=60`, `"a";r=4;t=42`},
		{[]enforcement.LimitState{state("a", 0, 1500*time.Millisecond, 0, 0, enforcement.Never, false, enforce)}, `"a";q=0`, `"a";r=0`},
		{
			[]enforcement.LimitState{state("a.l1", 10, time.Second, 9, 1, 0, true, enforce), state("s", 1, time.Second, 0, 0, 0, true, shadow), state("b", 1e12, 366*24*time.Hour, 1e12, 0, 0, true, enforce)},
			`"a.l1";q=10;w=1, "b";q=1000000000000;w=31622400`, `"a.l1";r=9;t=1, "b";r=1000000000000;t=0`,
		},
	} {
		if got := string(api.AppendPolicies(nil, c.limits)); got != c.policy {
			t.Errorf("%s, want %s", got, c.policy)
		}
		if got := string(api.AppendStates(nil, c.limits)); got != c.states {
			t.Errorf("%s, want %s", got, c.states)
		}
	}
}

// The headers of one denial in every format, byte for byte.
func TestDialects(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"": `RateLimit-Policy: "login-per-ip";q=5;w=60|RateLimit: "login-per-ip";r=0;t=60|`, "draft-11": `RateLimit-Policy: "login-per-ip";q=5;w=60|RateLimit: "login-per-ip";r=0;t=60|`,
		"draft-06": `RateLimit-Limit: 5|RateLimit-Remaining: 0|RateLimit-Reset: 60|`, "x-ratelimit": `X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60|`,
		"draft-11, x-ratelimit": `RateLimit-Policy: "login-per-ip";q=5;w=60|RateLimit: "login-per-ip";r=0;t=60|X-RateLimit-Limit: 5|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60|`,
		"off":                   "",
	} {
		headers, err := api.ParseHeaders(setting)
		must(t, err)
		w := newWorld(t, func(c *api.Config) { c.Headers = headers })
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: login[:len(login)-1] + `,"cost":5}`})
		a := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: login})
		got := ""
		for _, name := range []string{"RateLimit-Policy", "RateLimit", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if v := a.header.Get(name); v != "" {
				got += name + ": " + v + "|"
			}
		}
		if got != want || a.header.Get("Retry-After") != "60" {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
	for _, bad := range []string{"draft-10", "draft-11,", "off,draft-11", "Draft-11", ","} {
		if _, err := api.ParseHeaders(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzHeaders parses the written headers with httpsfv, an independent implementation of RFC
// 9651.
func FuzzHeaders(f *testing.F) {
	f.Add(int64(5), int64(60000), int64(0), int64(41000), int64(1340), false, uint8(2))
	f.Add(int64(1e12), int64(1), int64(1e15), int64(0), int64(-1), false, uint8(32))
	f.Fuzz(func(t *testing.T, quota, window, remaining, reset, retry int64, allowed bool, n uint8) {
		clamp := func(v, high int64) int64 { return min(max(v, 0), high) }
		limits := make([]enforcement.LimitState, n%33)
		for i := range limits {
			mode := enforcement.PolicyEnforce
			if i%5 == 4 {
				mode = enforcement.PolicyShadow
			}
			limits[i] = state(fmt.Sprintf("policy-%d.l%d", i, i), clamp(quota, 1e12), time.Duration(clamp(window, 31622400000))*time.Millisecond,
				clamp(remaining, 1e12), clamp(reset, 1e14), max(retry, -1)%1e14, allowed != (i%2 == 0), mode)
		}
		policies, states := string(api.AppendPolicies(nil, limits)), string(api.AppendStates(nil, limits))
		ps, err := httpsfv.UnmarshalList([]string{policies})
		if err != nil {
			t.Fatalf("%s: %v", policies, err)
		}
		ss, err := httpsfv.UnmarshalList([]string{states})
		if err != nil {
			t.Fatalf("%s: %v", states, err)
		}
		k := 0
		for _, l := range limits {
			if l.Rule.Mode != enforcement.PolicyEnforce {
				continue
			}
			p, s := ps[k].(httpsfv.Item), ss[k].(httpsfv.Item)
			k++
			q, _ := p.Params.Get("q")
			r, _ := s.Params.Get("r")
			if p.Value != l.Limit.HeaderName || s.Value != l.Limit.HeaderName || q != l.Limit.Quota || r != l.Remaining {
				t.Fatalf("%s | %s", policies, states)
			}
			after, has := s.Params.Get("t")
			want := l.ResetAfter
			if !l.Allowed {
				want = l.RetryAfter
			}
			if has != (want >= 0) || has && (after.(int64)*1000 < want || after.(int64)*1000 >= want+1000) {
				t.Fatalf("t=%v of %d ms", after, want)
			}
		}
		if k != len(ps) || k != len(ss) {
			t.Fatalf("%d limits in %s", k, policies)
		}
	})
}

func BenchmarkHeaders(b *testing.B) {
	limits := []enforcement.LimitState{
		state("login-per-ip", 5, time.Minute, 0, 41000, 1340, false, enforcement.PolicyEnforce),
		state("tenant-total", 100000, time.Hour, 99999, 3600000, 0, true, enforcement.PolicyEnforce),
	}
	room := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		room = api.AppendPolicies(room[:0], limits)
		room = api.AppendStates(room, limits)
	}
	if n := testing.AllocsPerRun(100, func() { room = api.AppendStates(api.AppendPolicies(room[:0], limits), limits) }); n != 0 {
		b.Errorf("%v allocations", n)
	}
}

// Answer returns the status and headers of a check, for every dialect of headers and every
// kind of decision.
func TestAnswerIsThatOfACheck(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"draft-11", "draft-06,x-ratelimit", "off"} {
		headers, err := api.ParseHeaders(setting)
		must(t, err)
		var cfg api.Config
		w := newWorld(t, func(c *api.Config) { c.Headers, cfg = headers, *c })
		statuses := map[int]bool{}
		for _, body := range []string{
			login, login[:len(login)-1] + `,"cost":5}`, login[:len(login)-1] + `,"cost":6}`, login, `{"tenant":"acme","method":"GET","path":"/none"}`,
			`{"tenant":"acme","method":"POST","path":"/v1/login"}`, login[:len(login)-1] + `,"cost":0}`,
		} {
			var asked struct {
				Tenant, Method, Path string
				Attributes           map[string]string
				Cost                 *int64
			}
			must(t, json.Unmarshal([]byte(body), &asked))
			check := enforcement.Check{Method: asked.Method, Path: asked.Path, Cost: 1}
			if asked.Cost != nil {
				check.Cost = *asked.Cost
			}
			for name, value := range asked.Attributes {
				must(t, check.AddAttribute(name, value))
			}
			subject, ok := cfg.Snapshot().Subject(cmp.Or(asked.Tenant, "acme"))
			if !ok {
				t.Fatalf("no tenant %q", asked.Tenant)
			}
			var x enforcement.Explanation
			cfg.Decider.Explain(t.Context(), subject, &check, &x)
			status, told := w.api.Answer(&x.Decision)
			got := w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: body})
			want := http.Header{}
			for name, values := range told {
				want.Set(name, values[0]) // in the spelling that clients see
			}
			statuses[status] = true
			if status != got.status {
				t.Errorf("%s: %d, the check was answered %d", body, status, got.status)
			}
			for _, name := range []string{"Content-Length", "Date", "X-Content-Type-Options", "X-Request-Id"} { // of every answer
				delete(got.header, name)
			}
			for _, h := range []http.Header{want, got.header} {
				for name := range h {
					if !slices.Equal(want[name], got.header[name]) {
						t.Errorf("%s: %s is %q, the check was answered %q", body, name, want[name], got.header[name])
					}
				}
			}
		}
		if len(statuses) < 2 {
			t.Errorf("the statuses are only %v", statuses)
		}
	}
}

// If a limit has reached a threshold, the body says so, and the header if it is enabled.
func TestNearLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Headers = api.Draft11 | api.NearLimit })
	warn, _ := enforcement.NewWarnAt([]int64{50, 100})
	day := func(quota int64, w enforcement.WarnAt) enforcement.Limit {
		return enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: quota, Window: 24 * time.Hour, WarnAt: w}
	}
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "four", Limits: []enforcement.Limit{day(4, warn)}}, {Slug: "two", Limits: []enforcement.Limit{day(8, warn), day(9, enforcement.WarnAt{})}},
	}})
	for i, want := range []struct{ header, members string }{
		{"", `[]`},
		{`"four";percent=50`, `["near_limit":50 "near_limit":50]`},
		{`"four";percent=50`, `["near_limit":50 "near_limit":50]`},
		{`"four";percent=100, "two.l1";percent=50`, `["near_limit":100 "near_limit":100 "near_limit":50]`},
		{`"four";percent=100, "two.l1";percent=50`, `["near_limit":100 "near_limit":100 "near_limit":50]`},
	} {
		a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"method":"GET","path":"/"}`})
		members := fmt.Sprint(regexp.MustCompile(`"near_limit":\d+`).FindAllString(a.body, -1))
		if got := a.header.Get("X-RateLimit-Near-Limit"); got != want.header || members != want.members {
			t.Errorf("check %d: %q, %s in %s", i+1, got, members, a.body)
		}
	}
}

// The delay of a leaky bucket is in the body, and in a header whatever the formats are. The longest
// one of the enforced limits counts.
func TestDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Headers = 0 })
	queue := func(slug string, quota int64, mode enforcement.PolicyMode) plans.Policy {
		l := enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: quota, Window: 24 * time.Hour, Burst: 3}
		return plans.Policy{Slug: slug, Mode: mode, Limits: []enforcement.Limit{l}}
	}
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{
		queue("day", 1, enforcement.PolicyEnforce), queue("half", 2, enforcement.PolicyEnforce), queue("shadow", 1, enforcement.PolicyShadow),
	}})
	const hour = 3_600_000
	for i, want := range []struct {
		status int
		delays []int64 // of the check and its limits, in whole hours
	}{
		{200, []int64{0, 0, 0, 0}}, {200, []int64{24, 24, 12, 24}}, {200, []int64{48, 48, 24, 48}}, {429, []int64{0, 0, 0, 0}},
	} {
		a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"method":"GET","path":"/"}`})
		var d struct {
			Delay  int64 `json:"delay_ms"`
			Limits []struct {
				Delay *int64 `json:"delay_ms"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &d); err != nil || len(d.Limits) != 3 || a.status != want.status {
			t.Fatalf("check %d: %d, %v: %s", i+1, a.status, err, a.body)
		}
		got := []int64{(d.Delay + hour - 1) / hour}
		for _, l := range d.Limits {
			got = append(got, (*l.Delay+hour-1)/hour)
		}
		header := ""
		if d.Delay > 0 {
			header = strconv.FormatInt(d.Delay, 10)
		}
		if !slices.Equal(got, want.delays) || a.header.Get("X-RateLimit-Delay-Ms") != header {
			t.Errorf("check %d: %v, header %q: %s", i+1, got, a.header.Get("X-RateLimit-Delay-Ms"), a.body)
		}
	}
}

// Over the limit of a policy in mode degrade, the body and a header say that the cheap answer is
// served, whatever the formats are. Over the limit of one in mode delay, they have its delay. A
// denial has neither, and headers list enforced limits only.
func TestSoftLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := func(slug string, mode enforcement.PolicyMode, quota int64) plans.Policy {
		l := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: quota, Window: 24 * time.Hour}
		return plans.Policy{Slug: slug, Mode: mode, Limits: []enforcement.Limit{l}}
	}
	slow := policy("slow", enforcement.PolicyDelay, 2)
	slow.DelayMS = 1500
	w.publish(plans.Content{Name: "Pro", Policies: []plans.Policy{policy("cheap", enforcement.PolicyDegrade, 1), slow, policy("hard", enforcement.PolicyEnforce, 3)}})
	for i, want := range []struct {
		status       int
		serve, delay string
		limitDelay   string // of the policy slow, in the body
	}{
		{200, "", "", "0"}, {200, "cheap", "", "0"}, {200, "cheap", "1500", "1500"}, {429, "", "", "0"},
	} {
		a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"method":"GET","path":"/"}`})
		var d struct {
			Serve  string
			Reason string
			Delay  json.Number `json:"delay_ms"`
			Limits []struct {
				Mode  string
				Delay json.Number `json:"delay_ms"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &d); err != nil || len(d.Limits) != 3 {
			t.Fatalf("check %d: %v: %s", i+1, err, a.body)
		}
		got := []string{strconv.Itoa(a.status), d.Serve, a.header.Get("X-RateLimit-Serve"), strings.Trim(d.Delay.String(), "0"), a.header.Get("X-RateLimit-Delay-Ms"), d.Limits[1].Delay.String()}
		if wanted := []string{strconv.Itoa(want.status), want.serve, want.serve, strings.Trim(want.delay, "0"), want.delay, want.limitDelay}; !slices.Equal(got, wanted) {
			t.Errorf("check %d: %q, want %q: %s", i+1, got, wanted, a.body)
		}
		if limits := a.header.Get("RateLimit"); !strings.HasPrefix(limits, `"hard";r=`) || strings.Contains(limits, ",") {
			t.Errorf("check %d: RateLimit %s", i+1, limits)
		}
		if d.Limits[0].Mode != "degrade" || d.Limits[1].Mode != "delay" {
			t.Errorf("check %d: modes: %s", i+1, a.body)
		}
	}
}
