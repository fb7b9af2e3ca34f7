package enforcement_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

// carried returns the snapshots about one override that nodes can have at the same time:
// without it, with it, and without it again after it was deleted.
func carried(s *enforcement.Subject, o enforcement.Override) []*enforcement.Subject {
	changed := func(rev int64) map[string]int64 { return map[string]int64{o.Policy: rev} }
	return []*enforcement.Subject{
		s,
		compiled(s, enforcement.ExceptionSpec{Overrides: []enforcement.Override{o}, Changed: changed(o.Revision)}),
		compiled(s, enforcement.ExceptionSpec{Changed: changed(o.Revision + 1)}),
	}
}

// drawCarried draws a tenant with one limit, and an override of its numbers.
func drawCarried(t *rapid.T, a enforcement.Algorithm) (*enforcement.Subject, enforcement.Override) {
	quota := rapid.Int64Range(1, 20).Draw(t, "quota")
	window := time.Duration(rapid.IntRange(1, 3000).Draw(t, "window")) * time.Millisecond
	plan, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{{Policy: "p", Limits: []enforcement.RuleLimit{limit("l", 1, a, quota, window)}}})
	if err != nil {
		t.Fatal(err)
	}
	o := enforcement.Override{
		ID: "o", Policy: "p", Factor: rapid.Int64Range(1, 4000).Draw(t, "factor"), Revision: rapid.Int64Range(2, 3).Draw(t, "revision"),
		From: start, Until: start + rapid.Int64Range(0, 10_000_000).Draw(t, "until"),
	}
	return &enforcement.Subject{Plan: plan, Number: 1, Home: "t", PlanRevision: 1}, o
}

// Used units stay used when an override starts and ends. Nodes can get the change in any order.
// A window admits the quota that the deciding node has, minus the units that all nodes
// admitted.
func TestWindowsCarryWhatWasUsed(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowLog} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				s, o := drawCarried(t, a)
				nodes := carried(s, o)
				l := newCounters()
				e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
				window := s.Plan.Rules[0].Limits[0].Window.Microseconds()
				var used []enforcement.Entry
				opened := int64(0)
				for range 40 {
					l.now += rapid.Int64Range(0, 700_000).Draw(t, "elapsed")
					cost := rapid.Int64Range(0, 6).Draw(t, "cost")
					if a == enforcement.FixedWindow && l.now >= opened+window {
						used = nil
					}
					for len(used) > 0 && a == enforcement.SlidingWindowLog && l.now >= used[0].T+window {
						used = used[1:]
					}
					total := int64(0)
					for _, u := range used {
						total += u.Units
					}
					d := decide(e, rapid.SampledFrom(nodes).Draw(t, "node"), enforcement.Check{Cost: cost})
					quota := d.Limits[0].Limit.Quota
					if d.Allowed != (total+cost <= quota) {
						t.Fatalf("%d used of %d: %s", total, quota, summary(d))
					}
					if d.Allowed && cost > 0 {
						if len(used) == 0 {
							opened = l.now
						}
						used = append(used, enforcement.Entry{T: l.now, Units: cost})
						total += cost
					}
					if d.Limits[0].Remaining != max(quota-total, 0) {
						t.Fatalf("%d used of %d: %s", total, quota, summary(d))
					}
				}
			})
		})
	}
}

// Changes of the numbers create no units in a bucket. The bucket never has more units than with
// the faster rate and the larger burst, and never fewer than with the slower rate and the
// smaller burst. Each change can cost less than one unit. If no time passes, used units stay
// used.
func TestBucketsCarryWhatWasUsed(t *testing.T) {
	t.Parallel()
	for _, still := range []bool{true, false} {
		t.Run(fmt.Sprint("still=", still), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				s, o := drawCarried(t, rapid.SampledFrom([]enforcement.Algorithm{enforcement.TokenBucket, enforcement.GCRA}).Draw(t, "algorithm"))
				nodes := carried(s, o)
				l := newCounters()
				e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
				plan := s.Plan.Rules[0].Limits[0]
				other := min(max(plan.Quota*o.Factor/1000, 1), enforcement.MaxQuota)
				most := newLevel(max(plan.Quota, other), plan.Window)
				least := newLevel(min(plan.Quota, other), plan.Window)
				for range 40 {
					elapsed := int64(0)
					if !still {
						elapsed = rapid.Int64Range(0, 700_000).Draw(t, "elapsed")
					}
					l.now += elapsed
					most.flow(elapsed)
					least.flow(elapsed)
					d := decide(e, rapid.SampledFrom(nodes).Draw(t, "node"), enforcement.Check{Cost: rapid.Int64Range(0, 6).Draw(t, "cost")})
					cost := int64(0)
					if d.Allowed {
						cost = d.Check.Cost
					}
					most.take(cost)
					least.take(cost)
					least.whole()
					left := d.Limits[0].Remaining
					if left > most.floor() || left < min(least.floor(), d.Limits[0].Limit.Quota) {
						t.Fatalf("from %s to %s should be left: %s", least.units, most.units, summary(d))
					}
				}
			})
		})
	}
}

// A level is the content of a bucket as an exact fraction.
type level struct {
	units, capacity, rate *big.Rat // rate in units a microsecond
}

func newLevel(quota int64, window time.Duration) *level {
	return &level{units: big.NewRat(quota, 1), capacity: big.NewRat(quota, 1), rate: big.NewRat(quota, window.Microseconds())}
}

func (l *level) flow(elapsed int64) {
	l.units.Add(l.units, new(big.Rat).Mul(l.rate, big.NewRat(elapsed, 1)))
	if l.units.Cmp(l.capacity) > 0 {
		l.units.Set(l.capacity)
	}
}

func (l *level) take(cost int64) { l.units.Sub(l.units, big.NewRat(cost, 1)) }

// whole drops the fraction of a unit.
func (l *level) whole() { l.units.SetInt64(l.floor()) }

func (l *level) floor() int64 {
	// Div rounds down, because the denominator is positive.
	return new(big.Int).Div(l.units.Num(), l.units.Denom()).Int64()
}

// A bucket refills at the rate of the plan until an override starts, then at the rate of the
// override. When the override has ended, it refills at the rate of the plan again, and its
// units are cut to the capacity of the plan.
func TestBucketFlowsAtBothRates(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
	s := subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.TokenBucket, 10, 10*time.Second)}})
	faster := compiled(s, enforcement.ExceptionSpec{Overrides: []enforcement.Override{
		{ID: "o", Policy: "p", Factor: 10_000, Revision: 5, From: start + 4*second, Until: start + 6*second},
	}, Changed: map[string]int64{"p": 5}})
	for _, step := range []struct {
		at   int64
		s    *enforcement.Subject
		cost int64
		want string
	}{
		{0, s, 10, "true ok retry 0 | p true left 0 reset 10000 retry 0"},
		{3 * second, s, 4, "false over_limit retry 1000 | p false left 3 reset 7000 retry 1000"},
		{5 * second, faster, 0, "true ok retry 0 | p true left 14 reset 8600 retry 0"}, // 4 s at 1 unit per second, then 1 s at 10
		{5 * second, faster, 4, "true ok retry 0 | p true left 10 reset 9000 retry 0"},
		{6 * second, faster, 10, "true ok retry 0 | p true left 0 reset 10000 retry 0"}, // the capacity in the plan
		// Until the override is deleted, the fraction of a unit in the counter is not used. The
		// wait is that of a whole unit.
		{6*second + 999_999, faster, 1, "false over_limit retry 1000 | p false left 0 reset 10000 retry 1000"},
		{7 * second, s, 1, "true ok retry 0 | p true left 0 reset 10000 retry 0"},
	} {
		l.now = start + step.at
		wantSummary(t, decide(e, step.s, enforcement.Check{Cost: step.cost}), step.want)
	}
}
