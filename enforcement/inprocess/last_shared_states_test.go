package inprocess_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

var countedAlgorithms = []enforcement.Algorithm{
	enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
}

// A sharing is a node's limiter beside a shared one, whose clock is an hour ahead.
type sharing struct {
	clock         *limitertest.Clock
	local, shared *inprocess.Limiter
	whole, share  *enforcement.Meter
	nodes         int
}

const ahead = int64(3_600_000_000)

func newSharing(a enforcement.Algorithm, quota int64, nodes int, config inprocess.Config) *sharing {
	c := limitertest.NewClock()
	config.Now = c.Now
	return &sharing{
		clock:  c,
		local:  inprocess.New(config),
		shared: inprocess.New(inprocess.Config{Now: func() int64 { return c.Now() + ahead }}),
		whole:  compile(a, quota, minute),
		share:  compile(a, (quota-1)/int64(nodes)+1, minute),
		nodes:  nodes,
	}
}

// use charges the shared counter. The node receives the result.
func (s *sharing) use(cost int64, k enforcement.Key) enforcement.Outcome {
	o := take(s.shared, enforcement.Enforce, cost, s.whole, k)
	s.see(o, k)
	return o
}

func (s *sharing) see(o enforcement.Outcome, k enforcement.Key) {
	s.local.Remember(&enforcement.Charge{Key: k, Meter: s.whole, Rev: 1}, &o.Charges[0].State, o.At, s.local.Now())
}

// admitted returns the number of units that the node admits while the shared limiter is
// unavailable.
func (s *sharing) admitted(k enforcement.Key) (n int) {
	for ; ; n++ {
		s.local.Start(&enforcement.Charge{Key: k, Meter: s.share, Rev: 1}, s.whole, s.nodes)
		if !granted(s.local, s.share, k) {
			return n
		}
	}
}

func TestShareStartsFromWhatWasSeen(t *testing.T) {
	t.Parallel()
	for _, a := range countedAlgorithms {
		s := newSharing(a, 100, 3, inprocess.Config{})
		k := key(1, 1)
		s.use(60, k)
		if n := s.admitted(k); n != 14 {
			t.Errorf("%s: %d admitted after 60 of 100 were used, want ceil(40/3)", a, n)
		}
		if n := s.admitted(k); n != 0 {
			t.Errorf("%s: %d more", a, n)
		}
		if n := s.admitted(key(1, 2)); n != 34 {
			t.Errorf("%s: %d admitted on a key that was never seen, want ceil(100/3)", a, n)
		}
		if n := s.local.Remembered(); n != 0 {
			t.Errorf("%s: %d states are still remembered", a, n)
		}
		s.clock.Advance(2 * minute)
		if n := s.admitted(k); n != 34 {
			t.Errorf("%s: %d admitted when the window has ended, want the share", a, n)
		}
	}
}

// If a window ends while the shared limiter is unavailable, its share ends too.
func TestShareKeepsTheWindow(t *testing.T) {
	t.Parallel()
	s := newSharing(enforcement.FixedWindow, 100, 1, inprocess.Config{})
	k := key(1, 1)
	s.use(70, k)
	s.clock.Advance(40 * time.Second)
	s.use(30, k)
	if n := s.admitted(k); n != 0 {
		t.Errorf("%d admitted beside 100 of 100", n)
	}
	s.clock.Advance(20*time.Second - time.Microsecond)
	if n := s.admitted(k); n != 0 {
		t.Errorf("%d admitted before the window ended", n)
	}
	s.clock.Advance(time.Microsecond)
	if n := s.admitted(k); n != 100 {
		t.Errorf("%d admitted in the next window", n)
	}
}

func TestSecondFaultStartsAgain(t *testing.T) {
	t.Parallel()
	for _, a := range countedAlgorithms {
		s := newSharing(a, 100, 2, inprocess.Config{})
		k := key(1, 1)
		s.use(20, k)
		if n := s.admitted(k); n != 40 {
			t.Fatalf("%s: %d admitted in the first fault", a, n)
		}
		s.use(70, k) // the shared limiter is back; of 100, 10 are left
		if n := s.admitted(k); n != 0 {
			t.Errorf("%s: %d admitted in the second fault: those of the first are forgotten", a, n)
		}

		s = newSharing(a, 100, 2, inprocess.Config{})
		s.use(20, k)
		s.local.Start(&enforcement.Charge{Key: k, Meter: s.share, Rev: 1}, s.whole, s.nodes)
		granted(s.local, s.share, k) // of 40
		s.use(70, k)
		if n := s.admitted(k); n != 5 {
			t.Errorf("%s: %d admitted in the second fault, want ceil(10/2) and not the 39 of the first", a, n)
		}
	}
}

// Of decisions that end out of order the latest is kept.
func TestRememberKeepsTheLatest(t *testing.T) {
	t.Parallel()
	for _, a := range countedAlgorithms {
		s := newSharing(a, 100, 1, inprocess.Config{})
		k := key(1, 1)
		outcome := func(cost int64) enforcement.Outcome { return take(s.shared, enforcement.Enforce, cost, s.whole, k) }
		first, same := outcome(10), outcome(20) // at one instant
		s.see(same, k)
		s.see(first, k)
		s.clock.Advance(5 * time.Millisecond)
		second := outcome(30)
		s.clock.Advance(5 * time.Millisecond)
		third := outcome(40)
		s.see(third, k)
		s.see(second, k)
		if n := s.admitted(k); n != 0 {
			t.Errorf("%s: %d admitted beside 100 of 100", a, n)
		}

		s = newSharing(a, 100, 1, inprocess.Config{})
		first = outcome(60)
		take(s.shared, enforcement.Refund, 50, s.whole, k)
		s.see(first, k)
		s.clock.Advance(5 * time.Millisecond)
		s.use(0, k)
		if n := s.admitted(k); n != 90 {
			t.Errorf("%s: %d admitted after a refund, want 90", a, n)
		}

		s = newSharing(a, 100, 1, inprocess.Config{})
		s.see(outcome(60), k)
		back := outcome(0)
		back.At -= 30_000_000 // the shared limiter's clock has stepped back
		back.Charges[0].State = enforcement.State{Rev: 1, A: 95, T: back.At}
		switch state := &back.Charges[0].State; {
		case a == enforcement.SlidingWindowLog:
			state.B = 1
		case s.whole.Algorithm.Bucket():
			state.A = 5 - s.whole.Queue
		}
		s.see(back, k)
		if n := s.admitted(k); n != 5 {
			t.Errorf("%s: %d admitted after a step of the clock, want 5", a, n)
		}
	}
}

// A state without use ends the record of a counter, and no such state is recorded.
func TestRememberOfNothing(t *testing.T) {
	t.Parallel()
	for _, a := range countedAlgorithms {
		s := newSharing(a, 10, 1, inprocess.Config{})
		k := key(1, 1)
		if s.use(11, k); s.local.Remembered() != 0 {
			t.Errorf("%s: a counter as new is remembered", a)
		}
		s.use(4, k)
		s.clock.Advance(time.Millisecond)
		s.see(take(s.shared, enforcement.Reset, 0, s.whole, k), k)
		if n := s.local.Remembered(); n != 0 {
			t.Errorf("%s: %d are remembered after a reset", a, n)
		}
		if n := s.admitted(k); n != 10 {
			t.Errorf("%s: %d admitted after a reset", a, n)
		}
	}
}

func TestRememberIsBounded(t *testing.T) {
	t.Parallel()
	s := newSharing(enforcement.FixedWindow, 10, 1, inprocess.Config{MaxCells: 4, TenantCells: 2, SeenCells: 40})
	for tenant := range uint32(3) {
		for i := range 100 {
			s.use(10, key(tenant, i))
		}
	}
	if n := s.local.Remembered(); n != 40 {
		t.Fatalf("%d remembered, want 20 of each of two tenants", n)
	}
	s.clock.Advance(time.Millisecond)
	if s.use(0, key(0, 19)); s.local.Remembered() != 40 {
		t.Error("a key that is remembered was not updated above the bound")
	}
	// The remembered ones have separate counters, though there is room for 4.
	for tenant := range uint32(2) {
		for i := range 20 {
			if n := s.admitted(key(tenant, i)); n != 0 {
				t.Errorf("%d admitted on key %d of tenant %d, of which all was used", n, i, tenant)
			}
		}
	}
	if n := s.admitted(key(0, 20)) + s.admitted(key(0, 21)); n != 10 {
		t.Errorf("%d admitted on keys that are not remembered, want those of one counter that they share", n)
	}
	s.clock.Advance(time.Hour)
	for i := range 100 {
		s.use(10, key(5, i))
	}
	s.local.Sweep()
	wantLen(t, s.local, 0, "after an hour")
	if n := s.local.Remembered(); n != 20 {
		t.Errorf("%d remembered, want those of the last tenant", n)
	}
	s.clock.Advance(time.Hour)
	if s.local.Sweep(); s.local.Remembered() != 0 {
		t.Errorf("%d remembered after another hour", s.local.Remembered())
	}
}

// Not parallel: allocations are counted for the whole process.
func TestRememberAllocatesNothing(t *testing.T) {
	for _, a := range countedAlgorithms {
		s := newSharing(a, 1000, 3, inprocess.Config{})
		k := key(1, 1)
		o := s.use(1, k)
		c := enforcement.Charge{Key: k, Meter: s.whole, Rev: 1}
		if n := testing.AllocsPerRun(200, func() {
			o.At += 1000
			s.local.Remember(&c, &o.Charges[0].State, o.At, s.local.Now())
		}); n != 0 {
			t.Errorf("%s: %v allocations", a, n)
		}
	}
}

// Remembering, starting, taking and sweeping at once: for the race detector, and
// no more is admitted than was left.
func TestStartAtOnce(t *testing.T) {
	t.Parallel()
	for _, a := range countedAlgorithms {
		s := newSharing(a, 100, 1, inprocess.Config{})
		k := key(1, 1)
		s.use(60, k)
		var admitted sync.Map
		var workers sync.WaitGroup
		for g := range 8 {
			workers.Go(func() {
				s.local.Sweep()
				admitted.Store(g, s.admitted(k))
				state := enforcement.State{Rev: 1, A: 1, B: 1, T: ahead}
				for i := range 100 {
					s.see(enforcement.Outcome{At: ahead, Charges: []enforcement.Charged{{State: state}}}, key(1, i+2))
				}
			})
		}
		workers.Wait()
		sum := 0
		admitted.Range(func(_, n any) bool {
			sum += n.(int)
			return true
		})
		if sum != 40 {
			t.Errorf("%s: %d admitted by 8 goroutines, want 40", a, sum)
		}
	}
}

// BenchmarkRemember measures the additional cost of a check through the shared limiter for
// a policy with on_failure local, including the clock.
func BenchmarkRemember(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		all := partitions(keys)
		for _, c := range meterCases {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, keys), func(b *testing.B) {
				l := inprocess.New(inprocess.Config{})
				charge := enforcement.Charge{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: c.limit.Compile(1), Rev: 1}
				state := enforcement.State{Rev: 1, A: 1, B: 1}
				remember := func(i int) {
					charge.Key.Partition = all[i%keys]
					now := l.Now()
					state.T = now + ahead
					l.Remember(&charge, &state, state.T, now)
				}
				for i := range keys {
					remember(i)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					remember(i)
				}
			})
		}
	}
}
