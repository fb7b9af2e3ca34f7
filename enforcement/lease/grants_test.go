package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// grantsOfALeasedPolicy has two nodes decide checks of a leased policy, first without and then with a grant. While the
// tenant has the grant, each check asks the shared limiter. Together, exactly the quota and the units pass.
func grantsOfALeasedPolicy(t *testing.T, nodes [2]enforcement.Drawer) {
	t.Helper()
	const quota, units, first = 20_000, 500, 3000
	limit := enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: quota, Window: 24 * time.Hour}
	plan, err := enforcement.CompilePlan("pro", 1, []enforcement.RuleSpec{
		{Policy: "api", Consistency: enforcement.Leased, Limits: []enforcement.RuleLimit{{Limit: limit, Cell: 1, Meter: limit.Compile(1)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMicro()
	made, faults := enforcement.CompileExceptions(enforcement.ExceptionSpec{Grants: []enforcement.Grant{{
		ID: "0190f5c4-7e1a-7b3c-8d2e-000000000001", Policy: "api", Limit: "l1", Units: units, Revision: 2,
		From: now - time.Hour.Microseconds(), Until: now + 24*time.Hour.Microseconds(),
	}}}, plan, 1)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	plain := &enforcement.Subject{Number: 1, Home: "01", PlanRevision: 1, Plan: plan}
	topped := *plain
	topped.Exceptions = made

	var leases [2]*lease.Limiter
	var engines [2]*enforcement.Engine
	var calls atomic.Int64
	for i := range nodes {
		leases[i] = lease.New(counting{nodes[i], &calls}, lease.Config{Nodes: 2, Timeout: time.Minute})
		running(t, leases[i])
		engines[i] = enforcement.NewEngine(leases[i], enforcement.Config{})
	}
	pass := func(s *enforcement.Subject, most int) (passed int) {
		for _, e := range engines {
			for n := 0; n < most; n++ {
				var d enforcement.Decision
				if e.Decide(t.Context(), s, &enforcement.Check{Path: "/", Cost: 1}, &d); d.Degraded {
					t.Fatalf("degraded: %+v", d)
				} else if !d.Allowed {
					break
				}
				passed++
			}
		}
		return passed
	}
	passed := pass(plain, first)
	if asked := calls.Load(); passed != 2*first || asked >= 2*first {
		t.Errorf("%d of %d checks passed, with %d calls", passed, 2*first, asked)
	}
	before := calls.Load()
	exact := pass(&topped, 300)
	if asked := calls.Load() - before; exact != 600 || asked != 600 {
		t.Errorf("with a grant, %d of 600 checks passed, with %d calls", exact, asked)
	}
	passed += exact + pass(&topped, quota+units)
	if passed > quota+units {
		t.Errorf("%d checks passed, with a quota of %d and a grant of %d", passed, quota, units)
	}
	for _, l := range leases {
		l.Return(t.Context())
	}
	if passed += pass(&topped, quota+units); passed != quota+units {
		t.Errorf("%d checks passed after the nodes returned what they held, with a quota of %d and a grant of %d", passed, quota, units)
	}
}

func TestGrantsOfALeasedPolicy(t *testing.T) {
	t.Parallel()
	store := limitertest.NewStore(func() int64 { return time.Now().UnixMicro() })
	grantsOfALeasedPolicy(t, [2]enforcement.Drawer{store, store})
}
