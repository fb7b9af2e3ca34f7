package limitertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// boundTests check that no more than the quota is admitted. They use concurrent requests and
// faults too.
var boundTests = []test{
	{"ContextEnded", func(w *harness) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m := fixedWindow(10, minute, enforcement.FirstHit).Compile(1)
		r := []enforcement.Request{w.request(enforce, w.on(m, w.key(1, 0), 10, 0)), w.request(force, w.on(m, w.key(2, 0), 10, 0))}
		o := make([]enforcement.Outcome, 2)
		w.limiter.Take(ctx, r, o)
		for i := range o {
			w.same(o[i].Verdict, enforcement.Failed, "a context that has ended")
			w.same(errors.Is(o[i].Err, enforcement.ErrNotReached), true, "the error wraps ErrNotReached")
			w.same(errors.Is(o[i].Err, context.Canceled), true, "the error wraps the error of the context")
		}
		w.same(w.take(r[0])[0].Verdict, enforcement.Granted, "nothing was charged")
	}},
	// Concurrent requests on one counter: exactly the quota is granted.
	{"Concurrent", func(w *harness) {
		for _, limit := range each(97, minute) {
			w.renew()
			m := limit.Compile(1)
			admitted := w.together(16, 20, func(int, int) []enforcement.Request {
				return []enforcement.Request{w.request(enforce, w.on(m, w.key(1, 0), 1, 0))}
			})
			w.admits(admitted, 97, limit.Algorithm.String())
		}
	}},
	{"ConcurrentCosts", func(w *harness) {
		for _, limit := range counting(500, minute) {
			w.renew()
			m := limit.Compile(1)
			units := atomic.Int64{}
			w.concurrently(8, 100, func(g, i int) ([]enforcement.Request, func([]enforcement.Outcome)) {
				cost := int64(1 + (g+i)%3)
				r := w.request(enforce, w.on(m, w.key(1, 0), cost, 0))
				return []enforcement.Request{r, r}, func(o []enforcement.Outcome) {
					for j := range o {
						if o[j].Verdict == enforcement.Granted {
							units.Add(cost)
						}
					}
				}
			})
			w.admits(units.Load(), 500, limit.Algorithm.String())
		}
	}},
	// Two counters are always charged together, in different orders. They must stay
	// equal.
	{"ConcurrentPairs", func(w *harness) {
		for _, limit := range each(60, minute) {
			w.renew()
			m := limit.Compile(1)
			admitted := w.together(12, 20, func(g, _ int) []enforcement.Request {
				a, b := w.on(m, w.key(1, 0), 1, 0), w.on(m, w.key(2, 0), 1, 0)
				if g%2 == 1 {
					a, b = b, a
				}
				return []enforcement.Request{w.request(enforce, a, b)}
			})
			w.admits(admitted, 60, limit.Algorithm.String())
			w.same(w.left(m, w.key(1, 0)), w.left(m, w.key(2, 0)), limit.Algorithm.String()+": left of both")
		}
	}},
	// Each request of a batch charges its own key and a key that all requests share.
	{"ConcurrentBatches", func(w *harness) {
		m := slidingLog(100, minute).Compile(1)
		admitted := w.together(8, 10, func(g, i int) []enforcement.Request {
			var batch []enforcement.Request
			for j := range 5 {
				batch = append(batch, w.request(enforce, w.on(m, w.key(1, 0), 1, 0), w.on(m, w.key(2, byte(g*5+j)), 1, 0)))
			}
			return batch
		})
		w.admits(admitted, 100, "the shared key")
	}},
	{"NeverMoreOverTime", func(w *harness) {
		// First a burst, then small steps for 10 seconds: exactly the burst and the
		// refills are granted.
		for _, limit := range []enforcement.Limit{tokenBucket(10, second, 20), gcra(10, second, 20)} {
			w.renew()
			m, admitted := limit.Compile(1), int64(0)
			for i := range int64(1001) {
				w.clock.Set(Start + i*10_000)
				for range 3 {
					if w.take(w.request(enforce, w.on(m, w.key(1, 0), 1, 0)))[0].Verdict == enforcement.Granted {
						admitted++
					}
				}
			}
			w.admits(admitted, 120, limit.Algorithm.String())
		}
	}},
}

// admits fails the test unless admitted is equal to quota.
func (w *harness) admits(admitted, quota int64, what string) {
	w.Helper()
	if admitted != quota {
		w.Fatalf("%s: admitted %d units of %d", what, admitted, quota)
	}
}

// together sends requests from several goroutines at the same time. It returns the number of
// granted requests.
func (w *harness) together(goroutines, times int, ask func(g, i int) []enforcement.Request) int64 {
	w.Helper()
	var granted atomic.Int64
	w.concurrently(goroutines, times, func(g, i int) ([]enforcement.Request, func([]enforcement.Outcome)) {
		return ask(g, i), func(o []enforcement.Outcome) {
			for j := range o {
				if o[j].Verdict == enforcement.Granted {
					granted.Add(1)
				}
			}
		}
	})
	return granted.Load()
}

// concurrently calls Take from several goroutines. Each goroutine calls it as often as times
// says. ask returns the requests of a call, and a function that receives their outcomes.
func (w *harness) concurrently(goroutines, times int, ask func(g, i int) ([]enforcement.Request, func([]enforcement.Outcome))) {
	w.Helper()
	var all sync.WaitGroup
	failed := make(chan error, goroutines)
	start := make(chan struct{})
	for g := range goroutines {
		all.Go(func() {
			<-start
			for i := range times {
				requests, count := ask(g, i)
				outcomes := make([]enforcement.Outcome, len(requests))
				w.limiter.Take(context.Background(), requests, outcomes)
				for j := range outcomes {
					if err := check(&requests[j], &outcomes[j], w.clock.Now()); err != nil {
						failed <- fmt.Errorf("goroutine %d, time %d: %w", g, i, err)
						return
					}
				}
				count(outcomes)
			}
		})
	}
	close(start)
	all.Wait()
	select {
	case err := <-failed:
		w.Fatal(err)
	default:
	}
}
