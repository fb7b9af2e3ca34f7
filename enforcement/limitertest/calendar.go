package limitertest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A visit is a request on a counter with a calendar window, at a local time in a time zone.
type visit struct {
	zone string
	day  int    // the anchor day of the tenant; 0 stands for 1
	at   string // local time in the zone
	skew time.Duration
	cost int64
	no   bool // expect Refused
	left int64
	// until is the expected end of the window, as local time. retry is the time at which a denied
	// request fits; it is "" if that is the end of the window, and "never" if there is no such
	// time.
	until, retry string
	mode         enforcement.Mode
	limit        *enforcement.Limit // the limit that comes into force before the visit
}

// calendarTests are the tests of calendar windows.
var calendarTests = []test{
	{"a month from the 15th in Berlin", func(w *harness) {
		w.visits(calendarLimit(10_000, enforcement.Month), []visit{
			{zone: "Europe/Berlin", day: 15, at: "2026-11-14 23:59:59", cost: 10_000, left: 0, until: "2026-11-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-11-14 23:59:59", cost: 1, no: true, left: 0, until: "2026-11-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-11-15 00:00:00", cost: 9_999, left: 1, until: "2026-12-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-12-14 23:59:59", cost: 2, no: true, left: 1, until: "2026-12-15 00:00:00"},
			{zone: "Europe/Berlin", day: 15, at: "2026-12-15 00:00:00", cost: 2, left: 9_998, until: "2027-01-15 00:00:00"},
		})
	}},
	{"a month from the 31st ends with the month", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Month), []visit{
			{zone: "UTC", day: 31, at: "2028-02-28 23:59:59", cost: 5, left: 0, until: "2028-02-29 00:00:00"},
			{zone: "UTC", day: 31, at: "2028-02-29 00:00:00", cost: 4, left: 1, until: "2028-03-31 00:00:00"},
			{zone: "UTC", day: 31, at: "2028-03-30 23:59:59", cost: 2, no: true, left: 1, until: "2028-03-31 00:00:00"},
			{zone: "UTC", day: 31, at: "2028-03-31 00:00:00", cost: 2, left: 3, until: "2028-04-30 00:00:00"},
		})
	}},
	{"days of 23 and 25 hours hold one quota", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Day), []visit{
			{zone: "Europe/Berlin", at: "2026-03-29 00:00:00", cost: 3, left: 2, until: "2026-03-30 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-03-29 23:59:59", cost: 3, no: true, left: 2, until: "2026-03-30 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-03-30 00:00:00", cost: 3, left: 2, until: "2026-03-31 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-10-25 00:00:00", cost: 3, left: 2, until: "2026-10-26 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-10-25 23:59:59", cost: 3, no: true, left: 2, until: "2026-10-26 00:00:00"},
			{zone: "Europe/Berlin", at: "2026-10-26 00:00:00", cost: 3, left: 2, until: "2026-10-27 00:00:00"},
		})
	}},
	{"a week from Sunday in a half-hour zone", func(w *harness) {
		l := calendarLimit(5, enforcement.Week)
		l.Anchor = enforcement.Sunday
		w.visits(l, []visit{
			{zone: "Asia/Kolkata", at: "2026-11-21 23:59:59", cost: 3, left: 2, until: "2026-11-22 00:00:00"},
			{zone: "Asia/Kolkata", at: "2026-11-22 00:00:00", cost: 3, left: 2, until: "2026-11-29 00:00:00"},
			{zone: "Asia/Kolkata", at: "2026-11-28 23:59:59", cost: 3, no: true, left: 2, until: "2026-11-29 00:00:00"},
		})
	}},
	{"a quarter and its next one", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Quarter), []visit{
			{zone: "UTC", day: 31, at: "2026-11-23 00:00:00", cost: 5, left: 0, until: "2027-01-31 00:00:00"},
			{zone: "UTC", day: 31, at: "2027-01-31 00:00:00", cost: 5, left: 0, until: "2027-04-30 00:00:00"},
			{zone: "UTC", day: 31, at: "2027-04-30 00:00:00", cost: 5, left: 0, until: "2027-07-31 00:00:00"},
		})
	}},
	{"a leap year", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Year), []visit{
			{zone: "UTC", at: "2028-02-29 12:00:00", cost: 5, left: 0, until: "2029-01-01 00:00:00"},
			{zone: "UTC", at: "2028-12-31 23:59:59", cost: 1, no: true, left: 0, until: "2029-01-01 00:00:00"},
			{zone: "UTC", at: "2029-01-01 00:00:00", cost: 1, left: 4, until: "2030-01-01 00:00:00"},
		})
	}},
	{"the limiter selects the window, whatever the clock of the node", func(w *harness) {
		var visits []visit
		for _, skew := range []time.Duration{-14 * 24 * time.Hour, -time.Second, time.Second, 14 * 24 * time.Hour} {
			visits = append(visits,
				visit{zone: "Europe/Berlin", skew: skew, at: "2026-11-30 23:59:59", cost: 0, left: 3, until: "2026-12-01 00:00:00"})
		}
		visits[0].cost = 2
		for i, skew := range []time.Duration{-14 * 24 * time.Hour, -time.Second, time.Second, 14 * 24 * time.Hour} {
			visits = append(visits, visit{
				zone: "Europe/Berlin", skew: skew, at: "2026-12-01 00:00:00", cost: 1, left: 4 - int64(i), until: "2027-01-01 00:00:00",
			})
		}
		w.visits(calendarLimit(5, enforcement.Month), visits)
	}},
	{"a clock that steps back opens no earlier window", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Day), []visit{
			{zone: "UTC", at: "2026-11-24 00:00:01", cost: 5, left: 0, until: "2026-11-25 00:00:00"},
			{zone: "UTC", at: "2026-11-23 23:59:59", cost: 1, no: true, left: 0, until: "2026-11-25 00:00:00"},
		})
	}},
	{"a change of the zone keeps what was used", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Month), []visit{
			{zone: "Europe/Berlin", at: "2026-11-20 12:00:00", cost: 4, left: 1, until: "2026-12-01 00:00:00"},
			{zone: "America/Los_Angeles", at: "2026-11-20 12:00:00", cost: 2, no: true, left: 1, until: "2026-12-01 00:00:00"},
			{zone: "Pacific/Kiritimati", at: "2026-11-30 23:59:59", cost: 2, no: true, left: 1, until: "2026-12-01 00:00:00"},
			{zone: "Pacific/Kiritimati", at: "2026-12-01 00:00:00", cost: 2, left: 3, until: "2027-01-01 00:00:00"},
			{zone: "UTC", at: "2026-12-02 00:00:00", cost: 4, no: true, left: 3, until: "2027-01-01 00:00:00"},
		})
	}},
	{"a change of the anchor day keeps what was used until the new window ends", func(w *harness) {
		w.visits(calendarLimit(5, enforcement.Month), []visit{
			{zone: "UTC", at: "2026-11-20 12:00:00", cost: 4, left: 1, until: "2026-12-01 00:00:00"},
			{zone: "UTC", day: 15, at: "2026-11-20 12:00:00", cost: 1, left: 0, until: "2026-12-15 00:00:00"},
			{zone: "UTC", day: 15, at: "2026-12-14 23:59:59", cost: 1, no: true, left: 0, until: "2026-12-15 00:00:00"},
			{zone: "UTC", day: 15, at: "2026-12-15 00:00:00", cost: 1, left: 4, until: "2027-01-15 00:00:00"},
		})
	}},
}

// calendarLimit returns a limit with a calendar window.
func calendarLimit(quota int64, p enforcement.Period) enforcement.Limit {
	return enforcement.Limit{
		Name: "l1", Algorithm: enforcement.FixedWindow, Quota: quota, Window: p.Longest(), Period: p, Anchor: p.DefaultAnchor(),
	}
}

// visits makes requests on one counter and compares the results.
func (w *harness) visits(l enforcement.Limit, visits []visit) {
	w.Helper()
	numbers, key := newLimited(l), w.key(1, 0)
	for i, v := range visits {
		calendar, err := enforcement.NewCalendar(v.zone, v.day)
		if err != nil {
			w.Fatal(err)
		}
		local := func(text string) int64 {
			at, err := time.ParseInLocation(time.DateTime, text, calendar.Zone)
			if err != nil {
				w.Fatal(err)
			}
			return at.UnixMicro()
		}
		now := local(v.at)
		w.clock.Set(now)
		if v.limit != nil {
			numbers.change(*v.limit, now)
		}
		m := numbers.now().In(calendar, now+v.skew.Microseconds())
		s := step{cost: v.cost, no: v.no, left: v.left, mode: v.mode}
		if v.until != "" {
			s.reset = time.Duration(local(v.until)-now) * time.Microsecond
			s.retry = s.reset
		}
		switch v.retry {
		case "":
		case "never":
			s.retry = never
		default:
			s.retry = time.Duration(local(v.retry)-now) * time.Microsecond
		}
		o := w.take(w.request(v.mode, enforcement.Charge{Key: key, Meter: m, Rev: m.Rev, Cost: v.cost}))[0]
		if err := s.compare(m, &o); err != nil {
			w.Fatalf("visit %d, at %s in %s: %v", i, v.at, v.zone, err)
		}
	}
}
