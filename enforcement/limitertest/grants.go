package limitertest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A grantFixture is a window with grants.
type grantFixture struct {
	w      *harness
	window *enforcement.Meter
	grants []*enforcement.Meter
}

// withGrants returns a window with quota units per hour and grants. Grant i ends after ends[i] and has units[i].
func (w *harness) withGrants(quota int64, ends []time.Duration, units ...int64) *grantFixture {
	f := &grantFixture{w: w, window: fixedWindow(quota, time.Hour, enforcement.FirstHit).Compile(1)}
	for i, end := range ends {
		f.grants = append(f.grants, enforcement.GrantMeter(units[i], Start, Start+end.Microseconds(), 1))
	}
	return f
}

// charges returns the charges of a request with a cost: on the window with a partition, and on the grants.
func (f *grantFixture) charges(partition byte, cost int64) []enforcement.Charge {
	list := []enforcement.Charge{f.w.on(f.window, f.w.key(1, partition), cost, 0)}
	for i, m := range f.grants {
		c := f.w.on(m, f.w.key(enforcement.GrantCell, byte(i)), 0, 0)
		c.Grant = true
		list = append(list, c)
	}
	return list
}

func (f *grantFixture) take(mode enforcement.Mode, cost int64) enforcement.Outcome {
	f.w.Helper()
	return f.w.take(f.w.request(mode, f.charges(0, cost)...))[0]
}

// left fails the test unless the window and the grants have left what want says.
func (f *grantFixture) left(what string, want ...int64) {
	f.w.Helper()
	o := f.take(peek, 0)
	var got []int64
	for i, c := range f.charges(0, 0) {
		got = append(got, c.Meter.Remaining(o.Charges[i].State, o.At))
	}
	f.w.same(got, want, what)
}

// grantTests are the tests of grants.
var grantTests = []test{
	{"the window first, then the grants in their order", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour, 2 * time.Hour}, 3, 4)
		o := f.take(enforce, 4)
		w.same(o.Verdict, enforcement.Granted, "the window alone")
		f.left("after 4", 1, 3, 4)
		o = f.take(enforce, 5)
		w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost, o.Charges[2].Cost}, []int64{5, 3, 1}, "the check is divided")
		f.left("after 9", 0, 0, 3)
		o = f.take(enforce, 4)
		w.same(o.Verdict, enforcement.Refused, "3 are left")
		w.same([]any{o.Charges[0].Fits, o.Charges[1].Cost, o.Charges[2].Cost}, []any{false, 0, 0}, "nothing is charged")
		f.left("after the denial", 0, 0, 3)
		w.same(f.take(enforce, 3).Verdict, enforcement.Granted, "the rest")
		w.same(f.take(enforce, 1).Verdict, enforcement.Refused, "nothing is left")
	}},
	{"a grant ends at its instant", func(w *harness) {
		f := w.withGrants(1, []time.Duration{time.Minute, 2 * time.Minute}, 10, 1)
		w.same(f.take(enforce, 3).Verdict, enforcement.Granted, "2 from the first grant")
		w.clock.Set(Start + minute.Microseconds() - 1)
		f.left("a microsecond before the end", 0, 8, 1)
		w.clock.Set(Start + minute.Microseconds())
		f.left("at the end", 0, 0, 1)
		w.same(f.take(enforce, 2).Verdict, enforcement.Refused, "only the second grant is left")
		w.same(f.take(enforce, 1).Verdict, enforcement.Granted, "the second grant")
		w.clock.Set(Start + time.Hour.Microseconds())
		f.left("the next window", 1, 0, 0)
	}},
	{"a grant that was not used ends too", func(w *harness) {
		f := w.withGrants(1, []time.Duration{time.Minute}, 10)
		w.clock.Set(Start + minute.Microseconds())
		w.same(f.take(enforce, 2).Verdict, enforcement.Refused, "the grant has ended")
		f.left("at the end", 1, 0)
	}},
	{"the retry time counts only the grants that have not ended by then", func(w *harness) {
		f := w.withGrants(5, []time.Duration{30 * time.Minute, 2 * time.Hour}, 2, 3)
		f.take(enforce, 5)
		retry := func(cost int64) time.Duration {
			o := f.take(enforce, cost)
			w.same(o.Verdict, enforcement.Refused, "the cost does not fit")
			micros, ok := enforcement.RetryWithGrants(f.charges(0, cost), o.Charges, o.At, 0, cost)
			if !ok {
				return never
			}
			return time.Duration(micros) * time.Microsecond
		}
		w.same(retry(8), time.Hour, "5 of the next window and 3 of the second grant")
		w.same(retry(9), never, "the first grant ends before the window")
	}},
	{"a peek charges nothing, and a forced check takes grants before it overruns the window", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour}, 3)
		o := f.take(peek, 7)
		w.same(o.Verdict, enforcement.Granted, "it would be granted")
		w.same([]int64{o.Charges[1].Cost, f.grants[0].Remaining(o.Charges[1].State, o.At)}, []int64{2, 1}, "the grant after it")
		f.left("after the peek", 5, 3)
		o = f.take(force, 10)
		w.same([]any{o.Verdict, o.Charges[0].Fits, o.Charges[1].Cost}, []any{enforcement.Granted, false, 3}, "10 of 8")
		w.same(f.window.Left(o.Charges[0].State, o.At), -2, "the window is overrun by the rest")
		f.left("after it", 0, 0)
	}},
	{"a grant gives its units also if the window is overrun", func(w *harness) {
		f := w.withGrants(5, nil)
		f.take(force, 9)
		f.grants = append(f.grants, enforcement.GrantMeter(2, Start, Start+minute.Microseconds(), 1))
		w.same(f.take(enforce, 3).Verdict, enforcement.Refused, "the grant has 2")
		w.same(f.take(enforce, 2).Verdict, enforcement.Granted, "all of the grant")
	}},
	{"quota 0 denies everything", func(w *harness) {
		f := w.withGrants(0, []time.Duration{time.Hour}, 3)
		w.same(f.take(enforce, 1).Verdict, enforcement.Refused, "cost 1")
		w.same(f.take(enforce, 0).Verdict, enforcement.Refused, "cost 0")
	}},
	{"take up to takes from the grants too", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour, 2 * time.Hour}, 1, 2)
		w.same(f.take(takeUpTo, 7).Units, 7, "all of it")
		f.left("after 7", 0, 0, 1)
		w.same(f.take(takeUpTo, 7).Units, 1, "the rest")
		o := f.take(takeUpTo, 7)
		w.same([]any{o.Verdict, o.Units}, []any{enforcement.Refused, 0}, "nothing is left")
	}},
	{"two windows of a request share a grant", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour}, 4)
		both := func(first, second int64) enforcement.Outcome {
			return w.take(w.request(enforce, append(f.charges(0, first), f.charges(1, second)...)...))[0]
		}
		w.same(both(8, 7).Verdict, enforcement.Refused, "3 and 2 of 4")
		f.left("after the denial", 5, 4)
		o := both(8, 6)
		w.same(o.Verdict, enforcement.Granted, "3 and 1 of 4")
		w.same([]int64{o.Charges[1].Cost, o.Charges[3].Cost}, []int64{3, 1}, "the parts")
		f.left("after it", 0, 0)
		o = w.take(w.request(enforce, append(f.charges(2, 3), f.charges(2, 3)...)...))[0]
		w.same([]any{o.Verdict, o.Charges[0].Cost}, []any{enforcement.Refused, 6}, "costs on one window add up")
	}},
	{"the units that are granted are exactly those of the window and the grants", func(w *harness) {
		f := w.withGrants(70, []time.Duration{time.Hour, 2 * time.Hour}, 31, 52)
		var granted atomic.Int64
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() {
				for n := range 200 {
					cost := int64(1 + (worker+n)%3)
					requests, outcomes := []enforcement.Request{w.request(enforce, f.charges(0, cost)...)}, make([]enforcement.Outcome, 1)
					w.limiter.Take(context.Background(), requests, outcomes)
					if outcomes[0].Verdict == enforcement.Granted {
						granted.Add(cost)
					}
				}
			})
		}
		group.Wait()
		w.same(granted.Load(), 70+31+52, "the units of all granted checks")
		f.left("in the end", 0, 0, 0)
	}},
	{"a refused limit leaves the grants of another limit alone", func(w *harness) {
		f := w.withGrants(1, []time.Duration{time.Hour}, 5)
		full := fixedWindow(2, time.Hour, enforcement.FirstHit).Compile(1)
		r := w.request(enforce, append(f.charges(0, 3), w.on(full, w.key(2, 0), 3, 0))...)
		o := w.take(r)[0]
		w.same([]any{o.Verdict, o.Charges[0].Fits, o.Charges[1].Cost}, []any{enforcement.Refused, true, 0}, "the other limit denies")
		f.left("after it", 1, 5)
	}},
}

// grantReservationTests are the tests of reservations and refunds with grants.
var grantReservationTests = []test{
	{"a settlement returns to the grant that was charged last first", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour, 2 * time.Hour}, 3, 4)
		r := w.reserve(1, f.charges(0, 10)...)
		w.same(r.record.Applied, []int64{-5, 3, 2}, "what each counter was charged")
		f.left("reserved", 0, 0, 2)
		read := w.read(1)
		w.same(read.Applied, r.record.Applied, "the stored record")
		r.settle(5, 2, 0)
		f.left("7 of 10", 0, 1, 4)
		w.same(w.read(1).Applied, []int64{-5, 2, 0}, "the settled record")
	}},
	{"a release returns everything", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour, 2 * time.Hour}, 3, 4)
		r := w.reserve(1, f.charges(0, 10)...)
		r.settle(0, 0, 0)
		f.left("released", 5, 3, 4)
	}},
	{"nothing is returned to a grant that has ended", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Second, time.Hour}, 3, 4)
		r := w.reserve(1, f.charges(0, 10)...)
		w.clock.Set(Start + time.Second.Microseconds())
		r.settle(0, 0, 0)
		f.left("released", 5, 0, 4)
		w.clock.Set(Start)
	}},
	{"additional units are taken from the window, the grants, and the window again", func(w *harness) {
		f := w.withGrants(5, []time.Duration{time.Hour, 2 * time.Hour}, 3, 4)
		r := w.reserve(1, f.charges(0, 2)...)
		o := r.settle(9, 0, 0)
		w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost, o.Charges[2].Cost}, []int64{5, 3, 1}, "9 units")
		f.left("settled", 0, 0, 3)
		w.same(w.read(1).Applied, []int64{3, 3, 1}, "the settled record")
		r = w.reserve(2, f.charges(0, 1)...)
		o = r.settle(10, 0, 1)
		w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost, o.Charges[2].Cost}, []int64{8, 0, 3}, "8 more than all that is left")
		f.left("overrun", 0, 0, 0)
	}},
}
