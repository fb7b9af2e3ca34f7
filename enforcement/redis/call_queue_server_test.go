//go:build !quick

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// Checks that arrive while a call is in flight share the next one.
func TestConcurrentChecksShareACall(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.URL())
	l := open(t, redis.Config{URL: proxy.URL(), Connections: 1})
	mustTake(t, l, request(charge(1, perHour, 1)))
	l.Take(t.Context(), []enforcement.Request{request(charge(8, perHour, 1)), request(charge(9, perHour, 1))}, make([]enforcement.Outcome, 2)) // loads the script of shared calls
	before := evalshas(t, client(t, server.URL()))

	proxy.Blackhole()
	const checks = 40 // fewer than one call holds
	var wait sync.WaitGroup
	var granted atomic.Int64
	for i := range checks {
		wait.Go(func() {
			if mustTake(t, l, request(charge(uint32(1+i%7), perHour, 1))).Verdict == enforcement.Granted {
				granted.Add(1)
			}
		})
		if i == 0 {
			eventually(t, "the first call is in flight", func() bool { _, inFlight := redis.Waiting(l); return inFlight == 1 })
		}
	}
	eventually(t, "the others wait", func() bool { waiting, _ := redis.Waiting(l); return waiting == checks-1 })
	proxy.Heal()
	wait.Wait()
	if n := evalshas(t, client(t, server.URL())) - before; n != 2 {
		t.Errorf("%d calls, want one for the first check and one for the %d others", n, checks-1)
	}
	if granted.Load() != checks {
		t.Errorf("%d of %d granted", granted.Load(), checks)
	}
	for cell := range uint32(7) {
		want := int64(checks / 7)
		if cell < checks%7 {
			want++
		}
		if cell == 0 {
			want++ // the check before
		}
		if n := used(t, l, 1+cell); n != want {
			t.Errorf("counter %d holds %d, want %d", 1+cell, n, want)
		}
	}
}

// A shared call whose reply is lost leaves its own callers undecided, and no
// other. Each check is charged at most once.
func TestLostReplyOfAGatheredCall(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	proxy := servertest.StartProxy(t, server.URL())
	l := open(t, redis.Config{URL: proxy.URL(), Connections: 1})
	mustTake(t, l, request(charge(1, perHour, 1)))
	// From here on the server knows the script of a gathered call.
	known := make([]enforcement.Outcome, 2)
	l.Take(t.Context(), []enforcement.Request{request(charge(3, perHour, 1)), request(charge(4, perHour, 1))}, known)

	proxy.Blackhole()
	outcomes := make([]enforcement.Outcome, 30)
	var wait sync.WaitGroup
	for i := range outcomes {
		r := request(charge(1, perHour, 1))
		if i > 0 {
			r = request(charge(2, perHour, 1))
			r.Home = "77" // by which the proxy knows the gathered call
		}
		wait.Go(func() { outcomes[i] = take(t.Context(), l, r) })
		if i == 0 {
			eventually(t, "the first call is in flight", func() bool { _, inFlight := redis.Waiting(l); return inFlight == 1 })
		}
	}
	eventually(t, "the others wait", func() bool { waiting, _ := redis.Waiting(l); return waiting == len(outcomes)-1 })
	lost := proxy.Lose(servertest.Loss{Request: "{77}"})
	proxy.Heal()
	wait.Wait()
	verdicts := map[enforcement.Verdict]int{}
	for i := range outcomes {
		verdicts[outcomes[i].Verdict]++
	}
	eventually(t, "a reply is lost", func() bool {
		select {
		case <-lost:
			return true
		default:
			return false
		}
	})
	if verdicts[enforcement.Granted] != 1 || verdicts[enforcement.Unknown] != len(outcomes)-1 {
		t.Errorf("verdicts %v, want the first granted and those of the lost call unknown", verdicts)
	}
	if o := mustTake(t, l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Granted {
		t.Errorf("afterwards: %s", o.Verdict)
	}
	if n := used(t, l, 1); n != 3 {
		t.Errorf("%d charges on the first counter, want 3", n)
	}
	lookup := request(charge(2, perHour, 0))
	lookup.Home = "77"
	if n := mustTake(t, l, lookup).Charges[0].State.A; n != int64(len(outcomes)-1) {
		t.Errorf("%d charges by the lost call, want one for each of its %d checks", n, len(outcomes)-1)
	}
}

// Any number of concurrent callers are granted exactly the limit, through calls
// that mix their requests with batches, and no answer is missing.
func TestConcurrentTotalsAreExact(t *testing.T) {
	t.Parallel()
	url := servertest.StartRedis(t).Prefer().URL()
	prefix := newPrefix()
	nodes := make([]*redis.Limiter, 3)
	for i := range nodes {
		nodes[i] = open(t, redis.Config{URL: url, Prefix: prefix, Timeout: 50e6}) // the default, which open raises
		running(t, nodes[i])
	}
	const limit, singles, batches, batch = 700, 1000, 12, 300
	meter := enforcement.Limit{Algorithm: enforcement.SlidingWindowCounter, Quota: limit, Window: 3600e9}.Compile(1)
	var granted, denied atomic.Int64
	count := func(outcomes []enforcement.Outcome) error {
		for i := range outcomes {
			switch outcomes[i].Verdict {
			case enforcement.Granted:
				granted.Add(1)
			case enforcement.Refused:
				denied.Add(1)
			default:
				return fmt.Errorf("%s: %w", outcomes[i].Verdict, outcomes[i].Err)
			}
		}
		return nil
	}
	var wait sync.WaitGroup
	ask := func(node *redis.Limiter, n int) {
		wait.Go(func() {
			requests, outcomes := make([]enforcement.Request, n), make([]enforcement.Outcome, n)
			for i := range requests {
				requests[i] = request(charge(1, meter, 1), charge(uint32(2+i), perHour, 1))
			}
			node.Take(t.Context(), requests, outcomes)
			if err := count(outcomes); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range singles {
		ask(nodes[i%len(nodes)], 1)
		if i%(singles/batches) == 0 {
			ask(nodes[i%len(nodes)], batch)
		}
	}
	wait.Wait()
	if granted.Load() != limit {
		t.Errorf("%d granted of a limit of %d; %d denied", granted.Load(), limit, denied.Load())
	}
	for i, node := range nodes {
		if s := node.Status(); s.BreakerOpened != 0 || s.Mismatches != 0 {
			t.Errorf("node %d: the breaker opened %d times, %d mismatches", i, s.BreakerOpened, s.Mismatches)
		}
	}
}

// A hung server gets few calls for any number of callers: the breaker opens when the first
// call and a probe are not answered.
func TestHungServerEndsWaiting(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Timeout: 50e6})
	running(t, l)
	eventually(t, "a first decision", func() bool {
		return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict == enforcement.Granted
	})
	before := evalshas(t, client(t, server.URL()))
	server.Pause()
	var wait sync.WaitGroup
	for range 1000 {
		wait.Go(func() {
			if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict.Decided() {
				t.Errorf("a hung server decided: %s", o.Verdict)
			}
		})
	}
	wait.Wait()
	if l.Status().Reachable {
		t.Error("the breaker did not open")
	}
	server.Resume()
	eventually(t, "the breaker closes", func() bool { return l.Status().Reachable })
	if n := evalshas(t, client(t, server.URL())) - before; n > 2*5 {
		t.Errorf("%d calls were sent to a hung server", n)
	}
	if n := used(t, l, 1); n != 1 {
		t.Errorf("%d charges, want the first alone", n)
	}
}

// caller is an enforcement.Caller that can leave.
type caller struct{ left atomic.Bool }

func (c *caller) Left(context.Context, bool) bool { return c.left.Load() }

// A request whose caller leaves while it queues behind another call is not sent.
func TestCallerLeavesTheQueue(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Connections: 1})
	mustTake(t, l, request(charge(1, perHour, 1)))
	server.Pause()
	defer server.Resume()
	var staying, leaving caller
	var sent, kept, left enforcement.Outcome
	var all sync.WaitGroup
	queued := func(n int) {
		eventually(t, "a request waits", func() bool {
			requests, calls := redis.Waiting(l)
			return requests == n && calls == 1
		})
	}
	all.Go(func() { sent = take(enforcement.WithCaller(t.Context(), &leaving), l, request(charge(1, perHour, 1))) })
	queued(0)
	all.Go(func() { left = take(enforcement.WithCaller(t.Context(), &leaving), l, request(charge(1, perHour, 1))) })
	queued(1)
	all.Go(func() { kept = take(enforcement.WithCaller(t.Context(), &staying), l, request(charge(1, perHour, 1))) })
	queued(2)
	leaving.left.Store(true)
	server.Resume()
	all.Wait()
	if sent.Verdict != enforcement.Granted || kept.Verdict != enforcement.Granted {
		t.Errorf("sent before: %s, %v; the caller stays: %s, %v", sent.Verdict, sent.Err, kept.Verdict, kept.Err)
	}
	if left.Verdict != enforcement.Failed || !errors.Is(left.Err, enforcement.ErrLeft) {
		t.Errorf("the caller left: %s, %v", left.Verdict, left.Err)
	}
	if n := used(t, l, 1); n != 3 {
		t.Errorf("%d charges, want 3", n)
	}
}
