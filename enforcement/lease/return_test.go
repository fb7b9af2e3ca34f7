package lease

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// A worker that wakes after its context ended leaves the queue unchanged, so that Return
// returns the units of the cells. A check that waits for a failed draw continues.
func TestReturnAfterTheWorkersEnded(t *testing.T) {
	t.Parallel()
	store := limitertest.NewStore(func() int64 { return time.Now().UnixMicro() })
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10_000, Window: time.Hour}.Compile(1)
	requests := []enforcement.Request{{Home: "07", Charges: []enforcement.Charge{
		{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1, Leased: true},
	}}}
	ended, stop := context.WithCancel(t.Context())
	stop()
	for name, returns := range map[string]context.Context{"in time": t.Context(), "too late": ended} {
		l := New(store, Config{Nodes: 1})
		l.running.Store(true)
		outcomes := make([]enforcement.Outcome, 1)
		for range 50 {
			l.Take(t.Context(), requests, outcomes)
			l.pump(t.Context())
		}
		held := func() (n int64) {
			l.each(func(c *cell) { n += c.held() })
			return n
		}
		if held() == 0 {
			t.Fatal("nothing was drawn")
		}
		l.each(func(c *cell) { l.enqueue(c) })
		l.pump(ended)
		l.running.Store(false)
		l.Return(returns)
		if n := held(); n > 0 && name == "in time" {
			t.Errorf("%s: the node still holds %d", name, n)
		}
		// This returns whether or not the draw was made.
		denied := enforcement.Outcome{Charges: []enforcement.Charged{{}}}
		l.settled(context.WithoutCancel(t.Context()), &requests[0], &denied)
	}
}
