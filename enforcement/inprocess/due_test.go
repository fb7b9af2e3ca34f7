package inprocess

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A tick that is kept must be the one that would be computed.
func TestStillDueIsDue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 11))
	kept, moved := 0, 0
	for range 20_000 {
		limit := enforcement.Limit{
			Algorithm: enforcement.GCRA,
			Quota:     1 + r.Int64N(1+r.Int64N(enforcement.MaxQuota>>r.IntN(40))),
			Window:    time.Duration(1+r.Int64N(1+r.Int64N(enforcement.MaxWindow.Milliseconds()>>r.IntN(34)))) * time.Millisecond,
			Burst:     r.Int64N(1 + r.Int64N(enforcement.MaxQuota>>r.IntN(40))),
		}
		m := limit.Compile(1)
		now := int64(1_767_225_600_000_000) + r.Int64N(1<<40)
		state := enforcement.State{Rev: 1, A: m.Capacity, T: now}
		before := due(m, &state, now)
		for range 20 {
			was := state
			now += r.Int64N(1 << r.IntN(24))
			state, _ = m.Settle(state, 1, now)
			state = m.Charge(state, 1, now, 1+r.Int64N(1+m.Capacity/4))
			want := due(m, &state, now)
			for _, tick := range []uint32{before, want, want - 1, want + 1} {
				if stillDue(m, &state, tick, false) && tick != want {
					t.Fatalf("%+v, state %+v at %d: tick %d is kept, %d is due", limit, state, now, tick, want)
				}
			}
			if later := was.A >= state.A && was.T <= state.T; stillDue(m, &state, before, later) && before != want {
				t.Fatalf("%+v, state %+v at %d after %+v: tick %d is kept, %d is due", limit, state, now, was, before, want)
			}
			if stillDue(m, &state, want, false) {
				kept++
			} else if want != lastTick {
				t.Fatalf("%+v, state %+v at %d: tick %d is due and not kept", limit, state, now, want)
			}
			if before != want {
				moved++
			}
			before = want
		}
	}
	if kept < 1000 || moved < 1000 {
		t.Errorf("%d ticks kept, %d moved: the numbers are too even", kept, moved)
	}
}
