//go:build !quick

package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// For a tenant with exceptions, Redis and the in-process limiter give the same decisions
// and explanations, to the microsecond, also for requests that wait over the end of an
// override.
func TestExceptionsDecisions(t *testing.T) {
	t.Parallel()
	now := int64(1_700_000_000_000_000)
	clock := func() int64 { return now }
	shared := open(t, redis.Config{URL: servertest.Redis(t), Now: clock})
	patient := enforcement.Config{Now: func() time.Time { return time.UnixMicro(now) }}
	theirs, ours := enforcement.NewEngine(shared, patient), enforcement.NewEngine(inprocess.New(inprocess.Config{Now: clock}), patient)
	tenant := uint32(0)
	rapid.Check(t, func(t *rapid.T) {
		tenant++
		plain := subjectOfEveryAlgorithm(t, tenant)
		spec := enforcement.ExceptionSpec{Changed: map[string]int64{"p": 12}}
		for i := range int64(3) {
			spec.Overrides = append(spec.Overrides, drawOverride(t, i, now))
		}
		spec.Blocks = []enforcement.Block{{ID: "b", Policy: "p", Until: now + rapid.Int64Range(-1, 100_000_000).Draw(t, "block")}}
		withExceptions := *plain
		withExceptions.Exceptions, _ = enforcement.CompileExceptions(spec, plain.Plan, 1)
		for range 20 {
			now += rapid.Int64Range(0, 30_000_000).Draw(t, "elapsed")
			s := rapid.SampledFrom([]*enforcement.Subject{plain, &withExceptions, &withExceptions}).Draw(t, "snapshot")
			c := &enforcement.Check{Cost: rapid.Int64Range(0, 3).Draw(t, "cost")}
			var want, got enforcement.Explanation
			ours.Explain(t.Context(), s, c, &want)
			theirs.Explain(t.Context(), s, c, &got)
			if told(&got) != told(&want) {
				t.Fatalf("explained by Redis  %s\nby the other %s", told(&got), told(&want))
			}
			ours.Decide(t.Context(), s, c, &want.Decision)
			theirs.Decide(t.Context(), s, c, &got.Decision)
			if told(&got) != told(&want) {
				t.Fatalf("decided by Redis  %s\nby the other %s", told(&got), told(&want))
			}
		}
	})
	if s := shared.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
		t.Errorf("script and reference disagreed on %d requests, %d states were unreadable", s.Mismatches, s.Unreadable)
	}
}

// limitName is the name of an algorithm in the form of a limit's name.
func limitName(a enforcement.Algorithm) string { return strings.ReplaceAll(a.String(), "_", "-") }

// subjectOfEveryAlgorithm has a limit of every algorithm. Windows are long: Redis drops
// a key by its own clock.
func subjectOfEveryAlgorithm(t *rapid.T, tenant uint32) *enforcement.Subject {
	spec := enforcement.RuleSpec{Policy: "p"}
	for a := enforcement.FixedWindow; a <= enforcement.GCRA; a++ {
		l := enforcement.Limit{Name: limitName(a), Algorithm: a, Quota: rapid.Int64Range(3, 9).Draw(t, "quota"), Window: 10 * time.Minute}
		spec.Limits = append(spec.Limits, enforcement.RuleLimit{Limit: l, Cell: uint32(a), Meter: l.Compile(1)})
	}
	plan, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{spec})
	if err != nil {
		t.Fatal(err)
	}
	return &enforcement.Subject{Plan: plan, Number: tenant, Home: "t", PlanRevision: 1}
}

func drawOverride(t *rapid.T, i, now int64) enforcement.Override {
	o := enforcement.Override{
		ID: fmt.Sprint("o", i), Policy: "p", Revision: 10 + i, From: now,
		Until: now + rapid.Int64Range(-1, 600_000_000).Draw(t, "until"),
	}
	if rapid.Bool().Draw(t, "factored") {
		o.Factor = rapid.Int64Range(1, 3000).Draw(t, "factor")
		return o
	}
	for a := enforcement.FixedWindow; a <= enforcement.GCRA; a++ {
		o.Limits = append(o.Limits, enforcement.OverrideLimit{
			Name: limitName(a), Quota: rapid.Int64Range(enforcement.Keep, 9).Draw(t, "other quota"), Burst: enforcement.Keep,
			Window: rapid.SampledFrom([]time.Duration{0, 5 * time.Minute, 15 * time.Minute}).Draw(t, "other window"),
		})
	}
	return o
}

// told returns the text of an explanation and its decision.
func told(x *enforcement.Explanation) string {
	var b strings.Builder
	d := &x.Decision
	fmt.Fprintf(&b, "%v %s at %d retry %d passes at %d", d.Allowed, d.Reason, d.At, d.RetryAfter, x.PassesAt)
	for _, l := range d.Limits {
		fmt.Fprintf(&b, " | %s of %d %v left %d reset %d retry %d", l.Limit.Name, l.Limit.Quota, l.Allowed, l.Remaining, l.ResetAfter, l.RetryAfter)
	}
	for _, p := range x.Policies {
		for _, l := range p.Limits {
			fmt.Fprintf(&b, " | %s holds %d reset %d", l.Limit.Name, l.Remaining, l.ResetAfter)
		}
	}
	return b.String()
}
