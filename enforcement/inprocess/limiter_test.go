package inprocess_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

const minute = time.Minute

func compile(a enforcement.Algorithm, quota int64, window time.Duration) *enforcement.Meter {
	return enforcement.Limit{Algorithm: a, Quota: quota, Window: window}.Compile(1)
}

func key(tenant uint32, i int) enforcement.Key {
	return enforcement.Key{Tenant: tenant, Cell: 1, Partition: partitionOf(i)}
}

func take(l *inprocess.Limiter, mode enforcement.Mode, cost int64, m *enforcement.Meter, keys ...enforcement.Key) enforcement.Outcome {
	r := enforcement.Request{Mode: mode}
	for _, k := range keys {
		r.Charges = append(r.Charges, enforcement.Charge{Key: k, Meter: m, Rev: m.Rev, Cost: cost})
	}
	outcomes := make([]enforcement.Outcome, 1)
	l.Take(context.Background(), []enforcement.Request{r}, outcomes)
	return outcomes[0]
}

func granted(l *inprocess.Limiter, m *enforcement.Meter, keys ...enforcement.Key) bool {
	return take(l, enforcement.Enforce, 1, m, keys...).Verdict == enforcement.Granted
}

func wantLen(t *testing.T, l *inprocess.Limiter, want int, what string) {
	t.Helper()
	if n := l.Len(); n != want {
		t.Fatalf("%s: %d counters, want %d", what, n, want)
	}
}

func TestNothingIsKeptOfWhatChargesNothing(t *testing.T) {
	t.Parallel()
	l, m := inprocess.New(inprocess.Config{}), compile(enforcement.GCRA, 2, minute)
	for _, ask := range []struct {
		mode enforcement.Mode
		cost int64
	}{
		{enforcement.Enforce, 0},
		{enforcement.Enforce, 3},
		{enforcement.Peek, 1},
		{enforcement.Refund, 1},
		{enforcement.Reset, 0},
		{enforcement.TakeUpTo, 0},
		{enforcement.Force, 0},
	} {
		take(l, ask.mode, ask.cost, m, key(1, 1))
		take(l, ask.mode, ask.cost, m, key(1, 1), key(1, 2))
		wantLen(t, l, 0, ask.mode.String())
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
	} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			c := limitertest.NewClock()
			l, m := inprocess.New(inprocess.Config{Now: c.Now, MaxCells: 1000, TenantCells: 100}), compile(a, 3, minute)
			for i := range 100 {
				if !granted(l, m, key(1, i)) {
					t.Fatalf("key %d of the first hundred was refused", i)
				}
			}
			admitted := 0
			for i := 100; i < 1100; i++ { // the flood
				if granted(l, m, key(1, i)) {
					admitted++
				}
			}
			if admitted != 3 {
				t.Errorf("%d of the flood admitted, want the quota of one counter, 3", admitted)
			}
			wantLen(t, l, 101, "a hundred and their overflow")
			for i := range 50 { // another tenant's new keys have separate room
				k := key(2, i)
				first, second := granted(l, m, k), granted(l, m, k)
				if !first || !second {
					t.Error("another tenant's keys share a counter because of the first tenant's flood")
				}
			}
			wantLen(t, l, 151, "and the other tenant's fifty")
			for i := range 100 { // nobody lost a count: two more fit, and no third
				k := key(1, i)
				first, second, third := granted(l, m, k), granted(l, m, k), granted(l, m, k)
				if !first || !second || third {
					t.Fatalf("key %d lost its count, or its room", i)
				}
			}
			// Room again: what counted on the overflow goes on there.
			take(l, enforcement.Reset, 0, m, key(1, 0), key(1, 1), key(1, 2), key(1, 3), key(1, 4))
			if granted(l, m, key(1, 100)) {
				t.Error("a key of the flood has a second quota")
			}
			if take(l, enforcement.Refund, 3, m, key(1, 100)); granted(l, m, key(1, 100)) {
				t.Error("one key gave back what others had used")
			}
			if take(l, enforcement.Reset, 0, m, key(1, 100)); granted(l, m, key(1, 100)) {
				t.Error("one key forgot what others had used")
			}
			// After that, new keys have separate counters again.
			c.Advance(2*minute + 5*time.Second)
			l.Sweep()
			wantLen(t, l, 0, "all are as new")
			for range 3 {
				if !granted(l, m, key(1, 100)) || !granted(l, m, key(1, 101)) {
					t.Error("keys share a counter still")
				}
			}
		})
	}
}

// If one limit uses up the cells of its tenant, the other limits still get cells for some new keys.
func TestOverflowOfOneLimit(t *testing.T) {
	t.Parallel()
	const bound, reserve = 640, 640 / 64
	l, m := inprocess.New(inprocess.Config{MaxCells: 10_000, TenantCells: bound}), compile(enforcement.FixedWindow, 1, minute)
	admitted := func(cell uint32, keys int) (n int) {
		for i := range keys {
			k := key(1, i)
			k.Cell = cell
			if granted(l, m, k) {
				n++
			}
		}
		return n
	}
	if n := admitted(1, 5000); n != bound+1 {
		t.Errorf("%d keys of the first limit were admitted, want %d and one on the overflow counter", n, bound)
	}
	for cell := uint32(2); cell < 5; cell++ {
		if n := admitted(cell, 500); n != reserve+1 {
			t.Errorf("%d keys of limit %d were admitted, want %d and one on the overflow counter", n, cell, reserve)
		}
	}
}

// Nothing is rolled over to an overflow counter. When its window has ended, keys get counters of their
// own again if there is room.
func TestOverflowRollsNothingOver(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l := inprocess.New(inprocess.Config{Now: c.Now, MaxCells: 1000, TenantCells: 1})
	plan := enforcement.Limit{
		Algorithm: enforcement.FixedWindow, Quota: 10, Window: enforcement.Day.Longest(), Period: enforcement.Day, Anchor: enforcement.ByCalendar,
		MaxRollover: 8,
	}.Compile(1)
	for _, step := range []struct {
		day, key   int
		cost, left int64
		shared     bool
	}{
		{0, 1, 4, 6, false}, {0, 2, 4, 6, true}, {1, 2, 1, 9, true}, {1, 1, 1, 15, false}, {2, 3, 1, 9, true}, {2, 2, 1, 8, true},
	} {
		c.Set(limitertest.Start + int64(step.day)*24*time.Hour.Microseconds())
		m := plan.In(nil, c.Now())
		o := take(l, enforcement.Enforce, step.cost, m, key(1, step.key))
		if left := m.Left(o.Charges[0].State, o.At); left != step.left || o.Charges[0].Shared != step.shared {
			t.Errorf("%+v: %d left, shared %t", step, left, o.Charges[0].Shared)
		}
	}
}

func TestOverflowOfSeveralCharges(t *testing.T) {
	t.Parallel()
	l, m := inprocess.New(inprocess.Config{MaxCells: 1, TenantCells: 1}), compile(enforcement.FixedWindow, 3, minute)
	granted(l, m, key(1, 0))
	// Two new keys of one limit share the overflow, so their costs add up there.
	o := take(l, enforcement.Enforce, 2, m, key(1, 1), key(1, 2))
	if o.Verdict != enforcement.Refused || o.Charges[0].Cost != 4 || o.Charges[1].Cost != 4 {
		t.Errorf("%s, costs %d and %d: want 2 + 2 of 3 refused", o.Verdict, o.Charges[0].Cost, o.Charges[1].Cost)
	}
	if !granted(l, m, key(1, 0), key(1, 1), key(1, 2)) {
		t.Error("1 + 1 of 3 refused")
	}
}

func TestLogEntriesAreBounded(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l, m := inprocess.New(inprocess.Config{Now: c.Now, MaxCells: 10, TenantCells: 10}), compile(enforcement.SlidingWindowLog, 1000, minute)
	for range 1000 {
		if !granted(l, m, key(1, 1)) {
			t.Fatal("refused below the quota")
		}
		c.Advance(time.Millisecond)
	}
	o := take(l, enforcement.Enforce, 1, m, key(1, 1))
	if o.Verdict != enforcement.Refused || o.Charges[0].State.A != 1000 || o.Charges[0].State.B > 64 {
		t.Errorf("%s, %d units in %d entries: want all units in few entries", o.Verdict, o.Charges[0].State.A, o.Charges[0].State.B)
	}
	// The entries that were put together leave no sooner than the newest of them.
	c.Advance(minute - time.Second - time.Millisecond)
	admitted := 0
	for range 2000 {
		if granted(l, m, key(1, 1)) {
			admitted++
		}
		c.Advance(time.Millisecond / 2)
	}
	if admitted > 1000 {
		t.Errorf("%d admitted in a second in which at most 1000 entries left", admitted)
	}
}

// A counter is dropped only when it has no effect: a limiter that sweeps all the time gives
// the same answers as one that never sweeps.
func TestSweepChangesNoAnswer(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	swept, kept := inprocess.New(inprocess.Config{Now: c.Now}), inprocess.New(inprocess.Config{Now: c.Now})
	r := rand.New(rand.NewPCG(1, 2))
	var meters []*enforcement.Meter
	for _, a := range []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.LeakyBucket,
	} {
		for _, window := range []time.Duration{time.Millisecond, time.Second, 10 * time.Second} {
			meters = append(meters, compile(a, 1+r.Int64N(8), window))
		}
	}
	dropped := 0
	for step := range 6_000 {
		c.Advance(time.Duration(r.Int64N(int64(time.Second))))
		i := r.IntN(len(meters))
		k := enforcement.Key{Tenant: 1, Cell: uint32(i), Partition: partitionOf(r.IntN(20))}
		mode := []enforcement.Mode{enforcement.Enforce, enforcement.Enforce, enforcement.Force, enforcement.Refund}[r.IntN(4)]
		a := take(swept, mode, r.Int64N(4), meters[i], k)
		b := take(kept, mode, a.Charges[0].Cost, meters[i], k)
		left := meters[i].Left(a.Charges[0].State, a.At)
		if a.Verdict != b.Verdict || left != meters[i].Left(b.Charges[0].State, b.At) {
			t.Fatalf("step %d, %s of %d on %s: %s with %d left, without sweeping %s with %d", step, mode, a.Charges[0].Cost,
				meters[i].Algorithm, a.Verdict, left, b.Verdict, meters[i].Left(b.Charges[0].State, b.At))
		}
		if step%5 == 0 {
			before := swept.Len()
			swept.Sweep()
			dropped += before - swept.Len()
		}
	}
	if dropped < 300 {
		t.Errorf("only %d counters were dropped: the test shows little", dropped)
	}
	c.Advance(time.Hour)
	swept.Sweep()
	wantLen(t, swept, 0, "after an hour")
}

func TestSweepManyPerShard(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l := inprocess.New(inprocess.Config{Now: c.Now})
	short, long := compile(enforcement.GCRA, 10, time.Second), compile(enforcement.SlidingWindowLog, 10, time.Hour)
	const keys = 50_000
	for i := range keys {
		m := short
		if i%10 == 0 {
			m = long
		}
		granted(l, m, key(1, i))
	}
	wantLen(t, l, keys, "all")
	c.Advance(10 * time.Second)
	l.Sweep()
	wantLen(t, l, keys/10, "those of the hour")
	for i := range keys { // the table is whole after so many removals
		o := take(l, enforcement.Peek, 0, long, key(1, i))
		if used := o.Charges[0].State.A; used != int64(1-min(i%10, 1)) {
			t.Fatalf("key %d has %d", i, used)
		}
	}
	c.Advance(time.Hour)
	l.Sweep()
	wantLen(t, l, 0, "none")
	if used := l.Used(); used != 0 {
		t.Errorf("%d cells of memory are counted for nothing", used)
	}
}

func TestRunSweepsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l, m := inprocess.New(inprocess.Config{Now: c.Now, SweepEvery: time.Millisecond}), compile(enforcement.FixedWindow, 1, time.Second)
	for i := range 1000 {
		granted(l, m, key(1, i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	c.Advance(time.Minute)
	for l.Len() > 0 { // go test's own time limit ends this when Run does not sweep
		granted(l, m, key(2, 0))
		take(l, enforcement.Reset, 0, m, key(2, 0))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestTwoLimitersShareNothing(t *testing.T) {
	t.Parallel()
	m := compile(enforcement.FixedWindow, 1, minute)
	a, b := inprocess.New(inprocess.Config{}), inprocess.New(inprocess.Config{})
	if !granted(a, m, key(1, 1)) || granted(a, m, key(1, 1)) || !granted(b, m, key(1, 1)) {
		t.Error("a counter of one limiter shows in the other")
	}
}

// The clock without a Config is the wall's.
func TestDefaultClock(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMicro()
	o := take(inprocess.New(inprocess.Config{}), enforcement.Peek, 1, compile(enforcement.GCRA, 1, minute), key(1, 1))
	if after := time.Now().UnixMicro(); o.At < before-1_000_000 || o.At > after+1_000_000 {
		t.Errorf("decided at %d, the wall clock went from %d to %d", o.At, before, after)
	}
}

// A deadline that has passed fails nothing: this limiter does not wait.
func TestDeadlineFailsNothing(t *testing.T) {
	t.Parallel()
	l, m := inprocess.New(inprocess.Config{}), compile(enforcement.GCRA, 3, minute)
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	requests, outcomes := make([]enforcement.Request, 5), make([]enforcement.Outcome, 5)
	for i := range requests {
		requests[i].Charges = []enforcement.Charge{{Key: key(1, 1), Meter: m, Rev: 1, Cost: 1}}
	}
	l.Take(ctx, requests, outcomes)
	for i, o := range outcomes {
		want := enforcement.Granted
		if i >= 3 {
			want = enforcement.Refused
		}
		if o.Verdict != want || o.Err != nil {
			t.Errorf("request %d after the deadline: %s, %v, want %s", i, o.Verdict, o.Err, want)
		}
	}
}

// A request that reads the clock, and gets the lock only after one that read it
// later, is decided at the later instant: the state is not taken for one from
// the future, which would open its window again.
func TestClockReadBeforeTheLock(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.GCRA} {
		readings := []int64{1_000_000, 900_000, 1_000_000, 1_000_000}
		l := inprocess.New(inprocess.Config{Now: func() int64 {
			now := readings[0]
			readings = readings[1:]
			return now
		}})
		m := compile(a, 1, time.Millisecond)
		if !granted(l, m, key(1, 1)) {
			t.Fatalf("%s: refused the first", a)
		}
		if o := take(l, enforcement.Enforce, 1, m, key(1, 1)); o.Verdict != enforcement.Refused || o.At != 1_000_000 {
			t.Errorf("%s: %s at %d, want refused at the second reading", a, o.Verdict, o.At)
		}
		if granted(l, m, key(1, 1)) {
			t.Errorf("%s: a second unit of one in a millisecond", a)
		}
	}
}

// Keys whose numbers differ little are spread over shards (by the top bits of the
// hash) and slots (by the low bits) about as evenly as random ones.
func TestHashSpreads(t *testing.T) {
	t.Parallel()
	l := inprocess.New(inprocess.Config{})
	const keys = 1 << 16
	for name, nth := range map[string]func(i int) enforcement.Key{
		"partitions": func(i int) enforcement.Key { return key(1, i) },
		"tenants":    func(i int) enforcement.Key { return enforcement.Key{Tenant: uint32(i), Cell: 1} },
		"cells":      func(i int) enforcement.Key { return enforcement.Key{Tenant: 1, Cell: uint32(i)} },
	} {
		var top, low [256]int
		seen := make(map[uint64]bool, keys)
		for i := range keys {
			h := l.Hash(nth(i))
			top[h>>56]++
			low[h&255]++
			seen[h] = true
		}
		if len(seen) != keys {
			t.Errorf("%s: %d hashes of %d keys", name, len(seen), keys)
		}
		for i := range 256 { // 256 expected, a deviation of 16; twice as many is out of reach
			if top[i] > 512 || low[i] > 512 {
				t.Fatalf("%s: %d of %d keys in shard %d, %d in slot %d", name, top[i], keys, i, low[i], i)
			}
		}
	}
}

// While the holder of a shard has no processor the others park; then each of
// them is decided once.
func TestShardHeldForLong(t *testing.T) {
	t.Parallel()
	l, m := inprocess.New(inprocess.Config{}), compile(enforcement.FixedWindow, 10, time.Hour)
	release := l.Hold(key(1, 1))
	var started, ended sync.WaitGroup
	var admitted atomic.Int64
	for range 64 {
		started.Add(1)
		ended.Go(func() {
			started.Done()
			if granted(l, m, key(1, 1)) {
				admitted.Add(1)
			}
		})
	}
	started.Wait()
	for range 10_000 {
		runtime.Gosched()
	}
	release()
	ended.Wait()
	if n := admitted.Load(); n != 10 {
		t.Errorf("%d of 64 admitted, want the quota, 10", n)
	}
}

// Many goroutines on few keys, of all kinds of requests, with a sweeper beside
// them: for the race detector, and no request may wait for ever.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	l := inprocess.New(inprocess.Config{MaxCells: 60, TenantCells: 60})
	var meters []*enforcement.Meter
	for _, a := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.GCRA} {
		meters = append(meters, compile(a, 50, 5*time.Millisecond))
	}
	done := make(chan struct{})
	var sweeper, workers sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				l.Sweep()
			}
		}
	})
	for g := range 16 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			requests, outcomes := make([]enforcement.Request, 3), make([]enforcement.Outcome, 3)
			for range 300 {
				for i := range requests {
					requests[i] = enforcement.Request{Mode: enforcement.Mode(r.IntN(6))}
					for group := range r.IntN(12) {
						cell := r.IntN(len(meters))
						requests[i].Charges = append(requests[i].Charges, enforcement.Charge{
							Key:   enforcement.Key{Tenant: 1, Cell: uint32(cell), Partition: partitionOf(r.IntN(40))},
							Meter: meters[cell], Rev: 1, Cost: r.Int64N(5), Group: uint16(group / 4),
						})
					}
				}
				l.Take(context.Background(), requests, outcomes)
				for i := range outcomes {
					if !outcomes[i].Verdict.Decided() {
						t.Errorf("verdict %s", outcomes[i].Verdict)
					}
				}
			}
		})
	}
	workers.Wait()
	close(done)
	sweeper.Wait()
}

// A request may name another bound of its tenant. It is at most half of all cells, so
// that other tenants have room.
func TestBoundOfOneTenant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bound, want int64 }{{0, 100}, {10, 10}, {300, 300}, {900, 500}} {
		l, m := inprocess.New(inprocess.Config{MaxCells: 1000, TenantCells: 100}), compile(enforcement.FixedWindow, 1, minute)
		var admitted int64
		for i := range 1000 {
			r := []enforcement.Request{{MaxKeys: c.bound, Charges: []enforcement.Charge{{Key: key(1, i), Meter: m, Rev: 1, Cost: 1}}}}
			o := make([]enforcement.Outcome, 1)
			if l.Take(t.Context(), r, o); o[0].Verdict == enforcement.Granted {
				admitted++
			}
		}
		if admitted != c.want+1 {
			t.Errorf("bound %d: %d keys were admitted, want %d and one on the overflow counter", c.bound, admitted, c.want)
		}
		if !granted(l, m, key(2, 1)) || !granted(l, m, key(2, 2)) {
			t.Errorf("bound %d: keys of another tenant share a counter", c.bound)
		}
	}
}

func TestGrantsOnOverflow(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	l := inprocess.New(inprocess.Config{Now: c.Now, MaxCells: 1000, TenantCells: 3})
	m := compile(enforcement.FixedWindow, 10, 24*time.Hour)
	for i := range 3 {
		granted(l, m, key(1, i))
	}
	limitertest.GrantsOnOverflow(t, l, 1, 1, "", c.Now())
}
