package enforcement

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate/headgate/internal/testseed"
)

// zones returns the names of all time zones of this machine, or if it has no zone files,
// some names that the embedded database has.
func zones(t *testing.T) (names []string) {
	t.Helper()
	const root = "/usr/share/zoneinfo"
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if _, err := time.LoadLocation(name); err == nil && !strings.HasPrefix(name, "posix/") && !strings.HasPrefix(name, "right/") {
			names = append(names, name)
		}
		return nil
	})
	if len(names) == 0 {
		names = []string{
			"UTC", "Europe/Berlin", "America/New_York", "America/Los_Angeles", "America/Sao_Paulo", "America/St_Johns", "America/Havana",
			"Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Africa/Cairo", "Africa/Casablanca",
			"Australia/Lord_Howe", "Australia/Eucla", "Antarctica/Troll", "Antarctica/Casey", "Pacific/Apia", "Pacific/Kiritimati",
			"Pacific/Kwajalein", "Pacific/Chatham", "America/Caracas", "Europe/Dublin", "America/Godthab", "Asia/Pyongyang",
		}
	}
	return names
}

// date returns the local date of an instant as a number that sorts like dates.
func date(at time.Time) int {
	year, month, day := at.Date()
	return year*10_000 + int(month)*100 + day
}

func TestWindowsOfAllZones(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Seed(t), 1))
	names := zones(t)
	from, until := time.Date(1970, 2, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, name := range names {
		for range 10 {
			c, err := NewCalendar(name, 1+r.IntN(31))
			if err != nil {
				t.Fatal(err)
			}
			at := time.Unix(from+r.Int64N(until-from), r.Int64N(1e9))
			if r.IntN(2) == 0 { // near a change of the offset
				if _, change := at.In(c.Zone).ZoneBounds(); !change.IsZero() && change.Year() < 2101 {
					at = change.Add(time.Duration(r.Int64N(int64(60*time.Hour))) - 30*time.Hour)
				}
			}
			for p := Day; p <= Year; p++ {
				compareWindow(t, c, p, time.Weekday(r.IntN(7)), at)
			}
		}
	}
}

// compareWindow compares the window that contains an instant with the definition.
func compareWindow(t *testing.T, c *Calendar, p Period, weekday time.Weekday, at time.Time) {
	t.Helper()
	start, end := c.Window(p, weekday, at)
	if at.Before(start) || !at.Before(end) {
		t.Fatalf("%s of %s from day %d: %s is not in the window %s to %s", p, c.Zone, c.AnchorDay, at, start, end)
	}
	if length := end.Sub(start); length > p.Longest() || p.Longest() > length*5/2 && p > Day || length <= 0 {
		t.Fatalf("%s of %s: the window from %s is %s long, Longest is %s", p, c.Zone, start, length, p.Longest())
	}
	if next, _ := c.Window(p, weekday, end); !next.Equal(end) {
		t.Fatalf("%s of %s: the window after %s begins at %s", p, c.Zone, end, next)
	}
	if last, _ := c.Window(p, weekday, end.Add(-1)); !last.Equal(start) {
		t.Fatalf("%s of %s: the end of the window from %s belongs to that from %s", p, c.Zone, start, last)
	}
	for _, edge := range []time.Time{start, end} {
		// The first instant of a day is 00:00, unless the zone skips it.
		day := date(edge)
		if before := date(edge.Add(-time.Nanosecond)); before >= day {
			t.Fatalf("%s of %s: the edge %s is not the first instant of its date", p, c.Zone, edge)
		}
		year, month, d := edge.Date()
		noon := time.Date(year, month, d, 12, 0, 0, 0, time.UTC)
		midnight := time.Date(year, month, d, 0, 0, 0, 0, c.Zone)
		early := edge.Hour()+edge.Minute()+edge.Second() == 0 // where 00:00 comes twice, time.Date may return the later one
		if hour, minute, second := midnight.Clock(); hour+minute+second == 0 && date(midnight.Add(-time.Nanosecond)) < day && !midnight.Equal(edge) && !early {
			t.Fatalf("%s of %s: the edge %s is not at %s", p, c.Zone, edge, midnight)
		}
		for skipped := 1; ; skipped++ { // an edge on a skipped day is at the start of the next day
			if begins(c, p, weekday, noon) {
				break
			}
			noon = noon.AddDate(0, 0, -1)
			if skipped > 2 || date(edge.Add(-time.Nanosecond)) >= date(noon) {
				t.Fatalf("%s of %s from day %d and weekday %s: the edge %s is not the first day of a window", p, c.Zone, c.AnchorDay, weekday, edge)
			}
		}
	}
}

// begins reports whether a window begins on a date, by the definition of the periods.
func begins(c *Calendar, p Period, weekday time.Weekday, noon time.Time) bool {
	last := noon.AddDate(0, 0, 1).Month() != noon.Month()
	anchor := noon.Day() == c.AnchorDay || noon.Day() < c.AnchorDay && last
	switch p {
	case Day:
		return true
	case Week:
		return noon.Weekday() == weekday
	case Quarter:
		return anchor && noon.Month()%3 == 1
	case Year:
		return anchor && noon.Month() == time.January
	}
	return anchor
}

func TestWindowOfUnusualDays(t *testing.T) {
	for _, tt := range []struct {
		zone       string
		day        int
		period     Period
		at         string // in UTC
		start, end string
	}{
		// Samoa skipped 30 December 2011: the day after the 29th is the 31st.
		{"Pacific/Apia", 1, Day, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", 1, Day, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"Pacific/Apia", 30, Month, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"},
		// Clocks go back at midnight in Havana: the day begins at the first 00:00.
		{"America/Havana", 1, Day, "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Clocks go forward at midnight in Beirut: the day begins at 01:00.
		{"Asia/Beirut", 1, Day, "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z"},
		{"Europe/Berlin", 15, Month, "2026-11-23T12:00:00Z", "2026-11-14T23:00:00Z", "2026-12-14T23:00:00Z"},
		{"Asia/Kolkata", 31, Month, "2028-02-29T12:00:00Z", "2028-02-28T18:30:00Z", "2028-03-30T18:30:00Z"},
		{"UTC", 29, Year, "2028-01-28T12:00:00Z", "2027-01-29T00:00:00Z", "2028-01-29T00:00:00Z"},
	} {
		c, err := NewCalendar(tt.zone, tt.day)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tt.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end := c.Window(tt.period, time.Monday, at)
		if s, e := start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339); s != tt.start || e != tt.end {
			t.Errorf("%s of %s from day %d at %s: %s to %s, want %s to %s", tt.period, tt.zone, tt.day, tt.at, s, e, tt.start, tt.end)
		}
	}
}

func TestNewCalendar(t *testing.T) {
	for _, tt := range []struct {
		zone string
		day  int
		ok   bool
	}{
		{"", 0, true}, {"Europe/Berlin", 31, true}, {"Local", 1, false}, {"Mars/Olympus", 1, false}, {"UTC", 32, false}, {"UTC", -1, false},
	} {
		c, err := NewCalendar(tt.zone, tt.day)
		if (err == nil) != tt.ok {
			t.Errorf("%q, day %d: %v", tt.zone, tt.day, err)
		}
		if again, _ := NewCalendar(tt.zone, tt.day); again != c {
			t.Errorf("%q, day %d: two calendars", tt.zone, tt.day)
		}
	}
}

func TestMeterOfCalendar(t *testing.T) {
	l := Limit{Name: "l1", Algorithm: FixedWindow, Quota: 5, Period: Month, Window: Month.Longest(), Anchor: ByCalendar}
	plan := l.Compile(1)
	berlin, err := NewCalendar("Europe/Berlin", 15)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).UnixMicro()
	m := plan.In(berlin, now)
	if m != plan.In(berlin, now+1) {
		t.Error("the meter changes within half a window")
	}
	if allocated := testing.AllocsPerRun(100, func() { plan.In(berlin, now) }); allocated != 0 {
		t.Errorf("%v allocations for a meter that exists", allocated)
	}
	later := now + 20*24*time.Hour.Microseconds()
	if m == plan.In(berlin, later) {
		t.Error("the meter has the edges of earlier windows")
	}
	if utc := plan.In(nil, now); utc == m || utc.Edges == m.Edges {
		t.Error("two calendars have one meter")
	}
	if fixed := (Limit{Name: "l1", Algorithm: FixedWindow, Quota: 5, Window: time.Minute}).Compile(1); fixed.In(berlin, now) != fixed {
		t.Error("a limit of a fixed length has a meter for a calendar")
	}
}
