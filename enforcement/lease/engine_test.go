package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// Of two policies with the same limit only the leased one is answered without
// the store, and only it says how early it may deny.
func TestEngine(t *testing.T) {
	t.Parallel()
	limit := enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 60_000, Window: time.Hour}
	for consistency, elsewhere := range map[enforcement.Consistency]int64{enforcement.Exact: 0, enforcement.Leased: 2 * 2000} {
		plan, err := enforcement.CompilePlan("pro", 1, []enforcement.RuleSpec{
			{Policy: "api", Consistency: consistency, Limits: []enforcement.RuleLimit{{Limit: limit, Cell: 1, Meter: limit.Compile(1)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		calls := &atomic.Int64{}
		l := lease.New(counting{limitertest.NewStore(func() int64 { return time.Now().UnixMicro() }), calls}, lease.Config{Nodes: 3, Timeout: time.Minute})
		running(t, l)
		e := enforcement.NewEngine(l, enforcement.Config{Nodes: 3, Local: inprocess.New(inprocess.Config{})})
		s := &enforcement.Subject{Number: 1, Home: "1", PlanRevision: 1, Plan: plan}
		var d enforcement.Decision
		const checks = 20_000
		for range checks {
			if e.Decide(t.Context(), s, &enforcement.Check{Path: "/", Cost: 1}, &d); !d.Allowed || d.Degraded {
				t.Fatalf("%s: %+v", consistency, d)
			}
		}
		if asked := calls.Load(); (asked < checks) != (consistency == enforcement.Leased) {
			t.Errorf("%s: %d checks asked the store %d times", consistency, checks, asked)
		}
		var x enforcement.Explanation
		e.Explain(t.Context(), s, &enforcement.Check{Path: "/", Cost: 1}, &x)
		now := x.Policies[0].Limits[0]
		if now.LeasedElsewhere != elsewhere || consistency == enforcement.Exact && now.Remaining != limit.Quota-checks {
			t.Errorf("%s: explain says %+v, want %d leased elsewhere", consistency, now, elsewhere)
		}
		if now.Remaining > limit.Quota-checks {
			t.Errorf("%s: explain says that %d remain of %d after %d checks", consistency, now.Remaining, limit.Quota, checks)
		}
	}
}
