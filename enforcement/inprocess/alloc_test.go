package inprocess_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// Not parallel: allocations are counted for the whole process.
func TestHotChecksAllocateNothing(t *testing.T) {
	for _, mode := range []enforcement.Mode{enforcement.Enforce, enforcement.Peek, enforcement.Force, enforcement.TakeUpTo} {
		for _, a := range []enforcement.Algorithm{
			enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
		} {
			for _, n := range []int{1, 2, 8} {
				c := limitertest.NewClock()
				l := inprocess.New(inprocess.Config{Now: c.Now})
				m := enforcement.Limit{Algorithm: a, Quota: 40, Window: 100 * time.Millisecond}.Compile(1)
				requests, outcomes := []enforcement.Request{{Mode: mode}}, make([]enforcement.Outcome, 1)
				for i := range n {
					requests[0].Charges = append(requests[0].Charges, enforcement.Charge{
						Key: key(1, i), Meter: m, Rev: 1, Cost: 1, Group: uint16(i / 4),
					})
				}
				check := func() {
					c.Advance(time.Millisecond)
					l.Take(context.Background(), requests, outcomes)
				}
				for range 300 {
					check()
				}
				if allocs := testing.AllocsPerRun(200, check); allocs != 0 {
					t.Errorf("%s of %d charges on %s: %v allocations", mode, n, a, allocs)
				}
			}
		}
	}
}
