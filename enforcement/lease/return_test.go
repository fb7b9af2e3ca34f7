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

// After the numbers changed, units come back only if the counter still counts them as used.
func TestReturnAfterACarryOver(t *testing.T) {
	t.Parallel()
	for _, carry := range []enforcement.CarryOver{
		enforcement.CarryKeep, enforcement.CarryAdditive, enforcement.CarryReset, enforcement.CarryProportional,
	} {
		for _, a := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter} {
			now := int64(1_800_000_000_000_000)
			store := limitertest.NewStore(func() int64 { return now })
			l := New(store, Config{Nodes: 1})
			l.running.Store(true)
			limit := enforcement.Limit{Algorithm: a, Quota: 10_000, Window: time.Hour}
			former := limit.Compile(1)
			limit.Quota = 20_000
			changed := limit.Compile(2)
			changed.Formers = []enforcement.Former{{Numbers: former.Numbers, Rev: 1, Until: now + 1, CarryOver: carry}}
			outcomes := make([]enforcement.Outcome, 1)
			charge := func(to enforcement.Limiter, m *enforcement.Meter, cost int64) int64 {
				to.Take(t.Context(), []enforcement.Request{{Home: "07", Charges: []enforcement.Charge{
					{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: m.Rev, Cost: cost, Leased: true},
				}}}, outcomes)
				if outcomes[0].Verdict != enforcement.Granted {
					t.Fatalf("%s, %s: %s, %v", a, carry, outcomes[0].Verdict, outcomes[0].Err)
				}
				return m.Quota - m.Left(outcomes[0].Charges[0].State, now)
			}
			for range 50 {
				charge(l, former, 1)
				l.pump(t.Context())
			}
			drawn := charge(store, former, 0) - 50
			if drawn == 0 {
				t.Fatalf("%s: nothing was drawn", a)
			}
			now += 2
			charge(l, changed, 1) // the node returns what it holds of the former numbers
			l.pump(t.Context())
			want := int64(51)
			switch carry {
			case enforcement.CarryReset:
				want = 1
			case enforcement.CarryProportional:
				want = 2*(50+drawn) + 1
			}
			if used := charge(store, changed, 0); used != want {
				t.Errorf("%s, %s: %d are used after %d on lease came back, want %d", a, carry, used, drawn, want)
			}
		}
	}
}
