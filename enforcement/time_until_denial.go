package enforcement

import "math/big"

// maxWindowsAhead is the number of windows that DeniedAfter simulates before it stops.
const maxWindowsAhead = 100

// DeniedAfter returns the time in microseconds from now until the first denied
// request, if requests of one cost come at now, now + every, now + 2*every, and so
// on, and no other requests come. The result is a multiple of every, or 0 if the
// request at now is denied. ok is false if no request is denied. cost is at least
// 0, and every at least 1 microsecond.
//
// The first denied request k is, counted from 0:
//
//	bucket          none if one interval refills the cost: every*P >= cost*Q;
//	                otherwise k = floor(((left-cost)*Q + B) / (cost*Q - every*P)) + 1
//	fixed_window    k = floor(left/cost) if that is before the window ends; otherwise
//	                in the first window that has more than floor(Quota/cost) requests
//	sliding window  the least k for which (k+1)*cost, of the requests in the last
//	                window, plus the older units that still count, is above Quota
//
// The usage of a sliding counter is linear in k within one window, except for
// rounding. Therefore bisection finds the first denial.
//
// For concurrency, ok is false unless the request at now is denied, because the time at
// which a holder releases its places is not known.
//
// DeniedAfter approximates in three cases:
//
//   - It looks a hundred windows ahead. If the pace is so close to the quota that
//     no earlier window is used up, it returns false.
//   - A state in the future, after the clock stepped back, counts as of now.
//   - If State.Log does not have all entries of a log, the missing entries count as
//     spread evenly between the last one in State.Log and the newest one.
func (m *Meter) DeniedAfter(s State, now, cost, every int64) (micros int64, ok bool) {
	if !m.Admits(m.Left(s, now), cost) {
		return 0, true
	}
	if cost <= 0 || m.Algorithm == Concurrency {
		return 0, false
	}
	if s.T > now {
		m.cut(&s, now)
	}
	if m.Algorithm.Bucket() {
		return m.bucketEmpty(s, cost, every)
	}
	if every >= 2*m.Window { // each request has left the window when the next one comes
		return 0, false
	}
	if m.Algorithm == SlidingWindowLog {
		return m.logFull(s, now, cost, every)
	}
	return m.windowFull(s, now, cost, every)
}

// bucketEmpty is DeniedAfter for a bucket. If one interval refills less than the cost,
// the level only falls, so the capacity does not matter.
func (m *Meter) bucketEmpty(s State, cost, every int64) (int64, bool) {
	product := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	loss := product(cost, m.Q) // first the cost of one interval, then minus the refill: the loss, in 1/Q of a unit
	if loss.Sub(loss, product(every, m.P)).Sign() <= 0 {
		return 0, false
	}
	level := product(m.Left(s, s.T)-cost, m.Q)
	k := level.Quo(level.Add(level, big.NewInt(s.B)), loss)
	k.Add(k, big.NewInt(1)).Mul(k, big.NewInt(every))
	if !k.IsInt64() {
		return maxForever, true
	}
	return min(k.Int64(), maxForever), true
}

// windowFull is DeniedAfter for fixed windows and sliding counters. It simulates the
// requests of one window after the other.
func (m *Meter) windowFull(s State, now, cost, every int64) (int64, bool) {
	k := int64(0) // number of the first request in the window that is simulated
	for seen := range maxWindowsAhead {
		if seen >= 2 && m.sustains(cost, every) {
			return 0, false
		}
		at := now + k*every
		rev := max(s.Rev, m.Rev)
		if s, _ = m.Settle(s, rev, at); s.Rev == 0 {
			s = m.Charge(s, rev, at, 1)
			s.A = 0
		}
		denied := func(j int64) bool {
			charged := s
			charged.A += j * cost
			return !m.Admits(m.Left(charged, at+j*every), cost)
		}
		inWindow := (m.end(&s) - at + every - 1) / every          // number of requests in this window
		n := min(inWindow, (m.Quota+m.RolledOver(&s)-s.A)/cost+1) // requests to simulate; if below inWindow, the last is denied
		switch {
		case denied(0):
			return k * every, true
		case denied(n - 1):
			return (k + first(n, denied)) * every, true
		}
		s.A += n * cost
		k += n
	}
	return 0, false
}

// sustains reports whether requests at this pace never use up a window, if this window
// and the previous one have no other requests.
//
// In a fixed window, there are at most ceil(window/every) requests. In a sliding
// counter, the usage is at most 1 + window/every requests. Proof: the previous window
// has p requests, and the first request of this window comes at the time o after its
// start. Then p = floor((window+o)/every), and at the m-th request (from 0) the usage
// is m+1 + p*(window-o-m*every)/window <= 1 + window/every.
func (m *Meter) sustains(cost, every int64) bool {
	if m.Algorithm == FixedWindow {
		return (m.Window+every-1)/every <= m.Quota/cost
	}
	// The usage stays within the quota if cost*(every+window) < (quota+1)*every. The quota
	// has 1 added, because rounding removes less than one unit.
	usage := new(big.Int).Mul(big.NewInt(cost), big.NewInt(every+m.Window))
	return usage.Cmp(new(big.Int).Mul(big.NewInt(m.Quota+1), big.NewInt(every))) < 0
}

// first searches the numbers from 0 to n-1 for the least number for which a condition
// is true, by bisection. The condition must be true for n-1. If it is true for a
// number, it must be true for all larger numbers.
func first(n int64, condition func(int64) bool) int64 {
	from, to := int64(0), n-1
	for from < to {
		if middle := from + (to-from)/2; condition(middle) {
			to = middle
		} else {
			from = middle + 1
		}
	}
	return to
}

// logFull is DeniedAfter for a log. Between two times at which old entries leave the
// window, the units of the old entries do not change.
func (m *Meter) logFull(s State, now, cost, every int64) (int64, bool) {
	n := (m.Window + every - 1) / every // number of requests in one window: request n comes when request 0 leaves
	older, from := s.A, int64(0)
	for _, e := range m.leaving(&s, now) {
		to := min((e.T+m.Window-now+every-1)/every, n)
		if k := max(from, (m.Quota-older)/cost); k < to {
			return k * every, true
		}
		older, from = older-e.Units, max(from, to)
	}
	if k := max(from, m.Quota/cost); k < n {
		return k * every, true
	}
	return 0, false
}

// spreadEntries is the maximum number of entries that leaving adds in place of the
// entries that State.Log does not have.
const spreadEntries = 64

// leaving returns the entries of a log in the order in which they leave the window. If
// State.Log does not have all entries, leaving adds up to spreadEntries evenly spaced
// entries in place of the missing ones.
func (m *Meter) leaving(s *State, now int64) []Entry {
	missing := s.B - int64(len(s.Log))
	if missing <= 0 {
		return s.Log
	}
	from, units := now-m.Window, s.A
	for _, e := range s.Log {
		from, units = e.T, units-e.Units
	}
	list, parts := s.Log[:len(s.Log):len(s.Log)], min(missing, spreadEntries)
	for i := range parts {
		list = append(list, Entry{T: from + (s.T-from)*(i+1)/parts, Units: units*(i+1)/parts - units*i/parts})
	}
	return list
}
