package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

var carryOverTests = []test{
	{"Definitions", carryDefinitions},
	{"WindowsAfterTheChange", carryWindowsAfterTheChange},
	{"BucketsResetSoon", carryBucketsResetSoon},
	{"OnceWithStaleNodes", carryOnceWithStaleNodes},
	{"SeveralChanges", carrySeveralChanges},
	{"PeeksAndDenials", carryPeeksAndDenials},
	{"UnderLoad", carryUnderLoad},
}

// carriers returns a limit for each algorithm that can be carried over. The window is so long that
// buckets do not refill a unit during a test.
func carriers(quota int64) []enforcement.Limit {
	const window = 300 * 24 * time.Hour
	month := enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: quota, Period: enforcement.Month}
	month.Window, month.Anchor = month.Period.Longest(), month.Period.DefaultAnchor()
	return []enforcement.Limit{
		fixedWindow(quota, window, enforcement.FirstHit), fixedWindow(quota, window, enforcement.Clock), month,
		slidingLog(quota, window), slidingCounter(quota, window, enforcement.FirstHit), slidingCounter(quota, window, enforcement.Clock),
		tokenBucket(quota, window, 0), gcra(quota, window, 0),
	}
}

// A carrier is one counter of a limit. The quota of the limit changes during the test.
type carrier struct {
	*harness
	limited *limited
	key     enforcement.Key
}

func (w *harness) carrier(l enforcement.Limit, partition byte) *carrier {
	return &carrier{harness: w, limited: newLimited(l), key: w.key(1, partition)}
}

// change publishes another quota. For a bucket, it also publishes the quota as the burst.
func (c *carrier) change(quota int64, carry enforcement.CarryOver) {
	l := c.limited.limit
	l.Quota, l.CarryOver = quota, carry
	c.limited.change(l, c.clock.Now())
}

// charge returns a request of a node that has the revision rev. 0 stands for the latest revision.
func (c *carrier) charge(mode enforcement.Mode, rev, cost int64) enforcement.Request {
	m := c.limited.at(rev).In(nil, c.clock.Now())
	return c.request(mode, enforcement.Charge{Key: c.key, Meter: m, Rev: m.Rev, Cost: cost})
}

// ask makes one request, and returns whether it was granted and what is left.
func (c *carrier) ask(mode enforcement.Mode, rev, cost int64) (granted bool, left int64) {
	r := c.charge(mode, rev, cost)
	o := c.take(r)[0]
	return o.Verdict == enforcement.Granted, r.Charges[0].Meter.Left(o.Charges[0].State, o.At)
}

// later advances the clock by a second.
func (c *carrier) later() { c.clock.Set(c.clock.Now() + second.Microseconds()) }

// carryDefinitions checks the definition of each carry-over. It charges used units under the quota
// from, and then changes the quota to to.
func carryDefinitions(w *harness) {
	partition := byte(0)
	for _, tt := range []struct {
		carry                     enforcement.CarryOver
		used, from, to            int64
		windowsLeave, bucketsHave int64
	}{
		{enforcement.CarryKeep, 6, 10, 20, 14, 4},
		{enforcement.CarryKeep, 6, 10, 5, -1, 4},
		{enforcement.CarryKeep, 2, 10, 5, 3, 5},
		{enforcement.CarryReset, 6, 10, 20, 20, 20},
		{enforcement.CarryReset, 10, 10, 1, 1, 1},
		{enforcement.CarryProportional, 6, 10, 20, 8, 8},
		{enforcement.CarryProportional, 6, 10, 5, 2, 2},
		{enforcement.CarryProportional, 7, 10, 3, 0, 0},
		{enforcement.CarryProportional, 1, 10, 3, 2, 2},
		{enforcement.CarryProportional, 10, 10, 7, 0, 0},
		{enforcement.CarryAdditive, 6, 10, 20, 14, 14},
		{enforcement.CarryAdditive, 6, 10, 5, -1, -1},
		{enforcement.CarryAdditive, 2, 10, 5, 3, 3},
	} {
		for _, l := range carriers(tt.from) {
			partition++
			w.clock.Set(Start)
			c := w.carrier(l, partition)
			for range tt.used {
				c.ask(enforce, 0, 1)
			}
			c.later()
			c.change(tt.to, tt.carry)
			want := tt.windowsLeave
			if l.Algorithm.Bucket() {
				want = tt.bucketsHave
			}
			if _, left := c.ask(peek, 0, 0); left != want {
				w.Errorf("%s: %d of %d used, then %d with %s: %d left, want %d", l.Algorithm, tt.used, tt.from, tt.to, tt.carry, left, want)
			}
			if granted, _ := c.ask(enforce, 0, max(want, 0)+1); granted {
				w.Errorf("%s: %d of %d used, then %d with %s: more than %d granted", l.Algorithm, tt.used, tt.from, tt.to, tt.carry, want)
			}
			if granted, _ := c.ask(enforce, 0, max(want, 0)); granted != (want >= 0) {
				w.Errorf("%s: %d of %d used, then %d with %s: %d granted is %t", l.Algorithm, tt.used, tt.from, tt.to, tt.carry, want, granted)
			}
		}
	}
}

// Some charges are not carried over: a window that began after the change, and a log entry that was
// made after it. This holds even if a node made them that does not have the change yet.
func carryWindowsAfterTheChange(w *harness) {
	for i, l := range []enforcement.Limit{
		fixedWindow(10, 10*second, enforcement.FirstHit), slidingLog(10, 10*second), slidingCounter(10, 10*second, enforcement.FirstHit),
	} {
		for k, carry := range []enforcement.CarryOver{enforcement.CarryReset, enforcement.CarryProportional} {
			w.clock.Set(Start)
			c := w.carrier(l, byte(2*i+k))
			c.ask(enforce, 1, 10)
			c.change(20, carry)
			w.clock.Set(Start + (40 * second).Microseconds())
			c.ask(enforce, 1, 7) // a stale node opens the window
			if _, left := c.ask(peek, 2, 0); left != 13 {
				w.Errorf("%s, %s: %d left, want 13", l.Algorithm, carry, left)
			}
		}
	}
}

// A bucket that a node without the change charges is reset only within a second of the change. Later,
// that node may have created the state of the bucket.
func carryBucketsResetSoon(w *harness) {
	for i, tt := range []struct {
		after time.Duration
		left  int64
	}{{0, 20}, {second - time.Microsecond, 20}, {second, 3}} {
		w.clock.Set(Start)
		c := w.carrier(tokenBucket(10, 300*24*time.Hour, 0), byte(i))
		c.ask(enforce, 1, 6)
		c.change(20, enforcement.CarryReset)
		w.clock.Set(Start + tt.after.Microseconds())
		c.ask(enforce, 1, 1)
		if _, left := c.ask(peek, 2, 0); left != tt.left {
			w.Errorf("%s after the change: %d left, want %d", tt.after, left, tt.left)
		}
	}
}

// Some nodes get a change later than others. They neither undo the carry-over nor repeat it.
func carryOnceWithStaleNodes(w *harness) {
	for i, l := range carriers(100) {
		for k, carry := range []enforcement.CarryOver{
			enforcement.CarryKeep, enforcement.CarryReset, enforcement.CarryProportional, enforcement.CarryAdditive,
		} {
			w.clock.Set(Start)
			c := w.carrier(l, byte(8*i+k))
			c.ask(enforce, 1, 40)
			c.later()
			c.change(50, carry)
			c.ask(enforce, 2, 1) // the first node that has the change carries the counter over
			_, left := c.ask(peek, 2, 0)
			for round := range int64(4) {
				if granted, _ := c.ask(enforce, 1, 1); !granted {
					w.Errorf("%s, %s: a stale node denied with %d left", l.Algorithm, carry, left)
				}
				c.ask(peek, 1, 0)
				if _, got := c.ask(peek, 2, 0); got != left-1-2*round {
					w.Errorf("%s, %s, round %d: %d left after a stale node, want %d", l.Algorithm, carry, round, got, left-1-2*round)
				}
				c.ask(enforce, 2, 1)
			}
		}
	}
}

// If a counter was not used for several changes, it is carried over for each of them, in their order.
func carrySeveralChanges(w *harness) {
	for i, l := range carriers(100) {
		w.clock.Set(Start)
		c := w.carrier(l, byte(i))
		used := w.carrier(l, byte(100+i)) // a counter that is also used after each change
		c.ask(enforce, 1, 30)
		used.ask(enforce, 1, 30)
		for _, next := range []struct {
			quota int64
			carry enforcement.CarryOver
		}{{50, enforcement.CarryProportional}, {60, enforcement.CarryAdditive}, {200, enforcement.CarryProportional}} {
			c.later()
			c.change(next.quota, next.carry)
			used.change(next.quota, next.carry)
			used.ask(enforce, 0, 1)
		}
		// 30 of 100, 15 and 1 of 50, 16 and 1 of 60, 57 and 1 of 200
		if _, left := used.ask(peek, 0, 0); left != 142 {
			w.Errorf("%s: %d left after three changes with charges, want 142", l.Algorithm, left)
		}
		// 30 of 100, 15 of 50, 15 of 60, 50 of 200
		if _, left := c.ask(peek, 0, 0); left != 150 {
			w.Errorf("%s: %d left after three changes, want 150", l.Algorithm, left)
		}
		c.later()
		c.change(10, enforcement.CarryReset)
		if _, left := c.ask(peek, 0, 0); left != 10 && !l.Algorithm.Bucket() {
			w.Errorf("%s: %d left after a reset, want 10", l.Algorithm, left)
		}
	}
}

// Peeks and denials do not carry a counter over: the next request has the same result.
func carryPeeksAndDenials(w *harness) {
	for i, l := range carriers(10) {
		for k, carry := range []enforcement.CarryOver{enforcement.CarryReset, enforcement.CarryProportional, enforcement.CarryAdditive} {
			w.clock.Set(Start)
			c := w.carrier(l, byte(4*i+k))
			c.ask(enforce, 1, 4)
			c.later()
			c.change(20, carry)
			_, first := c.ask(peek, 0, 1)
			c.ask(enforce, 0, 21)
			c.ask(enforce, 0, 0)
			if _, again := c.ask(peek, 0, 1); again != first {
				w.Errorf("%s, %s: %d left, then %d", l.Algorithm, carry, first, again)
			}
			if _, left := c.ask(enforce, 1, 1); left != 5 {
				w.Errorf("%s, %s: a stale node has %d left, want 5: only a charge carries a counter over", l.Algorithm, carry, left)
			}
		}
	}
}

// Three nodes charge one counter until all are denied. They get a change at different times. Each unit
// is then charged once: the units that were charged with the new numbers are what the carry-over
// leaves of the units before.
func carryUnderLoad(w *harness) {
	const from, to = 600, 900
	for i, l := range carriers(from) {
		for k, carry := range []enforcement.CarryOver{
			enforcement.CarryKeep, enforcement.CarryReset, enforcement.CarryProportional, enforcement.CarryAdditive,
		} {
			w.clock.Set(Start)
			c := w.carrier(l, byte(4*i+k))
			if granted, _ := c.ask(enforce, 1, 100); !granted {
				w.Fatalf("%s: 100 of %d denied", l.Algorithm, from)
			}
			c.later()
			c.change(to, carry)
			before, stale, after := c.load(100)
			used := before
			if l.Algorithm != enforcement.SlidingWindowLog { // the entries of a log after the change stay
				used, stale = used+stale, 0
			}
			switch carry {
			case enforcement.CarryReset:
				used = 0
			case enforcement.CarryProportional:
				used = (used*to + from - 1) / from
			case enforcement.CarryKeep:
				if l.Algorithm.Bucket() {
					used += to - from // a bucket keeps what was left
				}
			}
			most := to - used - stale
			least := most
			if w.leased {
				least -= 2 * to / 10 // a tenth of each limit, in units of the new one
			}
			if after < least || after > most {
				w.Errorf("%s, %s: %d units charged with the new numbers after %d before and %d by stale nodes, want %d to %d",
					l.Algorithm, carry, after, before, stale, least, most)
			}
		}
	}
}

// load charges one unit at a time from three nodes, until each node that has the change is denied. The
// nodes get the change after different numbers of charges. charged is what was charged before. load
// returns three numbers of units: those charged before the change, those charged after it by nodes
// that still had the former numbers, and those charged with the new numbers.
func (c *carrier) load(charged int64) (before, stale, after int64) {
	var total, old, changed atomic.Int64
	var nodes sync.WaitGroup
	errs := make(chan error, 3)
	for node := range int64(3) {
		nodes.Go(func() {
			for {
				rev := int64(1)
				if total.Load() >= 60+90*node {
					rev = 2
				}
				requests := []enforcement.Request{c.charge(enforce, rev, 1)}
				outcomes := make([]enforcement.Outcome, 1)
				c.limiter.Take(c.Context(), requests, outcomes)
				o := &outcomes[0]
				switch {
				case o.Verdict == enforcement.Granted && o.Charges[0].State.Rev == 1:
					old.Add(1)
				case o.Verdict == enforcement.Granted:
					changed.Add(1)
				case o.Verdict == enforcement.Refused && rev == 2:
					return
				case o.Verdict != enforcement.Refused:
					errs <- fmt.Errorf("%s: %w", o.Verdict, o.Err)
					return
				}
				total.Add(1)
			}
		})
	}
	nodes.Wait()
	close(errs)
	for err := range errs {
		c.Fatal(err)
	}
	return charged, old.Load(), changed.Load()
}
