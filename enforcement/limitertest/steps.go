package limitertest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Short names for use in the tables of steps.
const (
	second = time.Second
	minute = time.Minute
	micro  = time.Microsecond

	enforce  = enforcement.Enforce
	peek     = enforcement.Peek
	force    = enforcement.Force
	refund   = enforcement.Refund
	reset    = enforcement.Reset
	takeUpTo = enforcement.TakeUpTo
	release  = enforcement.Release
)

func fixedWindow(quota int64, window time.Duration, anchor enforcement.Anchor) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: quota, Window: window, Anchor: anchor}
}

func slidingLog(quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowLog, Quota: quota, Window: window}
}

func slidingCounter(quota int64, window time.Duration, anchor enforcement.Anchor) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowCounter, Quota: quota, Window: window, Anchor: anchor}
}

func tokenBucket(quota int64, window time.Duration, burst int64) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: quota, Window: window, Burst: burst}
}

func gcra(quota int64, window time.Duration, burst int64) enforcement.Limit {
	l := tokenBucket(quota, window, burst)
	l.Algorithm = enforcement.GCRA
	return l
}

func leakyBucket(quota int64, window time.Duration, burst int64) enforcement.Limit {
	l := tokenBucket(quota, window, burst)
	l.Algorithm = enforcement.LeakyBucket
	return l
}

func concurrency(quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.Concurrency, Quota: quota, Window: window}
}

// ms returns n milliseconds as a duration.
func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// stepTests test each algorithm on one counter. If the comment of a test begins with a
// promise and a letter, the letter names the promise of the design that the test
// checks.
var stepTests = []test{
	// Promise c: a window includes its start but not its end.
	{"FixedWindow/FirstHit", func(w *harness) {
		w.play(fixedWindow(3, 10*second, enforcement.FirstHit), []step{
			{at: 1 * second, cost: 2, left: 1, reset: 10 * second, what: "the first charge opens the window"},
			{at: 4 * second, cost: 2, no: true, left: 1, reset: 7 * second, retry: 7 * second, what: "a denial reports what is left"},
			{at: 4 * second, cost: 1, left: 0, reset: 7 * second},
			{at: 11*second - micro, cost: 1, no: true, left: 0, reset: micro, retry: micro, what: "the last instant"},
			{at: 11 * second, cost: 1, left: 2, reset: 10 * second, what: "the window is half open and ends at this instant"},
			{at: 100 * second, cost: 3, left: 0, reset: 10 * second, what: "a window opens at its first charge, not at a multiple"},
		})
	}},
	{"FixedWindow/Clock", func(w *harness) {
		w.play(fixedWindow(3, 10*second, enforcement.Clock), []step{
			{at: 9 * second, cost: 3, left: 0, reset: 1 * second, what: "the window began at the last multiple"},
			{at: 10*second - micro, cost: 1, no: true, left: 0, reset: micro, retry: micro},
			{at: 10 * second, cost: 3, left: 0, reset: 10 * second},
			{at: 37 * second, cost: 1, left: 2, reset: 3 * second},
		})
	}},
	{"SlidingLog/HalfOpen", func(w *harness) {
		w.play(slidingLog(3, 10*second), []step{
			{cost: 1, left: 2, reset: 10 * second},
			{at: 4 * second, cost: 2, left: 0, reset: 10 * second},
			{at: 9 * second, cost: 1, no: true, left: 0, reset: 5 * second, retry: 1 * second},
			{at: 9 * second, cost: 2, no: true, left: 0, reset: 5 * second, retry: 5 * second, what: "two entries must expire"},
			{at: 10*second - micro, cost: 1, no: true, left: 0, reset: 4*second + micro, retry: micro},
			{at: 10 * second, cost: 1, left: 0, reset: 10 * second, what: "an entry expires when it is as old as the window"},
			{at: 14 * second, cost: 2, left: 0, reset: 10 * second},
			{at: 24 * second, cost: 3, left: 0, reset: 10 * second},
		})
	}},
	{"SlidingLog/RetryAmongMany", func(w *harness) {
		steps := []step{}
		for i := range int64(100) {
			steps = append(steps, step{at: ms(i), cost: 1, left: 99 - i, reset: second})
		}
		w.play(slidingLog(100, second), append(steps,
			step{at: ms(100), cost: 1, no: true, reset: ms(999), retry: ms(900)},
			step{at: ms(100), cost: 70, no: true, reset: ms(999), retry: ms(969), what: "the 70th entry must expire"},
			step{at: ms(100), cost: 100, no: true, reset: ms(999), retry: ms(999)},
			step{at: ms(1069), cost: 70, left: 0, reset: second},
			step{at: ms(1069), cost: 1, no: true, reset: second, retry: ms(1), what: "the 71st"},
		))
	}},
	{"SlidingCounter/FirstHit", func(w *harness) {
		w.play(slidingCounter(10, 10*second, enforcement.FirstHit), []step{
			{at: 3 * second, cost: 8, left: 2, reset: 20 * second},
			{
				at: 13*second - micro, cost: 3, no: true, left: 2, reset: 10*second + micro, retry: 2 * micro,
				what: "the 8 count less than 8 one microsecond after the start of the next window",
			},
			{at: 13 * second, cost: 2, left: 0, reset: 20 * second, what: "the next window begins where the first ended"},
			{at: 18 * second, cost: 4, left: 0, reset: 15 * second, what: "8 * 0.5 + 2 + 4"},
			{at: 33*second - micro, cost: 5, left: 5, reset: 10*second + micro},
			{at: 43 * second, cost: 10, left: 0, reset: 20 * second, what: "after two windows the counter is in its initial state"},
		})
	}},
	{"SlidingCounter/Clock", func(w *harness) {
		w.play(slidingCounter(10, 10*second, enforcement.Clock), []step{
			{at: 9 * second, cost: 10, left: 0, reset: 11 * second},
			{
				at: 10 * second, cost: 1, no: true, left: 0, reset: 10 * second, retry: micro,
				what: "the previous window counts 10 at its end, and less a microsecond later",
			},
			{at: 15 * second, cost: 5, left: 0, reset: 15 * second},
			{at: 20 * second, cost: 5, left: 0, reset: 20 * second},
			{at: 40 * second, cost: 10, left: 0, reset: 20 * second},
		})
	}},
	{"SlidingCounter/Largest", func(w *harness) {
		year := enforcement.MaxWindow
		w.play(slidingCounter(enforcement.MaxQuota, year, enforcement.FirstHit), []step{
			{mode: force, cost: enforcement.MaxCost, left: enforcement.MaxQuota - enforcement.MaxCost, reset: 2 * year},
			{at: year + year/4, cost: 0, left: enforcement.MaxQuota - enforcement.MaxCost*3/4, reset: year - year/4},
		})
	}},
	{"TokenBucket/Refill", func(w *harness) {
		w.play(tokenBucket(2, 1*second, 4), []step{
			{cost: 4, left: 0, reset: 2 * second, what: "full at first"},
			{cost: 1, no: true, left: 0, reset: 2 * second, retry: second / 2},
			{at: second/2 - micro, cost: 1, no: true, left: 0, reset: 3*second/2 + micro, retry: micro},
			{at: second / 2, cost: 1, left: 0, reset: 2 * second},
			{at: 5 * second, cost: 3, left: 1, reset: 3 * second / 2, what: "never above the capacity"},
			{at: 5*second + ms(750), cost: 2, left: 0, reset: 7 * second / 4, what: "a half remains"},
			{at: 6 * second, cost: 1, left: 0, reset: 2 * second, what: "and is kept"},
		})
	}},
	{"GCRA/Refill", func(w *harness) {
		w.play(gcra(10, 1*second, 0), []step{
			{cost: 10, left: 0, reset: second, what: "without a burst, the burst is the quota"},
			{at: ms(99), cost: 1, no: true, left: 0, reset: ms(901), retry: ms(1)},
			{at: ms(100), cost: 1, left: 0, reset: second},
			{at: ms(350), cost: 2, left: 0, reset: ms(950)},
		})
	}},
	// Promise j: refills do not drift. At 3 units in 7 ms, a unit takes 2333.3 µs, and
	// the sum over many units is exact.
	{"TokenBucket/NoDrift", func(w *harness) {
		limit := tokenBucket(3, ms(7), 2)
		steps := []step{{cost: 2, left: 0, reset: 4667 * micro}}
		for i := range int64(300) {
			n := i + 1 // unit n is available after ceil(n * 7000 / 3) µs
			whole := (n*7000 + 2) / 3
			part := (whole*3 - n*7000) // in thirds of a microsecond
			steps = append(steps,
				step{at: time.Duration(whole-1) * micro, cost: 1, no: true, reset: time.Duration((7003-part+2)/3) * micro, retry: micro},
				step{at: time.Duration(whole) * micro, cost: 1, left: 0, reset: time.Duration((14_000-part+2)/3) * micro})
		}
		w.play(limit, steps)
	}},
	{"TokenBucket/SevenHundredThousandASecond", func(w *harness) {
		w.play(tokenBucket(700_000, second, 0), []step{
			{cost: 700_000, left: 0, reset: second},
			{at: 1 * micro, cost: 1, no: true, left: 0, reset: second - micro, retry: micro, what: "0.7 of a unit"},
			{at: 2 * micro, cost: 1, left: 0, reset: second, what: "1.4 of a unit"},
			{at: 10 * micro, cost: 6, left: 0, reset: second, what: "all 7 units of 10 µs are granted"},
		})
	}},
	// Promise i: a quota of 0 denies all requests, even with cost 0.
	{"QuotaZero", func(w *harness) {
		for _, limit := range each(0, second) {
			w.renew()
			w.play(limit, []step{
				{cost: 0, no: true, retry: never},
				{cost: 1, no: true, retry: never},
				{mode: peek, cost: 0, no: true, retry: never},
				{mode: takeUpTo, cost: 1, no: true, retry: never},
			})
		}
		w.renew()
		w.play(tokenBucket(0, second, 5), []step{{cost: 1, no: true, left: 0, retry: never, what: "a burst without a quota"}})
	}},
	// Promise b: cost 0 and Peek change nothing and open no window.
	{"CostZeroAndPeek", func(w *harness) {
		for _, limit := range each(2, 10*second) {
			w.renew()
			w.play(limit, []step{
				{cost: 0, left: 2},
				{mode: peek, cost: 0, left: 2},
				{mode: force, cost: 0, left: 2},
				{mode: refund, cost: 0, left: 2},
			})
			w.renew()
			w.play(limit, []step{
				{mode: peek, cost: 2, left: 0, reset: resetOf(limit, 0, 2), what: "as if it were charged"},
				{mode: peek, cost: 3, no: true, left: 2, retry: never},
				{at: 3 * second, cost: 1, left: 1, reset: resetOf(limit, 3*second, 1), what: "peek opened no window"},
				{at: 3 * second, cost: 0, left: 1, reset: resetOf(limit, 3*second, 1)},
				{at: 3 * second, mode: peek, cost: 1, left: 0, reset: resetOf(limit, 3*second, 2)},
				{at: 3 * second, mode: peek, cost: 1, left: 0, reset: resetOf(limit, 3*second, 2), what: "twice"},
			})
		}
	}},
	// Promise e: a cost that can never fit has no retry time.
	{"CostAboveQuota", func(w *harness) {
		for _, limit := range each(5, second) {
			w.renew()
			w.play(limit, []step{
				{cost: 6, no: true, left: 5, retry: never},
				{cost: enforcement.MaxCost, no: true, left: 5, retry: never},
			})
		}
		w.renew()
		w.play(tokenBucket(10, second, 3), []step{
			{cost: 4, no: true, left: 3, retry: never, what: "the largest cost for a bucket is its capacity"},
			{cost: 3, left: 0, reset: ms(300)},
		})
	}},
	// Promise f: a refund never gives a counter more units than an unused counter has.
	{"Refund", func(w *harness) {
		for _, limit := range counting(10, 10*second) {
			w.renew()
			w.play(limit, []step{{mode: refund, cost: 5, left: 10, what: "nothing is charged, so nothing is refunded"}})
			full := resetOf(limit, 0, 10)
			w.renew()
			w.play(limit, []step{
				{cost: 10, left: 0, reset: full},
				{mode: refund, cost: 5, left: 5, reset: resetOf(limit, 0, 5)},
				{cost: 6, no: true, left: 5, reset: resetOf(limit, 0, 5), retry: retryForOne(limit)},
				{cost: 5, left: 0, reset: full},
			})
			w.renew()
			w.play(limit, []step{
				{cost: 3, left: 7, reset: resetOf(limit, 0, 3)},
				{mode: refund, cost: 100, left: 10, reset: emptied(limit)},
				{cost: 11, no: true, left: 10, reset: emptied(limit), retry: never},
				{cost: 10, left: 0, reset: full},
			})
		}
	}},
	{"Refund/NewestFirst", func(w *harness) {
		w.play(slidingLog(10, 10*second), []step{
			{cost: 4, left: 6, reset: 10 * second},
			{at: 2 * second, cost: 4, left: 2, reset: 10 * second},
			{at: 3 * second, mode: refund, cost: 5, left: 7, reset: 7 * second, what: "refunds the newest entry and one unit of the older"},
			{at: 10 * second, cost: 10, left: 0, reset: 10 * second},
		})
		w.renew()
		w.play(slidingCounter(10, 10*second, enforcement.FirstHit), []step{
			{cost: 8, left: 2, reset: 20 * second},
			{at: 15 * second, cost: 2, left: 4, reset: 15 * second},
			{at: 15 * second, mode: refund, cost: 4, left: 7, reset: 5 * second, what: "refunds the current window, then two units of the previous"},
		})
	}},
	{"Reset", func(w *harness) {
		for _, limit := range each(10, 10*second) {
			w.renew()
			full := resetOf(limit, 0, 10)
			w.play(limit, []step{
				{mode: reset, left: 10, what: "an unused counter"},
				{cost: 10, left: 0, reset: full},
				{at: second, mode: reset, left: 10},
				{at: second, cost: 10, left: 0, reset: resetOf(limit, second, 10), what: "the counter is in its initial state"},
			})
		}
	}},
	// Force charges even if the cost does not fit, up to the bounds of a counter.
	{"Force", func(w *harness) {
		for _, limit := range []enforcement.Limit{
			fixedWindow(10, 10*second, enforcement.FirstHit), fixedWindow(10, 10*second, enforcement.Clock), slidingLog(10, 10*second),
		} {
			w.renew()
			w.play(limit, []step{
				{mode: force, cost: 9, left: 1, reset: 10 * second},
				{mode: force, cost: 9, over: true, left: 0, reset: 10 * second, what: "above the quota: 0 left, not less than 0"},
				{cost: 1, no: true, left: 0, reset: 10 * second, retry: 10 * second},
				{mode: refund, cost: 9, left: 1, reset: 10 * second},
			})
		}
		w.renew()
		w.play(tokenBucket(10, 10*second, 0), []step{
			{mode: force, cost: 25, over: true, left: 0, reset: 20 * second, what: "a debt of one capacity, no more"},
			{at: 9 * second, cost: 1, no: true, left: 0, reset: 11 * second, retry: 2 * second},
			{at: 11 * second, cost: 1, left: 0, reset: 10 * second},
		})
		w.renew()
		w.play(fixedWindow(0, 10*second, enforcement.FirstHit), []step{
			{mode: force, cost: 5, over: true, left: 0, reset: 10 * second, what: "force also charges a quota of 0"},
		})
	}},
	{"Force/CountStops", func(w *harness) {
		// The sum of 466,000 times the largest cost exceeds 10^15. The state shows the
		// bound at which it stops.
		for _, limit := range []enforcement.Limit{
			fixedWindow(10, second, enforcement.FirstHit), slidingCounter(10, second, enforcement.FirstHit), slidingLog(10, second),
		} {
			w.renew()
			m := limit.Compile(1)
			charges := make([]enforcement.Charge, 3000) // all in one request: their costs add up
			for i := range charges {
				charges[i] = enforcement.Charge{Key: w.key(1, 0), Meter: m, Rev: 1, Cost: enforcement.MaxCost}
			}
			var o enforcement.Outcome
			for range 160 {
				o = w.take(w.request(force, charges...))[0]
			}
			w.same(o.Charges[0].State.A, int64(countStops), limit.Algorithm.String())
		}
	}},
	{"TakeUpTo", func(w *harness) {
		for _, limit := range each(10, 10*second) {
			w.renew()
			full := resetOf(limit, 0, 10)
			w.play(limit, []step{
				{mode: takeUpTo, cost: 3, units: 3, left: 7, reset: resetOf(limit, 0, 3)},
				{mode: takeUpTo, cost: 30, units: 7, left: 0, reset: full},
				{mode: takeUpTo, cost: 1, no: true, left: 0, reset: full, retry: retryForOne(limit), what: "with nothing left, the verdict is Refused"},
			})
		}
	}},
	// Promise e: after a TakeUpTo that granted nothing, the caller can compute when one
	// unit fits, whatever the cost of the request was.
	{"TakeUpTo/OneUnitOfALongLog", func(w *harness) {
		for _, n := range []int64{3, 100} { // a limiter may store long logs in another form
			w.renew()
			limit := slidingLog(n, minute)
			m := limit.Compile(1)
			start := w.clock.Now()
			for i := range n {
				w.clock.Set(start + i)
				w.take(w.request(enforce, w.on(m, w.key(1, 0), 1, 0)))
			}
			for _, cost := range []int64{0, 1, n / 2, n, n + 1, enforcement.MaxCost} {
				o := w.take(w.request(takeUpTo, w.on(m, w.key(1, 0), cost, 0)))[0]
				w.same(o.Verdict, enforcement.Refused, "nothing is left")
				w.same(retryOf(m, o.Charges[0].State, o.At, 1, enforcement.Lease{}), minute-time.Duration(n-1)*micro, "the oldest entry")
			}
		}
	}},
	// Promise h: if the clock steps back, no unit is granted twice.
	{"ClockBack/Little", func(w *harness) {
		w.play(fixedWindow(2, 10*second, enforcement.FirstHit), []step{
			{at: 5 * second, cost: 2, left: 0, reset: 10 * second},
			{at: 0, cost: 1, no: true, left: 0, reset: 15 * second, retry: 15 * second},
			{at: 15*second - micro, cost: 1, no: true, left: 0, reset: micro, retry: micro},
			{at: 15 * second, cost: 2, left: 0, reset: 10 * second},
		})
		w.renew()
		w.play(slidingLog(3, 10*second), []step{
			{at: 5 * second, cost: 2, left: 1, reset: 10 * second},
			{at: 0, cost: 1, left: 0, reset: 15 * second, what: "an earlier instant counts as that of the newest entry"},
			{at: 10 * second, cost: 1, no: true, left: 0, reset: 5 * second, retry: 5 * second},
			{at: 15 * second, cost: 3, left: 0, reset: 10 * second},
		})
		w.renew()
		w.play(slidingCounter(4, 10*second, enforcement.FirstHit), []step{
			{at: 5 * second, cost: 4, left: 0, reset: 20 * second},
			{at: 15 * second, cost: 1, no: true, left: 0, reset: 10 * second, retry: micro},
			{at: 20 * second, cost: 2, left: 0, reset: 15 * second},
			{
				at: 12 * second, cost: 1, no: true, left: 0, reset: 23 * second, retry: 3*second + 5*second + micro,
				what: "an instant before the window's start counts as its start",
			},
		})
		w.renew()
		w.play(tokenBucket(1, second, 3), []step{
			{at: 2 * second, cost: 3, left: 0, reset: 3 * second},
			{at: 1 * second, cost: 1, no: true, left: 0, reset: 4 * second, retry: 2 * second},
			{at: 2 * second, cost: 1, no: true, left: 0, reset: 3 * second, retry: 1 * second},
			{at: 3 * second, cost: 1, left: 0, reset: 3 * second},
		})
	}},
	// If the clock steps back by more than a window, the state is clamped to the clock
	// and stored. Therefore requests are denied for at most one more window.
	{"ClockBack/Far", func(w *harness) {
		hour := time.Hour
		for _, limit := range []enforcement.Limit{fixedWindow(2, 10*second, enforcement.FirstHit), slidingLog(2, 10*second)} {
			w.renew()
			w.play(limit, []step{
				{at: hour, cost: 2, left: 0, reset: 10 * second},
				{at: 0, mode: peek, cost: 1, no: true, left: 0, reset: 10 * second, retry: 10 * second, what: "peek does not store the clamped state"},
				{at: 1 * second, cost: 1, no: true, left: 0, reset: 10 * second, retry: 10 * second, what: "a denial stores the clamped state"},
				{at: 5 * second, cost: 1, no: true, left: 0, reset: 6 * second, retry: 6 * second},
				{at: 11 * second, cost: 2, left: 0, reset: 10 * second},
			})
		}
		w.renew()
		w.play(slidingCounter(2, 10*second, enforcement.FirstHit), []step{
			{at: hour, cost: 2, left: 0, reset: 20 * second},
			{at: 1 * second, cost: 1, no: true, left: 0, reset: 20 * second, retry: 10*second + micro},
			{at: 5 * second, cost: 1, no: true, left: 0, reset: 16 * second, retry: 6*second + micro},
			{at: 11*second + micro, cost: 1, left: 0, reset: 20*second - micro},
		})
		w.renew()
		w.play(tokenBucket(1, second, 3), []step{
			{at: hour, cost: 3, left: 0, reset: 3 * second},
			{at: 1 * second, cost: 1, no: true, left: 0, reset: 3 * second, retry: 1 * second, what: "clamped to now; the level stays"},
			{at: 2 * second, cost: 1, left: 0, reset: 3 * second},
		})
	}},
	// Promise g: after a change of the numbers, the usage so far still counts.
	{"NumbersChanged/Windows", func(w *harness) {
		w.play(fixedWindow(10, 10*second, enforcement.FirstHit), []step{
			{cost: 8, left: 2, reset: 10 * second},
			{
				at: 1 * second, to: ptr(fixedWindow(5, 10*second, enforcement.FirstHit)),
				cost: 1, no: true, left: 0, reset: 9 * second, retry: 9 * second, what: "a smaller quota: 0 left, not less than 0",
			},
			{
				at: 2 * second, to: ptr(fixedWindow(20, 30*second, enforcement.FirstHit)),
				cost: 1, left: 11, reset: 28 * second, what: "the window keeps its start",
			},
			{at: 30 * second, cost: 20, left: 0, reset: 30 * second},
		})
		w.renew()
		w.play(slidingLog(10, 10*second), []step{
			{cost: 8, left: 2, reset: 10 * second},
			{at: 1 * second, to: ptr(slidingLog(9, 20*second)), cost: 1, left: 0, reset: 20 * second, what: "a log keeps its entries"},
			{at: 20 * second, cost: 8, left: 0, reset: 20 * second},
		})
		w.renew()
		w.play(slidingCounter(10, 10*second, enforcement.FirstHit), []step{
			{cost: 8, left: 2, reset: 20 * second},
			{at: 1 * second, to: ptr(slidingCounter(20, 20*second, enforcement.FirstHit)), cost: 2, left: 10, reset: 39 * second},
			{at: 30 * second, cost: 15, left: 0, reset: 30 * second, what: "10 * 0.5 + 15"},
		})
	}},
	{"NumbersChanged/Buckets", func(w *harness) {
		w.play(tokenBucket(10, 10*second, 10), []step{
			{cost: 2, left: 8, reset: 2 * second},
			{at: 1 * second, to: ptr(tokenBucket(10, 10*second, 5)), cost: 0, left: 5, what: "cut to the new capacity"},
			{at: 1 * second, cost: 5, left: 0, reset: 5 * second},
			{
				at: 3 * second, to: ptr(tokenBucket(100, 10*second, 50)),
				cost: 2, left: 0, reset: 5 * second, what: "the bucket refilled at the former rate until the change",
			},
			{at: 4 * second, cost: 10, left: 0, reset: 5 * second, what: "then it refills at the new rate"},
		})
		w.renew()
		w.play(gcra(10, 10*second, 10), []step{
			{cost: 10, left: 0, reset: 10 * second},
			{at: 2 * second, to: ptr(gcra(10, second, 10)), mode: peek, cost: 0, left: 2, reset: ms(800)},
			{at: 3 * second, to: ptr(gcra(0, second, 0)), mode: peek, cost: 0, no: true, left: 0, retry: never},
			{
				at: 4 * second, to: ptr(gcra(10, 10*second, 10)), mode: peek, cost: 0, left: 0, reset: 10 * second,
				what: "the capacity is 0 at a quota of 0, so the level is cut to 0",
			},
		})
	}},
	// Requests of two nodes with different snapshots alternate. They must not create any
	// units.
	{"NumbersChanged/FlipFlop", func(w *harness) {
		w.play(tokenBucket(100, 10*second, 100), []step{
			{cost: 50, left: 50, reset: 5 * second},
			{to: ptr(tokenBucket(10, 10*second, 10)), cost: 1, left: 9, reset: second},
			{rev: 1, cost: 1, left: 8, reset: 9200 * time.Millisecond, what: "the former higher capacity adds no units"},
			{cost: 1, left: 7, reset: 3 * second},
			{rev: 1, cost: 8, no: true, left: 7, reset: 9300 * time.Millisecond, retry: ms(100)},
			{cost: 7, left: 0, reset: 10 * second},
			{rev: 1, cost: 1, no: true, left: 0, reset: 10 * second, retry: ms(100)},
		})
		w.renew()
		slow, fast := tokenBucket(7, 24*time.Hour, 1000), tokenBucket(1000, ms(1), 1000)
		w.play(slow, []step{
			{to: &fast, cost: 1000, left: 0, reset: ms(1)},
			{
				at: micro, rev: 1, mode: force, cost: 1, over: true, left: 0, reset: 143 * 24 * time.Hour,
				what: "a fraction of the slow rate",
			},
			{at: 2 * micro, cost: 1, no: true, left: 0, reset: ms(1), retry: micro, what: "is no unit of the fast one"},
		})
	}},
}

func ptr(l enforcement.Limit) *enforcement.Limit { return &l }

// each returns one limit for each combination of algorithm and anchor.
func each(quota int64, window time.Duration) []enforcement.Limit {
	return append(counting(quota, window), concurrency(quota, window))
}

// counting returns the limits of each, without those of concurrency. It is for tests
// that charge one lease twice, or that refund another lease.
func counting(quota int64, window time.Duration) []enforcement.Limit {
	return []enforcement.Limit{
		fixedWindow(quota, window, enforcement.FirstHit), fixedWindow(quota, window, enforcement.Clock),
		slidingLog(quota, window),
		slidingCounter(quota, window, enforcement.FirstHit), slidingCounter(quota, window, enforcement.Clock),
		tokenBucket(quota, window, 0), gcra(quota, window, 0), leakyBucket(quota, window, 0),
	}
}

// resetOf returns ResetAfter of a counter that was unused before used units were
// charged at the time at.
func resetOf(l enforcement.Limit, at time.Duration, used int64) time.Duration {
	if l.Algorithm.Bucket() {
		return l.Window * time.Duration(used) / time.Duration(l.Quota)
	}
	end := l.Window
	if l.Anchor == enforcement.Clock {
		end -= at % l.Window
	}
	if l.Algorithm == enforcement.SlidingWindowCounter {
		end += l.Window
	}
	return end
}

// retryForOne returns the time until one unit fits, if the quota was used up at the
// present time. With a sliding counter, one unit fits as soon as the units of the
// previous window count less.
func retryForOne(l enforcement.Limit) time.Duration {
	switch {
	case l.Algorithm.Bucket():
		return l.Window / time.Duration(l.Quota)
	case l.Algorithm == enforcement.SlidingWindowCounter:
		return l.Window + micro
	}
	return l.Window
}

// emptied returns ResetAfter of a counter whose first charge was refunded at the time
// of the charge. Its window stays open.
func emptied(l enforcement.Limit) time.Duration {
	if l.Algorithm.Windowed() {
		return l.Window
	}
	return 0
}
