package enforcement

import "math/bits"

// The algorithms, as integer functions of (state, now, cost). They are the
// reference: the in-process limiter calls them; the scripts of redis
// translate Settle, Left and Charge, and what a caller is told (Remaining,
// ResetAfter, RetryAfter) is computed here from the states that it returns.
//
// Every function but Settle takes a settled state: what Settle made of the
// stored one at the same now.

// Settle brings a stored state to the instant now: it converts what older
// numbers wrote, rolls windows that are over, drops entries that have left and
// refills buckets. A time before the stored one counts as the stored one.
//
// rev is the revision of the numbers in force for the caller: m.Rev, or a
// later one when the tenant came to them later.
//
// clamped is true when the stored state lay further in the future than one
// window (a bucket: than the time to fill it). It is then cut to now, and must
// be stored even by a refusal, so that nobody waits longer than one window
// more after a clock was set back.
func (m *Meter) Settle(s State, rev, now int64) (settled State, clamped bool) {
	clamped = m.settle(&s, rev, now)
	return s, clamped
}

// Spend settles s, charges cost if it fits, and reports whether it did. write is
// true when the result has to be stored: s was charged or clamped. It is Settle,
// Left, Admits and Charge on the State of the caller, without a copy of it.
func (m *Meter) Spend(s *State, rev, now, cost int64) (fits, write bool) {
	write = m.settle(s, rev, now)
	if fits = m.Admits(m.left(s, now), cost); fits && cost > 0 {
		m.charge(s, rev, now, cost)
		write = true
	}
	return fits, write
}

// settle is Settle in place.
func (m *Meter) settle(s *State, rev, now int64) (clamped bool) {
	if s.Rev == 0 || s.A < 0 && !m.Algorithm.Bucket() { // no window and no log ever held less than nothing
		*s = m.fresh(rev, now)
		return false
	}
	if s.T > now && s.T > now+m.horizon() { // the first comparison needs no division
		cut(s, now)
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
		gone := 0
		for gone < len(s.Log) && max(now, s.T)-s.Log[gone].T >= m.Window {
			s.A -= s.Log[gone].Units
			gone++
		}
		s.Log = s.Log[gone:]
		s.B -= int64(gone)
		if s.B == 0 {
			*s = State{}
			return false
		}
	default:
		if s.Rev != rev || s.A >= m.Capacity { // else there is nothing to convert
			*s = m.convert(*s, rev, now)
		}
		if s.B >= m.Q {
			s.B = 0 // no meter stores a fraction of a unit or more
		}
		if now > s.T {
			s.A, s.B = refill(s.A, s.B, now-s.T, &m.Numbers)
			s.T = now
		}
		if s.Rev > rev {
			s.B = 0 // a fraction of this caller's Q: the next reader would take it for one of the later Q
		}
	}
	s.Rev = max(s.Rev, rev)
	return clamped
}

// fresh is the settled form of a counter as new. Windows and logs have none.
func (m *Meter) fresh(rev, now int64) State {
	if !m.Algorithm.Bucket() {
		return State{}
	}
	return State{Rev: rev, A: m.Capacity, T: now}
}

// horizon is how far in the future a state may lie and be believed.
func (m *Meter) horizon() int64 {
	if !m.Algorithm.Bucket() || m.P == 0 {
		return m.Window
	}
	return m.flow(m.Capacity, 0)
}

// flow is how long a bucket needs for need units when it has b/Q of one
// already: ceil((need*Q - b) / P) microseconds, at most maxForever.
func (m *Meter) flow(need, b int64) int64 {
	// ceil((x - b) / P) = floor((x + (P - 1 - b)) / P); b < Q <= x keeps it positive.
	quo, rem, ok := mulAddDiv(need, m.Q, 0, m.P)
	if !ok || quo >= maxForever {
		return maxForever
	}
	// (quo*P + rem - b) / P, rounded up, in two steps so that nothing overflows.
	back := b - rem
	if back > 0 {
		return quo - back/m.P
	}
	return quo + (-back+m.P-1)/m.P
}

// refill lets elapsed microseconds flow into a bucket, up to its capacity. The
// fraction stays as a numerator over Q, so that no rate drifts.
func refill(a, b, elapsed int64, n *Numbers) (int64, int64) {
	if n.P == 0 {
		return a, b
	}
	if hi, lo := bits.Mul64(uint64(elapsed), uint64(n.P)); hi == 0 && lo < uint64(n.Q) && b < n.Q-int64(lo) && a < n.Capacity {
		return a, b + int64(lo) // less than one unit flowed: no division
	}
	units, fraction, ok := mulAddDiv(elapsed, n.P, b, n.Q)
	if !ok || units >= n.Capacity-a {
		return n.Capacity, 0
	}
	return a + units, fraction
}

// convert makes a bucket that other numbers wrote readable by these: it flows
// at the former rates as long as they held, keeps its units, and is cut to the
// new capacity. A fraction that cannot be read is dropped. State of a later
// revision than the caller's keeps its units too: only its fraction is lost.
func (m *Meter) convert(s State, rev, now int64) State {
	held := s.Rev // the revision whose Q the fraction counts in
	if s.Rev < rev && rev == m.Rev {
		for i := range m.Formers {
			f, next, nextRev := &m.Formers[i], &m.Numbers, m.Rev
			if i+1 < len(m.Formers) {
				next, nextRev = &m.Formers[i+1].Numbers, m.Formers[i+1].Rev
			}
			if nextRev <= s.Rev {
				continue
			}
			if held != f.Rev {
				s.B = 0
			}
			if s.A >= f.Capacity {
				s.A, s.B = f.Capacity, 0
			}
			if until := min(f.Until, now); until > s.T {
				s.A, s.B = refill(s.A, s.B, until-s.T, &f.Numbers)
				s.T = until
			}
			s.B, _, _ = mulAddDiv(s.B, next.Q, 0, f.Q)
			held = nextRev
		}
	}
	if held != rev {
		s.B = 0
	}
	if s.A >= m.Capacity {
		s.A, s.B = m.Capacity, 0
	}
	return s
}

// cut brings a state from the future to now; its count or level stays.
func cut(s *State, now int64) {
	s.T = now
	if len(s.Log) > 0 {
		entries := make([]Entry, len(s.Log))
		for i, e := range s.Log {
			entries[i] = Entry{T: min(e.T, now), Units: e.Units}
		}
		s.Log = entries
	}
}

// Left is how many units can be charged at once; below 0 when more was used
// than the numbers now allow.
func (m *Meter) Left(s State, now int64) int64 { return m.left(&s, now) }

// left is Left without a copy of the state.
func (m *Meter) left(s *State, now int64) int64 {
	if m.Algorithm.Bucket() {
		return s.A
	}
	if s.Rev == 0 {
		return m.Quota
	}
	if m.Algorithm == SlidingWindowCounter {
		return m.Quota - s.A - m.faded(s, now)
	}
	return m.Quota - s.A
}

// faded is what the previous window still weighs: floor(previous * (window -
// elapsed) / window).
func (m *Meter) faded(s *State, now int64) int64 {
	if s.B == 0 {
		return 0
	}
	elapsed := max(now, s.T) - s.T
	weight, _, _ := mulAddDiv(s.B, m.Window-elapsed, 0, m.Window)
	return weight
}

// Admits reports whether cost fits. Quota 0 admits nothing, not even cost 0.
func (m *Meter) Admits(left, cost int64) bool { return m.Quota > 0 && cost <= left }

// Possible reports whether cost could ever fit.
func (m *Meter) Possible(cost int64) bool {
	if m.Algorithm.Bucket() {
		return m.Quota > 0 && cost <= m.Capacity
	}
	return m.Quota > 0 && cost <= m.Quota
}

// Charge takes cost without asking whether it fits: a caller that did not ask
// Admits forces it. A cost of 0 changes nothing and opens nothing. A forced
// count stops at 10^15, a bucket's debt at one capacity, and a full log adds to
// its newest entry.
func (m *Meter) Charge(s State, rev, now, cost int64) State {
	if cost != 0 {
		m.charge(&s, rev, now, cost)
	}
	return s
}

// charge is Charge in place, of a cost above 0.
func (m *Meter) charge(s *State, rev, now, cost int64) {
	if s.Rev == 0 { // windows and logs only: a settled bucket is never without a state
		*s = State{Rev: rev, T: now}
		if m.Anchor == Clock && m.Algorithm.Windowed() {
			s.T = now - floorMod(now, m.Window)
		}
	}
	switch {
	case m.Algorithm.Bucket():
		s.A = max(s.A-cost, -max(m.Capacity, 1))
	case m.Algorithm == SlidingWindowLog:
		*s = appendEntry(*s, now, cost)
	default:
		s.A = min(s.A+cost, maxCount)
	}
}

// appendEntry adds to a log, at the newest entry when it is of this instant (or
// later: the clock went back) or when the log is full.
func appendEntry(s State, now, cost int64) State {
	cost = min(cost, maxCount-s.A)
	s.A += cost
	whole := int64(len(s.Log)) == s.B // otherwise only the oldest entries are here
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

// Refund gives back cost: a bucket up to its capacity, a count down to 0, the
// current window before the previous one, and a log's newest entries first.
func (m *Meter) Refund(s State, cost int64) State {
	if s.Rev == 0 || cost == 0 {
		return s
	}
	switch m.Algorithm {
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
		if s.A += cost; s.A >= m.Capacity {
			s.A, s.B = m.Capacity, 0
		}
	}
	return s
}

// Remaining is what is really left, never negative; of a bucket, whole units.
func (m *Meter) Remaining(s State, now int64) int64 {
	if m.Quota == 0 {
		return 0
	}
	return max(m.Left(s, now), 0)
}

// ResetAfter is how long, in microseconds from now, until the counter is as new.
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
	default:
		at = s.T + m.Window
	}
	return min(at-now, maxForever)
}

// ResetBy reports whether the counter is as new at the instant at: what
// ResetAfter would tell, without the division of a bucket.
func (m *Meter) ResetBy(s *State, at int64) bool {
	switch {
	case !m.Algorithm.Bucket():
		return m.ResetAfter(*s, at) <= 0
	case s.A >= m.Capacity || m.P == 0:
		return true
	case at < s.T:
		return false
	}
	// (Capacity-A) units less B/Q of one have flowed: need*Q - B <= elapsed*P.
	needHi, needLo := bits.Mul64(uint64(m.Capacity-s.A), uint64(m.Q))
	flowHi, flowLo := bits.Mul64(uint64(at-s.T), uint64(m.P))
	flowLo, carry := bits.Add64(flowLo, uint64(s.B), 0)
	flowHi += carry
	return flowHi > needHi || flowHi == needHi && flowLo >= needLo
}

// RetryAfter is the first moment, in microseconds from now, at which cost would
// be admitted if nothing else came: 0 when it would be now. ok is false when it
// never can.
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
		at = s.T + m.Window
	case SlidingWindowCounter:
		at = s.T + m.untilFaded(s, cost)
	case SlidingWindowLog:
		at = s.T + m.Window
		for missing, i := cost-left, 0; i < len(s.Log); i++ {
			if missing -= s.Log[i].Units; missing <= 0 {
				at = s.Log[i].T + m.Window
				break
			}
		}
	default:
		at = s.T + m.flow(cost-s.A, s.B)
	}
	return min(at-now, maxForever), true
}

// untilFaded is the elapsed time of the state's window at which cost fits: in
// this window when current + cost is within the quota, once the previous one
// has faded to A = quota - cost - current, which is at the smallest e with
// floor(P*(W-e)/W) <= A, that is P*(W-e) <= (A+1)*W - 1; else in the next
// window, by the same rule with the roles moved. [docs/algorithms.md]
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

// fadesTo is floor(((room+1)*w - 1) / count): how much of the window may remain
// while count weighs no more than room.
func fadesTo(room, count, w int64) int64 {
	quo, rem, _ := mulAddDiv(room+1, w, 0, count)
	if rem == 0 {
		return quo - 1
	}
	return quo
}

// floorMod is the remainder in [0, m), also for times before the epoch.
func floorMod(x, m int64) int64 {
	r := x % m
	if r < 0 {
		r += m
	}
	return r
}
