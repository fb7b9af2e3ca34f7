package enforcement_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// A faulty is a limiter that is unavailable while down is set.
type faulty struct {
	enforcement.Limiter
	down bool
}

func (l *faulty) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if l.down {
		away{enforcement.Failed}.Take(ctx, requests, outcomes)
		return
	}
	l.Limiter.Take(ctx, requests, outcomes)
}

// cells records the counters whose states are stored for failure mode local.
type cells struct {
	enforcement.ShareMemory
	seen []uint32
}

func (m *cells) Remember(c *enforcement.Charge, state *enforcement.State, at, now int64) {
	m.seen = append(m.seen, c.Key.Cell)
	m.ShareMemory.Remember(c, state, at, now)
}

// newFault returns a node and its shared limiter, whose clock is a day ahead.
func newFault(nodes int) (*enforcement.Engine, *faulty, *cells, *limitertest.Clock) {
	c := limitertest.NewClock()
	shared := &faulty{Limiter: inprocess.New(inprocess.Config{Now: func() int64 { return c.Now() + 24*time.Hour.Microseconds() }})}
	local := inprocess.New(inprocess.Config{Now: c.Now})
	memory := &cells{ShareMemory: local}
	return enforcement.NewEngine(shared, enforcement.Config{Local: local, Memory: memory, Nodes: nodes}), shared, memory, c
}

// admits returns how many checks of cost 1 a node allows one after the other. degraded is
// whether the decisions must be degraded.
func admits(t *testing.T, e *enforcement.Engine, s *enforcement.Subject, degraded bool, atMost int) (n int) {
	t.Helper()
	for ; n < atMost; n++ {
		d := decide(e, s, enforcement.Check{Cost: 1})
		if d.Degraded != degraded {
			t.Fatalf("check %d: %s, want degraded %v", n, summary(d), degraded)
		}
		if !d.Allowed {
			if d.Reason != enforcement.ReasonOverLimit {
				t.Fatalf("check %d: %s", n, summary(d))
			}
			break
		}
	}
	return n
}

// A failure in the middle of a window does not give a second quota.
func TestLocalShareStartsFromWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
	} {
		for _, c := range []struct{ nodes, used, first, later int }{
			{1, 100, 0, 100}, // everything was used: nothing is allowed until the window ends, then a whole quota
			{3, 60, 14, 34},  // ceil(40/3), then ceil(100/3)
			{3, 0, 34, 34},   // no state was stored
			{1, 1, 99, 100},
		} {
			s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, a, 100, time.Hour)}})
			e, shared, _, clock := newFault(c.nodes)
			if n := admits(t, e, s, false, c.used); n != c.used {
				t.Fatalf("%s: %d of %d admitted by the shared limiter", a, n, c.used)
			}
			clock.Advance(time.Second)
			shared.down = true
			if n := admits(t, e, s, true, 200); n != c.first {
				t.Errorf("%s: %d of 100 used, %d nodes: %d admitted, want %d", a, c.used, c.nodes, n, c.first)
			}
			if a != enforcement.FixedWindow && a != enforcement.SlidingWindowLog {
				clock.Advance(2 * time.Hour)
			} else {
				clock.Advance(time.Hour)
			}
			if n := admits(t, e, s, true, 200); n != c.later {
				t.Errorf("%s: %d of 100 used, %d nodes: %d admitted in the next window, want %d", a, c.used, c.nodes, n, c.later)
			}
		}
	}
}

// A node computes the current state from an old stored state: a bucket has refilled meanwhile.
// The state of a denied check is stored too.
func TestLocalShareOfABucketSeenBefore(t *testing.T) {
	t.Parallel()
	bucket := limit("l", 1, enforcement.TokenBucket, 60, time.Minute)
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{bucket}})
	e, shared, _, clock := newFault(1)
	if n := admits(t, e, s, false, 100); n != 60 {
		t.Fatalf("%d admitted", n)
	}
	clock.Advance(7500 * time.Millisecond)
	shared.down = true
	if n := admits(t, e, s, true, 100); n != 7 {
		t.Errorf("%d admitted after 7.5 seconds at a unit a second, want 7", n)
	}
}

// The charges of atomic batches are stored too. Counters that were reset are not.
func TestMemoryFollowsBatchesAndResets(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 10, time.Hour)}})
	e, shared, _, clock := newFault(1)
	var items []enforcement.BatchItem
	for range 3 {
		items = append(items, enforcement.BatchItem{Subject: s, Check: &enforcement.Check{Cost: 2}, Decision: new(enforcement.Decision)})
	}
	e.DecideBatch(context.Background(), items, true)
	shared.down = true
	if n := admits(t, e, s, true, 100); n != 4 {
		t.Errorf("%d admitted after a batch of 6 of 10", n)
	}
	shared.down = false
	clock.Advance(time.Hour)
	admits(t, e, s, false, 6)
	clock.Advance(time.Second)
	if err := e.Reset(context.Background(), s, s.Plan.Rules[0], [16]byte{}); err != nil {
		t.Fatal(err)
	}
	shared.down = true
	if n := admits(t, e, s, true, 100); n != 10 {
		t.Errorf("%d admitted after a reset", n)
	}
}

// The node stores only the states of counters that it would decide locally: not those of shadow
// policies, not those with failure mode open or closed, and not the results of peeks.
func TestWhatIsRemembered(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "local", Limits: []enforcement.RuleLimit{window(1, 15), window(2, 15)}},
		enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(3, 15)}},
		enforcement.RuleSpec{Policy: "open", OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(4, 15)}},
		enforcement.RuleSpec{Policy: "closed", OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(5, 15)}},
		enforcement.RuleSpec{Policy: "again", Limits: []enforcement.RuleLimit{window(6, 15)}},
	)
	for mode, want := range map[enforcement.Mode][]uint32{
		enforcement.Enforce: {1, 2, 6}, enforcement.Force: {1, 2, 6}, enforcement.Peek: nil,
	} {
		e, _, memory, _ := newFault(1)
		decide(e, s, enforcement.Check{Cost: 1, Mode: mode})
		slices.Sort(memory.seen)
		if !slices.Equal(memory.seen, want) {
			t.Errorf("%s: cells %v are remembered, want %v", mode, memory.seen, want)
		}
	}
}
