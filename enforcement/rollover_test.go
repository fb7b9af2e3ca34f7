package enforcement

import (
	"fmt"
	"testing"
	"time"
)

// For up to RolloverWindows windows of one calendar, rollOver counts as many windows as the calendar
// has, and one window later, the counter is as if never used.
func TestRollOverCountsWindows(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"} {
		for _, day := range []int{1, 15, 29, 30, 31} {
			calendar, err := NewCalendar(zone, day)
			if err != nil {
				t.Fatal(err)
			}
			for period := Day; period <= Year; period++ {
				anchor := period.DefaultAnchor()
				l := Limit{
					Name: "l1", Algorithm: FixedWindow, Quota: 1_000, Window: period.Longest(), Period: period, Anchor: anchor,
					MaxRollover: 20_000,
				}
				m := l.Compile(1)
				at := time.Date(2023, 11, 7, 0, 0, 0, 0, calendar.Zone)
				for range 48 {
					start, end := calendar.Window(period, anchor.weekday(), at)
					now := start.UnixMicro()
					s := m.In(calendar, now).Charge(State{}, 1, now, 400)
					for n := int64(1); n <= RolloverWindows+1; n++ {
						from, _ := calendar.Window(period, anchor.weekday(), end)
						later := m.In(calendar, from.UnixMicro())
						settled, _ := later.Settle(s, 1, from.UnixMicro())
						want, wantT := 600+(n-1)*1_000, from.UnixMicro()
						if n > RolloverWindows {
							want, wantT = 0, 0
						}
						if got := later.RolledOver(&settled); got != want || settled.T != wantT || settled.A != 0 {
							t.Fatalf("%s, day %d, a %s from %s, %d windows later: %d rolled over to %+v, want %d",
								zone, day, period, start, n, got, settled, want)
						}
						_, end = calendar.Window(period, anchor.weekday(), end)
					}
					_, at = calendar.Window(period, anchor.weekday(), at)
				}
			}
		}
	}
}

// The length of a window and the rolled over units are stored in one number, which is a valid
// number of a state up to the bounds.
func TestWindowsOfStatesAreExact(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{dayMicros, 23 * dayMicros / 24, 31 * dayMicros, 31*dayMicros + dayMicros/24, 367 * dayMicros} {
		for _, rolled := range []int64{0, 1, 399, 400, 401, 1_000_003, MaxRollover - 1, MaxRollover} {
			for idle := range int64(RolloverWindows + 1) {
				var s State
				w := calendarWindow{length, rolled, idle}
				s.setWindow(w)
				if rolled > 0 || idle > 0 {
					w.length = (length + dayMicros/2) / dayMicros * dayMicros
				}
				if got := s.window(); got != w || s.B > maxCount {
					t.Errorf("%+v, stored as %d: %+v", w, s.B, got)
				}
			}
		}
	}
}

func TestMaxRolloverIsValidated(t *testing.T) {
	t.Parallel()
	month := Limit{Name: "l1", Algorithm: FixedWindow, Quota: 10, Window: Month.Longest(), Period: Month, Anchor: ByCalendar}
	with := func(most int64) Limit { l := month; l.MaxRollover = most; return l }
	fixed, bucket := with(5), with(5)
	fixed.Period, fixed.Window, fixed.Anchor = NoPeriod, time.Hour, FirstHit
	bucket.Algorithm, bucket.Period, bucket.Window, bucket.Anchor = TokenBucket, NoPeriod, time.Hour, FirstHit
	for _, tt := range []struct {
		limit Limit
		want  string
	}{
		{with(0), ""},
		{with(1), ""},
		{with(MaxRollover), ""},
		{with(-1), "/max_rollover " + rolloverRange},
		{with(MaxRollover + 1), "/max_rollover " + rolloverRange},
		{fixed, "/max_rollover needs a calendar window: use fixed_window with a window of day, week, month, quarter or year"},
		{bucket, "/max_rollover needs a calendar window: use fixed_window with a window of day, week, month, quarter or year"},
	} {
		got := ""
		for _, f := range tt.limit.Validate() {
			got += fmt.Sprint(f.Pointer, " ", f.Message)
		}
		if got != tt.want {
			t.Errorf("max_rollover %d of %s: %q, want %q", tt.limit.MaxRollover, tt.limit.WindowText(), got, tt.want)
		}
	}
}

// A node's share of a counter starts with its part of what is left, including what was rolled over.
func TestShareOfARolledOverWindow(t *testing.T) {
	t.Parallel()
	limit := Limit{
		Name: "l1", Algorithm: FixedWindow, Quota: 90, Window: Month.Longest(), Period: Month, Anchor: ByCalendar, MaxRollover: 60,
	}
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	now := start + 5*dayMicros
	m := limit.Compile(1).In(nil, now)
	part := limit
	part.Quota, part.MaxRollover = shareOf(part.Quota, 3), shareOf(part.MaxRollover, 3)
	share := part.Compile(1).In(nil, now)
	for _, used := range []int64{0, 1, 59, 60, 61, 100, 150} {
		seen := State{Rev: 1, A: used, T: start}
		seen.setWindow(calendarWindow{length: 30 * dayMicros, rolled: 60})
		s := m.StartShare(seen, 1, now, share, 3)
		if left := share.Left(s, now); left != ceilDiv(150-used, 3) || s.A < 0 {
			t.Errorf("%d of 150 used: the share has %d left, %+v; want %d", used, left, s, ceilDiv(150-used, 3))
		}
		if end := share.end(&s); end != start+30*dayMicros {
			t.Errorf("the share ends at %s", Instant(end))
		}
	}
}

// DeniedAfter counts what was rolled over.
func TestDeniedAfterWithRollover(t *testing.T) {
	t.Parallel()
	limit := Limit{
		Name: "l1", Algorithm: FixedWindow, Quota: 10, Window: Day.Longest(), Period: Day, Anchor: ByCalendar, MaxRollover: 20,
	}
	start := time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC).UnixMicro()
	m := limit.Compile(1).In(nil, start)
	s := State{Rev: 1, T: start}
	s.setWindow(calendarWindow{length: dayMicros, rolled: 15})
	const hour = dayMicros / 24
	if after, ok := m.DeniedAfter(s, start, 5, 4*hour); !ok || after != 5*4*hour {
		t.Errorf("25 units, 5 each four hours: denied after %d h, %t; want 20", after/hour, ok)
	}
	if after, ok := m.DeniedAfter(s, start, 1, 2*hour); !ok || after != 2*hour*m.firstDeniedByPlay(t, s, start, 1, 2*hour) {
		t.Errorf("1 each two hours: denied after %d h, %t", after/hour, ok)
	}
}

// firstDeniedByPlay plays requests until one is denied, and returns its number.
func (m *Meter) firstDeniedByPlay(t *testing.T, s State, now, cost, every int64) int64 {
	t.Helper()
	for n := range int64(10_000) {
		at := now + n*every
		fits, _ := m.Spend(&s, 1, at, cost)
		if !fits {
			return n
		}
	}
	t.Fatal("none is denied")
	return 0
}
