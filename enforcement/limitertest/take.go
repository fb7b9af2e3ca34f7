package limitertest

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/enforcement"
)

// on returns a charge with the latest revision of a meter.
func (w *harness) on(m *enforcement.Meter, key enforcement.Key, cost int64, group uint16) enforcement.Charge {
	return enforcement.Charge{Key: key, Meter: m, Rev: m.Rev, Cost: cost, Group: group}
}

// left returns the number of units that are left on a counter.
func (w *harness) left(m *enforcement.Meter, key enforcement.Key) int64 {
	w.Helper()
	o := w.take(w.request(peek, w.on(m, key, 0, 0)))[0]
	return m.Remaining(o.Charges[0].State, o.At)
}

// takeTests test calls of Take with several charges or several requests.
var takeTests = []test{
	{"AllOrNothing", func(w *harness) {
		for i, last := range each(2, minute) { // each limit is tried as the first and as the last charge
			w.renew()
			a, b := fixedWindow(10, minute, enforcement.FirstHit).Compile(1), last.Compile(1)
			charges := func(cost int64) []enforcement.Charge {
				both := []enforcement.Charge{w.on(a, w.key(1, 0), cost, 0), w.on(b, w.key(2, 0), cost, 0)}
				if i%2 == 1 {
					both[0], both[1] = both[1], both[0]
				}
				return both
			}
			o := w.take(w.request(enforce, charges(2)...), w.request(enforce, charges(1)...))
			w.same(o[0].Verdict, enforcement.Granted, "both fit")
			w.same(o[1].Verdict, enforcement.Refused, "the second limit is full")
			w.same(o[1].Charges[i%2].Fits, true, "the first limit had room")
			w.same(o[1].Charges[1-i%2].Fits, false, "the second limit had no room")
			w.same(a.Remaining(o[1].Charges[i%2].State, o[1].At), 8, "the first limit is not charged")
			w.same(w.left(a, w.key(1, 0)), 8, "the first limit is not charged later")
			w.same(w.left(b, w.key(2, 0)), 0, "the second is full")
		}
	}},
	{"TakeUpToSmallest", func(w *harness) {
		a, b := fixedWindow(10, minute, enforcement.FirstHit).Compile(1), tokenBucket(4, minute, 0).Compile(1)
		o := w.take(w.request(takeUpTo, w.on(a, w.key(1, 0), 7, 0), w.on(b, w.key(2, 0), 7, 0)))[0]
		w.same(o.Units, 4, "the smallest of what is left")
		w.same(w.left(a, w.key(1, 0)), 6, "the first is charged what was granted")
		o = w.take(w.request(takeUpTo, w.on(a, w.key(1, 0), 7, 0), w.on(b, w.key(2, 0), 7, 0)))[0]
		w.same(o.Verdict, enforcement.Refused, "granting nothing is a refusal")
		w.same(o.Units, 0, "units of a refusal")
		w.same([]bool{o.Charges[0].Fits, o.Charges[1].Fits}, []bool{true, false}, "the limit with units left fits")
		w.same(w.left(a, w.key(1, 0)), 6, "a refusal charges nothing")
	}},
	// Each limit is charged its share of what the limit with the least left allows, rounded up.
	{"TakeUpToShares", func(w *harness) {
		for _, limit := range each(10, minute) {
			tokens, much := fixedWindow(1000, minute, enforcement.FirstHit).Compile(1), fixedWindow(1<<40, minute, enforcement.FirstHit).Compile(1)
			for _, c := range []struct{ used, cost, tokens, units, charged int64 }{
				{0, 1, 1800, 1000, 1}, // the tokens are the tightest limit
				{8, 3, 600, 400, 2},   // 2 of 3 requests are left, so 2 of 3 tokens
				{7, 7, 9, 3, 3},       // 3 of 7 of 9 tokens are 3, whose share is 3
				{9, 4, 7, 1, 1},       // 1 of 4 of 7 tokens is 1
				{9, 2_147_483_647, 2_147_483_647, 1, 1},
				{0, 5, 7, 7, 5}, // all of it
				{3, 0, 7, 7, 0}, // a cost of 0 takes nothing
				{10, 0, 7, 7, 0},
				{10, 1, 7, 0, 0}, // nothing is left
			} {
				w.renew()
				m := limit.Compile(1)
				w.take(w.request(enforce, w.on(m, w.key(1, 0), c.used, 0)))
				o := w.take(w.request(takeUpTo, w.on(m, w.key(1, 0), c.cost, 0), w.on(tokens, w.key(2, 0), min(c.tokens, 1800), 0),
					w.on(much, w.key(3, 0), c.tokens, 0)))[0]
				what := fmt.Sprintf("%s, %+v", limit.Algorithm, c)
				w.same(o.Units, c.units, what)
				w.same(o.Verdict == enforcement.Granted, c.units > 0, what)
				w.same([]int64{w.left(m, w.key(1, 0)), 1<<40 - w.left(much, w.key(3, 0))}, []int64{10 - c.used - c.charged, c.units}, what)
			}
		}
	}},
	// Soft and shadow groups charge at most the part that group 0 took. If a limit has less left, it
	// charges that.
	{"TakeUpToOfOtherGroups", func(w *harness) {
		for _, limit := range each(10, minute) {
			for _, c := range []struct {
				used, cost, soft, left int64
				fits                   bool
			}{
				{0, 20, 0, 990, true},    // 10 of 20 are taken
				{7, 20, 0, 997, true},    // 3 of 20
				{0, 6, 0, 994, true},     // all
				{0, 20, 996, 0, true},    // the soft limit has only 4 left of the 10
				{0, 20, 1000, 0, false},  // it has nothing left
				{10, 20, 990, 10, true},  // the request is refused
				{10, 20, 1000, 0, false}, // as well
				{3, 1_000_000, 1, 992, true},
			} {
				w.renew()
				m, large := limit.Compile(1), fixedWindow(5000, minute, enforcement.FirstHit).Compile(1)
				soft := fixedWindow(1000, minute, enforcement.FirstHit).Compile(1)
				w.take(w.request(enforce, w.on(m, w.key(1, 0), c.used, 0), w.on(soft, w.key(2, 0), c.soft, 0)))
				o := w.take(w.request(takeUpTo, w.on(m, w.key(1, 0), c.cost, 0), w.on(soft, w.key(2, 0), c.cost, 1),
					w.on(large, w.key(3, 0), 3*c.cost, enforcement.FirstShadowGroup)))[0]
				what := fmt.Sprintf("%s, %+v", limit.Algorithm, c)
				units := min(10-c.used, c.cost)
				w.same(o.Units, units, what)
				w.same(o.Charges[1].Fits, c.fits, what)
				w.same([]int64{w.left(soft, w.key(2, 0)), 5000 - w.left(large, w.key(3, 0))}, []int64{c.left, 3 * units}, what)
			}
		}
	}},
	{"SameKeyInOneRequest", func(w *harness) {
		for _, limit := range each(10, minute) {
			w.renew()
			m, k := limit.Compile(1), w.key(1, 0)
			twice := func(cost int64) enforcement.Request {
				return w.request(enforce, w.on(m, k, cost, 0), w.on(m, w.key(2, 0), 1, 0), w.on(m, k, cost, 0))
			}
			o := w.take(twice(6))[0]
			w.same(o.Verdict, enforcement.Refused, "6 and 6 of 10, each of which fits")
			w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost, o.Charges[2].Cost}, []int64{12, 1, 12}, "costs add up")
			w.same([]bool{o.Charges[0].Fits, o.Charges[1].Fits, o.Charges[2].Fits}, []bool{false, true, false}, "fits")
			o = w.take(twice(5))[0]
			w.same(o.Verdict, enforcement.Granted, "5 and 5 of 10")
			w.same(m.Remaining(o.Charges[0].State, o.At), 0, "both have the state after both")
			w.same(m.Remaining(o.Charges[2].State, o.At), 0, "both have the state after both")
			w.same(w.left(m, w.key(2, 0)), 9, "the other key is charged once")
		}
	}},
	{"SameKeyWithOtherQuotas", func(w *harness) {
		// Sent limits: requests with different quotas share a counter, in one call and in several calls.
		for _, anchor := range []enforcement.Anchor{enforcement.Clock, enforcement.FirstHit} {
			w.renew()
			k, small, large := w.key(1<<31+5, 0), fixedWindow(3, minute, anchor).Compile(1), fixedWindow(6, minute, anchor).Compile(1)
			ask := func(m *enforcement.Meter, cost int64) enforcement.Request {
				return w.request(enforce, w.on(m, k, cost, 0))
			}
			o := w.take(ask(small, 2), ask(large, 2), ask(small, 1), ask(large, 2), ask(large, 1))
			w.same([]enforcement.Verdict{o[0].Verdict, o[1].Verdict, o[2].Verdict, o[3].Verdict, o[4].Verdict}, []enforcement.Verdict{
				enforcement.Granted, enforcement.Granted, enforcement.Refused, enforcement.Granted, enforcement.Refused,
			}, "each request is decided by its own quota")
			w.same(w.take(ask(small, 1))[0].Verdict, enforcement.Refused, "the small quota in a later call")
			w.same([]int64{w.left(small, k), w.left(large, k)}, []int64{0, 0}, "what is left")
			w.same(w.left(large, w.key(5, 0)), 6, "the counter of the plan's limit")
		}
	}},
	{"ShadowGroups", func(w *harness) {
		m := fixedWindow(3, minute, enforcement.FirstHit).Compile(1)
		narrow := slidingLog(1, minute).Compile(1)
		ask := func(cost int64) enforcement.Request {
			return w.request(enforce, w.on(m, w.key(1, 0), cost, 0),
				w.on(m, w.key(2, 0), cost, 1), w.on(narrow, w.key(3, 0), cost, 1), // one soft policy: both or none
				w.on(narrow, w.key(4, 0), 1, enforcement.FirstShadowGroup))
		}
		fits := func(o enforcement.Outcome) (f []bool) {
			for _, c := range o.Charges {
				f = append(f, c.Fits)
			}
			return f
		}
		o := w.take(ask(1))[0]
		w.same(fits(o), []bool{true, true, true, true}, "everything fits")
		o = w.take(ask(2))[0]
		w.same(o.Verdict, enforcement.Granted, "a shadow policy denies no request")
		w.same(fits(o), []bool{true, true, false, false}, "the narrow ones are full")
		w.same([]int64{w.left(m, w.key(1, 0)), w.left(m, w.key(2, 0)), w.left(narrow, w.key(3, 0))}, []int64{0, 2, 0},
			"the enforced limit is charged, the shadow policy not at all")
		w.take(w.request(reset, w.on(narrow, w.key(3, 0), 0, 0)), w.request(reset, w.on(narrow, w.key(4, 0), 0, 0)))
		o = w.take(ask(1))[0]
		w.same(o.Verdict, enforcement.Refused, "the enforced limit is full")
		w.same(fits(o), []bool{false, true, true, true}, "fits of shadow policies on a denied request")
		w.same([]int64{w.left(narrow, w.key(3, 0)), w.left(narrow, w.key(4, 0))}, []int64{1, 1},
			"a denied check charges no shadow policy")

		w.renew()
		o = w.take(w.request(force, w.on(narrow, w.key(1, 0), 5, 0), w.on(narrow, w.key(2, 0), 5, 1)))[0]
		w.same(o.Verdict, enforcement.Granted, "force")
		w.same([]int64{o.Charges[0].State.A, o.Charges[1].State.A}, []int64{5, 5}, "force charges shadow policies too")
	}},
	{"OnlyShadow", func(w *harness) {
		m := fixedWindow(1, minute, enforcement.FirstHit).Compile(1)
		o := w.take(w.request(enforce, w.on(m, w.key(1, 0), 2, 1)), w.request(enforce, w.on(m, w.key(1, 0), 1, 1)))
		w.same(o[0].Verdict, enforcement.Granted, "a shadow policy without room")
		w.same(o[1].Verdict, enforcement.Granted, "a shadow policy with room")
		w.same(w.left(m, w.key(1, 0)), 0, "the second was charged")
	}},
	// Take decides the requests of one call in order and independently. A limiter that
	// first adds up their costs would deny the third one.
	{"InOrder", func(w *harness) {
		for _, limit := range each(5, minute) {
			w.renew()
			m, all := limit.Compile(1), fixedWindow(6, minute, enforcement.FirstHit).Compile(1)
			ask := func(partition byte, cost int64) enforcement.Request {
				return w.request(enforce, w.on(m, w.key(1, partition), cost, 0), w.on(all, w.key(2, 0), cost, 0))
			}
			o := w.take(ask(1, 3), ask(1, 3), ask(1, 2), ask(2, 2), ask(2, 1), ask(3, 0))
			var granted []bool
			for i := range o {
				granted = append(granted, o[i].Verdict == enforcement.Granted)
			}
			w.same(granted, []bool{true, false, true, false, true, true}, limit.Algorithm.String())
			w.same(all.Remaining(o[1].Charges[1].State, o[1].At), 3, "a refusal by one limit is not charged on the other")
			w.same(w.left(all, w.key(2, 0)), 0, "3 + 2 + 1 of 6")
		}
	}},
	{"ModesInOrder", func(w *harness) {
		for _, limit := range counting(5, minute) {
			w.renew()
			m := limit.Compile(1)
			ask := func(mode enforcement.Mode, cost int64) enforcement.Request {
				return w.request(mode, w.on(m, w.key(1, 0), cost, 0))
			}
			o := w.take(ask(enforce, 4), ask(peek, 1), ask(enforce, 2), ask(force, 2),
				ask(refund, 4), ask(takeUpTo, 9), ask(reset, 0), ask(enforce, 5))
			var left []int64
			for i := range o {
				left = append(left, m.Remaining(o[i].Charges[0].State, o[i].At))
			}
			want := []int64{1, 0, 1, 0, 3, 0, 5, 0} // 4 + 2 - 4 = 2 used
			w.same(left, want, limit.Algorithm.String())
		}
	}},
	{"ManyCharges", func(w *harness) {
		m := fixedWindow(2, minute, enforcement.FirstHit).Compile(1)
		charges := make([]enforcement.Charge, 200)
		for i := range charges {
			charges[i] = w.on(m, w.key(1+uint32(i%100), 0), 1, 0) // each counter twice
		}
		w.same(w.take(w.request(enforce, charges...))[0].Verdict, enforcement.Granted, "2 on each of 100 counters")
		charges[0].Key = w.key(1000, 0)
		o := w.take(w.request(enforce, charges...))[0]
		w.same(o.Verdict, enforcement.Refused, "99 are full")
		w.same(o.Charges[0].Fits, true, "the new one has room")
		w.same(w.left(m, w.key(1000, 0)), 2, "and is not charged")
	}},
	{"ManyHomes", func(w *harness) {
		m := slidingLog(2, minute).Compile(1)
		var requests []enforcement.Request
		var want []enforcement.Verdict
		for round := range 3 {
			for tenant := range uint32(70) {
				k := w.key(1, 0)
				k.Tenant += tenant
				requests = append(requests, w.request(enforce, w.on(m, k, 1, 0)))
				want = append(want, enforcement.Granted)
				if round == 2 {
					want[len(want)-1] = enforcement.Refused
				}
			}
		}
		o := w.take(requests...)
		for i := range o {
			w.same(o[i].Verdict, want[i], "request")
		}
	}},
	// Keys that differ in only one byte have separate counters.
	{"Isolated", func(w *harness) {
		m := fixedWindow(1, minute, enforcement.FirstHit).Compile(1)
		k := w.key(1, 0)
		w.same(w.take(w.request(enforce, w.on(m, k, 1, 0)))[0].Verdict, enforcement.Granted, "the key itself")
		others := []enforcement.Key{k, k, k, k}
		others[0].Tenant ^= 1
		others[1].Tenant ^= 1 << 31
		others[2].Cell ^= 1
		others[3].Cell ^= 1 << 31
		for i := range k.Partition {
			other := k
			other.Partition[i] ^= 0x80
			others = append(others, other)
		}
		other := k
		other.Partition = [16]byte{} // the whole tenant
		others = append(others, other)
		for _, other := range others {
			w.same(w.take(w.request(enforce, w.on(m, other, 1, 0)))[0].Verdict, enforcement.Granted, "a key that differs in one byte")
			w.same(w.take(w.request(enforce, w.on(m, other, 1, 0)))[0].Verdict, enforcement.Refused, "that key again")
			w.same(w.take(w.request(enforce, w.on(m, k, 1, 0)))[0].Verdict, enforcement.Refused, "the key itself again")
			if other.Tenant == k.Tenant {
				w.take(w.request(reset, w.on(m, other, 0, 0)))
				w.same(w.left(m, k), 0, "after the reset of the other key")
			}
		}
	}},
	// Take overwrites the earlier contents of an outcome.
	{"OutcomesReused", func(w *harness) {
		log, window := slidingLog(2, minute).Compile(1), fixedWindow(1, minute, enforcement.FirstHit).Compile(1)
		ctx, outcomes := context.Background(), make([]enforcement.Outcome, 1)
		run := func(r enforcement.Request) *enforcement.Outcome {
			w.limiter.Take(ctx, []enforcement.Request{r}, outcomes)
			if err := check(&r, &outcomes[0], w.clock.Now()); err != nil {
				w.Fatal(err)
			}
			return &outcomes[0]
		}
		run(w.request(takeUpTo, w.on(log, w.key(1, 0), 2, 0), w.on(log, w.key(2, 0), 2, 0)))
		o := run(w.request(enforce, w.on(log, w.key(1, 0), 1, 0)))
		w.same(o.Units, 0, "units are those of a take_up_to")
		w.same(len(o.Charges), 1, "charges")
		w.same(retryOf(log, o.Charges[0].State, o.At, 1, enforcement.Lease{}), minute, "retry")
		o = run(w.request(enforce, w.on(window, w.key(3, 0), 1, 0)))
		w.same(len(o.Charges[0].State.Log), 0, "a window has no entries")
		ended, cancel := context.WithCancel(ctx)
		cancel()
		w.limiter.Take(ended, []enforcement.Request{w.request(enforce, w.on(window, w.key(3, 0), 1, 0))}, outcomes)
		o = run(w.request(enforce, w.on(window, w.key(4, 0), 1, 0)))
		w.same(o.Err, nil, "the error of the previous call")
	}},
	{"Nothing", func(w *harness) {
		w.limiter.Take(context.Background(), nil, nil)
		w.same(w.take(w.request(enforce))[0].Verdict, enforcement.Granted, "a request without charges")
	}},
}
