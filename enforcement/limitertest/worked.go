package limitertest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// workedTests are well-known examples for the algorithms, worked out by hand.
var workedTests = []test{
	{"WindowFrom45To145", func(w *harness) {
		// 10 per minute: the first request, at 00:00:45, opens a window until 00:01:45.
		w.play(fixedWindow(10, minute, enforcement.FirstHit), []step{
			{at: 45 * second, cost: 1, left: 9, reset: minute, what: "opens the window"},
			{at: 50 * second, cost: 9, left: 0, reset: 55 * second},
			{at: 60 * second, cost: 1, no: true, left: 0, reset: 45 * second, retry: 45 * second, what: "the minute's edge is none"},
			{at: 104_999 * time.Millisecond, cost: 1, no: true, left: 0, reset: time.Millisecond, retry: time.Millisecond},
			{at: 105 * second, cost: 1, left: 9, reset: minute, what: "00:01:45"},
		})
	}},
	{"MovingWindowTenthOldest", func(w *harness) {
		// 10 per minute: a request is admitted if the 10th newest entry is more than a
		// minute old.
		limit := slidingLog(10, minute)
		w.play(limit, []step{
			{cost: 1, left: 9, reset: minute},
			{at: 9 * second, cost: 1, n: 9, left: 0, reset: minute, what: "nine more, nine seconds later"},
			{at: 61 * second, cost: 1, left: 0, reset: minute, what: "the 10th oldest is 61 s old"},
			{at: 61 * second, cost: 1, no: true, left: 0, reset: minute, retry: 8 * second, what: "the 10th oldest is now 52 s old"},
		})
	}},
	{"WeightedCounter", func(w *harness) {
		// 100 per minute: 40 in the previous window, half of which still counts, and 80
		// in this one.
		limit := slidingCounter(100, minute, enforcement.FirstHit)
		w.play(limit, []step{
			{cost: 40, left: 60, reset: 2 * minute},
			{at: 60 * second, cost: 60, left: 0, reset: 2 * minute},
			{at: 90 * second, cost: 20, left: 0, reset: 90 * second, what: "80 + 0.5 * 40 = 100"},
			{at: 90 * second, cost: 1, no: true, left: 0, reset: 90 * second, retry: micro, what: "refused"},
		})
	}},
	{"WeightedCounter93", func(w *harness) {
		// 100 per minute: 84 before and 51 now. 84 * 0.5 + 51 = 93, so the next request
		// is admitted.
		limit := slidingCounter(100, minute, enforcement.FirstHit)
		w.play(limit, []step{
			{cost: 84, left: 16, reset: 2 * minute},
			{at: 90 * second, cost: 50, left: 8, reset: 90 * second},
			{at: 90 * second, cost: 1, left: 7, reset: 90 * second, what: "the 93rd of 100"},
		})
	}},
	{"QuarterOfTheWindowLeft", func(w *harness) {
		// 500 per hour: 400 in the previous hour, 250 by 23:45. 400 * 0.25 + 250 = 350.
		limit := slidingCounter(500, time.Hour, enforcement.Clock)
		w.play(limit, []step{
			{at: 22 * time.Hour, cost: 400, left: 100, reset: 2 * time.Hour},
			{at: 23*time.Hour + 45*minute, cost: 250, left: 150, reset: time.Hour + 15*minute, what: "350 of 500 used"},
		})
	}},
	{"BurstOfFifteen", func(w *harness) {
		// 10 per second with 5 extra: a bucket admits 15 at once ...
		w.play(tokenBucket(10, second, 15), []step{
			{cost: 1, n: 15, left: 0, reset: 1500 * time.Millisecond},
			{cost: 1, no: true, left: 0, reset: 1500 * time.Millisecond, retry: 100 * time.Millisecond},
		})
		// ... but a window admits only 10.
		w.renew()
		w.play(fixedWindow(10, second, enforcement.FirstHit), []step{
			{cost: 1, n: 10, left: 0, reset: second},
			{cost: 1, no: true, left: 0, reset: second, retry: second},
		})
	}},
	{"TwoWindowsAroundAnEdge", func(w *harness) {
		// 50 per minute: fixed windows admit 100 within two seconds around the end of a
		// window ...
		w.play(fixedWindow(50, minute, enforcement.Clock), []step{
			{at: 59 * second, cost: 50, left: 0, reset: second},
			{at: 60 * second, cost: 50, left: 0, reset: minute},
		})
		// ... but sliding windows do not.
		w.renew()
		w.play(slidingCounter(50, minute, enforcement.Clock), []step{
			{at: 59 * second, cost: 50, left: 0, reset: minute + second},
			{at: 60 * second, cost: 50, no: true, left: 0, reset: minute, retry: 58_800*time.Millisecond + micro},
		})
		w.renew()
		w.play(slidingLog(50, minute), []step{
			{at: 59 * second, cost: 50, left: 0, reset: minute},
			{at: 60 * second, cost: 50, no: true, left: 0, reset: 59 * second, retry: 59 * second},
		})
	}},
}
