package enforcement_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// start is the time at which the clocks of the tests start: a whole hour, in microseconds.
const start = int64(1_700_000_000_000_000 / 3_600_000_000 * 3_600_000_000)

// counters is a simple Limiter that uses the reference functions. Package limitertest compares
// the real limiters with it.
type counters struct {
	now    int64
	states map[enforcement.Key]enforcement.State
	calls  int
	asked  []enforcement.Request // requests of the last call
}

func newCounters() *counters {
	return &counters{now: start, states: make(map[enforcement.Key]enforcement.State)}
}

func (l *counters) Take(_ context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	l.calls++
	l.asked = nil
	for i := range requests {
		r := requests[i]
		r.Charges = slices.Clone(r.Charges)
		l.asked = append(l.asked, r)
		outcomes[i] = l.one(r)
	}
}

func (l *counters) one(r enforcement.Request) enforcement.Outcome {
	o := enforcement.Outcome{Verdict: enforcement.Granted, At: l.now, Charges: make([]enforcement.Charged, len(r.Charges))}
	working := make(map[enforcement.Key]enforcement.State)
	changed := make(map[enforcement.Key]bool)
	for _, c := range r.Charges {
		if _, seen := working[c.Key]; !seen {
			working[c.Key], changed[c.Key] = c.Meter.Settle(l.states[c.Key], c.Rev, l.now)
		}
	}
	for from := 0; from < len(r.Charges); {
		to, fits := from, true
		sums := make(map[enforcement.Key]int64)
		for ; to < len(r.Charges) && r.Charges[to].Group == r.Charges[from].Group; to++ {
			sums[r.Charges[to].Key] += r.Charges[to].Cost
		}
		for i := from; i < to; i++ {
			c := r.Charges[i]
			o.Charges[i].Cost = sums[c.Key]
			o.Charges[i].Fits = c.Meter.Admits(c.Meter.Left(working[c.Key], l.now), sums[c.Key])
			fits = fits && o.Charges[i].Fits
		}
		if r.Charges[from].Group == 0 && !fits && r.Mode != enforcement.Force {
			o.Verdict = enforcement.Refused
		}
		if o.Verdict == enforcement.Granted && (fits || r.Mode == enforcement.Force) {
			for i := from; i < to; i++ {
				c := r.Charges[i]
				working[c.Key] = c.Meter.Charge(working[c.Key], c.Rev, l.now, c.Cost)
				changed[c.Key] = changed[c.Key] || c.Cost > 0
			}
		}
		for i := from; i < to; i++ {
			o.Charges[i].State = working[r.Charges[i].Key]
		}
		from = to
	}
	for _, c := range r.Charges {
		if r.Mode != enforcement.Peek && changed[c.Key] {
			l.states[c.Key] = working[c.Key]
		}
	}
	return o
}

// away is a limiter that is unavailable: it decides nothing.
type away struct{ verdict enforcement.Verdict }

func (l away) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i] = enforcement.Outcome{Verdict: l.verdict, Err: enforcement.ErrNotReached}
	}
}

// recorded records the reasons of decisions.
type recorded []enforcement.Reason

func (r *recorded) Record(d *enforcement.Decision) { *r = append(*r, d.Reason) }

// limit returns a limit with a fixed number for its counter.
func limit(name string, cell uint32, a enforcement.Algorithm, quota int64, window time.Duration) enforcement.RuleLimit {
	l := enforcement.Limit{Name: name, Algorithm: a, Quota: quota, Window: window}
	return enforcement.RuleLimit{Limit: l, Cell: cell, Meter: l.Compile(1)}
}

// window returns a fixed window of one minute.
func window(cell uint32, quota int64) enforcement.RuleLimit {
	return limit(fmt.Sprintf("l%d", cell), cell, enforcement.FixedWindow, quota, time.Minute)
}

func subject(t testing.TB, specs ...enforcement.RuleSpec) *enforcement.Subject {
	t.Helper()
	plan, err := enforcement.CompilePlan("pro", 1, specs)
	if err != nil {
		t.Fatal(err)
	}
	return &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07", PlanRevision: 1, Plan: plan}
}

func decide(e *enforcement.Engine, s *enforcement.Subject, c enforcement.Check) *enforcement.Decision {
	d := new(enforcement.Decision)
	e.Decide(context.Background(), s, &c, d)
	return d
}

// summary returns a decision as one line of text, which the tests compare.
func summary(d *enforcement.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s retry %d", d.Allowed, d.Reason, d.RetryAfter)
	if d.Degraded {
		b.WriteString(" degraded")
	}
	for _, l := range d.Limits {
		fmt.Fprintf(&b, " | %s %v left %d reset %d retry %d", l.Limit.HeaderName, l.Allowed, l.Remaining, l.ResetAfter, l.RetryAfter)
	}
	return b.String()
}

func wantSummary(t *testing.T, d *enforcement.Decision, want string) {
	t.Helper()
	if diff := cmp.Diff(want, summary(d)); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

func attributes(pairs ...string) (list []enforcement.Attribute) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, enforcement.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func TestReasons(t *testing.T) {
	t.Parallel()
	a := enforcement.RuleSpec{Policy: "a", Path: "/a", Limits: []enforcement.RuleLimit{window(1, 2)}}
	none := enforcement.RuleSpec{Policy: "z", Path: "/z", Limits: []enforcement.RuleLimit{window(2, 0)}}
	denies := enforcement.RuleSpec{Policy: "d", Path: "/d", CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Limits: []enforcement.RuleLimit{window(3, 2)}}
	closed := enforcement.RuleSpec{Policy: "c", Path: "/c", OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(4, 2)}}
	exempt := enforcement.RuleSpec{Policy: "x", Path: "/x"}
	for name, c := range map[string]struct {
		edit   func(*enforcement.Subject)
		before int // number of checks before this one
		check  enforcement.Check
		away   bool
		want   string
		route  string
	}{
		"passes":                {check: enforcement.Check{Path: "/a", Cost: 1}, want: "true ok retry 0 | a true left 1 reset 60000 retry 0", route: "/a"},
		"over limit":            {before: 2, check: enforcement.Check{Path: "/a", Cost: 1}, want: "false over_limit retry 60000 | a false left 0 reset 60000 retry 60000", route: "/a"},
		"larger than the quota": {check: enforcement.Check{Path: "/a", Cost: 3}, want: "false cost_exceeds_quota retry -1 | a false left 2 reset 0 retry -1", route: "/a"},
		"quota 0":               {check: enforcement.Check{Path: "/z", Cost: 1}, want: "false cost_exceeds_quota retry -1 | z false left 0 reset 0 retry -1", route: "/z"},
		"quota 0, cost 0":       {check: enforcement.Check{Path: "/z"}, want: "false cost_exceeds_quota retry -1 | z false left 0 reset 0 retry -1", route: "/z"},
		"cost 0":                {check: enforcement.Check{Path: "/a"}, want: "true ok retry 0 | a true left 2 reset 0 retry 0", route: "/a"},
		"missing":               {check: enforcement.Check{Path: "/d", Cost: 1}, want: "false missing_attribute retry -1", route: "/d"},
		"missing, limiter away": {away: true, check: enforcement.Check{Path: "/d", Cost: 1}, want: "false missing_attribute retry -1", route: "/d"},
		"not missing":           {check: enforcement.Check{Path: "/d", Cost: 1, Attributes: attributes("user", "u")}, want: "true ok retry 0 | d true left 1 reset 60000 retry 0", route: "/d"},
		"empty is missing":      {check: enforcement.Check{Path: "/d", Cost: 1, Attributes: attributes("user", "")}, want: "false missing_attribute retry -1", route: "/d"},
		"exempt":                {check: enforcement.Check{Path: "/x", Cost: 1}, want: "true ok retry 0", route: "/x"},
		"exempt, limiter away":  {away: true, check: enforcement.Check{Path: "/x", Cost: 1}, want: "true ok retry 0", route: "/x"},
		"limiter away, closed":  {away: true, check: enforcement.Check{Path: "/c", Cost: 1}, want: "false limiter_unavailable retry 1000 degraded", route: "/c"},
		"no policy":             {check: enforcement.Check{Path: "/n", Cost: 1}, want: "true no_policy retry 0", route: "(none)"},
		"no policy, limiter away": {
			away: true, check: enforcement.Check{Path: "/n", Cost: 1}, want: "true no_policy retry 0", route: "(none)",
		},
		"no policy, deny": {
			edit:  func(s *enforcement.Subject) { s.DenyUnmatched = true },
			check: enforcement.Check{Path: "/n", Cost: 1}, want: "false no_policy retry -1", route: "(none)",
		},
		"no plan": {
			edit:  func(s *enforcement.Subject) { s.Plan = nil },
			check: enforcement.Check{Path: "/a", Cost: 1}, want: "true no_policy retry 0", route: "(none)",
		},
		"no plan, deny": {
			edit:  func(s *enforcement.Subject) { s.Plan, s.DenyUnmatched = nil, true },
			check: enforcement.Check{Path: "/a", Cost: 1}, want: "false no_policy retry -1", route: "(none)",
		},
		"suspended": {
			edit:  func(s *enforcement.Subject) { s.Suspended, s.DenyUnmatched = true, true },
			check: enforcement.Check{Path: "/d", Cost: 1}, want: "false tenant_suspended retry -1", route: "/d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := subject(t, a, none, denies, closed, exempt)
			if c.edit != nil {
				c.edit(s)
			}
			limiter := enforcement.Limiter(newCounters())
			if c.away {
				limiter = away{enforcement.Failed}
			}
			e := enforcement.NewEngine(limiter, enforcement.Config{})
			for range c.before {
				decide(e, s, c.check)
			}
			d := decide(e, s, c.check)
			wantSummary(t, d, c.want)
			if d.Route != c.route {
				t.Errorf("route %q, want %q", d.Route, c.route)
			}
			if d.ID[6]>>4 != 7 || d.ID[8]>>6 != 2 {
				t.Errorf("id %x is no UUIDv7", d.ID)
			}
			if missing := d.Reason == enforcement.ReasonMissingAttribute; missing != (d.Missing == "user" && d.Policy == "d") {
				t.Errorf("missing %q of policy %q", d.Missing, d.Policy)
			}
			c.check.Mode = enforcement.Force
			if d := decide(e, s, c.check); !d.Allowed {
				t.Errorf("a forced check is refused: %s", summary(d))
			}
		})
	}
}

func TestAllOrNothingAcrossPolicies(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	s := subject(t,
		enforcement.RuleSpec{Policy: "wide", Limits: []enforcement.RuleLimit{
			window(1, 10), limit("bucket", 2, enforcement.TokenBucket, 5, time.Second),
		}},
		enforcement.RuleSpec{Policy: "narrow", Path: "/a/*", Limits: []enforcement.RuleLimit{
			limit("hour", 3, enforcement.FixedWindow, 3, time.Hour),
		}},
	)
	check := enforcement.Check{Path: "/a/b", Cost: 3}
	wantSummary(t, decide(e, s, check), "true ok retry 0 | wide.l1 true left 7 reset 60000 retry 0 | wide.bucket true left 2 reset 600 retry 0 | narrow true left 0 reset 3600000 retry 0")
	wantSummary(t, decide(e, s, check), "false over_limit retry 3600000 | wide.l1 true left 7 reset 60000 retry 0 | wide.bucket false left 2 reset 600 retry 200 | narrow false left 0 reset 3600000 retry 3600000")
	check.Cost = 4 // more than the quota of narrow
	wantSummary(t, decide(e, s, check), "false cost_exceeds_quota retry -1 | wide.l1 true left 7 reset 60000 retry 0 | wide.bucket false left 2 reset 600 retry 400 | narrow false left 0 reset 3600000 retry -1")
	check = enforcement.Check{Path: "/b", Cost: 2}
	wantSummary(t, decide(e, s, check), "true ok retry 0 | wide.l1 true left 5 reset 60000 retry 0 | wide.bucket true left 0 reset 1000 retry 0")
}

func TestReplaces(t *testing.T) {
	t.Parallel()
	rule := func(slug string, cell uint32, edit func(*enforcement.RuleSpec)) enforcement.RuleSpec {
		r := enforcement.RuleSpec{Policy: slug, Limits: []enforcement.RuleLimit{window(cell, 10)}}
		if edit != nil {
			edit(&r)
		}
		return r
	}
	replaces := func(slugs ...string) func(*enforcement.RuleSpec) {
		return func(r *enforcement.RuleSpec) { r.Replaces = slugs }
	}
	for name, c := range map[string]struct {
		specs []enforcement.RuleSpec
		check enforcement.Check
		want  string // the policies that apply
	}{
		"removes":           {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, replaces("a"))}, want: "b"},
		"removes several":   {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, nil), rule("c", 3, replaces("a", "b"))}, want: "c"},
		"even if removed":   {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, replaces("a")), rule("c", 3, replaces("b"))}, want: "c"},
		"not when unlisted": {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, nil)}, want: "a b"},
		"not when off": {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, func(r *enforcement.RuleSpec) {
			r.Replaces, r.Mode = []string{"a"}, enforcement.PolicyOff
		})}, want: "a"},
		"not when shadow": {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, func(r *enforcement.RuleSpec) {
			r.Replaces, r.Mode = []string{"a"}, enforcement.PolicyShadow
		})}, want: "a b"},
		"not when skipped": {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, func(r *enforcement.RuleSpec) {
			r.Replaces, r.CountBy, r.Missing = []string{"a"}, []string{"user"}, enforcement.MissingSkip
		})}, want: "a"},
		"when not skipped": {
			specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, func(r *enforcement.RuleSpec) {
				r.Replaces, r.CountBy, r.Missing = []string{"a"}, []string{"user"}, enforcement.MissingSkip
			})},
			check: enforcement.Check{Attributes: attributes("user", "u")}, want: "b",
		},
		"not when it does not match": {specs: []enforcement.RuleSpec{rule("a", 1, nil), rule("b", 2, func(r *enforcement.RuleSpec) {
			r.Replaces, r.Path = []string{"a"}, "/b"
		})}, want: "a"},
		"a shadow one": {specs: []enforcement.RuleSpec{rule("a", 1, func(r *enforcement.RuleSpec) { r.Mode = enforcement.PolicyShadow }), rule("b", 2, replaces("a"))}, want: "b"},
		"exempts":      {specs: []enforcement.RuleSpec{rule("a", 1, nil), {Policy: "free", Replaces: []string{"a"}}}, want: ""},
		"one that denies": {specs: []enforcement.RuleSpec{rule("a", 1, func(r *enforcement.RuleSpec) {
			r.CountBy, r.Missing = []string{"user"}, enforcement.MissingDeny
		}), rule("b", 2, replaces("a"))}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newCounters()
			e := enforcement.NewEngine(l, enforcement.Config{})
			c.check.Cost = 1
			d := decide(e, subject(t, c.specs...), c.check)
			var got []string
			for _, l := range d.Limits {
				got = append(got, l.Rule.Policy)
			}
			if strings.Join(got, " ") != c.want || !d.Allowed || d.Reason != enforcement.ReasonOK {
				t.Errorf("applied %q, want %q: %s", got, c.want, summary(d))
			}
			if charges := len(l.states); charges != len(got) {
				t.Errorf("%d counters charged for %d limits", charges, len(got))
			}
		})
	}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "any"},
		enforcement.RuleSpec{Policy: "get", Methods: []string{"GET"}},
		enforcement.RuleSpec{Policy: "api", Path: "/api/*"},
		enforcement.RuleSpec{Policy: "user", Path: "/api/users/{id}"},
		enforcement.RuleSpec{Policy: "me", Path: "/api/users/me", Methods: []string{"GET", "PUT"}},
		enforcement.RuleSpec{Policy: "free", Attributes: map[string]string{"tier": "free"}},
		enforcement.RuleSpec{Policy: "here", Attributes: map[string]string{"ip": "::ffff:192.0.2.1"}},
		enforcement.RuleSpec{Policy: "root", Path: "/"},
		enforcement.RuleSpec{Policy: "off", Path: "/off", Mode: enforcement.PolicyOff},
	)
	for _, c := range []struct {
		check enforcement.Check
		want  string
		route string
	}{
		{enforcement.Check{}, "any", "*"},
		{enforcement.Check{Method: "GET"}, "any get", "*"},
		{enforcement.Check{Method: "HEAD"}, "any", "*"},
		{enforcement.Check{Method: "get"}, "any", "*"},
		{enforcement.Check{Path: "/"}, "any root", "*"},
		{enforcement.Check{Path: "/api"}, "any api", "/api/*"},
		{enforcement.Check{Path: "/api/users/7"}, "any api user", "/api/users/{id}"},
		{enforcement.Check{Path: "/api/users/7/x"}, "any api", "/api/*"},
		{enforcement.Check{Path: "/api/users/me", Method: "PUT"}, "any api user me", "/api/users/me"},
		{enforcement.Check{Path: "/api/users/me", Method: "POST"}, "any api user", "/api/users/{id}"},
		{enforcement.Check{Attributes: attributes("tier", "free")}, "any free", "*"},
		{enforcement.Check{Attributes: attributes("tier", "Free")}, "any", "*"},
		{enforcement.Check{Attributes: attributes("tier", "")}, "any", "*"},
		{enforcement.Check{Attributes: attributes("Tier", "free")}, "any", "*"},
		{enforcement.Check{Attributes: attributes("ip", "192.0.2.1")}, "any here", "*"},
		{enforcement.Check{Path: "/off"}, "any", "/off"},
	} {
		// Each rule has a different limit, so the decision shows which rules apply.
		var specs []enforcement.RuleSpec
		for i, r := range s.Plan.Rules {
			spec := r.RuleSpec
			spec.Limits = []enforcement.RuleLimit{window(uint32(i+1), 10)}
			specs = append(specs, spec)
		}
		e := enforcement.NewEngine(newCounters(), enforcement.Config{})
		d := decide(e, subject(t, specs...), c.check)
		var got []string
		for _, l := range d.Limits {
			got = append(got, l.Rule.Policy)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, want %q", c.check, got, c.want)
		}
		if d.Route != c.route {
			t.Errorf("%+v: route %q, want %q", c.check, d.Route, c.route)
		}
	}
}

func TestRouteIsTheMostSpecific(t *testing.T) {
	t.Parallel()
	e := enforcement.NewEngine(newCounters(), enforcement.Config{})
	s := subject(t,
		enforcement.RuleSpec{Policy: "b", Path: "/a/{y}"},
		enforcement.RuleSpec{Policy: "a", Path: "/a/{x}"},
		enforcement.RuleSpec{Policy: "c", Path: "/a/{z}", Methods: []string{"GET"}},
	)
	if d := decide(e, s, enforcement.Check{Path: "/a/1"}); d.Route != "/a/{x}" {
		t.Errorf("by slug: %q", d.Route)
	}
	if d := decide(e, s, enforcement.Check{Path: "/a/1", Method: "GET"}); d.Route != "/a/{z}" {
		t.Errorf("by method: %q", d.Route)
	}
}

func TestMissingAttributeIsNoWayAround(t *testing.T) {
	t.Parallel()
	rule := enforcement.RuleSpec{Policy: "a", CountBy: []string{"user", "ip"}, Limits: []enforcement.RuleLimit{window(1, 1)}}
	e := enforcement.NewEngine(newCounters(), enforcement.Config{})
	s := subject(t, rule)
	for _, c := range []struct {
		attributes []enforcement.Attribute
		allowed    bool
	}{
		{attributes("user", "u", "ip", "192.0.2.1"), true},
		{attributes("user", "u", "ip", "192.0.2.1"), false},
		{attributes("ip", "192.0.2.1", "user", "u"), false}, // the order of attributes does not matter
		{attributes("user", "u"), true},                     // a missing value is a different key
		{attributes("user", "u"), false},
		{attributes("user", "u", "ip", ""), false},
		{attributes("user", "v"), true}, // the other values still make different keys
		{attributes("ip", "192.0.2.1"), true},
		{nil, true},
		{nil, false},
		{attributes("other", "x"), false},
	} {
		if d := decide(e, s, enforcement.Check{Cost: 1, Attributes: c.attributes}); d.Allowed != c.allowed {
			t.Errorf("%v: %s", c.attributes, summary(d))
		}
	}
	rule.Missing = enforcement.MissingSkip
	s = subject(t, rule)
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 1}), "true no_policy retry 0")
	s.DenyUnmatched = true
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 1}), "false no_policy retry -1")
}

func TestIPPrefix(t *testing.T) {
	t.Parallel()
	e := enforcement.NewEngine(newCounters(), enforcement.Config{})
	s := subject(t, enforcement.RuleSpec{Policy: "a", CountBy: []string{"ip/64"}, Limits: []enforcement.RuleLimit{window(1, 1)}})
	for _, c := range []struct {
		ip      string
		allowed bool
	}{
		{"2001:db8::1", true},
		{"2001:db8::ffff:ffff:ffff:ffff", false},
		{"2001:db8:0:1::1", true},
		{"192.0.2.1", true},
		{"192.0.2.2", true},
		{"::ffff:192.0.2.1", false},
	} {
		addr, canonical, err := enforcement.CanonicalIP(c.ip)
		if err != nil {
			t.Fatal(err)
		}
		d := decide(e, s, enforcement.Check{Cost: 1, Attributes: attributes("ip", canonical), IP: addr})
		if d.Allowed != c.allowed {
			t.Errorf("%s: %s", c.ip, summary(d))
		}
	}
}

func TestShadowChangesNoAnswer(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	s := subject(t,
		enforcement.RuleSpec{Policy: "s1", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(1, 1), window(2, 9)}},
		enforcement.RuleSpec{Policy: "e", Limits: []enforcement.RuleLimit{window(3, 3)}},
		enforcement.RuleSpec{Policy: "s2", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(4, 2)}},
	)
	check := enforcement.Check{Cost: 1}
	wantSummary(t, decide(e, s, check), "true ok retry 0 | s1.l1 true left 0 reset 60000 retry 0 | s1.l2 true left 8 reset 60000 retry 0 | e true left 2 reset 60000 retry 0 | s2 true left 1 reset 60000 retry 0")
	// s1 denies, so none of its limits is charged. s2 is independent.
	wantSummary(t, decide(e, s, check), "true ok retry 0 | s1.l1 false left 0 reset 60000 retry 60000 | s1.l2 true left 8 reset 60000 retry 0 | e true left 1 reset 60000 retry 0 | s2 true left 0 reset 60000 retry 0")
	decide(e, s, check)
	l.now += 1_000_000
	before := fmt.Sprint(l.states)
	// The check is denied, so shadow policies are not charged either.
	wantSummary(t, decide(e, s, check), "false over_limit retry 59000 | s1.l1 false left 0 reset 59000 retry 59000 | s1.l2 true left 8 reset 59000 retry 0 | e false left 0 reset 59000 retry 59000 | s2 false left 0 reset 59000 retry 59000")
	if after := fmt.Sprint(l.states); after != before {
		t.Errorf("a refusal changed %s to %s", before, after)
	}
}

func TestShadowAloneIsNoPolicy(t *testing.T) {
	t.Parallel()
	for _, missing := range []enforcement.Missing{enforcement.MissingShared, enforcement.MissingDeny} {
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{})
		s := subject(t, enforcement.RuleSpec{Policy: "s", Mode: enforcement.PolicyShadow, CountBy: []string{"user"}, Missing: missing, Limits: []enforcement.RuleLimit{window(1, 0)}})
		d := decide(e, s, enforcement.Check{Cost: 1})
		if !d.Allowed || d.Reason != enforcement.ReasonNoPolicy || d.RetryAfter != 0 {
			t.Errorf("%s: %s", missing, summary(d))
		}
		s.DenyUnmatched = true
		d = decide(e, s, enforcement.Check{Cost: 1})
		wantSummary(t, d, "false no_policy retry -1")
	}
}

func TestForce(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	s := subject(t,
		enforcement.RuleSpec{Policy: "e", Limits: []enforcement.RuleLimit{window(1, 3), limit("b", 2, enforcement.GCRA, 100, time.Second)}},
		enforcement.RuleSpec{Policy: "s", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(3, 2)}},
		enforcement.RuleSpec{Policy: "d", CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Limits: []enforcement.RuleLimit{window(4, 9)}},
	)
	s.Suspended = true
	check := enforcement.Check{Cost: 5, Mode: enforcement.Force}
	wantSummary(t, decide(e, s, check), "true ok retry 0 | e.l1 false left 0 reset 60000 retry -1 | e.b true left 95 reset 50 retry 0 | s false left 0 reset 60000 retry -1 | d true left 4 reset 60000 retry 0")
	check.Cost = 2
	wantSummary(t, decide(e, s, check), "true ok retry 0 | e.l1 false left 0 reset 60000 retry 60000 | e.b true left 93 reset 70 retry 0 | s false left 0 reset 60000 retry 60000 | d true left 2 reset 60000 retry 0")
	for key, want := range map[uint32]int64{1: 7, 3: 7, 4: 7} {
		for k, state := range l.states {
			if k.Cell == key && state.A != want {
				t.Errorf("cell %d holds %d, want %d", key, state.A, want)
			}
		}
	}
}

func TestRecorderHearsAllButPeeks(t *testing.T) {
	t.Parallel()
	heard := new(recorded)
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Recorder: heard})
	s := subject(t, enforcement.RuleSpec{Policy: "e", Limits: []enforcement.RuleLimit{window(1, 1)}})
	check, peek := enforcement.Check{Cost: 1}, enforcement.Check{Cost: 1, Mode: enforcement.Peek}
	decide(e, s, peek)
	decide(e, s, check)
	decide(e, s, check)
	items := make([]enforcement.BatchItem, 3)
	for i := range items {
		items[i] = enforcement.BatchItem{Subject: s, Check: &check, Decision: new(enforcement.Decision)}
	}
	items[1].Check = &peek
	e.DecideBatch(context.Background(), items, false)
	e.DecideBatch(context.Background(), items[:1], true)
	if got := fmt.Sprint(*heard); got != "[ok over_limit over_limit over_limit over_limit]" {
		t.Errorf("heard %s", got)
	}
}

func TestBatchAsksOnce(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	limited := subject(t, enforcement.RuleSpec{Policy: "e", Limits: []enforcement.RuleLimit{window(1, 3)}})
	other := subject(t, enforcement.RuleSpec{Policy: "e", Limits: []enforcement.RuleLimit{window(1, 3)}})
	other.Number, other.Home, other.MaxKeys = 8, "t08", 5000
	suspended := subject(t)
	suspended.Suspended = true
	var items []enforcement.BatchItem
	for _, s := range []*enforcement.Subject{limited, suspended, other, limited, subject(t)} {
		items = append(items, enforcement.BatchItem{Subject: s, Check: &enforcement.Check{Cost: 2}, Decision: new(enforcement.Decision)})
	}
	e.DecideBatch(context.Background(), items, false)
	for i, want := range []string{
		"true ok retry 0 | e true left 1 reset 60000 retry 0",
		"false tenant_suspended retry -1",
		"true ok retry 0 | e true left 1 reset 60000 retry 0",
		"false over_limit retry 60000 | e false left 1 reset 60000 retry 60000",
		"true no_policy retry 0",
	} {
		wantSummary(t, items[i].Decision, want)
	}
	if l.calls != 1 || len(l.asked) != 3 || l.asked[0].Home != "t07" || l.asked[1].Home != "t08" ||
		l.asked[0].MaxKeys != 0 || l.asked[1].MaxKeys != 5000 {
		t.Errorf("%d calls, the last with %d requests", l.calls, len(l.asked))
	}
	for i, r := range l.asked {
		if want := []int{0, 2, 3}[i]; r.ID != items[want].Decision.ID {
			t.Errorf("request %d is not that of item %d", i, want)
		}
	}
	e.DecideBatch(context.Background(), nil, false)
	e.DecideBatch(context.Background(), nil, true)
	e.DecideBatch(context.Background(), items[1:2], false)
	if l.calls != 1 {
		t.Errorf("asked for nothing")
	}
}

func TestAtomicBatch(t *testing.T) {
	t.Parallel()
	shadow := enforcement.RuleSpec{Policy: "s", Path: "/a", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(9, 3)}}
	s := func(t *testing.T) *enforcement.Subject {
		return subject(t, shadow,
			enforcement.RuleSpec{Policy: "a", Path: "/a", Limits: []enforcement.RuleLimit{window(1, 4)}},
			enforcement.RuleSpec{Policy: "b", Path: "/b", Limits: []enforcement.RuleLimit{limit("h", 2, enforcement.FixedWindow, 2, time.Hour)}},
			enforcement.RuleSpec{Policy: "d", Path: "/d", CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Limits: []enforcement.RuleLimit{window(3, 9)}},
			enforcement.RuleSpec{Policy: "x", Path: "/x"},
		)
	}
	for name, c := range map[string]struct {
		before []enforcement.Check
		checks []enforcement.Check
		want   []string
		calls  int
	}{
		"all pass": {
			checks: []enforcement.Check{{Path: "/a", Cost: 2}, {Path: "/b", Cost: 1}, {Path: "/a", Cost: 2}, {Path: "/x", Cost: 1}},
			want: []string{
				"true ok retry 0 | s true left 1 reset 60000 retry 0 | a true left 0 reset 60000 retry 0",
				"true ok retry 0 | b true left 1 reset 3600000 retry 0",
				"true ok retry 0 | s false left 1 reset 60000 retry 60000 | a true left 0 reset 60000 retry 0",
				"true ok retry 0",
			},
			calls: 1,
		},
		"one refuses": {
			before: []enforcement.Check{{Path: "/b", Cost: 2}},
			checks: []enforcement.Check{{Path: "/a", Cost: 1}, {Path: "/b", Cost: 1}, {Path: "/x"}},
			want: []string{
				"false batch_refused retry 3600000 | s true left 3 reset 0 retry 0 | a true left 4 reset 0 retry 0",
				"false over_limit retry 3600000 | b false left 0 reset 3600000 retry 3600000",
				"false batch_refused retry 3600000",
			},
			calls: 1,
		},
		"together too much": {
			before: []enforcement.Check{{Path: "/a", Cost: 1}},
			checks: []enforcement.Check{{Path: "/a", Cost: 2}, {Path: "/a", Cost: 2}, {Path: "/b", Cost: 1}},
			want: []string{
				"false over_limit retry 60000 | s true left 2 reset 60000 retry 0 | a false left 3 reset 60000 retry 60000",
				"false over_limit retry 60000 | s true left 2 reset 60000 retry 0 | a false left 3 reset 60000 retry 60000",
				"false batch_refused retry 60000 | b true left 2 reset 0 retry 0",
			},
			calls: 1,
		},
		"together never": {
			checks: []enforcement.Check{{Path: "/b", Cost: 2}, {Path: "/b", Cost: 1}, {Path: "/a", Cost: 1}},
			want: []string{
				"false cost_exceeds_quota retry -1 | b false left 2 reset 0 retry -1",
				"false cost_exceeds_quota retry -1 | b false left 2 reset 0 retry -1",
				"false batch_refused retry -1 | s true left 3 reset 0 retry 0 | a true left 4 reset 0 retry 0",
			},
			calls: 1,
		},
		"one is missing an attribute": {
			checks: []enforcement.Check{{Path: "/a", Cost: 1}, {Path: "/d", Cost: 1}},
			want:   []string{"false batch_refused retry -1", "false missing_attribute retry -1"},
			calls:  0,
		},
		"peek": {
			checks: []enforcement.Check{{Path: "/b", Cost: 1, Mode: enforcement.Peek}, {Path: "/b", Cost: 2, Mode: enforcement.Peek}},
			want:   []string{"false cost_exceeds_quota retry -1 | b false left 2 reset 0 retry -1", "false cost_exceeds_quota retry -1 | b false left 2 reset 0 retry -1"},
			calls:  1,
		},
		"force": {
			checks: []enforcement.Check{{Path: "/b", Cost: 2, Mode: enforcement.Force}, {Path: "/d", Cost: 2, Mode: enforcement.Force}},
			want:   []string{"true ok retry 0 | b true left 0 reset 3600000 retry 0", "true ok retry 0 | d true left 7 reset 60000 retry 0"},
			calls:  1,
		},
		"nothing to charge": {
			checks: []enforcement.Check{{Path: "/x"}, {Path: "/n"}},
			want:   []string{"true ok retry 0", "true no_policy retry 0"},
			calls:  0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newCounters()
			e := enforcement.NewEngine(l, enforcement.Config{})
			s := s(t)
			for _, c := range c.before {
				decide(e, s, c)
			}
			before, calls := used(l), l.calls
			var items []enforcement.BatchItem
			for i := range c.checks {
				items = append(items, enforcement.BatchItem{Subject: s, Check: &c.checks[i], Decision: new(enforcement.Decision)})
			}
			e.DecideBatch(context.Background(), items, true)
			for i := range items {
				wantSummary(t, items[i].Decision, c.want[i])
			}
			if l.calls-calls != c.calls {
				t.Errorf("%d calls, want %d", l.calls-calls, c.calls)
			}
			charged := items[0].Decision.Allowed && c.calls > 0
			if (used(l) != before) != charged {
				t.Errorf("charged: before %s, after %s", before, used(l))
			}
		})
	}
}

// used returns the counters that have a state.
func used(l *counters) string {
	states := make(map[enforcement.Key]enforcement.State)
	for k, state := range l.states {
		if !state.Fresh() {
			states[k] = state
		}
	}
	return fmt.Sprint(states)
}

// TestFailureModes checks every pair of failure modes of two policies while the limiter is
// unavailable, with and without a local limiter.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	const o, l, c = enforcement.OnFailureOpen, enforcement.OnFailureLocal, enforcement.OnFailureClosed
	const (
		passes      = "true ok retry 0 degraded"
		unavailable = "false limiter_unavailable retry 1000 degraded"
		aPasses     = " | a true left 4 reset 60000 retry 0"
		bPasses     = " | b true left 2 reset 60000 retry 0"
	)
	for _, test := range []struct {
		a, b          enforcement.OnFailure
		with, without string // with and without a local limiter
	}{
		{o, o, passes, passes},
		{o, l, passes + bPasses, unavailable},
		{o, c, unavailable, unavailable},
		{l, o, passes + aPasses, unavailable},
		{l, l, passes + aPasses + bPasses, unavailable},
		{l, c, unavailable, unavailable},
		{c, o, unavailable, unavailable},
		{c, l, unavailable, unavailable},
		{c, c, unavailable, unavailable},
	} {
		for _, verdict := range []enforcement.Verdict{0, enforcement.Failed, enforcement.Fenced, enforcement.Lost, enforcement.Unknown} {
			s := subject(t,
				enforcement.RuleSpec{Policy: "a", OnFailure: test.a, Limits: []enforcement.RuleLimit{window(1, 15)}},
				enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, OnFailure: c, Limits: []enforcement.RuleLimit{window(2, 1)}},
				enforcement.RuleSpec{Policy: "b", OnFailure: test.b, Limits: []enforcement.RuleLimit{window(3, 7)}},
				enforcement.RuleSpec{Policy: "none", OnFailure: c},
			)
			local := newCounters()
			e := enforcement.NewEngine(away{verdict}, enforcement.Config{Local: local, Nodes: 3})
			wantSummary(t, decide(e, s, enforcement.Check{Cost: 1}), test.with)
			for k := range local.states {
				if k.Cell == 2 {
					t.Error("a shadow policy was charged")
				}
			}
			e = enforcement.NewEngine(away{verdict}, enforcement.Config{})
			wantSummary(t, decide(e, s, enforcement.Check{Cost: 1}), test.without)
			e = enforcement.NewEngine(away{verdict}, enforcement.Config{Local: away{verdict}})
			wantSummary(t, decide(e, s, enforcement.Check{Cost: 1}), test.without)
			d := decide(e, s, enforcement.Check{Cost: 1, Mode: enforcement.Force})
			if !d.Allowed || !d.Degraded || d.Reason != enforcement.ReasonOK {
				t.Errorf("forced: %s", summary(d))
			}
		}
	}
}

func TestLocalShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		quota, burst int64
		nodes        int
		want, full   int64 // quota and capacity of the local limiter
	}{
		{10, 0, 1, 10, 10},
		{10, 0, 3, 4, 4},
		{9, 0, 3, 3, 3},
		{1, 0, 3, 1, 1},
		{0, 0, 3, 0, 0},
		{0, 7, 3, 0, 3},
		{2, 0, 100, 1, 1},
		{10, 25, 4, 3, 7},
		{enforcement.MaxQuota, 0, 7, 142_857_142_858, 142_857_142_858},
		{10, 0, 0, 10, 10},
		{10, 0, -4, 10, 10},
	} {
		l := enforcement.Limit{Name: "b", Algorithm: enforcement.TokenBucket, Quota: c.quota, Burst: c.burst, Window: time.Second}
		local := newCounters()
		e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: local, Nodes: c.nodes})
		s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{{Limit: l, Cell: 1, Meter: l.Compile(1)}}})
		for range 2 {
			decide(e, s, enforcement.Check{Cost: 0})
			if m := local.asked[0].Charges[0].Meter; m.Quota != c.want || m.Capacity != c.full {
				t.Errorf("%+v: quota %d, capacity %d", c, m.Quota, m.Capacity)
			}
		}
	}
}

func TestLocalRefusalIsOrdinary(t *testing.T) {
	t.Parallel()
	local := newCounters()
	e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: local, Nodes: 2})
	s := subject(t,
		enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 4)}},
		enforcement.RuleSpec{Policy: "b", Limits: []enforcement.RuleLimit{window(2, 100)}},
	)
	decide(e, s, enforcement.Check{Cost: 2})
	d := decide(e, s, enforcement.Check{Cost: 1})
	wantSummary(t, d, "false over_limit retry 60000 degraded | a false left 0 reset 60000 retry 60000 | b true left 48 reset 60000 retry 0")
	if d.Limits[0].Shared {
		t.Error("a local limit is said to be shared")
	}
	// A check that fits the limit but not the share can pass when the limiter is available
	// again.
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 3}), "false over_limit retry 1000 degraded | a false left 0 reset 60000 retry 1000 | b true left 48 reset 60000 retry 0")
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 5}), "false cost_exceeds_quota retry -1 degraded | a false left 0 reset 60000 retry -1 | b true left 48 reset 60000 retry 0")
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 1, Mode: enforcement.Peek}), summary(d))
	// A check in mode force is charged by the local limiter.
	wantSummary(t, decide(e, s, enforcement.Check{Cost: 1, Mode: enforcement.Force}), "true ok retry 0 degraded | a false left 0 reset 60000 retry 60000 | b true left 47 reset 60000 retry 0")
}

func TestFailureOfAnAtomicBatch(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "local", Path: "/l", Limits: []enforcement.RuleLimit{window(1, 2)}},
		enforcement.RuleSpec{Policy: "open", Path: "/o", OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(2, 2)}},
		enforcement.RuleSpec{Policy: "closed", Path: "/c", OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(3, 2)}},
		enforcement.RuleSpec{Policy: "none", Path: "/n"},
	)
	local := newCounters()
	e := enforcement.NewEngine(away{enforcement.Unknown}, enforcement.Config{Local: local})
	play := func(paths string, want ...string) {
		t.Helper()
		var items []enforcement.BatchItem
		for _, p := range strings.Fields(paths) {
			items = append(items, enforcement.BatchItem{Subject: s, Check: &enforcement.Check{Path: p, Cost: 1}, Decision: new(enforcement.Decision)})
		}
		e.DecideBatch(context.Background(), items, true)
		for i := range items {
			wantSummary(t, items[i].Decision, want[i])
		}
	}
	play("/l /c /n", "false batch_refused retry 1000 degraded", "false limiter_unavailable retry 1000 degraded", "false batch_refused retry 1000")
	if len(local.states) != 0 {
		t.Error("a closed batch was charged")
	}
	play("/l /o /n /l", "true ok retry 0 degraded | local true left 0 reset 60000 retry 0", "true ok retry 0 degraded", "true ok retry 0", "true ok retry 0 degraded | local true left 0 reset 60000 retry 0")
	play("/l /o", "false over_limit retry 60000 degraded | local false left 0 reset 60000 retry 60000", "false batch_refused retry 60000 degraded")
}

// If a limiter decides only some requests of a batch, these decisions are used.
func TestFailureOfPartOfABatch(t *testing.T) {
	t.Parallel()
	good := newCounters()
	e := enforcement.NewEngine(limiterFunc(func(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
		good.Take(ctx, requests, outcomes)
		outcomes[1] = enforcement.Outcome{Verdict: enforcement.Lost, Err: errors.New("lost")}
		outcomes[2].Charges = nil // the charges of another request
	}), enforcement.Config{})
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 9)}})
	var items []enforcement.BatchItem
	for range 4 {
		items = append(items, enforcement.BatchItem{Subject: s, Check: &enforcement.Check{Cost: 1}, Decision: new(enforcement.Decision)})
	}
	e.DecideBatch(context.Background(), items, false)
	wantSummary(t, items[0].Decision, "true ok retry 0 | a true left 8 reset 60000 retry 0")
	wantSummary(t, items[1].Decision, "false limiter_unavailable retry 1000 degraded")
	wantSummary(t, items[2].Decision, "false limiter_unavailable retry 1000 degraded")
	wantSummary(t, items[3].Decision, "true ok retry 0 | a true left 5 reset 60000 retry 0")
}

type limiterFunc func(context.Context, []enforcement.Request, []enforcement.Outcome)

func (f limiterFunc) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	f(ctx, requests, outcomes)
}

// The revision of a charge is the later one of the limit's revision and the tenant's revision.
func TestChargeCarriesTheTenantsRevision(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 9)}})
	for plan, want := range map[int64]int64{0: 1, 1: 1, 12: 12} {
		s.PlanRevision = plan
		decide(e, s, enforcement.Check{Cost: 1})
		if got := l.asked[0].Charges[0].Rev; got != want {
			t.Errorf("plan since %d: revision %d, want %d", plan, got, want)
		}
	}
}

// If the client disconnects before the limiter has decided, this is not a failure of the
// limiter. No failure mode decides, and nothing is recorded. Nothing is charged if the client
// disconnected before the call of the limiter.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "a", Path: "/a", Limits: []enforcement.RuleLimit{window(1, 9)}},
		enforcement.RuleSpec{Policy: "x", Path: "/x"})
	for name, c := range map[string]struct {
		before bool // the client disconnects before the call of the limiter; otherwise during the call
		caller bool // the connection shows it, and not the context
		atomic bool
		mode   enforcement.Mode
	}{
		"before":                    {before: true},
		"before, by its connection": {before: true, caller: true},
		"atomic batch, before, by its connection": {before: true, caller: true, atomic: true},
		"while":               {},
		"force, before":       {before: true, mode: enforcement.Force},
		"force, while":        {mode: enforcement.Force},
		"atomic batch, while": {atomic: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			switch {
			case c.caller:
				ctx = enforcement.WithCaller(ctx, gone{})
			case c.before:
				leave()
			}
			asked, local, heard := 0, newCounters(), new(recorded)
			e := enforcement.NewEngine(limiterFunc(func(ctx context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
				asked++
				leave()
				<-ctx.Done()
				for i := range outcomes {
					outcomes[i].Verdict, outcomes[i].Err = enforcement.Unknown, ctx.Err()
				}
			}), enforcement.Config{Local: local, Recorder: heard})
			var one, free enforcement.Decision
			e.DecideBatch(ctx, []enforcement.BatchItem{
				{Subject: s, Check: &enforcement.Check{Path: "/a", Cost: 1, Mode: c.mode}, Decision: &one},
				{Subject: s, Check: &enforcement.Check{Path: "/x", Cost: 1, Mode: c.mode}, Decision: &free},
			}, c.atomic)
			wantSummary(t, &one, "false limiter_unavailable retry 1000")
			if c.atomic {
				wantSummary(t, &free, "false limiter_unavailable retry 1000")
			} else {
				wantSummary(t, &free, "true ok retry 0") // no call of the limiter is needed
			}
			if (asked == 0) != c.before || len(local.states) > 0 || slices.Contains(*heard, enforcement.ReasonLimiterUnavailable) {
				t.Errorf("asked %d times, %d counters charged here, recorded %v", asked, len(local.states), *heard)
			}
		})
	}
}

// gone is a client that has disconnected.
type gone struct{}

func (gone) Left(context.Context, bool) bool { return true }

// The engine passes the context to the limiter unchanged. The limiter has its own timeout.
func TestLimiterHasTheCallersContext(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 9)}})
	good, ctx := newCounters(), context.WithValue(context.Background(), key{}, "kept")
	e := enforcement.NewEngine(limiterFunc(func(taken context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
		if _, bounded := taken.Deadline(); bounded || taken.Value(key{}) != "kept" {
			t.Errorf("deadline %t, value %v", bounded, taken.Value(key{}))
		}
		good.Take(taken, requests, outcomes)
	}), enforcement.Config{})
	var d enforcement.Decision
	e.Decide(ctx, s, &enforcement.Check{Cost: 1}, &d)
	wantSummary(t, &d, "true ok retry 0 | a true left 8 reset 60000 retry 0")
}

type key struct{}

// drawSubject draws a tenant with a few policies of any kind.
func drawSubject(t *rapid.T) *enforcement.Subject {
	algorithms := []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket}
	var specs []enforcement.RuleSpec
	cell := uint32(0)
	for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
		spec := enforcement.RuleSpec{
			Policy:  fmt.Sprint("p", i),
			Path:    rapid.SampledFrom([]string{"*", "/a", "/{x}", "/a/*"}).Draw(t, "path"),
			CountBy: rapid.SampledFrom([][]string{nil, {"user"}, {"user", "ip/64"}}).Draw(t, "count_by"),
			Missing: rapid.SampledFrom([]enforcement.Missing{enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny}).Draw(t, "missing"),
			Mode:    rapid.SampledFrom([]enforcement.PolicyMode{enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff}).Draw(t, "mode"),
		}
		if cost := rapid.Int64Range(-2, 3).Draw(t, "own cost"); cost >= 0 {
			spec.Cost = &cost
		}
		if rapid.IntRange(0, 3).Draw(t, "cost_from") == 0 {
			spec.CostFrom = "units"
		}
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "replaces") == 0 {
			spec.Replaces = []string{fmt.Sprint("p", rapid.IntRange(0, i-1).Draw(t, "replaced"))}
		}
		for k := range rapid.IntRange(0, 3).Draw(t, "limits") {
			a := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
			quota := rapid.Int64Range(0, 9).Draw(t, "quota")
			cell++
			spec.Limits = append(spec.Limits, limit(fmt.Sprint("l", k), cell, a, quota, time.Duration(rapid.IntRange(1, 3000).Draw(t, "window"))*time.Millisecond))
		}
		specs = append(specs, spec)
	}
	plan, err := enforcement.CompilePlan("p", 1, specs)
	if err != nil {
		t.Fatal(err)
	}
	return &enforcement.Subject{Plan: plan, Number: 1, Home: "t", DenyUnmatched: rapid.Bool().Draw(t, "deny")}
}

func drawCheck(t *rapid.T, modes ...enforcement.Mode) *enforcement.Check {
	c := &enforcement.Check{
		Path: rapid.SampledFrom([]string{"", "/a", "/b", "/a/b"}).Draw(t, "path"),
		Cost: rapid.Int64Range(0, 10).Draw(t, "cost"),
		Mode: rapid.SampledFrom(modes).Draw(t, "mode"),
	}
	if rapid.IntRange(0, 3).Draw(t, "default cost") == 0 {
		c.Cost, c.DefaultCost = 1, true
	}
	if user := rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "user"); user != "" {
		c.Attributes = attributes("user", user)
	}
	if ip := rapid.SampledFrom([]string{"", "192.0.2.1", "2001:db8::1"}).Draw(t, "ip"); ip != "" {
		addr, text, _ := enforcement.CanonicalIP(ip)
		c.IP, c.Attributes = addr, append(c.Attributes, enforcement.Attribute{Name: "ip", Value: text})
	}
	if units := rapid.IntRange(-3, 3).Draw(t, "units"); units >= 0 {
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: "units", Value: strconv.Itoa(units)})
	}
	return c
}

// The engine returns the same decisions with the in-process limiter as with the reference, for
// single checks, batches and atomic batches.
func TestEngineInProcess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		model := newCounters()
		one := enforcement.NewEngine(model, enforcement.Config{})
		two := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return model.now }}), enforcement.Config{})
		want, got := make([]enforcement.BatchItem, 3), make([]enforcement.BatchItem, 3)
		for range 15 {
			model.now += rapid.Int64Range(0, 900_000).Draw(t, "elapsed")
			size := rapid.IntRange(1, len(want)).Draw(t, "size")
			atomic := rapid.Bool().Draw(t, "atomic")
			modes := []enforcement.Mode{enforcement.Enforce, enforcement.Enforce, enforcement.Peek, enforcement.Force}
			if atomic {
				modes = []enforcement.Mode{rapid.SampledFrom(modes).Draw(t, "mode")}
			}
			for i := range size {
				c := drawCheck(t, modes...)
				want[i] = enforcement.BatchItem{Subject: s, Check: c, Decision: new(enforcement.Decision)}
				got[i] = enforcement.BatchItem{Subject: s, Check: c, Decision: new(enforcement.Decision)}
			}
			one.DecideBatch(context.Background(), want[:size], atomic)
			two.DecideBatch(context.Background(), got[:size], atomic)
			refused := 0
			for i := range size {
				if summary(want[i].Decision) != summary(got[i].Decision) {
					t.Fatalf("want %s\ngot  %s", summary(want[i].Decision), summary(got[i].Decision))
				}
				if !got[i].Decision.Allowed {
					refused++
				}
			}
			if atomic && refused != 0 && refused != size {
				t.Fatalf("%d of %d refused", refused, size)
			}
		}
	})
}

// Promise e for whole decisions: the retry time is the first millisecond at which the same
// check is allowed.
func TestRetryAfterOfADecision(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		now := start
		e := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return now }}), enforcement.Config{})
		for range 20 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			c := *drawCheck(t, enforcement.Enforce)
			d := decide(e, s, c)
			longest := int64(0)
			for _, l := range d.Limits {
				if l.Rule.Mode == enforcement.PolicyEnforce && !l.Allowed && longest != enforcement.Never {
					longest = max(longest, l.RetryAfter)
					if l.RetryAfter == enforcement.Never {
						longest = enforcement.Never
					}
				}
			}
			asked := d.Reason == enforcement.ReasonOK || d.Reason == enforcement.ReasonOverLimit || d.Reason == enforcement.ReasonCostExceedsQuota
			if asked && d.RetryAfter != longest || d.Allowed != (d.RetryAfter == 0) || (d.Reason == enforcement.ReasonCostExceedsQuota) != (asked && longest == enforcement.Never) {
				t.Fatal(summary(d))
			}
			if d.RetryAfter <= 0 {
				continue
			}
			c.Mode = enforcement.Peek
			at := now
			now = at + d.RetryAfter*1000
			if then := decide(e, s, c); !then.Allowed {
				t.Fatalf("%s\nthen %s", summary(d), summary(then))
			}
			now -= 1000
			if before := decide(e, s, c); before.Allowed {
				t.Fatalf("%s\na millisecond before %s", summary(d), summary(before))
			}
			now = at
		}
	})
}

// TestPeekSaysWhatEnforceWould sends random checks, each after a peek. The peek has the same
// result and changes nothing.
func TestPeekSaysWhatEnforceWould(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSubject(t)
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{})
		for range 20 {
			l.now += rapid.Int64Range(-200_000, 900_000).Draw(t, "elapsed")
			c := *drawCheck(t, enforcement.Peek)
			before := fmt.Sprint(l.states)
			peek := decide(e, s, c)
			if after := fmt.Sprint(l.states); after != before {
				t.Fatalf("a peek changed %s to %s", before, after)
			}
			c.Mode = enforcement.Enforce
			if enforced := decide(e, s, c); summary(enforced) != summary(peek) {
				t.Fatalf("peek: %s\nthen:  %s", summary(peek), summary(enforced))
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, limits := range []int{1, 3} {
		b.Run(fmt.Sprintf("limits=%d", limits), func(b *testing.B) {
			var specs []enforcement.RuleSpec
			for i := range limits {
				specs = append(specs, enforcement.RuleSpec{Policy: fmt.Sprint("p", i), Path: "/api/*", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{
					limit("l1", uint32(i), enforcement.TokenBucket, enforcement.MaxQuota, time.Second),
				}})
			}
			e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
			s := subject(b, specs...)
			c := enforcement.Check{Method: "GET", Path: "/api/users/42", Attributes: attributes("user", "u1"), Cost: 1}
			var d enforcement.Decision
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				e.Decide(ctx, s, &c, &d)
			}
		})
	}
}

// BenchmarkDecideInPlan measures a decision in a plan with many policies, of which one applies.
// The paths of the policies start with different segments, or with the same one.
func BenchmarkDecideInPlan(b *testing.B) {
	for name, form := range map[string]string{"first": "/r%d/{id}", "under": "/v1/r%d/{id}"} {
		for _, policies := range []int{1, 100, enforcement.MaxRules} {
			b.Run(fmt.Sprintf("%s/policies=%d", name, policies), func(b *testing.B) {
				var specs []enforcement.RuleSpec
				for i := range policies {
					specs = append(specs, enforcement.RuleSpec{
						Policy: fmt.Sprint("p", i), Methods: []string{"GET"}, Path: fmt.Sprintf(form, i), CountBy: []string{"user"},
						Limits: []enforcement.RuleLimit{limit("l1", uint32(i), enforcement.TokenBucket, enforcement.MaxQuota, time.Second)},
					})
				}
				e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
				s := subject(b, specs...)
				var checks []enforcement.Check
				for i := range policies {
					path := strings.Replace(fmt.Sprintf(form, i), "{id}", "42", 1)
					checks = append(checks, enforcement.Check{Method: "GET", Path: path, Attributes: attributes("user", "u1"), Cost: 1})
				}
				var d enforcement.Decision
				ctx := context.Background()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					e.Decide(ctx, s, &checks[i%policies], &d)
				}
			})
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{})
	s := subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user", "ip/64"}, Limits: []enforcement.RuleLimit{window(1, 9), window(2, 9)}})
	c := enforcement.Check{Path: "/a", Attributes: attributes("user", "u1"), Cost: 1}
	var d enforcement.Decision
	ctx := context.Background()
	if n := testing.AllocsPerRun(200, func() { e.Decide(ctx, s, &c, &d) }); n > 0 && !raced {
		t.Errorf("%v allocations a check", n)
	}
}
