package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// holding returns a request with one enforced charge and a lease.
func (w *harness) holding(mode enforcement.Mode, m *enforcement.Meter, key enforcement.Key, cost int64, id byte) enforcement.Request {
	r := w.request(mode, w.on(m, key, cost, 0))
	r.Lease = enforcement.Lease{ID: [16]byte{id, 1}}
	return r
}

// holders returns the leases on a counter as text. A lease has the first byte of its ID,
// its places, and the time to its end.
func (w *harness) holders(m *enforcement.Meter, key enforcement.Key) (list []string) {
	w.Helper()
	o := w.take(w.request(peek, w.on(m, key, 0, 0)))[0]
	for _, h := range o.Charges[0].State.Holders {
		list = append(list, fmt.Sprintf("%d:%d:%dms", h.ID[0], h.Units, (h.Until-o.At)/1000))
	}
	return list
}

// concurrencyTests are the tests of concurrency limits.
var concurrencyTests = []test{
	{"Places", func(w *harness) {
		w.play(concurrency(3, 10*second), []step{
			{cost: 1, id: 1, left: 2, reset: 10 * second},
			{at: 2 * second, cost: 2, id: 2, left: 0, reset: 10 * second, what: "one lease of two places"},
			{at: 3 * second, cost: 1, id: 3, no: true, left: 0, reset: 9 * second, retry: 7 * second, what: "the first lease ends first"},
			{at: 3 * second, cost: 2, id: 3, no: true, left: 0, reset: 9 * second, retry: 9 * second, what: "both must end"},
			{at: 3 * second, cost: 4, id: 3, no: true, left: 0, reset: 9 * second, retry: never, what: "more than all places"},
			{at: 3 * second, cost: 0, id: 3, left: 0, reset: 9 * second, what: "cost 0 holds nothing"},
			{at: 4 * second, mode: release, id: 2, left: 2, reset: 6 * second, units: 2},
			{at: 4 * second, mode: release, id: 2, left: 2, reset: 6 * second, what: "a second release does nothing"},
			{at: 4 * second, mode: release, id: 9, left: 2, reset: 6 * second, what: "nor does that of an unknown lease"},
			{at: 4 * second, cost: 2, id: 3, left: 0, reset: 10 * second},
			{at: 4 * second, mode: release, id: 1, left: 1, reset: 10 * second, units: 1},
			{at: 4 * second, mode: release, id: 3, left: 3, units: 2, what: "the counter is unused again"},
		})
	}},
	// A holder that crashed frees its places at the end of its lease, to the microsecond.
	{"TimeToLive", func(w *harness) {
		w.play(concurrency(2, 10*second), []step{
			{cost: 1, id: 1, ttl: ms(1500), left: 1, reset: ms(1500)},
			{cost: 1, id: 2, ttl: minute, left: 0, reset: minute, what: "longer than the window"},
			{at: ms(1500) - micro, cost: 1, id: 3, no: true, left: 0, reset: minute - ms(1500) + micro, retry: micro},
			{at: ms(1500), cost: 1, id: 3, left: 0, reset: minute - ms(1500), what: "half open"},
			{at: ms(1500), mode: release, id: 1, left: 0, reset: minute - ms(1500), what: "it has ended"},
			{at: minute, cost: 2, id: 4, left: 0, reset: 10 * second},
		})
	}},
	{"Renewal", func(w *harness) {
		w.play(concurrency(3, 10*second), []step{
			{cost: 2, id: 1, left: 1, reset: 10 * second},
			{at: 5 * second, cost: 2, id: 1, left: 1, reset: 10 * second, what: "no second place"},
			{at: 14 * second, cost: 3, id: 1, left: 0, reset: 10 * second, what: "it can grow"},
			{at: 14 * second, cost: 1, id: 1, ttl: second, left: 2, reset: second, what: "shrink, and end earlier"},
			{at: 14 * second, cost: 2, id: 2, left: 0, reset: 10 * second},
			{
				at: 14 * second, cost: 2, id: 1, no: true, left: 0, reset: 10 * second, retry: 10 * second,
				what: "it waits for the other one, not for itself",
			},
			{at: 14 * second, mode: peek, cost: 1, id: 1, left: 0, reset: 10 * second},
			{at: 15 * second, cost: 1, id: 1, left: 0, reset: 10 * second, what: "it had ended, but a place is free"},
			{at: 15 * second, mode: takeUpTo, cost: 3, id: 1, left: 0, reset: 10 * second, units: 1},
			{at: 15 * second, mode: takeUpTo, cost: 3, id: 3, no: true, left: 0, reset: 10 * second, retry: 10 * second},
			{at: 15 * second, mode: refund, cost: 1, id: 2, left: 1, reset: 10 * second, what: "a part of the places"},
			{at: 15 * second, mode: refund, cost: 5, id: 2, left: 2, reset: 10 * second, what: "all places"},
			{at: 15 * second, mode: refund, cost: 1, id: 7, left: 2, reset: 10 * second, what: "an unknown lease has none"},
			{at: 15 * second, mode: reset, id: 1, left: 3},
		})
	}},
	// Promise g: after a change of the quota, leases stay, and each holder can renew its
	// lease.
	{"LowerQuota", func(w *harness) {
		w.play(concurrency(3, 10*second), []step{
			{cost: 2, id: 1, left: 1, reset: 10 * second},
			{cost: 1, id: 2, left: 0, reset: 10 * second},
			{at: second, cost: 1, id: 2, left: 0, reset: 10 * second, to: ptr(concurrency(1, 5*second)), rev: 1},
			{at: second, cost: 1, id: 3, no: true, left: 0, reset: 10 * second, retry: 10 * second, what: "three places are held"},
			{at: 2 * second, cost: 1, id: 2, left: 0, reset: 8 * second, what: "renewed, with the new window"},
			{at: 2 * second, cost: 1, id: 1, left: 0, reset: 8*second - 3*second, what: "a smaller lease"},
			{at: 3 * second, mode: release, id: 1, left: 0, reset: 4 * second, units: 1},
			{at: 3 * second, cost: 0, id: 3, left: 0, reset: 4 * second},
			{
				at: 4 * second, cost: 1, id: 2, no: true, left: 0, reset: 3 * second, retry: never, to: ptr(concurrency(0, 5*second)),
				what: "promise i",
			},
			{at: 4 * second, cost: 1, id: 3, left: 1, reset: 5 * second, to: ptr(concurrency(3, 5*second)), what: "the lease was kept"},
		})
	}},
	{"Forced", func(w *harness) {
		w.play(concurrency(1, 10*second), []step{
			{cost: 1, id: 1, left: 0, reset: 10 * second},
			{mode: force, cost: 2, id: 2, over: true, left: 0, reset: 10 * second},
			{mode: force, cost: 2, id: 2, left: 0, reset: 10 * second, what: "it only renews"},
			{mode: release, id: 1, left: 0, reset: 10 * second, units: 1},
			{cost: 1, id: 1, no: true, left: 0, reset: 10 * second, retry: 10 * second},
			{mode: release, id: 2, left: 1, units: 2},
		})
		m, key := concurrency(5, minute).Compile(1), w.key(2, 0)
		var requests []enforcement.Request
		for i := range enforcement.MaxLeases + 5 {
			r := w.request(force, w.on(m, key, 1, 0))
			r.Lease.ID = [16]byte{byte(i), byte(i >> 8), 1}
			requests = append(requests, r)
		}
		w.take(requests...)
		w.same(len(w.holders(m, key)), enforcement.MaxLeases, "the leases of a counter are bounded")
		w.same(w.left(m, key), 0, "none is free")
	}},
	// Promise h: the clock steps back.
	{"ClockStepsBack", func(w *harness) {
		w.play(concurrency(2, 10*second), []step{
			{at: 100 * second, cost: 1, id: 1, left: 1, reset: 10 * second},
			{at: 95 * second, cost: 1, id: 2, left: 0, reset: 15 * second, what: "a small step: the time of the first grant counts"},
			{at: 109 * second, cost: 1, id: 3, no: true, left: 0, reset: second, retry: second},
			{
				at: 50 * second, cost: 1, id: 3, no: true, left: 0, reset: 10 * second, retry: 10 * second,
				what: "a large step: both live as long as they had",
			},
			{at: 60 * second, cost: 1, id: 3, left: 1, reset: 10 * second},
		})
	}},
	// A lease belongs to one counter. Other counters and tenants do not affect it.
	{"Isolation", func(w *harness) {
		m, other := concurrency(2, minute).Compile(1), w.key(1, 1)
		foreign := w.key(1, 0)
		foreign.Tenant++
		for _, key := range []enforcement.Key{w.key(1, 0), other, foreign, w.key(2, 0)} {
			w.same(w.take(w.holding(enforce, m, key, 1, 1))[0].Verdict, enforcement.Granted, "the same ID")
			w.same(w.left(m, key), 1, "one place")
		}
		w.same(w.take(w.holding(release, m, other, 0, 1))[0].Units, 1, "released")
		for _, key := range []enforcement.Key{w.key(1, 0), foreign, w.key(2, 0)} {
			w.same(w.holders(m, key), []string{"1:1:60000ms"}, "the others keep it")
		}
	}},
	// A request has several concurrency limits and other limits. Either all of them are
	// charged, or none.
	{"Together", func(w *harness) {
		a, b := concurrency(2, minute).Compile(1), concurrency(1, second).Compile(1)
		count := fixedWindow(2, minute, enforcement.FirstHit).Compile(1)
		ask := func(mode enforcement.Mode, id byte) enforcement.Request {
			r := w.request(mode, w.on(a, w.key(1, 0), 1, 0), w.on(b, w.key(2, 0), 1, 0), w.on(count, w.key(3, 0), 1, 0),
				w.on(a, w.key(4, 0), 1, 1), w.on(b, w.key(2, 0), 1, 2))
			r.Lease.ID = [16]byte{id, 1}
			return r
		}
		o := w.take(ask(enforce, 1))[0]
		w.same([]bool{o.Charges[3].Fits, o.Charges[4].Fits}, []bool{true, true}, "a shadow group finds the place of the lease of the check")
		w.same(w.take(ask(enforce, 2))[0].Verdict, enforcement.Refused, "the second limit is full")
		w.same([]int64{w.left(a, w.key(1, 0)), w.left(count, w.key(3, 0))}, []int64{1, 1}, "nothing else is charged")
		w.same(w.take(ask(release, 2))[0].Units, 0, "it holds nothing")
		w.same(w.take(ask(enforce, 1))[0].Verdict, enforcement.Granted, "renewed")
		w.same([]int64{w.left(a, w.key(1, 0)), w.left(a, w.key(4, 0)), w.left(count, w.key(3, 0))}, []int64{1, 1, 0},
			"the renewal is charged to the other limit")
		o = w.take(ask(release, 1))[0]
		w.same([]any{o.Verdict, o.Units}, []any{enforcement.Granted, 3}, "three counters have the lease")
		w.same([]int64{w.left(a, w.key(1, 0)), w.left(b, w.key(2, 0)), w.left(a, w.key(4, 0)), w.left(count, w.key(3, 0))},
			[]int64{2, 1, 2, 0}, "a release changes concurrency limits only")
	}},
	// In one call, each request sees the leases of those before it.
	{"InOneCall", func(w *harness) {
		m, key := concurrency(2, minute).Compile(1), w.key(1, 0)
		var verdicts []enforcement.Verdict
		for _, o := range w.take(w.holding(enforce, m, key, 1, 1), w.holding(enforce, m, key, 1, 2), w.holding(enforce, m, key, 1, 3),
			w.holding(enforce, m, key, 1, 1), w.holding(release, m, key, 0, 2), w.holding(enforce, m, key, 1, 3)) {
			verdicts = append(verdicts, o.Verdict)
		}
		granted, refused := enforcement.Granted, enforcement.Refused
		w.same(verdicts, []enforcement.Verdict{granted, granted, refused, granted, granted, granted}, "verdicts")
		w.same(w.holders(m, key), []string{"1:1:60000ms", "3:1:60000ms"}, "leases")
	}},
	// Goroutines take and release places at the same time. Never more places than the quota
	// are held.
	{"AtOnce", func(w *harness) {
		m, key := concurrency(5, minute).Compile(1), w.key(1, 0)
		var wait sync.WaitGroup
		var held, most, granted atomic.Int64
		for g := range 16 {
			wait.Go(func() {
				for range 30 {
					id := byte(1 + g)
					if w.take(w.holding(enforce, m, key, 1, id))[0].Verdict != enforcement.Granted {
						continue
					}
					granted.Add(1)
					for now := held.Add(1); ; {
						seen := most.Load()
						if now <= seen || most.CompareAndSwap(seen, now) {
							break
						}
					}
					held.Add(-1)
					w.same(w.take(w.holding(release, m, key, 0, id))[0].Units, 1, "released")
				}
			})
		}
		wait.Wait()
		w.same(most.Load() <= 5, true, fmt.Sprintf("at most 5 at once: %d", most.Load()))
		w.same(granted.Load() >= 30, true, fmt.Sprintf("granted: %d", granted.Load()))
		w.same(w.left(m, key), 5, "all places are free")
	}},
	{"Idempotent", func(w *harness) {
		m, key := concurrency(2, minute).Compile(1), w.key(1, 0)
		ask := func(mode enforcement.Mode) enforcement.Request {
			return w.idempotent(w.holding(mode, m, key, 1, 1), 1, 1)
		}
		first := w.take(ask(enforce))[0]
		w.clock.Set(w.clock.Now() + 1_000_000)
		o := w.ask(ask(enforce))[0]
		w.same([]any{o.Replayed, o.At}, []any{true, first.At}, "a repetition does not renew")
		w.same(w.holders(m, key), []string{"1:1:59000ms"}, "the lease of the first")
		w.same(w.take(ask(release))[0].Units, 1, "a release is no repetition")
		w.same(w.ask(ask(enforce))[0].Replayed, true, "the record remains")
		w.same(w.left(m, key), 2, "released")
	}},
}
