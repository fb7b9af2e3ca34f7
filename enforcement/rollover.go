package enforcement

import (
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// RolloverWindows is the number of windows for which a counter rolls over without a charge. A
// counter that was last charged in one window is as if never used after the RolloverWindows
// windows that follow it.
const RolloverWindows = 12

// MaxRollover is the largest Limit.MaxRollover.
const MaxRollover = 100_000_000_000

// State.B of a calendar window is the length of the window. If units were rolled over into the
// window, or if it was not charged yet, B is
//
//	rolledBase + (units*rolledDays + length in days)*rolledIdle + windows since the last charge
//
// rolledBase is longer than any window, so that both forms differ. rolledDays is more than the days
// of any window, and rolledIdle is more than RolloverWindows. The largest B is below maxCount, which
// is the bound of a valid state.
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
	case l.Period == NoPeriod && l.Window == 0: // the window is invalid, and has an error of its own
	case l.Period == NoPeriod:
		f.Add("/max_rollover", "needs a calendar window: use fixed_window with a window of day, week, month, quarter or year")
	case l.MaxRollover < 0 || l.MaxRollover > MaxRollover:
		f.Add("/max_rollover", "%s", rolloverRange)
	}
	return f
}

// A calendarWindow is what State.B says about a calendar window.
type calendarWindow struct {
	length int64 // microseconds; whole days unless the other fields are 0
	rolled int64 // units that were rolled over into the window
	idle   int64 // number of windows since the one of the last charge
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

// chargeWindow notes in the settled state of a calendar window that it is charged.
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
// Rollover. They are available in addition to the quota.
func (m *Meter) RolledOver(s *State) int64 {
	if m.Rollover == 0 {
		return 0
	}
	return min(s.window().rolled, m.Rollover)
}

// rollOver replaces s, the state of a calendar window that has ended, by that of the window that
// begins at start. middle is the middle of the window that has ended. What was left of it is rolled
// over, and each window in between left its whole quota in addition. Without Rollover, or more than
// RolloverWindows after the last charge, the counter becomes the zero State.
//
// The number of windows from middle to start is computed from the nominal length of the period, so
// that the scripts need no calendar. It is right for up to RolloverWindows windows of one calendar.
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

// SettleShared is Settle for an overflow counter, which many keys share. Nothing is rolled over to
// it, so that it is unused again when its window has ended.
func (m *Meter) SettleShared(s State, rev, now int64) (settled State, clamped bool) {
	settled, clamped = m.Settle(s, rev, now)
	if m.Rollover > 0 && settled.A == 0 {
		return State{}, false
	}
	return settled, clamped
}

// UnusedAfter returns a time in microseconds from now after which the counter is as if it had never
// been charged, so that its state need not be stored. It is ResetAfter, unless what is left of
// the window is rolled over.
func (m *Meter) UnusedAfter(s *State, now int64) int64 {
	if m.Rollover == 0 || s.Rev == 0 {
		return m.ResetAfter(*s, now)
	}
	return s.T + m.Life() - now
}

// Life returns the longest time in microseconds from the start of a window after which the counter
// of a window is as if it had never been charged, if it is not charged again.
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
// the quota, it fits once enough units were rolled over.
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

// startAfter returns the start of the nth window after that of a state, for n of at least 1.
func (m *Meter) startAfter(s *State, n int64) int64 {
	at := m.end(s)
	for ; n > 1; n-- {
		_, end := m.Calendar.Window(m.Period, m.Anchor.weekday(), time.UnixMicro(at))
		at = end.UnixMicro()
	}
	return at
}

// forgotten returns the time at which the counter is as if never used, if it is not charged before
// that. It is 0 if cost does not depend on what is rolled over: then it fits an unused counter too.
func (m *Meter) forgotten(s *State, cost int64) int64 {
	if m.Rollover == 0 || cost <= m.Quota || s.Rev == 0 {
		return 0
	}
	return m.startAfter(s, RolloverWindows-s.window().idle+1)
}
