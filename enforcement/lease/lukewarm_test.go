package lease

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// A lukewarm is one node with many keys that are seldom used, on a simulated clock.
type lukewarm struct {
	*Limiter
	now    int64
	store  *limitertest.Store
	asked  int // checks that the store decided
	made   int // draws
	calls  int // of draws
	begin  int64
	finish func() // of the call of draws that is under way
	at     int64
}

// shared is the limiter before which the node stands.
type shared struct{ *lukewarm }

// Take counts the requests that the store decides.
func (n shared) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	n.asked += len(requests)
	n.store.Take(ctx, requests, outcomes)
}

func (n shared) Draw(ctx context.Context, draws []enforcement.Draw, drawn []enforcement.Drawn) {
	n.store.Draw(ctx, draws, drawn)
}

// advance moves the clock, and makes the draws that are due on the way, as Run does.
func (n *lukewarm) advance(to int64) {
	for tick := n.now - n.now%sweepEvery + sweepEvery; n.now < to; {
		next := min(to, tick)
		if n.finish == nil && n.begin == 0 && len(n.queue) > 0 {
			n.begin = n.now + gather
		}
		switch {
		case n.finish != nil && n.at <= next:
			n.now = n.at
			n.finish()
			n.finish = nil
		case n.begin != 0 && n.begin <= next:
			n.now, n.begin = max(n.begin, n.now), 0
			n.call()
		default:
			if n.now = next; next == tick {
				n.sweep(n.read())
				tick += sweepEvery
			}
		}
	}
}

// call makes one call of draws, which takes a millisecond.
func (n *lukewarm) call() {
	cells := n.next()
	sent := n.read()
	draws, drawn := n.draws(cells, sent), make([]enforcement.Drawn, len(cells))
	n.store.Draw(context.Background(), draws, drawn)
	n.calls++
	n.made += len(draws)
	n.at, n.finish = n.now+1000, func() { n.drew(cells, draws, drawn, sent) }
}

// Keys that are used a few times in a second, or once in some seconds, are answered
// from leases too, for few draws: what they need for a minute is drawn at once.
func TestLukewarmKeys(t *testing.T) {
	t.Parallel()
	const keys = 500
	for _, load := range []struct {
		name         string
		algorithm    enforcement.Algorithm
		gap          int64 // microseconds between two checks of a key
		asked, draws float64
	}{
		{"5/s", enforcement.TokenBucket, 200_000, 0.001, 0.02},
		{"5/s, window", enforcement.FixedWindow, 200_000, 0.001, 0.02},
		{"one in 5 s", enforcement.TokenBucket, 5_000_000, 0.001, 0.15},
		{"one in 5 s, sliding", enforcement.SlidingWindowCounter, 5_000_000, 0.001, 0.15},
		{"one in 30 s", enforcement.TokenBucket, 30_000_000, 0.08, 0.6},
	} {
		t.Run(load.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			m := enforcement.Limit{Algorithm: load.algorithm, Quota: 1_000_000, Window: time.Hour}.Compile(1)
			n := &lukewarm{now: limitertest.Start}
			n.store = limitertest.NewStore(func() int64 { return n.now })
			n.Limiter = New(shared{n}, Config{Nodes: 1, Clock: func() (mono, wall int64) { return n.now - limitertest.Start, n.now }})
			n.running.Store(true)
			requests := []enforcement.Request{{Home: "1", Charges: []enforcement.Charge{
				{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1, Leased: true},
			}}}
			outcomes := make([]enforcement.Outcome, 1)
			checks := 0
			play := func(until int64) {
				for n.now < until {
					n.advance(n.now + load.gap/keys)
					binary.LittleEndian.PutUint64(requests[0].Charges[0].Key.Partition[:], random.Uint64N(keys)*0x9e3779b97f4a7c15)
					n.Limiter.Take(t.Context(), requests, outcomes)
					if outcomes[0].Verdict != enforcement.Granted {
						t.Fatal(outcomes[0].Verdict)
					}
					checks++
				}
			}
			play(limitertest.Start + 40_000_000 + 6*load.gap)
			n.asked, n.made, n.calls, checks = 0, 0, 0, 0
			play(n.now + 100_000_000 + 3*load.gap)
			asked, draws := float64(n.asked)/float64(checks), float64(n.made)/float64(checks)
			t.Logf("%d checks: %.4f were asked, %.4f drew, in %d calls; %+v", checks, asked, draws, n.calls, n.Stats())
			if asked > load.asked || draws > load.draws {
				t.Errorf("of %d checks %.4f were asked and %.4f drew, want at most %.4f and %.4f", checks, asked, draws, load.asked, load.draws)
			}
		})
	}
}
