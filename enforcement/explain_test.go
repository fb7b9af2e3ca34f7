package enforcement_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

// whys returns the policies of an explanation as one line.
func whys(policies []enforcement.PolicyExplanation) string {
	var list []string
	for _, p := range policies {
		text := fmt.Sprintf("%s %s", p.Rule.Policy, p.Why)
		if p.Attribute != "" {
			text += " " + p.Attribute
		}
		if p.ReplacedBy != "" {
			text += " by " + p.ReplacedBy
		}
		if p.Override != nil {
			text += " override " + p.Override.ID
		}
		if p.Block != nil {
			text += " block " + p.Block.ID
		}
		if p.Matches {
			text += " matches"
		}
		if p.Applies {
			text += " applies"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func TestExplainPolicies(t *testing.T) {
	t.Parallel()
	now := start
	w := func(cell uint32) []enforcement.RuleLimit { return []enforcement.RuleLimit{window(cell, 5)} }
	all := enforcement.RuleSpec{Policy: "all", CountBy: []string{"user"}, Limits: w(1)}
	off := enforcement.RuleSpec{Policy: "off", Mode: enforcement.PolicyOff, Limits: w(2)}
	post := enforcement.RuleSpec{Policy: "post", Methods: []string{"POST"}, Path: "/a", Limits: w(3)}
	path := enforcement.RuleSpec{Policy: "path", Path: "/b/*", Limits: w(4)}
	beta := enforcement.RuleSpec{Policy: "beta", Attributes: map[string]string{"beta": "yes"}, Limits: w(5)}
	skips := enforcement.RuleSpec{Policy: "skips", CountBy: []string{"app"}, Missing: enforcement.MissingSkip, Replaces: []string{"all"}, Limits: w(6)}
	shadow := enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, CountBy: []string{"app"}, Missing: enforcement.MissingDeny, Limits: w(7)}
	denies := enforcement.RuleSpec{Policy: "denies", Path: "/d", CountBy: []string{"app"}, Missing: enforcement.MissingDeny, Limits: w(8)}
	replaces := enforcement.RuleSpec{Policy: "replaces", Path: "/r", Replaces: []string{"denies", "all"}, Limits: w(9)}
	plain := subject(t, all, off, post, path, beta, skips, shadow, denies, replaces)
	block := []enforcement.Block{{ID: "b", Policy: "all", Key: attributes("user", "u"), Until: now + 1}}
	override := []enforcement.Override{{ID: "o", Policy: "all", Attribute: "user", Value: "u", Factor: 2000, Revision: 3, Until: now + 1}}
	for name, c := range map[string]struct {
		spec  enforcement.ExceptionSpec
		edit  func(*enforcement.Subject)
		check enforcement.Check
		want  string
	}{
		"plain": {
			check: asked("GET", "/a", "user", "u", "beta", "no"),
			want:  "all applies matches applies, off off matches, post method, path path, beta attribute beta, skips skipped app matches, shadow missing app matches, denies path, replaces path",
		},
		"all in": {
			check: asked("POST", "/b/x", "user", "u", "beta", "yes", "app", "web"),
			want:  "all replaced by skips matches, off off matches, post path, path applies matches applies, beta applies matches applies, skips applies matches applies, shadow applies matches applies, denies path, replaces path",
		},
		"denied for want of an attribute": {
			check: asked("GET", "/d", "user", "u"),
			want:  "all applies matches applies, off off matches, post method, path path, beta attribute beta, skips skipped app matches, shadow missing app matches, denies missing app matches applies, replaces path",
		},
		"replaced": {
			check: asked("GET", "/r", "user", "u"),
			want:  "all replaced by replaces matches, off off matches, post method, path path, beta attribute beta, skips skipped app matches, shadow missing app matches, denies path, replaces applies matches applies",
		},
		"exceptions": {
			spec:  enforcement.ExceptionSpec{Blocks: block, Overrides: override},
			check: asked("GET", "/a", "user", "u"),
			want:  "all blocked override o block b matches applies, off off matches, post method, path path, beta attribute beta, skips skipped app matches, shadow missing app matches, denies path, replaces path",
		},
		"listed": {
			spec:  enforcement.ExceptionSpec{Blocks: block, Deny: []enforcement.ListEntry{{ID: "e", Attribute: "user", Value: "u"}}},
			check: asked("GET", "/a", "user", "u"),
			want:  "all list block b matches, off off matches, post method, path path, beta attribute beta, skips list matches, shadow list matches, denies path, replaces path",
		},
		"suspended": {
			edit:  func(s *enforcement.Subject) { s.Suspended = true },
			check: asked("GET", "/a", "user", "u"),
			want:  "all list matches, off off matches, post method, path path, beta attribute beta, skips list matches, shadow list matches, denies path, replaces path",
		},
	} {
		s := addExceptions(t, plain, c.spec)
		if c.edit != nil {
			c.edit(s)
		}
		if diff := cmp.Diff(c.want, whys(enforcement.ExplainPolicies(s, &c.check, now))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := enforcement.ExplainPolicies(&enforcement.Subject{}, &enforcement.Check{}, now); len(got) != 0 {
		t.Error("a tenant without a plan has policies")
	}
}

// TestExplainAgrees runs random checks. Before each one, Explain returns its answer, its
// policies, and the state of their limits. Explain charges nothing, is not recorded, and
// makes one request of the limiter.
func TestExplainAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := drawSubject(t)
		l, heard := newCounters(), new(recorded)
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now), Recorder: heard})
		s := compiled(plain, drawExceptions(t, plain, l.now))
		s.Suspended = rapid.IntRange(0, 20).Draw(t, "suspended") == 0
		x := new(enforcement.Explanation)
		for range 15 {
			l.now += rapid.Int64Range(0, 900_000).Draw(t, "elapsed")
			c := *drawCheck(t, enforcement.Enforce)
			before, hearing := fmt.Sprint(l.states), len(*heard)
			l.calls = 0
			e.Explain(context.Background(), s, &c, x)
			if after := fmt.Sprint(l.states); after != before || l.calls > 1 || len(*heard) != hearing {
				t.Fatalf("explained in %d calls, %d records; states %s, then %s", l.calls, len(*heard)-hearing, before, after)
			}
			wantPassesAt(t, x, l.now)
			held := c
			held.Mode, held.Cost, held.DefaultCost = enforcement.Peek, 0, false
			held.Attributes = slices.DeleteFunc(slices.Clone(held.Attributes), func(a enforcement.Attribute) bool { return a.Name == "units" })
			wantHoldings(t, x, decide(e, s, held))

			peek := c
			peek.Mode = enforcement.Peek
			wantSame(t, "peek", x, decide(e, s, peek))
			enforced := decide(e, s, c)
			wantSame(t, "enforce", x, enforced)
			var applied, applies, charged []string
			for r := range enforced.Applied {
				applied = append(applied, r.Policy)
			}
			for _, p := range x.Policies {
				if p.Applies {
					applies = append(applies, p.Rule.Policy)
				}
			}
			if !slices.Equal(applied, applies) {
				t.Fatalf("applied %v, explained as %s", applied, whys(x.Policies))
			}
			for _, limit := range enforced.Limits {
				if !slices.Contains(charged, limit.Rule.Policy) {
					charged = append(charged, limit.Rule.Policy)
				}
			}
			applies = slices.DeleteFunc(applies, func(slug string) bool { r, _ := s.Plan.Rule(slug); return len(r.Limits) == 0 })
			if enforced.Allowed && !slices.Equal(charged, applies) {
				t.Fatalf("charged %v, explained as %s", charged, whys(x.Policies))
			}
		}
	})
}

func wantSame(t *rapid.T, what string, x *enforcement.Explanation, d *enforcement.Decision) {
	t.Helper()
	said, is := why(&x.Decision)+summary(&x.Decision)+x.Decision.Missing+x.Decision.Route, why(d)+summary(d)+d.Missing+d.Route
	if said != is {
		t.Fatalf("explained %s\n%s: %s", said, what, is)
	}
	for i := range d.Limits {
		said, is := x.Decision.Limits[i], d.Limits[i]
		if said.Override != is.Override || said.Limit != is.Limit || said.Partition != is.Partition {
			t.Fatalf("explained %+v\n%s: %+v", said, what, is)
		}
	}
}

func wantPassesAt(t *rapid.T, x *enforcement.Explanation, now int64) {
	t.Helper()
	d := &x.Decision
	ok := x.PassesAt > now+(d.RetryAfter-1)*1000 && x.PassesAt <= now+d.RetryAfter*1000
	switch {
	case d.Allowed:
		ok = x.PassesAt == now
	case d.RetryAfter == enforcement.Never:
		ok = x.PassesAt == enforcement.Never
	}
	if !ok {
		t.Fatalf("passes at %d, now %d: %s", x.PassesAt, now, summary(d))
	}
}

// wantHoldings compares the explanation with a check of cost 0, which does not change the
// limits.
func wantHoldings(t *rapid.T, x *enforcement.Explanation, d *enforcement.Decision) {
	t.Helper()
	for _, p := range x.Policies {
		if !p.Matches != (len(p.Limits) == 0) && len(p.Rule.Limits) > 0 {
			t.Fatalf("%s tells of %d limits", p.Rule.Policy, len(p.Limits))
		}
		for _, now := range p.Limits {
			for _, l := range d.Limits {
				if l.Limit == now.Limit && (l.Remaining != now.Remaining || l.ResetAfter != now.ResetAfter) {
					t.Fatalf("%s.%s holds %+v, and a check says %s", p.Rule.Policy, now.Limit.Name, now, summary(d))
				}
			}
		}
	}
}

// While the limiter is unavailable, an explanation has the result of the failure modes, and no
// limits.
func TestExplainWithoutALimiter(t *testing.T) {
	t.Parallel()
	now := start
	s := subject(t,
		enforcement.RuleSpec{Policy: "p", OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(1, 5)}},
		enforcement.RuleSpec{Policy: "off", Mode: enforcement.PolicyOff, Limits: []enforcement.RuleLimit{window(2, 5)}})
	e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Now: at(&now)})
	var x enforcement.Explanation
	e.Explain(context.Background(), s, &enforcement.Check{Cost: 1, Mode: enforcement.Force}, &x)
	if got, want := why(&x.Decision), "false limiter_unavailable 1000 degraded"; got != want || x.PassesAt != start+second {
		t.Errorf("%s, passes at %d; want %s", got, x.PassesAt, want)
	}
	for _, p := range x.Policies {
		if len(p.Limits) > 0 {
			t.Errorf("%s tells what its limits hold", p.Rule.Policy)
		}
	}
}

// Reset clears one key of one policy, for each mode, and nothing else.
func TestReset(t *testing.T) {
	t.Parallel()
	now := start
	s := subject(t,
		enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 5), limit("log", 2, enforcement.SlidingWindowLog, 5, time.Minute)}},
		enforcement.RuleSpec{Policy: "s", Mode: enforcement.PolicyShadow, CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(3, 5)}})
	l := newCounters()
	var requests []enforcement.Request
	forgets := limiterFunc(func(_ context.Context, rs []enforcement.Request, outcomes []enforcement.Outcome) {
		requests = append(requests, rs...)
		for _, c := range rs[0].Charges {
			delete(l.states, c.Key)
		}
		outcomes[0] = enforcement.Outcome{Verdict: enforcement.Granted, At: l.now, Charges: make([]enforcement.Charged, len(rs[0].Charges))}
	})
	e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
	for _, user := range []string{"u", "v"} {
		decide(e, s, asked("", "/", "user", user))
	}
	resets := enforcement.NewEngine(forgets, enforcement.Config{})
	key := asked("", "", "user", "u")
	for i, r := range s.Plan.Rules {
		if err := resets.Reset(context.Background(), s, r, r.PartitionOf(&key)); err != nil {
			t.Fatal(err)
		}
		if len(requests) != i+1 || requests[i].Mode != enforcement.Reset || requests[i].Home != s.Home ||
			len(requests[i].Charges) != len(r.Limits)+len(enforcement.SentWindows) {
			t.Errorf("asked %+v", requests)
		}
	}
	if len(l.states) != 3 {
		t.Errorf("%d counters left, want those of v", len(l.states))
	}
	r := s.Plan.Rules[0]
	err := enforcement.NewEngine(away{enforcement.Unknown}, enforcement.Config{}).Reset(context.Background(), s, r, [16]byte{})
	if !errors.Is(err, enforcement.ErrNotReached) {
		t.Errorf("error %v", err)
	}
	if err := enforcement.NewEngine(limiterFunc(func(context.Context, []enforcement.Request, []enforcement.Outcome) {}), enforcement.Config{}).Reset(context.Background(), s, r, [16]byte{}); err == nil {
		t.Error("a limiter that says nothing has reset")
	}
}
