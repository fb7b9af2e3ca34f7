package enforcement

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Period is the length of a calendar window, such as a day or a month. A calendar window begins
// and ends at the start of a day in the calendar of the tenant. Other windows have a fixed length.
type Period uint8

// The periods. NoPeriod stands for a window of a fixed length.
const (
	NoPeriod Period = iota
	Day
	Week
	Month
	Quarter
	Year
)

var periodNames = [...]string{"", "day", "week", "month", "quarter", "year"}

// String returns the name of the period in the API. It is "" for NoPeriod.
func (p Period) String() string {
	if int(p) < len(periodNames) {
		return periodNames[p]
	}
	return fmt.Sprintf("period %d", uint8(p))
}

// ParsePeriod returns the period with a name of the API. It returns false if there is no such
// period.
func ParsePeriod(name string) (Period, bool) {
	for p := Day; p <= Year; p++ {
		if periodNames[p] == name {
			return p, true
		}
	}
	return NoPeriod, false
}

// periodSlack is added to the nominal length of a period for Period.Longest. A window can be longer
// than the nominal length, because clocks are set back and a time zone can repeat a day.
const periodSlack = 24 * time.Hour

// Longest returns a length that no window of the period exceeds. For a calendar window,
// Limit.Window holds this length. The limiter uses it for the expiry of keys and to compare
// windows. No response contains it.
func (p Period) Longest() time.Duration {
	days := [...]time.Duration{0, 1, 7, 31, 92, 366}
	if p == NoPeriod || int(p) >= len(days) {
		return 0
	}
	return days[p]*24*time.Hour + periodSlack
}

// A Calendar determines where the calendar windows of a tenant begin. NewCalendar returns the same
// pointer for the same zone and anchor day, so pointers can be compared.
type Calendar struct {
	Zone *time.Location
	// AnchorDay is the day of the month on which months, quarters and years begin, from 1 to 31. In
	// a month that is shorter, they begin on its last day.
	AnchorDay int
}

// utcCalendar is used for a Subject whose Calendar is nil.
var utcCalendar = &Calendar{Zone: time.UTC, AnchorDay: 1}

type calendarName struct {
	zone string
	day  int
}

var calendars sync.Map // calendarName to *Calendar

// NewCalendar returns the calendar of a time zone and an anchor day. "" stands for UTC,
// and 0 for day 1.
func NewCalendar(zone string, anchorDay int) (*Calendar, error) {
	name := calendarName{zone, anchorDay}
	if zone == "" {
		name.zone = "UTC"
	}
	if anchorDay == 0 {
		name.day = 1
	}
	if name == (calendarName{"UTC", 1}) {
		return utcCalendar, nil
	}
	if c, ok := calendars.Load(name); ok {
		return c.(*Calendar), nil
	}
	if name.day < 1 || name.day > 31 {
		return nil, fmt.Errorf("anchor day %d is not a day of a month", anchorDay)
	}
	at, err := time.LoadLocation(name.zone)
	if err != nil || name.zone == "Local" {
		return nil, fmt.Errorf("unknown time zone %q", zone)
	}
	c, _ := calendars.LoadOrStore(name, &Calendar{Zone: at, AnchorDay: name.day})
	return c.(*Calendar), nil
}

// Window returns the start and the end of the window that contains the instant at. The end is not
// part of the window. A window begins at the first instant of its first day in the zone. So it is
// never empty, even if the zone skips or repeats a day. weekday is the first day of a week.
func (c *Calendar) Window(p Period, weekday time.Weekday, at time.Time) (start, end time.Time) {
	k := c.number(p, weekday, at.In(c.Zone))
	// The clock of the zone may have been set back across the start of a window. The local date of the
	// instant is then up to one day too early or too late for its window.
	for start, end = c.edge(p, weekday, k), c.edge(p, weekday, k+1); !at.Before(end); k++ {
		start, end = end, c.edge(p, weekday, k+2)
	}
	for ; at.Before(start); k-- {
		start, end = c.edge(p, weekday, k-1), start
	}
	return start, end
}

// number returns the number k of the window that contains a date. It assumes that months begin on
// day 1 instead of the anchor day, so the result may be too high by one.
func (c *Calendar) number(p Period, weekday time.Weekday, local time.Time) int {
	year, month, day := local.Date()
	switch p {
	case Day, Week:
		days := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400)
		if p == Day {
			return days
		}
		days -= firstWeek(weekday)
		return (days - int(floorMod(int64(days), 7))) / 7
	case Month:
		return 12*year + int(month) - 1
	case Quarter:
		return (12*year + int(month) - 1) / 3
	}
	return year
}

// firstWeek returns the number of days from Thursday, 1 January 1970 to the first weekday given.
func firstWeek(weekday time.Weekday) int {
	return (int(weekday-time.Thursday) + 7) % 7
}

// edge returns the instant at which the window with number k begins.
func (c *Calendar) edge(p Period, weekday time.Weekday, k int) time.Time {
	months := k
	switch p {
	case Day:
		return c.dayStart(1970, time.January, 1+k)
	case Week:
		return c.dayStart(1970, time.January, 1+firstWeek(weekday)+7*k)
	case Quarter:
		months = 3 * k
	case Year:
		months = 12 * k
	}
	year, month := months/12, time.Month(months%12+1)
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return c.dayStart(year, month, min(c.AnchorDay, last))
}

// dayStart returns the first instant of a day in the zone. That is 00:00, unless the zone skips
// this hour. If the zone skips the whole day, it is the first instant of the next day. dayStart
// does not use time.ZoneBounds, which returns wrong results on the last day of a leap year.
func (c *Calendar) dayStart(year int, month time.Month, day int) time.Time {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	offset := func(at int64) int64 {
		_, seconds := time.Unix(at, 0).In(c.Zone).Zone()
		return int64(seconds)
	}
	begun := func(at int64) bool { return at+offset(at) >= midnight }
	const widest = 16 * 3600 // more than the largest offset of a zone, in seconds
	from, to := midnight-widest, midnight+widest
	for from+1 < to {
		if at := (from + to) / 2; begun(at) {
			to = at
		} else {
			from = at
		}
	}
	// If the clock was set back across the start of this day, the day began twice. The first of these
	// two instants is its start.
	if first := midnight - offset(to-3*3600); first < to && begun(first) {
		to = first
	}
	return time.Unix(to, 0).In(c.Zone)
}

// Edges are three consecutive starts of calendar windows, in microseconds since the epoch: the
// starts of two windows, and the end of the second one. The limiter selects one of the windows by
// its own clock.
type Edges [3]int64

// edgesAt returns two windows: the one that contains now, and its nearer neighbor. With both, the
// clock of the limiter may differ from the caller's clock by half a window. The result is valid
// from the time from up to the time until.
func (c *Calendar) edgesAt(p Period, weekday time.Weekday, now int64) (e Edges, from, until int64) {
	at := time.UnixMicro(now)
	start, end := c.Window(p, weekday, at)
	if now < middle(start, end) {
		before, _ := c.Window(p, weekday, start.Add(-1))
		return Edges{before.UnixMicro(), start.UnixMicro(), end.UnixMicro()}, middle(before, start), middle(start, end)
	}
	_, after := c.Window(p, weekday, end)
	return Edges{start.UnixMicro(), end.UnixMicro(), after.UnixMicro()}, middle(start, end), middle(end, after)
}

func middle(a, b time.Time) int64 { return a.UnixMicro() + (b.UnixMicro()-a.UnixMicro())/2 }

// window returns the start and the length of the window that contains the time at. e has two
// windows. For a time outside of them, window assumes that all earlier windows are as long as the
// first one, and all later windows as long as the second one.
func (e *Edges) window(at int64) (start, length int64) {
	if at < e[1] {
		length = e[1] - e[0]
		return at - floorMod(at-e[0], length), length
	}
	length = e[2] - e[1]
	return at - floorMod(at-e[1], length), length
}

// settleCalendar does the work of settle for calendar windows. If the window of the state has
// ended, the state becomes the zero State. With Rollover, it becomes an unused current window, to
// which the units that were left are rolled over. If the window has not ended, the current window
// replaces it.
//
// The current window can begin or end at another time than the stored one after a change of the
// time zone, the anchor day, the period, or the rules of a zone. The used units then count in the
// window that contains the middle of the stored window. So the result does not depend on which
// requests came between the change and now.
func (m *Meter) settleCalendar(s *State, rev, now int64) (clamped bool) {
	if m.Period == grantPeriod {
		m.settleGrant(s, rev, now)
		return false
	}
	w := s.window()
	if w.length <= 0 {
		*s = State{}
		return false
	}
	middle := s.T + min(w.length, m.Window)/2
	start, length := m.Edges.window(max(now, middle))
	if start > middle {
		m.rollOver(s, rev, middle, start, length)
		return false
	}
	if start > now+m.Window {
		start, length = m.Edges.window(now)
		clamped, w.idle = true, 0 // the Redis scripts do not store w.idle with a clamped state either
	}
	w.length = length
	s.T, s.Rev = start, max(s.Rev, rev)
	s.setWindow(w)
	return clamped
}

// WindowAt returns the length of the window of a settled state in microseconds. If the counter has
// no open window, it is the length of the window that a charge at now would open.
func (m *Meter) WindowAt(s *State, now int64) int64 {
	switch {
	case m.Period == NoPeriod:
		return m.Window
	case s.Rev != 0:
		return m.end(s) - s.T
	}
	_, length := m.Edges.window(now)
	return length
}

// end returns the end of the open window of a fixed window. s is settled.
func (m *Meter) end(s *State) int64 {
	switch {
	case m.Period == NoPeriod:
		return s.T + m.Window
	case m.Period == grantPeriod:
		return m.Edges[1]
	case s.B < rolledBase:
		return s.T + s.B
	}
	_, length := m.Edges.window(s.T)
	return s.T + length
}

// A calendarMeters caches the meters that In made from the meter of one limit, one for each
// calendar.
type calendarMeters struct {
	by sync.Map // *Calendar to *atomic.Pointer[calendarMeter]
}

// A calendarMeter is a meter with the Edges of one calendar. It is valid from the time from up to
// the time until.
type calendarMeter struct {
	Meter
	from, until int64
}

// In returns the meter for the counters of tenants with the calendar c. now is the clock of the
// caller, in microseconds since the epoch. If the limit has no calendar window, In returns m. A nil
// calendar stands for UTC with the anchor day 1.
//
// In usually allocates nothing: it returns the same meter to all calls with one calendar, until the
// middle of a window has passed.
func (m *Meter) In(c *Calendar, now int64) *Meter {
	if m.Period == NoPeriod || m.Period == grantPeriod {
		return m
	}
	if c == nil {
		c = utcCalendar
	}
	slot, ok := m.calendars.by.Load(c)
	if !ok {
		slot, _ = m.calendars.by.LoadOrStore(c, new(atomic.Pointer[calendarMeter]))
	}
	current := slot.(*atomic.Pointer[calendarMeter])
	made := current.Load()
	if made != nil && now >= made.from && now < made.until {
		return &made.Meter
	}
	next := &calendarMeter{Meter: *m}
	next.Calendar = c
	next.Edges, next.from, next.until = c.edgesAt(m.Period, m.Anchor.weekday(), now)
	if !current.CompareAndSwap(made, next) {
		if other := current.Load(); now >= other.from && now < other.until {
			return &other.Meter // another caller was faster
		}
	}
	return &next.Meter
}
