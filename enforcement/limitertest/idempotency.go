package limitertest

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// idempotent returns a copy of a request with an idempotency key. what stands for
// everything that the caller sent.
func (w *harness) idempotent(r enforcement.Request, key, what byte) enforcement.Request {
	id := &enforcement.Idempotency{Key: w.key(enforcement.IdempotencyCell, key)}
	id.Request[0], id.Charges[0] = what, what
	r.Idempotency = id
	named := r.Lease.ID != r.ID
	for i := range r.ID {
		r.ID[i] ^= byte(i) + 1 // another request has another ID
	}
	if !named {
		r.Lease.ID = r.ID
	}
	return r
}

// ask takes requests without the checks of take, which do not hold for repetitions.
func (w *harness) ask(requests ...enforcement.Request) []enforcement.Outcome {
	outcomes := make([]enforcement.Outcome, len(requests))
	w.limiter.Take(context.Background(), requests, outcomes)
	return outcomes
}

// repeats fails the test unless o repeats the outcome first of the request r.
func (w *harness) repeats(r *enforcement.Request, first, o *enforcement.Outcome, what string) {
	w.Helper()
	w.same([]any{o.Verdict, o.Replayed, o.First, o.At, o.Units, o.Err},
		[]any{enforcement.Granted, true, r.ID, first.At, first.Units, nil}, what)
	w.same(len(o.Charges), len(first.Charges), what+": charges")
	for i := range o.Charges {
		m, c, want := r.Charges[i].Meter, &o.Charges[i], &first.Charges[i]
		w.same([]any{c.Cost, c.Fits, m.Remaining(c.State, o.At), m.ResetAfter(c.State, o.At)},
			[]any{want.Cost, want.Fits, m.Remaining(want.State, first.At), m.ResetAfter(want.State, first.At)}, what)
	}
}

// idempotencyTests test requests with an Idempotency.
var idempotencyTests = []test{
	{"Repeated", func(w *harness) {
		for _, mode := range []enforcement.Mode{enforce, force, takeUpTo} {
			for _, limit := range each(10, minute) {
				w.renew()
				m, other := limit.Compile(1), fixedWindow(100, minute, enforcement.FirstHit).Compile(1)
				charges := []enforcement.Charge{
					w.on(m, w.key(1, 0), 3, 0), w.on(other, w.key(2, 0), 3, 0), w.on(m, w.key(3, 0), 3, 1), w.on(other, w.key(2, 0), 3, 0),
				}
				if mode == takeUpTo {
					charges = charges[:2]
				}
				w.take(w.request(enforce, charges...)) // the record must have the state of a used counter
				r := w.idempotent(w.request(mode, charges...), 1, 1)
				first := w.take(r)[0]
				left := []int64{w.left(m, w.key(1, 0)), w.left(other, w.key(2, 0)), w.left(m, w.key(3, 0))}
				for _, later := range []int64{0, 1, 599_999_999 - 1} {
					w.clock.Set(w.clock.Now() + later)
					again := w.idempotent(w.request(mode, charges...), 1, 1)
					w.repeats(&r, &first, &w.ask(again)[0], limit.Algorithm.String()+" "+mode.String())
					if later == 0 {
						w.same([]int64{w.left(m, w.key(1, 0)), w.left(other, w.key(2, 0)), w.left(m, w.key(3, 0))}, left, "nothing is charged")
					}
				}
				w.clock.Set(w.clock.Now() + 1)
				again := w.idempotent(w.request(mode, charges...), 1, 1)
				w.same(w.take(again)[0].Replayed, false, "the record has ended")
				w.same(w.ask(r)[0].First, again.ID, "the new record")
			}
		}
	}},
	{"OtherRequest", func(w *harness) {
		m := tokenBucket(10, minute, 0).Compile(1)
		ask := func(mode enforcement.Mode, what byte) enforcement.Request {
			return w.idempotent(w.request(mode, w.on(m, w.key(1, 0), 1, 0)), 1, what)
		}
		w.take(ask(enforce, 1))
		for _, mode := range []enforcement.Mode{enforce, peek, force, takeUpTo} {
			o := w.ask(ask(mode, 2))[0]
			w.same([]any{o.Verdict, o.Replayed, o.Err, len(o.Charges)}, []any{enforcement.Reused, false, nil, 0}, mode.String())
		}
		w.same(w.left(m, w.key(1, 0)), 9, "nothing is charged")
		foreign := ask(enforce, 2)
		foreign.Idempotency.Key.Tenant++
		w.same(w.ask(foreign)[0].Verdict, enforcement.Granted, "another tenant's record")
	}},
	// A denial, a peek and a request without a key leave no record.
	{"NotRecorded", func(w *harness) {
		for _, limit := range each(2, minute) {
			w.renew()
			m := limit.Compile(1)
			ask := func(mode enforcement.Mode, cost int64) enforcement.Request {
				return w.idempotent(w.request(mode, w.on(m, w.key(1, 0), cost, 0)), 1, 1)
			}
			w.same(w.take(ask(peek, 1))[0].Replayed, false, "a peek")
			w.same(w.take(ask(enforce, 3))[0].Verdict, enforcement.Refused, "denied")
			w.same(w.take(ask(enforce, 3))[0].Verdict, enforcement.Refused, "denied again")
			o := w.take(ask(enforce, 2))[0]
			w.same([]any{o.Verdict, o.Replayed}, []any{enforcement.Granted, false}, "the first that is charged")
			w.same(w.ask(ask(peek, 2))[0].Replayed, true, "a peek finds the record")
			w.take(w.request(reset, w.on(m, w.key(1, 0), 0, 0)))
			w.same(w.ask(ask(enforce, 2))[0].Replayed, true, "a reset of the counter leaves the record")
			w.same(w.left(m, w.key(1, 0)), 2, "the repetition charges nothing")
		}
	}},
	// A request without charges finds the record of a request with charges. It leaves no
	// record itself.
	{"WithoutCharges", func(w *harness) {
		m := slidingLog(5, minute).Compile(1)
		none := func(mode enforcement.Mode) enforcement.Request {
			r := w.idempotent(w.request(mode), 1, 1)
			r.Idempotency.Charges[0] = 9
			return r
		}
		w.same(w.take(none(peek))[0].Replayed, false, "no record")
		r := w.idempotent(w.request(enforce, w.on(m, w.key(1, 0), 2, 0)), 1, 1)
		first := w.take(r)[0]
		o := w.ask(none(peek))[0]
		w.same([]any{o.Verdict, o.Replayed, o.First, o.At, len(o.Charges)}, []any{enforcement.Granted, true, r.ID, first.At, 0}, "the record")
	}},
	// The numbers of the limit changed after the record was stored, so its states cannot
	// be used.
	{"OtherCharges", func(w *harness) {
		m, other := fixedWindow(5, minute, enforcement.FirstHit).Compile(1), fixedWindow(9, minute, enforcement.FirstHit).Compile(2)
		r := w.idempotent(w.request(enforce, w.on(m, w.key(1, 0), 2, 0)), 1, 1)
		w.take(r)
		again := w.idempotent(w.request(enforce, w.on(other, w.key(1, 0), 2, 0)), 1, 1)
		again.Idempotency.Charges[0] = 9
		o := w.ask(again)[0]
		w.same([]any{o.Verdict, o.Replayed, o.First, len(o.Charges)}, []any{enforcement.Granted, true, r.ID, 0}, "without charges")
		w.same(w.left(other, w.key(1, 0)), 7, "nothing is charged")
	}},
	// Within one call, and with several requests at once.
	{"AtOnce", func(w *harness) {
		for _, limit := range counting(100, minute) {
			w.renew()
			m, clean := limit.Compile(1), fixedWindow(100, minute, enforcement.FirstHit).Compile(1)
			r := func(key byte) enforcement.Request {
				return w.idempotent(w.request(enforce, w.on(m, w.key(1, 0), 7, 0), w.on(clean, w.key(2, 0), 1, 0)), key, 1)
			}
			plain := w.request(enforce, w.on(m, w.key(1, 0), 1, 0))
			o := w.ask(r(1), plain, r(2), r(1), r(2), plain, r(3))
			var replayed []bool
			for i := range o {
				w.same(o[i].Verdict, enforcement.Granted, "all are granted")
				replayed = append(replayed, o[i].Replayed)
			}
			w.same(replayed, []bool{false, false, false, true, true, false, false}, "repetitions")
			w.same(m.Remaining(o[3].Charges[0].State, o[3].At), 93, "the state after the first")
			w.same(m.Remaining(o[4].Charges[0].State, o[4].At), 85, "the state after the first")
			w.same(w.left(m, w.key(1, 0)), 100-3*7-2, "charged once each")

			var wait sync.WaitGroup
			var mu sync.Mutex
			var firsts [][16]byte
			charged := 0
			for range 100 {
				wait.Go(func() {
					request := r(4)
					o := w.ask(request)[0]
					mu.Lock()
					defer mu.Unlock()
					if o.Verdict == enforcement.Granted && !o.Replayed {
						charged++
						firsts = append(firsts, request.ID)
					} else {
						firsts = append(firsts, o.First)
					}
				})
			}
			wait.Wait()
			w.same(charged, 1, "100 at once")
			w.same(len(slices.Compact(firsts)), 1, "all get the ID of the one that was charged")
			w.same(w.left(m, w.key(1, 0)), 100-4*7-2, "charged once")
		}
	}},
	// Refunds and resets are not idempotent.
	{"RefundAndReset", func(w *harness) {
		m := fixedWindow(10, minute, enforcement.FirstHit).Compile(1)
		ask := func(mode enforcement.Mode, cost int64) enforcement.Request {
			return w.idempotent(w.request(mode, w.on(m, w.key(1, 0), cost, 0)), 1, 1)
		}
		w.take(ask(enforce, 8))
		w.same(w.take(ask(refund, 2), ask(refund, 2))[1].Replayed, false, "refunds")
		w.same(w.left(m, w.key(1, 0)), 6, "refunded twice")
		w.take(ask(reset, 0))
		w.same(w.left(m, w.key(1, 0)), 10, "reset")
	}},
	{"Many", func(w *harness) {
		m := fixedWindow(1000, minute, enforcement.FirstHit).Compile(1)
		var requests []enforcement.Request
		for i := range 200 {
			requests = append(requests, w.idempotent(w.request(enforce, w.on(m, w.key(1, 0), 1, 0)), byte(i), 1))
		}
		w.take(requests...)
		for i, o := range w.ask(requests...) {
			w.same([]any{o.Replayed, m.Remaining(o.Charges[0].State, o.At)}, []any{true, 999 - i}, "repeated")
		}
		w.same(w.left(m, w.key(1, 0)), 800, "charged once each")
	}},
}
