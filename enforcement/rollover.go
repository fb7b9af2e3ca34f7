package enforcement

import (
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// RolloverWindows is the number of windows for which a counter keeps rolled-over units without a
// charge. If a counter is not charged for so many windows after the window of its last charge, it is
// as if never used.
const RolloverWindows = 12

// MaxRollover is the largest Limit.MaxRollover.
const MaxRollover = 100_000_000_000

// State.B of a calendar window has two forms. Usually it is the length of the window in
// microseconds. If units were rolled over into the window, or if the window was not charged yet, B
// is
//
//	rolledBase + (units*rolledDays + length in days)*rolledIdle + windows since the last charge
//
// rolledBase is longer than any window, so that the two forms differ. rolledDays is more than the
// days of any window, and rolledIdle is more than RolloverWindows. The largest B is below maxCount,
// which is the bound of a valid state.
const (
	rolledBase = 40_000_000_000_000
	rolledDays = 400
	rolledIdle = 16
	dayMicros  = int64(24 * time.Hour / time.Microsecond)
)

const rolloverRange = "must be 1 to 100000000000; leave it out if nothing rolls over"

// validateRollover returns the errors of MaxRollover.
func (l Limit) validateRollover() (f problem.Fields) {
	switch {
	case l.MaxRollover == 0:
	case l.Period == NoPeriod && l.Window == 0: // the window is invalid, and validate reports it
	case l.Period == NoPeriod:
		f.Add("/max_rollover", "needs a calendar window: use fixed_window with a window of day, week, month, quarter or year")
	case l.MaxRollover < 0 || l.MaxRollover > MaxRollover:
		f.Add("/max_rollover", "%s", rolloverRange)
	}
	return f
}

// A calendarWindow is the decoded State.B of a calendar window.
type calendarWindow struct {
	length int64 // in microseconds; rounded to whole days if rolled or idle is not 0
	rolled int64 // units that were rolled over into the window
	idle   int64 // number of windows since the window of the last charge
}

// window decodes B of the state of a calendar window.
func (s *State) window() calendarWindow {
	if s.B < rolledBase {
		return calendarWindow{length: s.B}
	}
	packed := s.B - rolledBase
	days := packed / rolledIdle
	return calendarWindow{length: days % rolledDays * dayMicros, rolled: days / rolledDays, idle: packed % rolledIdle}
}

// setWindow sets B of the state of a calendar window.
func (s *State) setWindow(w calendarWindow) {
	if s.B = w.length; w.rolled > 0 || w.idle > 0 {
		days := max((w.length+dayMicros/2)/dayMicros, 1)
		s.B = rolledBase + (w.rolled*rolledDays+days)*rolledIdle + w.idle
	}
}

// chargeWindow records in State.B of a calendar window that the window is charged. s is settled.
func (m *Meter) chargeWindow(s *State) {
	if s.B < rolledBase {
		return
	}
	if w := s.window(); w.rolled > 0 {
		s.B -= w.idle
		return
	}
	_, s.B = m.Edges.window(s.T)
}

// RolledOver returns the units that were rolled over into the window of a settled state, at most
// m.Rollover. They are available in addition to the quota.
func (m *Meter) RolledOver(s *State) int64 {
	if m.Rollover == 0 {
		return 0
	}
	return min(s.window().rolled, m.Rollover)
}

// rollOver replaces s, the state of a calendar window that has ended, with the state of the window
// that begins at start and has the length length. middle is the middle of the window that has ended.
// The units that this window had left are rolled over. So is the whole quota of each window between
// the two. The state becomes the zero State without Rollover, or if the last charge was more than
// RolloverWindows windows ago.
//
// rollOver computes the number of windows from middle to start from the nominal length of the
// period, so that the Redis scripts need no calendar. The number is right for up to RolloverWindows
// windows of one calendar.
func (m *Meter) rollOver(s *State, rev, middle, start, length int64) {
	nominal := m.Window - periodSlack.Microseconds()
	windows := (start - middle + nominal - 1) / nominal
	idle := s.window().idle + windows
	if m.Rollover == 0 || idle > RolloverWindows {
		*s = State{}
		return
	}
	rolled := min(max(m.left(s, start), 0)+(windows-1)*m.Quota, m.Rollover)
	*s = State{Rev: max(s.Rev, rev), T: start}
	s.setWindow(calendarWindow{length, rolled, idle})
}

// SettleShared is Settle for an overflow counter, which many keys share. It rolls over nothing, so
// that the counter is unused again when its window has ended.
func (m *Meter) SettleShared(s State, rev, now int64) (settled State, clamped bool) {
	settled, clamped = m.Settle(s, rev, now)
	if m.Rollover > 0 && settled.A == 0 {
		return State{}, false
	}
	return settled, clamped
}

// UnusedAfter returns a time in microseconds from now after which the counter is as if it had never
// been charged, so that its state need not be stored. Without Rollover, it is the same as
// ResetAfter. With Rollover, it is later, because units that were left are rolled over.
func (m *Meter) UnusedAfter(s *State, now int64) int64 {
	if m.Rollover == 0 || s.Rev == 0 {
		return m.ResetAfter(*s, now)
	}
	return s.T + m.Life() - now
}

// Life returns a time in microseconds. If a window is charged and not charged again, its counter is
// as if it had never been charged at the latest that time after the start of the window.
func (m *Meter) Life() int64 {
	switch {
	case m.Algorithm == SlidingWindowCounter:
		return 2 * m.Window
	case m.Rollover > 0:
		return (RolloverWindows + 1) * m.Window
	}
	return m.Window
}

// retryRolled is RetryAfter for a limit with Rollover. left is less than cost. If cost is more than
// the quota, it fits when enough units were rolled over.
func (m *Meter) retryRolled(s *State, now, cost, left int64) (micros int64, ok bool) {
	windows := int64(1)
	if missing := cost - m.Quota - max(left, 0); missing > 0 {
		windows += (missing-1)/m.Quota + 1
	}
	if s.Rev == 0 || s.window().idle+windows > RolloverWindows { // a counter without a state rolls nothing over
		return 0, false
	}
	return m.startAfter(s, windows) - now, true
}

// startAfter returns the start of the nth window after the window of a state. n is at least 1.
func (m *Meter) startAfter(s *State, n int64) int64 {
	at := m.end(s)
	for ; n > 1; n-- {
		_, end := m.Calendar.Window(m.Period, m.Anchor.weekday(), time.UnixMicro(at))
		at = end.UnixMicro()
	}
	return at
}

// forgotten returns the time at which rolled-over units end, if the counter is not charged before:
// the counter is then as if never used. The result is 0 if cost does not need rolled-over units,
// because it is at most the quota.
func (m *Meter) forgotten(s *State, cost int64) int64 {
	if m.Rollover == 0 || cost <= m.Quota || s.Rev == 0 {
		return 0
	}
	return m.startAfter(s, RolloverWindows-s.window().idle+1)
}
