//go:build !quick

package redis_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// defaultTimeout is that of a node without settings. The tests of load never
// raise it: what waits inside a node must not count against it.
const defaultTimeout = 50 * time.Millisecond

// exactLimits have windows that do not end, and buckets that do not refill by
// one, while a test runs.
func exactLimits(quota int64) []enforcement.Limit {
	const day = 24 * time.Hour
	return []enforcement.Limit{
		{Algorithm: enforcement.FixedWindow, Quota: quota, Window: day},
		{Algorithm: enforcement.FixedWindow, Quota: quota, Window: 366 * day, Anchor: enforcement.Clock},
		{Algorithm: enforcement.SlidingWindowLog, Quota: quota, Window: day},
		{Algorithm: enforcement.SlidingWindowCounter, Quota: quota, Window: day},
		{Algorithm: enforcement.TokenBucket, Quota: quota, Window: 366 * day},
		{Algorithm: enforcement.GCRA, Quota: quota, Window: 366 * day},
	}
}

// An exactCell is one counter under load.
type exactCell struct {
	home           string
	charge         enforcement.Charge
	asked, granted atomic.Int64
}

// An exactLoad counts what callers were granted of each counter.
type exactLoad struct {
	cells   []*exactCell
	strange atomic.Int64
	one     sync.Once
	example string
}

// newExactLoad has a counter for each algorithm and quota, in several homes.
func newExactLoad(quotas ...int64) *exactLoad {
	l := &exactLoad{}
	for _, quota := range quotas {
		for _, limit := range exactLimits(quota) {
			n := len(l.cells)
			l.cells = append(l.cells, &exactCell{home: fmt.Sprintf("%02x", n%5), charge: charge(uint32(n+1), limit.Compile(1), 1)})
		}
	}
	return l
}

// request charges one unit of the nth counter.
func (l *exactLoad) request(n int) enforcement.Request {
	c := l.cells[n%len(l.cells)]
	return enforcement.Request{Home: c.home, Charges: []enforcement.Charge{c.charge}}
}

// send takes one unit of each of the numbered counters, in one call.
func (l *exactLoad) send(limiter enforcement.Limiter, cells ...int) {
	requests, outcomes := make([]enforcement.Request, len(cells)), make([]enforcement.Outcome, len(cells))
	for i, n := range cells {
		requests[i] = l.request(n)
	}
	limiter.Take(context.Background(), requests, outcomes)
	for i := range outcomes {
		c := l.cells[cells[i]%len(l.cells)]
		c.asked.Add(1)
		switch o := &outcomes[i]; o.Verdict {
		case enforcement.Granted:
			c.granted.Add(1)
		case enforcement.Refused:
		default:
			l.strange.Add(1)
			l.one.Do(func() { l.example = fmt.Sprintf("%s, %v", o.Verdict, o.Err) })
		}
	}
}

// exact fails unless each counter was granted exactly its quota, as the server
// counts it too, and everything was decided without a breaker opening.
func (l *exactLoad) exact(t *testing.T, limiters []*redis.Limiter) {
	t.Helper()
	if n := l.strange.Load(); n > 0 {
		t.Errorf("%d requests were not decided, the first: %s", n, l.example)
	}
	for i, c := range l.cells {
		asked, granted, m := c.asked.Load(), c.granted.Load(), c.charge.Meter
		if want := min(asked, m.Quota); granted != want {
			t.Errorf("%s granted %d of %d, want %d", m.Algorithm, granted, asked, want)
		}
		r := l.request(i)
		r.Mode, r.Charges[0].Cost = enforcement.Peek, 0
		o := mustTake(t, limiters[0], r)
		if left := m.Remaining(o.Charges[0].State, o.At); left != max(m.Quota-asked, 0) {
			t.Errorf("%s has %d left of %d after %d requests", m.Algorithm, left, m.Quota, asked)
		}
	}
	for i, limiter := range limiters {
		if s := limiter.Status(); !s.Reachable || s.BreakerOpened != 0 || s.Mismatches != 0 || s.Unreadable != 0 {
			t.Errorf("limiter %d: %+v", i, s)
		}
	}
}

// openDefault makes n Limiters on one server as n nodes have them, and waits
// until each has reached it.
func openDefault(t *testing.T, n int, url string) []*redis.Limiter {
	t.Helper()
	prefix := newPrefix()
	limiters := make([]*redis.Limiter, n)
	for i := range limiters {
		l := open(t, redis.Config{URL: url, Prefix: prefix, Timeout: defaultTimeout})
		running(t, l)
		eventually(t, "the server is reached", func() bool { return l.Status().Reachable })
		limiters[i] = l
	}
	return limiters
}

// spin occupies the processors of this process with n goroutines that never
// wait, until the test ends.
func spin(t *testing.T, n int) {
	t.Helper()
	var end atomic.Bool
	var spinning sync.WaitGroup
	for range n {
		spinning.Go(func() {
			for !end.Load() {
			}
		})
	}
	t.Cleanup(func() { end.Store(true); spinning.Wait() })
}

// Callers by the thousand are decided exactly, with the default time-out: they
// wait for each other inside the node, not for Redis.
func TestExactUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("HEADGATE_TEST_LOAD") == "full" {
		rounds = 10
	}
	for _, form := range []struct {
		limiters, callers, spinning int
		cluster                     bool
	}{
		{limiters: 1, callers: 1000},
		{limiters: 1, callers: 2000},
		{limiters: 9, callers: 1000},
		{limiters: 3, callers: 500, spinning: 4},
		{limiters: 1, callers: 500, cluster: true},
	} {
		t.Run(strings.TrimSpace(fmt.Sprintf("%+v", form)), func(t *testing.T) {
			var url string
			if form.cluster {
				url = startCluster(t)
			} else {
				url = servertest.StartRedis(t).Prefer().URL()
			}
			spin(t, form.spinning)
			for range rounds {
				limiters := openDefault(t, form.limiters, url)
				load, begin := newExactLoad(1, 100, 1_000_000), make(chan struct{})
				var callers sync.WaitGroup
				for i := range form.callers {
					callers.Go(func() {
						<-begin
						limiter := limiters[i%len(limiters)]
						if i%100 == 0 { // a batch beside the others' single requests
							batch := make([]int, 300)
							for k := range batch {
								batch[k] = i + k
							}
							load.send(limiter, batch...)
							return
						}
						load.send(limiter, 0) // all at once on one counter with a quota of 1
						load.send(limiter, i)
					})
				}
				close(begin)
				callers.Wait()
				load.exact(t, limiters)
			}
		})
	}
}

// A batch within its bounds completes, for any number of calls.
func TestLargestBatchCompletes(t *testing.T) {
	t.Parallel()
	l := openDefault(t, 1, servertest.StartRedis(t).Prefer().URL())[0]
	requests := make([]enforcement.Request, 1000)
	for i := range requests {
		var charges []enforcement.Charge
		for k, limit := range exactLimits(100) {
			charges = append(charges, charge(uint32(10*i+k), limit.Compile(1), 1), charge(uint32(10*i+6+k%4), perHour, 1))
		}
		requests[i] = enforcement.Request{Home: fmt.Sprintf("%02x", i%64), Charges: charges}
	}
	outcomes := make([]enforcement.Outcome, len(requests))
	const batches = 5
	var others sync.WaitGroup
	for range batches - 1 {
		others.Go(func() {
			l.Take(context.Background(), requests, make([]enforcement.Outcome, len(requests)))
		})
	}
	l.Take(t.Context(), requests, outcomes)
	others.Wait()
	for i := range outcomes {
		if outcomes[i].Verdict != enforcement.Granted {
			t.Fatalf("request %d: %s, %v", i, outcomes[i].Verdict, outcomes[i].Err)
		}
	}
	for i := range requests {
		requests[i].Mode = enforcement.Peek
		for k := range requests[i].Charges {
			requests[i].Charges[k].Cost = 0
		}
	}
	l.Take(t.Context(), requests, outcomes)
	for i := range outcomes {
		if n := outcomes[i].Charges[0].State.A; n != batches {
			t.Fatalf("request %d was charged %d times by %d batches", i, n, batches)
		}
	}
	if s := l.Status(); s.BreakerOpened != 0 || s.Mismatches != 0 {
		t.Errorf("%+v", s)
	}
}

// A server that answers late, but within the deadline, decides every check. Each caller
// waits for the calls before its own, which may take many deadlines.

// The server delays itself: its pauses follow one another, and a command waits for at most
// two. A delay in this process would grow with the load of the machine.
func TestSlowServerIsWell(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--hz", "500").Prefer()
	limiters := openDefault(t, 2, server.URL())
	raw, slow := client(t, server.URL()), make(chan struct{})
	var pausing sync.WaitGroup
	pauses := 0
	pausing.Go(func() {
		for {
			select {
			case <-slow:
				return
			default:
			}
			if err := raw.Do(context.Background(), "CLIENT", "PAUSE", "10").Err(); err != nil {
				t.Error(err)
				return
			}
			pauses++
		}
	})
	load := newExactLoad(1, 100, 1_000_000)
	var callers sync.WaitGroup
	for i := range 600 {
		callers.Go(func() {
			load.send(limiters[i%2], 0)
			load.send(limiters[i%2], i)
			load.send(limiters[i%2], i, i+1, i+2)
		})
		callers.Go(func() { // beside callers that leave
			gone, leave := context.WithCancel(context.Background())
			go leave()
			take(gone, limiters[i%2], request(charge(100, perHour, 1)))
		})
	}
	callers.Wait()
	close(slow)
	pausing.Wait()
	if pauses < 2 {
		t.Errorf("%d pauses do not slow a server", pauses)
	}
	load.exact(t, limiters)
}

// A lost reply leaves the requests of its call unknown. Every other request is decided. The
// count of the server is at least what was granted, and at most that plus the unknown
// requests.
func TestSilentReplyFailsOneCall(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t).Prefer()
	proxy := servertest.StartProxy(t, server.URL())
	// Not the default: the proxy is part of this process, and waits with it.
	l := open(t, redis.Config{URL: proxy.URL(), Timeout: 2 * time.Second})
	running(t, l)
	mustTake(t, l, request(charge(1, perHour, 0)))
	const callers, each = 300, 4
	var mu sync.Mutex
	granted, unknown := map[uint32]int64{}, map[uint32]int64{}
	lost := proxy.Lose(servertest.Loss{Request: "evalsha", Nth: 5, Silent: true})
	var wait sync.WaitGroup
	all := int64(0)
	for i := range callers {
		wait.Go(func() {
			for range each {
				cell := uint32(i%100 + 1)
				o := take(t.Context(), l, request(charge(cell, perHour, 1)))
				mu.Lock()
				switch o.Verdict {
				case enforcement.Granted:
					granted[cell]++
				case enforcement.Unknown:
					unknown[cell]++
					all++
				default:
					t.Errorf("%s, %v", o.Verdict, o.Err)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	<-lost
	if all == 0 || all > callers {
		t.Errorf("%d requests are unknown; one call has at least one, and at most one of each caller", all)
	}
	sure := int64(0)
	for cell := uint32(1); cell <= 100; cell++ {
		n := used(t, l, cell)
		sure += granted[cell]
		if n < granted[cell] || n > granted[cell]+unknown[cell] {
			t.Errorf("counter %d holds %d: %d granted, %d unknown", cell, n, granted[cell], unknown[cell])
		}
	}
	if sure+all != callers*each {
		t.Errorf("%d granted and %d unknown of %d", sure, all, callers*each)
	}
	if s := l.Status(); !s.Reachable || s.BreakerOpened != 0 {
		t.Errorf("one lost reply opened the breaker: %+v", s)
	}
}
