package limitertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// leakyBucketTests are the tests of leaky buckets: token buckets whose requests wait until the
// earlier ones have drained.
var leakyBucketTests = []test{
	{"Queue", func(w *harness) {
		w.play(leakyBucket(10, second, 3), []step{
			{cost: 1, left: 2, reset: ms(100), delay: noDelay, what: "nothing waits"},
			{cost: 1, left: 1, reset: ms(200), delay: ms(100)},
			{cost: 1, left: 0, reset: ms(300), delay: ms(200), what: "the end of the queue"},
			{cost: 1, no: true, left: 0, reset: ms(300), retry: ms(100), what: "the queue would overflow"},
			{at: ms(40), mode: peek, cost: 0, left: 0, reset: ms(260), delay: ms(260), what: "cost 0 waits for those before it"},
			{at: ms(100) - micro, cost: 1, no: true, left: 0, reset: ms(200) + micro, retry: micro},
			{at: ms(100), mode: peek, cost: 1, left: 0, reset: ms(300), delay: ms(200)},
			{at: ms(100), cost: 1, left: 0, reset: ms(300), delay: ms(200), what: "every tenth of a second, one is served"},
			{at: ms(250), cost: 1, left: 0, reset: ms(250), delay: ms(150), what: "half a unit has drained"},
			{at: second, cost: 1, left: 2, reset: ms(100), delay: noDelay, what: "the queue is empty"},
		})
	}},
	{"Cost", func(w *harness) {
		w.play(leakyBucket(10, second, 10), []step{
			{cost: 4, left: 6, reset: ms(400), delay: noDelay},
			{cost: 5, left: 1, reset: ms(900), delay: ms(400), what: "the four units before it"},
			{cost: 2, no: true, left: 1, reset: ms(900), retry: ms(100)},
			{mode: takeUpTo, cost: 1, units: 1, left: 0, reset: second, delay: ms(900)},
			{cost: 11, no: true, left: 0, reset: second, retry: never, what: "more than the queue holds"},
			{at: ms(500), mode: refund, cost: 3, left: 8, reset: ms(200)},
			{at: ms(500), cost: 1, left: 7, reset: ms(300), delay: ms(200)},
		})
	}},
	// Promise j: the times at which requests are served do not drift. At 3 units in 7 ms, a unit
	// takes 2333.3 µs.
	{"NoDrift", func(w *harness) {
		steps := []step{{cost: 1, left: 299, reset: 2334 * micro, delay: noDelay}}
		for n := int64(1); n < 300; n++ {
			steps = append(steps, step{
				cost: 1, left: 299 - n, reset: time.Duration(((n+1)*7000+2)/3) * micro, delay: time.Duration((n*7000+2)/3) * micro,
			})
		}
		w.play(leakyBucket(3, ms(7), 300), steps)
	}},
	{"Largest", func(w *harness) {
		year, most := enforcement.MaxWindow, int64(enforcement.MaxCost)
		w.play(leakyBucket(enforcement.MaxQuota, year, enforcement.MaxQuota), []step{
			{cost: most, left: enforcement.MaxQuota - most, reset: 67_908_586_879 * micro, delay: noDelay},
			{cost: most, left: enforcement.MaxQuota - 2*most, reset: 135_817_173_758 * micro, delay: 67_908_586_879 * micro},
		})
		w.renew()
		w.play(leakyBucket(1, year, 5), []step{
			{cost: 4, left: 1, reset: 4 * year, delay: noDelay},
			{cost: 1, left: 0, reset: 5 * year, delay: 4 * year},
		})
	}},
	{"Force", func(w *harness) {
		w.play(leakyBucket(10, second, 10), []step{
			{mode: force, cost: 35, over: true, left: 0, reset: 2 * second, what: "a debt of one burst, no more"},
			{at: ms(900), cost: 1, no: true, left: 0, reset: ms(1100), retry: ms(200)},
			{at: ms(1100), cost: 1, left: 0, reset: second, delay: ms(900)},
		})
	}},
	// Promise h: if the clock steps back, nothing drains twice, and no request waits longer than
	// the queue takes.
	{"ClockBack", func(w *harness) {
		w.play(leakyBucket(1, second, 3), []step{
			{at: 2 * second, cost: 2, left: 1, reset: 2 * second, delay: noDelay},
			{at: 1 * second, cost: 1, left: 0, reset: 4 * second, delay: 2 * second, what: "the two units have not drained"},
			{at: 2 * second, cost: 1, no: true, left: 0, reset: 3 * second, retry: second},
			{at: 3 * second, cost: 1, left: 0, reset: 3 * second, delay: 2 * second},
		})
		w.renew()
		w.play(leakyBucket(1, second, 3), []step{
			{at: time.Hour, cost: 2, left: 1, reset: 2 * second, delay: noDelay},
			{at: 1 * second, cost: 1, left: 0, reset: 3 * second, delay: 2 * second, what: "clamped to now; what waits stays"},
			{at: 2 * second, cost: 1, left: 0, reset: 3 * second, delay: 2 * second},
		})
	}},
	// Promise g: units that wait keep waiting as long as before, whatever the numbers change to.
	{"NumbersChanged", func(w *harness) {
		w.play(leakyBucket(10, second, 10), []step{
			{cost: 4, left: 6, reset: ms(400), delay: noDelay},
			{to: ptr(leakyBucket(10, second, 100)), cost: 1, left: 95, reset: ms(500), delay: ms(400), what: "a longer queue delays nobody longer"},
			{rev: 1, cost: 1, left: 4, reset: ms(600), delay: ms(500), what: "a node with the former numbers"},
			{cost: 1, left: 93, reset: ms(700), delay: ms(600), what: "changes nothing for the others"},
			{
				to: ptr(leakyBucket(10, second, 5)), cost: 1, no: true, left: 0, reset: ms(700), retry: ms(300),
				what: "a shorter queue: seven still wait",
			},
			{at: ms(300), cost: 1, left: 0, reset: ms(500), delay: ms(400)},
			{
				at: ms(400), to: ptr(leakyBucket(100, second, 5)), cost: 1, left: 0, reset: ms(50), delay: ms(40),
				what: "it drained at the former rate until the change",
			},
			{at: ms(405), cost: 0, left: 0, reset: ms(45), delay: ms(45), what: "then it drains at the new rate"},
		})
	}},
	// The queue is served in order, at most at the rate: each request is served when those before
	// it have drained, and no unit is lost.
	{"Order", func(w *harness) {
		m, key := leakyBucket(700, second, 40).Compile(1), w.key(1, 0)
		var served []int64
		units := int64(0)
		for i := range int64(200) {
			w.clock.Set(Start + i*997)
			cost := 1 + i%3
			o := w.take(w.request(enforce, w.on(m, key, cost, 0)))[0]
			if o.Verdict != enforcement.Granted {
				continue
			}
			at := o.At + m.Delay(&o.Charges[0].State, cost)
			if len(served) > 0 { // the first unit of this request is served after all units of the earlier ones
				earliest := served[0] + units*1_000_000/700
				w.same(at >= earliest && (at <= earliest+1 || at == o.At), true, "the time at which the request is served")
			}
			served, units = append(served, at), units+cost
		}
		w.same(slices.IsSorted(served), true, "the order")
		w.same(len(served) > 50, true, "the number of requests")
	}},
	{"InOneCall", func(w *harness) {
		m, key := leakyBucket(1, second, 3).Compile(1), w.key(1, 0)
		request := func() enforcement.Request { return w.request(enforce, w.on(m, key, 1, 0)) }
		var delays []int64
		for _, o := range w.take(request(), request(), request(), request()) {
			if o.Verdict == enforcement.Granted {
				delays = append(delays, m.Delay(&o.Charges[0].State, 1)/1000)
			}
		}
		w.same(delays, []int64{0, 1000, 2000}, "delays")
	}},
	{"Idempotent", func(w *harness) {
		m, key := leakyBucket(1, second, 5).Compile(1), w.key(1, 0)
		w.take(w.request(enforce, w.on(m, key, 2, 0)))
		ask := func() enforcement.Request { return w.idempotent(w.request(enforce, w.on(m, key, 1, 0)), 1, 1) }
		first := w.take(ask())[0]
		w.clock.Set(w.clock.Now() + 1_500_000)
		repeated := w.ask(ask())[0]
		w.same(repeated.Replayed, true, "replayed")
		w.same([]int64{m.Delay(&first.Charges[0].State, 1), m.Delay(&repeated.Charges[0].State, 1)}, []int64{2_000_000, 2_000_000}, "delays")
	}},
}

// checkDelay compares the delay of charge j with that of the model, if the charge was made to
// a leaky bucket.
func (want *answered) checkDelay(r *enforcement.Request, o *enforcement.Outcome, j int) error {
	c, cost := &r.Charges[j], want.Cost
	switch {
	case c.Meter.Algorithm != enforcement.LeakyBucket || want.before == nil:
		return nil
	case r.Mode == enforcement.TakeUpTo && c.Group == 0:
		cost = enforcement.TakenOf(r.Charges, o.Units).Of(c.Cost)
	case r.Mode != enforcement.Enforce && r.Mode != enforcement.Peek:
		return nil
	}
	if delay := c.Meter.Delay(&o.Charges[j].State, cost); delay != want.before.delay(c.Meter) {
		return fmt.Errorf("delay of %d µs, the model says %d", delay, want.before.delay(c.Meter))
	}
	return nil
}
