package limitertest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// rollingMonth returns a limit of a calendar month whose unused units are rolled over.
func rollingMonth(quota, most int64) enforcement.Limit {
	l := calendarLimit(quota, enforcement.Month)
	l.MaxRollover = most
	return l
}

// rolloverTests are the tests of units that are rolled over into the next calendar window.
var rolloverTests = []test{
	{"what is left of a month is added to the next one", func(w *harness) {
		w.visits(rollingMonth(1_000, 300), []visit{
			{zone: "Europe/Berlin", day: 15, at: "2026-10-15 00:00:00", cost: 900, left: 100, until: "2026-11-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-11-14 23:59:59", cost: 101, no: true, left: 100, until: "2026-11-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-11-15 00:00:00", cost: 0, left: 1_100, until: "2026-12-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-11-15 00:00:00", cost: 1_100, left: 0, until: "2026-12-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-12-15 00:00:00", cost: 1_001, no: true, left: 1_000, until: "2027-01-15 00:00:00"},
		})
	}},
	{"at most max_rollover", func(w *harness) {
		w.visits(rollingMonth(1_000, 300), []visit{
			{zone: "UTC", at: "2026-10-31 23:59:59", cost: 1, left: 999, until: "2026-11-01 00:00:00"},
			{zone: "UTC", at: "2026-11-01 00:00:00", cost: 300, left: 1_000, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-12-01 00:00:00", cost: 1_300, left: 0, until: "2027-01-01 00:00:00"},
		})
	}},
	{"a key that was never charged has the quota", func(w *harness) {
		w.visits(rollingMonth(1_000, 300), []visit{
			{zone: "UTC", at: "2026-10-01 00:00:00", cost: 0, left: 1_000},
			{zone: "UTC", at: "2026-11-01 00:00:00", cost: 1_001, no: true, left: 1_000, retry: "never"},
		})
	}},
	{"months without a charge roll their whole quota over", func(w *harness) {
		w.visits(rollingMonth(1_000, 2_500), []visit{
			{zone: "America/Los_Angeles", day: 31, at: "2026-01-31 00:00:00", cost: 400, left: 600, until: "2026-02-28 00:00:00"},
			{zone: "America/Los_Angeles", day: 31, at: "2026-02-28 00:00:00", cost: 0, left: 1_600, until: "2026-03-31 00:00:00"},
			{zone: "America/Los_Angeles", day: 31, at: "2026-04-29 23:59:59", cost: 0, left: 2_600, until: "2026-04-30 00:00:00"},
			{zone: "America/Los_Angeles", day: 31, at: "2026-04-30 00:00:00", cost: 0, left: 3_500, until: "2026-05-31 00:00:00"},
			{zone: "America/Los_Angeles", day: 31, at: "2027-01-31 00:00:00", cost: 0, left: 3_500, until: "2027-02-28 00:00:00"},
			{zone: "America/Los_Angeles", day: 31, at: "2027-02-28 00:00:00", cost: 0, left: 1_000}, // the 13th month
		})
	}},
	{"a day's charges and idle days", func(w *harness) {
		l := calendarLimit(10, enforcement.Day)
		l.MaxRollover = 25
		w.visits(l, []visit{
			{zone: "Europe/Berlin", at: "2026-03-27 10:00:00", cost: 10, left: 0, until: "2026-03-28 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-03-30 00:00:00", cost: 1, left: 29, until: "2026-03-31 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-03-31 00:00:00", cost: 35, left: 0, until: "2026-04-01 00:00:00"},
			{
				zone: "Europe/Berlin", at: "2026-03-31 00:00:00", cost: 31, no: true, left: 0, until: "2026-04-01 00:00:00",
				retry: "2026-04-04 00:00:00",
			},
		})
	}},
	{"a cost above the quota waits for what rolls over", func(w *harness) {
		w.visits(rollingMonth(1_000, 5_000), []visit{
			{zone: "Europe/Berlin", at: "2026-11-10 12:00:00", cost: 600, left: 400, until: "2026-12-01 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-11-10 12:00:00", cost: 1_400, no: true, left: 400, until: "2026-12-01 00:00:00"},
			{
				zone: "Europe/Berlin", at: "2026-11-10 12:00:00", cost: 3_401, no: true, left: 400, until: "2026-12-01 00:00:00",
				retry: "2027-03-01 00:00:00",
			},
			{zone: "Europe/Berlin", at: "2026-11-10 12:00:00", cost: 6_001, no: true, left: 400, until: "2026-12-01 00:00:00", retry: "never"},
			{zone: "Europe/Berlin", at: "2027-03-01 00:00:00", cost: 3_401, left: 999, until: "2027-04-01 00:00:00"},
		})
	}},
	{"a forced charge leaves nothing", func(w *harness) {
		w.visits(rollingMonth(100, 100), []visit{
			{zone: "UTC", at: "2026-10-10 00:00:00", mode: force, cost: 90, left: 10, until: "2026-11-01 00:00:00"},
			{zone: "UTC", at: "2026-11-10 00:00:00", cost: 110, left: 0, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-12-10 00:00:00", cost: 101, no: true, left: 100, until: "2027-01-01 00:00:00"},
		})
	}},
	{"a reset removes what was rolled over", func(w *harness) {
		w.visits(rollingMonth(100, 100), []visit{
			{zone: "UTC", at: "2026-10-10 00:00:00", cost: 1, left: 99, until: "2026-11-01 00:00:00"},
			{zone: "UTC", at: "2026-11-10 00:00:00", cost: 1, left: 198, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-11-10 00:00:00", mode: reset, left: 100},
			{zone: "UTC", at: "2026-12-10 00:00:00", cost: 0, left: 100},
		})
	}},
	{"a change of the zone and the anchor day keeps what was rolled over", func(w *harness) {
		w.visits(rollingMonth(100, 50), []visit{
			{zone: "Europe/Berlin", at: "2026-10-20 12:00:00", cost: 80, left: 20, until: "2026-11-01 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-11-20 12:00:00", cost: 70, left: 50, until: "2026-12-01 00:00:00"},
			{zone: "Pacific/Kiritimati", at: "2026-11-20 12:00:00", cost: 10, left: 40, until: "2026-12-01 00:00:00"},
			{zone: "UTC", day: 15, at: "2026-11-20 12:00:00", cost: 10, left: 30, until: "2026-12-15 00:00:00"},
			{zone: "UTC", day: 15, at: "2026-12-15 00:00:00", cost: 0, left: 130, until: "2027-01-15 00:00:00"},
		})
	}},
	{"other numbers", func(w *harness) {
		none, less, larger := rollingMonth(100, 0), rollingMonth(100, 10), rollingMonth(1_000, 50)
		w.visits(rollingMonth(100, 50), []visit{
			{zone: "UTC", at: "2026-10-20 12:00:00", cost: 20, left: 80, until: "2026-11-01 00:00:00"},
			{zone: "UTC", at: "2026-11-20 12:00:00", cost: 1, left: 149, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-11-20 12:00:00", limit: &less, cost: 1, left: 108, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-11-20 12:00:00", limit: &none, cost: 1, left: 97, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-11-20 12:00:00", limit: &larger, cost: 1, left: 1_046, until: "2026-12-01 00:00:00"},
			{zone: "UTC", at: "2026-12-20 12:00:00", cost: 1, left: 1_049, until: "2027-01-01 00:00:00"},
			{zone: "UTC", at: "2027-01-20 12:00:00", limit: &none, cost: 0, left: 100},
		})
	}},
	{"concurrent charges across the end of a month take what it left and the quota", acrossTheEnd},
}

// acrossTheEnd charges a counter from many goroutines while its month ends.
func acrossTheEnd(w *harness) {
	calendar, err := enforcement.NewCalendar("Europe/Berlin", 1)
	if err != nil {
		w.Fatal(err)
	}
	const quota, most, workers = 100, 30, 8
	plan := rollingMonth(quota, most).Compile(1)
	start, end := calendar.Window(enforcement.Month, 1, enforcement.Instant(Start))
	charge := func(calls int, granted *atomic.Int64) {
		outcomes := make([]enforcement.Outcome, 1)
		for range calls {
			m := plan.In(calendar, w.clock.Now())
			r := w.request(enforce, enforcement.Charge{Key: w.key(1, 0), Meter: m, Rev: 1, Cost: 1})
			if w.limiter.Take(context.Background(), []enforcement.Request{r}, outcomes); outcomes[0].Verdict == enforcement.Granted {
				granted.Add(1)
			}
		}
	}
	w.clock.Set(start.UnixMicro())
	var before, after atomic.Int64
	charge(quota-20, &before)
	w.clock.Set(end.UnixMicro() - 1)
	var done sync.WaitGroup
	for range workers {
		done.Go(func() { charge(1, &before) })
	}
	done.Wait()
	w.same(before.Load(), quota-20+workers, "granted in the month")
	w.clock.Set(end.UnixMicro())
	for range workers {
		done.Go(func() { charge(quota, &after) })
	}
	done.Wait()
	w.same(after.Load(), quota+20-workers, "granted after the month: the quota, and what was left")
}
