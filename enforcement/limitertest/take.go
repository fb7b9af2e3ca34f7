package limitertest

import (
	"context"
	"errors"

	"github.com/headgate/headgate/enforcement"
)

// takeTests hold what one call of Take promises about several charges.
var takeTests = []test{
	{"AllOrNothing", func(w *world) {
		a, b := fixedWindow(10, minute, enforcement.FirstHit).Compile(1), slidingLog(2, minute).Compile(1)
		charges := func(cost int64) []enforcement.Charge {
			return []enforcement.Charge{{Key: w.key(1, 0), Meter: a, Rev: 1, Cost: cost}, {Key: w.key(2, 0), Meter: b, Rev: 1, Cost: cost}}
		}
		o := w.take(w.request(enforce, charges(2)...), w.request(enforce, charges(1)...))
		w.same(o[0].Verdict, enforcement.Granted, "both fit")
		w.same(o[1].Verdict, enforcement.Refused, "the second limit is full")
		w.same(o[1].Charges[0].Fits, true, "the first limit had room")
		w.same(o[1].Charges[1].Fits, false, "the second had not")
		w.same(a.Remaining(o[1].Charges[0].State, o[1].At), 8, "the first limit is not charged")
		o = w.take(w.request(peek, charges(0)...))
		w.same(a.Remaining(o[0].Charges[0].State, o[0].At), 8, "nor is it later")
	}},
}

// boundTests hold for every limiter, also for one with slack.
var boundTests = []test{
	{"ContextEnded", func(w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m := fixedWindow(10, minute, enforcement.FirstHit).Compile(1)
		r := []enforcement.Request{w.request(enforce, enforcement.Charge{Key: w.key(1, 0), Meter: m, Rev: 1, Cost: 10})}
		o := make([]enforcement.Outcome, 1)
		w.limiter.Take(ctx, r, o)
		w.same(o[0].Verdict, enforcement.Failed, "a context that has ended")
		w.same(errors.Is(o[0].Err, enforcement.ErrNotReached), true, "the error says that nothing was sent")
		w.same(w.take(r...)[0].Verdict, enforcement.Granted, "nothing was charged")
	}},
}
