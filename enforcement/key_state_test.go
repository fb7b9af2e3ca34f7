package enforcement_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// Usage returns the same numbers, override and block for a key as Explain, in one call that
// charges nothing.
func TestUsageAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		clock := func() int64 { return now }
		plain := drawSubject(t)
		withExceptions := *plain
		withExceptions.Exceptions, _ = enforcement.CompileExceptions(enforcement.ExceptionSpec{
			Overrides: []enforcement.Override{
				{ID: "all", Policy: "p0", Factor: 2000, Revision: 3, Until: now + rapid.Int64Range(-1, 3*second).Draw(t, "override")},
				{ID: "user", Policy: "p1", Attribute: "user", Value: "u", Factor: 500, Revision: 4, Until: now + 2*second},
				{ID: "net", Policy: "p1", Attribute: "ip", Prefix: "2001:db8::/64", Factor: 1500, Revision: 5, Until: now + 2*second},
			},
			Blocks: []enforcement.Block{{ID: "b", Policy: "p0", Key: attributes("user", "u"), Until: now + second}},
		}, plain.Plan, 1)
		limiter, calls := inprocess.New(inprocess.Config{Now: clock}), 0
		counting := limiterFunc(func(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
			calls++
			limiter.Take(ctx, requests, outcomes)
		})
		heard := new(recorded)
		e := enforcement.NewEngine(counting, enforcement.Config{Now: at(&now), Recorder: heard})
		for range 10 {
			now += rapid.Int64Range(0, second).Draw(t, "elapsed")
			s := rapid.SampledFrom([]*enforcement.Subject{plain, &withExceptions}).Draw(t, "snapshot")
			c := drawCheck(t, enforcement.Enforce, enforcement.Force)
			var x enforcement.Explanation
			e.Explain(t.Context(), s, c, &x)
			keys := make([]enforcement.CountedKey, len(s.Plan.Rules))
			for i, r := range s.Plan.Rules {
				keys[i] = enforcement.CountedKey{Rule: r, Key: c.Attributes}
				if rapid.Bool().Draw(t, "as people see it") {
					keys[i].Key = nil
					for _, part := range r.KeyOf(c, nil) {
						if !part.Missing {
							keys[i].Key = append(keys[i].Key, enforcement.Attribute{Name: strings.TrimSuffix(part.Name, "/64"), Value: part.Value})
						}
					}
				}
			}
			before := len(*heard)
			calls = 0
			instant, held, err := e.KeyStates(t.Context(), s, keys)
			if err != nil || calls > 1 || len(*heard) != before || instant != 0 && instant != now || instant == 0 != (calls == 0) {
				t.Fatalf("at %d: %v after %d calls", instant, err, calls)
			}
			for i, p := range x.Policies {
				if p.Matches {
					wantHolding(t, &held[i], &p, instant)
				}
				for _, l := range held[i].Limits {
					if l.Limit.Algorithm == enforcement.SlidingWindowLog && int64(len(l.State.Log)) != l.State.B {
						t.Fatalf("%d of %d entries: %+v", len(l.State.Log), l.State.B, l.State)
					}
				}
			}
			decide(e, s, *c)
		}
	})
}

func wantHolding(t *rapid.T, h *enforcement.KeyState, p *enforcement.PolicyExplanation, instant int64) {
	t.Helper()
	said, is := fmt.Sprint(h.Override, h.Block), fmt.Sprint(p.Override, p.Block)
	for _, l := range h.Limits {
		reset := (l.Limit.Meter.ResetAfter(l.State, instant) + 999) / 1000
		said += fmt.Sprintln(l.Limit.Name, l.Limit.Quota, l.Limit.Meter.Remaining(l.State, instant), reset)
	}
	for _, l := range p.Limits {
		is += fmt.Sprintln(l.Limit.Name, l.Limit.Quota, l.Remaining, l.ResetAfter)
	}
	if said != is {
		t.Fatalf("%s holds\n%s, explained as\n%s", p.Rule.Policy, said, is)
	}
}

// If the limiter is unavailable, the result is an error, and not zeros. For a policy without
// limits, the limiter is not called.
func TestUsageWithoutALimiter(t *testing.T) {
	t.Parallel()
	now := start
	s := subject(t,
		enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{window(1, 5)}},
		enforcement.RuleSpec{Policy: "exempt"})
	ask := func(verdict enforcement.Verdict, rules ...*enforcement.Rule) (int64, []enforcement.KeyState, error) {
		var keys []enforcement.CountedKey
		for _, r := range rules {
			keys = append(keys, enforcement.CountedKey{Rule: r})
		}
		return enforcement.NewEngine(away{verdict}, enforcement.Config{Now: at(&now)}).KeyStates(t.Context(), s, keys)
	}
	if _, held, err := ask(enforcement.Failed, s.Plan.Rules...); !errors.Is(err, enforcement.ErrNotReached) || held != nil {
		t.Errorf("%v, %v", held, err)
	}
	if _, held, err := ask(enforcement.Failed, s.Plan.Rules[1]); err != nil || len(held) != 1 || len(held[0].Limits) != 0 {
		t.Errorf("%v, %v", held, err)
	}
	if _, held, err := ask(enforcement.Failed); err != nil || len(held) != 0 {
		t.Errorf("%v, %v", held, err)
	}
}

// If there are more limits than fit into one request, one call has several requests. All states
// are of the same time.
func TestUsageOfManyLimits(t *testing.T) {
	t.Parallel()
	now := start
	spec := enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}}
	for i := range 10 {
		spec.Limits = append(spec.Limits, window(uint32(i+1), 5))
		spec.Limits[i].Name = fmt.Sprint("l", i)
	}
	s := subject(t, spec)
	counters := newCounters()
	sizes, calls := []int(nil), 0
	e := enforcement.NewEngine(limiterFunc(func(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
		calls++
		for i := range requests {
			sizes = append(sizes, len(requests[i].Charges))
			outcomes[i] = counters.one(requests[i])
			if calls == 2 {
				counters.now += 61 * second // the next step is after the windows of the first one
			}
		}
	}), enforcement.Config{Now: at(&now)})
	key := asked("", "", "user", "u0")
	decide(e, s, key)
	sizes = nil
	keys := make([]enforcement.CountedKey, 500)
	for i := range keys {
		keys[i] = enforcement.CountedKey{Rule: s.Plan.Rules[0], Key: attributes("user", fmt.Sprint("u", i))}
	}
	instant, held, err := e.KeyStates(t.Context(), s, keys)
	if err != nil || calls != 2 || fmt.Sprint(sizes) != "[4000 1000]" || instant != start+61*second {
		t.Fatalf("at %d: %v; %d calls of %v", instant, err, calls, sizes)
	}
	for i := range held {
		for _, l := range held[i].Limits {
			if left := l.Limit.Meter.Left(l.State, instant); left != 5 {
				t.Errorf("key %d has %d left of %s", i, left, l.Limit.Name)
			}
		}
	}
}
