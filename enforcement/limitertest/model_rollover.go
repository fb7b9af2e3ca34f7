package limitertest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// dayMicros is the length of a day in microseconds.
const dayMicros = int64(24 * time.Hour / time.Microsecond)

// setWindow sets the calendar window of the counter.
func (c *counter) setWindow(from, till int64) {
	if c.start, c.length = from, till-from; c.rolled > 0 || c.idle > 0 {
		c.length = max((c.length+dayMicros/2)/dayMicros, 1) * dayMicros
	}
}

// next returns the counter in the calendar window at the time now, after its own window has ended.
// The units that its window had left are rolled over. So is the quota of each window in between.
// More than 12 windows after the last charge, the counter is unused.
func (c *counter) next(m *enforcement.Meter, rev, now int64) *counter {
	from, till := calendarWindow(m, now)
	nominal, windows := m.Window-dayMicros, int64(0)
	if m.Rollover == 0 {
		return new(counter)
	}
	for at := c.middle(m); at < from && windows <= 12; at += nominal {
		windows++
	}
	if c.idle+windows > 12 {
		return new(counter)
	}
	rolled := min(max(c.left(m, now), 0), m.Rollover)
	for range windows - 1 {
		rolled = min(rolled+m.Quota, m.Rollover)
	}
	n := &counter{open: true, rev: max(c.rev, rev), rolled: rolled, idle: c.idle + windows}
	n.setWindow(from, till)
	return n
}

// nextMeter returns the meter with which a caller makes a later request, at the time at. For a
// limit that rolls units over, it has the calendar windows of that time.
func nextMeter(m *enforcement.Meter, at int64) *enforcement.Meter {
	if m.Rollover == 0 {
		return m
	}
	return m.In(m.Calendar, at)
}

// fitsLater reports whether cost fits in one of the next 12 calendar windows, if no other request
// comes.
func (c *counter) fitsLater(m *enforcement.Meter, rev, now, cost int64) bool {
	for range 12 {
		_, end := calendarWindow(nextMeter(m, now), now)
		n := c.later(m, rev, end, 0)
		if cost <= n.left(m, end) {
			return true
		}
		now = end
	}
	return false
}
