package enforcement

import (
	"math/bits"
	"slices"
)

// The algorithms are integer functions of (state, now, cost). The in-process limiter
// calls them directly. The Redis scripts implement only Settle, Left and Charge. This
// file computes Remaining, ResetAfter and RetryAfter from the states that the scripts
// return.
//
// All functions except Settle need a settled state: the result of Settle for the same
// now.

// Settle advances a stored state to the instant now. It converts a state of older
// numbers, starts the next window when one has ended, removes expired log entries,
// and refills buckets. If now is before the state's own time, Settle uses the
// state's time.
//
// rev is the revision of the numbers in force for the caller: m.Rev, or a later one
// if the tenant got these numbers later.
//
// clamped is true if the stored state was further in the future than one window, or
// for a bucket the time to fill it. Settle then moves the state to now. The caller
// must store a clamped state even after a denial. Otherwise requests are denied for
// more than a window after a clock was set back.
func (m *Meter) Settle(s State, rev, now int64) (settled State, clamped bool) {
	clamped = m.settle(&s, rev, now)
	return s, clamped
}

// Spend settles s and charges cost if it fits. write reports whether the caller must
// store s, because s was charged or clamped. Spend is faster than Settle, Left, Admits
// and Charge in sequence, because it does not copy the state.
func (m *Meter) Spend(s *State, rev, now, cost int64) (fits, write bool) {
	write = m.settle(s, rev, now)
	if fits = m.Admits(m.left(s, now), cost); fits && cost > 0 {
		m.charge(s, rev, now, cost)
		write = true
	}
	return fits, write
}

// settle is Settle without a copy: it changes the state s itself.
func (m *Meter) settle(s *State, rev, now int64) (clamped bool) {
	if s.Rev == 0 || s.A < 0 && !m.Algorithm.Bucket() { // invalid: a window or a log never has a count below 0
		*s = m.fresh(rev, now)
		return false
	}
	if s.Rev < rev && !m.carryCounts(s, rev) {
		return false
	}
	if m.Period != NoPeriod {
		return m.settleCalendar(s, rev, now)
	}
	if s.T > now && s.T > now+m.horizon() { // the first comparison avoids a division
		m.cut(s, now)
		clamped = true
	}
	switch m.Algorithm {
	case FixedWindow:
		if now >= s.T+m.Window {
			*s = State{}
			return false
		}
	case SlidingWindowCounter:
		switch {
		case now >= s.T+2*m.Window, now >= s.T+m.Window && s.A == 0:
			*s = State{}
			return false
		case now >= s.T+m.Window:
			s.T, s.A, s.B = s.T+m.Window, 0, s.A
		}
	case SlidingWindowLog:
		if m.expire(s, now); s.B == 0 {
			*s = State{}
			return false
		}
	case Concurrency:
		if s.endLeases(now); s.Rev == 0 {
			return false
		}
	default:
		m.settleBucket(s, rev, now)
	}
	s.Rev = max(s.Rev, rev)
	return clamped
}

// expire removes the log entries that have left the window: those whose age is at
// least the length of the window.
func (m *Meter) expire(s *State, now int64) {
	gone := 0
	for gone < len(s.Log) && max(now, s.T)-s.Log[gone].T >= m.Window {
		s.A -= s.Log[gone].Units
		gone++
	}
	s.Log = s.Log[gone:]
	s.B -= int64(gone)
}

// settleBucket converts the state of a bucket to the quota, window and burst in force, and refills
// the bucket up to now.
func (m *Meter) settleBucket(s *State, rev, now int64) {
	if s.Rev != rev || s.A >= m.Capacity { // otherwise the state needs no conversion
		*s = m.convert(*s, rev, now)
	}
	if s.B >= m.Q {
		s.B = 0 // invalid: a fraction is less than one unit
	}
	if now > s.T {
		s.A, s.B = refill(s.A, s.B, now-s.T, &m.Numbers)
		s.T = now
	}
	if s.Rev > rev {
		s.B = 0 // the fraction now has the denominator of this m.Q, but s.Rev names later numbers with another Q
	}
}

// fresh returns the settled state of a counter that has no stored state. For a bucket, that is a
// full bucket. For a window or a log, it is the zero State.
func (m *Meter) fresh(rev, now int64) State {
	switch {
	case m.Period == grantPeriod && now >= m.Edges[1]:
		return m.spentGrant(rev)
	case !m.Algorithm.Bucket():
		return State{}
	}
	return State{Rev: rev, A: m.Capacity, T: now}
}

// horizon returns how far in the future, in microseconds, the time of a state may be
// before Settle clamps it.
func (m *Meter) horizon() int64 {
	if !m.Algorithm.Bucket() || m.P == 0 {
		return m.Window
	}
	return m.flow(m.Burst(), 0)
}

// flow returns the time in microseconds until a bucket has refilled need units, if it has already
// refilled b/Q of a unit: ceil((need*Q - b) / P), at most maxForever.
func (m *Meter) flow(need, b int64) int64 {
	// need*Q = quo*P + rem.
	quo, rem, ok := mulAddDiv(need, m.Q, 0, m.P)
	if !ok || quo >= maxForever {
		return maxForever
	}
	// back is (quo*P + rem - b) / P, rounded up. It is computed in two steps to avoid an overflow.
	back := b - rem
	if back > 0 {
		return quo - back/m.P
	}
	return quo + (-back+m.P-1)/m.P
}

// refill adds the units that a bucket gains in elapsed microseconds, up to its capacity. A level
// above the capacity does not change, because it was stored with a later, larger capacity. The
// fraction of a unit is kept as a numerator over Q, so that the rate does not drift.
func refill(a, b, elapsed int64, n *Numbers) (int64, int64) {
	if n.P == 0 {
		return a, b
	}
	if hi, lo := bits.Mul64(uint64(elapsed), uint64(n.P)); hi == 0 && lo < uint64(n.Q) && b < n.Q-int64(lo) && a < n.Capacity {
		return a, b + int64(lo) // less than one unit refilled: no division needed
	}
	units, fraction, ok := mulAddDiv(elapsed, n.P, b, n.Q)
	if !ok || units >= n.Capacity-a {
		return max(a, n.Capacity), 0
	}
	return a + units, fraction
}

// convert converts the state of a bucket that was stored with another quota, window or burst
// (Numbers). For each change since then, it refills the bucket at the former rate up to the time of
// the change, and then carries the level over as Former.CarryOver says. It drops a fraction of a
// unit whose denominator is unknown. If the state has a later revision than rev, it only drops the
// fraction, because the level may be above the capacity of m.
func (m *Meter) convert(s State, rev, now int64) State {
	denominator := s.Rev // the revision whose Q is the denominator of the fraction
	charged := s.T
	m.changes(s.Rev, rev, func(f *Former, next *Numbers, nextRev int64) {
		if denominator != f.Rev {
			s.B = 0
		}
		if s.A >= f.Capacity {
			s.A, s.B = f.Capacity, 0
		}
		if until := min(f.Until, now); until > s.T {
			s.A, s.B = refill(s.A, s.B, until-s.T, &f.Numbers)
			s.T = until
		}
		f.carryLevel(&s, next, charged)
		s.B, _, _ = mulAddDiv(s.B, next.Q, 0, f.Q)
		denominator = nextRev
	})
	if denominator != rev {
		s.B = 0
	}
	if s.A >= m.Capacity && s.Rev <= rev {
		s.A, s.B = m.Capacity, 0
	}
	return s
}

// cut corrects a state whose time is in the future: it sets the time to now. It does
// not change the count or the level. Leases end as long after now as they ended after
// the former time.
func (m *Meter) cut(s *State, now int64) {
	if m.Algorithm == Concurrency {
		s.B -= s.T - now
		s.Holders = slices.Clone(s.Holders)
		for i := range s.Holders {
			s.Holders[i].Until -= s.T - now
		}
	}
	s.T = now
	if len(s.Log) > 0 {
		entries := make([]Entry, len(s.Log))
		for i, e := range s.Log {
			entries[i] = Entry{T: min(e.T, now), Units: e.Units}
		}
		s.Log = entries
	}
}

// Left returns how many units can be charged now. It is negative if more units are
// charged than the quota or the burst now allows, for example after a lower quota was
// published.
func (m *Meter) Left(s State, now int64) int64 { return m.left(&s, now) }

// left does the same as Left. It takes a pointer, which avoids a copy of the state.
func (m *Meter) left(s *State, now int64) int64 {
	if m.Algorithm.Bucket() {
		return min(s.A, m.Capacity) + m.Queue // later numbers may have a larger capacity
	}
	if s.Rev == 0 {
		return m.Quota
	}
	if m.Algorithm == SlidingWindowCounter {
		return m.Quota - s.A - m.faded(s, now)
	}
	if m.Rollover > 0 {
		return m.Quota + m.RolledOver(s) - s.A
	}
	return m.Quota - s.A
}

// faded returns the units of the previous window that a sliding counter still counts:
// floor(previous * (window - elapsed) / window).
func (m *Meter) faded(s *State, now int64) int64 {
	if s.B == 0 {
		return 0
	}
	elapsed := max(now, s.T) - s.T
	weight, _, _ := mulAddDiv(s.B, m.Window-elapsed, 0, m.Window)
	return weight
}

// Admits reports whether a cost fits when left units are left. A quota of 0 admits nothing, not
// even cost 0.
func (m *Meter) Admits(left, cost int64) bool { return m.Quota > 0 && cost <= left }

// Possible reports whether cost can ever fit.
func (m *Meter) Possible(cost int64) bool {
	if m.Algorithm.Bucket() {
		return m.Quota > 0 && cost <= m.Burst()
	}
	return m.Quota > 0 && cost <= m.Quota+m.Rollover
}

// Charge charges cost, even if it does not fit. The caller checks Admits first, except
// in mode Force. A cost of 0 changes nothing and opens no window. Bounds apply to
// forced charges: a count stops at 10^15, and a bucket is not charged further than one
// burst into debt. If a log has MaxLog entries, the cost is added to its newest entry.
func (m *Meter) Charge(s State, rev, now, cost int64) State {
	if m.Algorithm == Concurrency {
		return m.ChargeFor(s, rev, now, cost, &Lease{})
	}
	if cost != 0 {
		m.charge(&s, rev, now, cost)
	}
	return s
}

// charge is Charge without a copy: it changes the state s itself. cost is above 0.
func (m *Meter) charge(s *State, rev, now, cost int64) {
	if s.Rev == 0 { // only windows and logs: a settled bucket has a revision
		*s = State{Rev: rev, T: now}
		switch {
		case m.Period == grantPeriod:
			s.T, s.B = m.Edges[0], m.Edges[1]-m.Edges[0]
		case m.Period != NoPeriod:
			s.T, s.B = m.Edges.window(now)
		case m.Anchor == Clock && m.Algorithm.Windowed():
			s.T = now - floorMod(now, m.Window)
		}
	}
	switch {
	case m.Algorithm.Bucket():
		s.A = min(s.A, max(s.A-cost, -m.Queue-max(m.Burst(), 1)))
	case m.Algorithm == SlidingWindowLog:
		*s = appendEntry(*s, now, cost)
	default:
		if m.Period != NoPeriod {
			m.chargeWindow(s)
		}
		s.A = min(s.A+cost, maxCount)
	}
}

// appendEntry adds cost to a log. Usually it appends an entry at now.
//
// It adds cost to the newest entry instead in two cases: the log has MaxLog entries, or the time of
// the newest entry is now or later. A later time means that the clock stepped back.
func appendEntry(s State, now, cost int64) State {
	cost = min(cost, maxCount-s.A)
	s.A += cost
	whole := int64(len(s.Log)) == s.B // false if Log has only the oldest entries
	if s.B > 0 && (now <= s.T || s.B >= MaxLog) {
		if whole {
			last := len(s.Log) - 1
			s.Log = append([]Entry(nil), s.Log...)
			s.Log[last].Units += cost
		}
		return s
	}
	s.T = now
	s.B++
	if whole {
		s.Log = append(s.Log[:len(s.Log):len(s.Log)], Entry{T: now, Units: cost})
	}
	return s
}

// Refund returns cost to the counter. A bucket never exceeds its capacity, and a count
// never goes below 0. For a sliding counter, the current window is reduced before the
// previous one. For a log, the newest entries are reduced first.
func (m *Meter) Refund(s State, cost int64) State {
	if s.Rev == 0 || cost == 0 {
		return s
	}
	switch m.Algorithm {
	case Concurrency:
		return m.RefundFor(s, cost, &Lease{})
	case FixedWindow:
		s.A = max(s.A-cost, 0)
	case SlidingWindowCounter:
		current := min(s.A, cost)
		s.A -= current
		s.B = max(s.B-(cost-current), 0)
	case SlidingWindowLog:
		s.Log = append([]Entry(nil), s.Log...)
		for cost > 0 && len(s.Log) > 0 {
			last := &s.Log[len(s.Log)-1]
			back := min(last.Units, cost)
			last.Units -= back
			s.A -= back
			cost -= back
			if last.Units == 0 {
				s.Log = s.Log[:len(s.Log)-1]
				s.B--
			}
		}
		if s.B == 0 {
			return State{}
		}
		s.T = s.Log[len(s.Log)-1].T
	default:
		if s.A+cost < m.Capacity {
			s.A += cost
		} else {
			s.A, s.B = max(s.A, m.Capacity), 0 // later numbers may have a larger capacity
		}
	}
	return s
}

// Remaining returns the number of whole units that are left, at least 0. A bucket's fraction of a
// unit is not included.
func (m *Meter) Remaining(s State, now int64) int64 {
	if m.Quota == 0 {
		return 0
	}
	return max(m.Left(s, now), 0)
}

// ResetAfter returns the time in microseconds from now until the counter is as if unused: its
// window has ended, its log is empty, or its bucket is full. With Rollover, the next window may
// then have more than its quota; see UnusedAfter.
func (m *Meter) ResetAfter(s State, now int64) int64 {
	var at int64
	switch {
	case m.Algorithm.Bucket():
		if s.A >= m.Capacity || m.P == 0 {
			return 0
		}
		at = s.T + m.flow(m.Capacity-s.A, s.B)
	case s.Rev == 0:
		return 0
	case m.Algorithm == SlidingWindowCounter && s.A > 0:
		at = s.T + 2*m.Window
	case m.Algorithm == Concurrency:
		at = s.B
	default:
		at = m.end(&s)
	}
	return min(at-now, maxForever)
}

// ResetBy reports whether the counter will be as if unused at the time at, if it is not charged
// before. It gives the same result as ResetAfter, but avoids the division for a bucket.
func (m *Meter) ResetBy(s *State, at int64) bool {
	switch {
	case !m.Algorithm.Bucket():
		return m.ResetAfter(*s, at) <= 0
	case s.A >= m.Capacity || m.P == 0:
		return true
	case at < s.T:
		return false
	}
	// The missing (Capacity-A) units have refilled if need*Q - B <= elapsed*P, because B/Q of a unit
	// has refilled already.
	needHi, needLo := bits.Mul64(uint64(m.Capacity-s.A), uint64(m.Q))
	flowHi, flowLo := bits.Mul64(uint64(at-s.T), uint64(m.P))
	flowLo, carry := bits.Add64(flowLo, uint64(s.B), 0)
	flowHi += carry
	return flowHi > needHi || flowHi == needHi && flowLo >= needLo
}

// RetryAfter returns the time in microseconds from now until cost fits, if no other request comes.
// It is 0 if cost fits now. ok is false if cost never fits.
func (m *Meter) RetryAfter(s State, now, cost int64) (micros int64, ok bool) {
	if !m.Possible(cost) {
		return 0, false
	}
	left := m.Left(s, now)
	if cost <= left {
		return 0, true
	}
	var at int64
	switch m.Algorithm {
	case FixedWindow:
		if m.Rollover > 0 {
			return m.retryRolled(&s, now, cost, left)
		}
		at = m.end(&s)
	case SlidingWindowCounter:
		at = s.T + m.untilFaded(s, cost)
	case Concurrency:
		return s.freed(now, cost-left, nil), true
	case SlidingWindowLog:
		at = s.T + m.Window
		for missing, i := cost-left, 0; i < len(s.Log); i++ {
			if missing -= s.Log[i].Units; missing <= 0 {
				at = s.Log[i].T + m.Window
				break
			}
		}
	default:
		at = s.T + m.flow(cost-left, s.B)
	}
	return min(at-now, maxForever), true
}

// untilFaded returns the time from the start of the state's window until cost fits a sliding
// counter. W is the length of the window, and P the count of the previous window.
//
// If current + cost is within the quota, cost fits in this window, once P has faded to at most A =
// quota - cost - current. That is at the least time e after the start for which floor(P*(W-e)/W) <=
// A, or P*(W-e) <= (A+1)*W - 1. Otherwise cost fits in the next window, in which the current count
// is the previous one. docs/algorithms.md derives this.
func (m *Meter) untilFaded(s State, cost int64) int64 {
	w := m.Window
	if room := m.Quota - cost - s.A; room >= 0 {
		return w - fadesTo(room, s.B, w)
	}
	room := m.Quota - cost
	if s.A <= room {
		return w
	}
	return 2*w - fadesTo(room, s.A, w)
}

// fadesTo returns floor(((room+1)*w - 1) / count), for a previous window with count units. If at
// most that much time of the current window is left, at most room of the units still count.
func fadesTo(room, count, w int64) int64 {
	quo, rem, _ := mulAddDiv(room+1, w, 0, count)
	if rem == 0 {
		return quo - 1
	}
	return quo
}

// floorMod returns the remainder of x / m in [0, m), also for a negative x.
func floorMod(x, m int64) int64 {
	r := x % m
	if r < 0 {
		r += m
	}
	return r
}
