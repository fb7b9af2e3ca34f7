package enforcement

import "math/big"

// exhaustWindows is how many windows ahead RefusesAfter looks.
const exhaustWindows = 100

// RefusesAfter is the first moment, in microseconds from now, at which a request
// of a cost would be refused if one came every so many microseconds from now on,
// and nothing else: 0 when it would be now. It is a multiple of every, and that
// of the arithmetic above to the microsecond. ok is false when none is refused.
// cost is at least 0, every at least 1.
//
// With requests numbered k = 0, 1, …, each at now + k*every, the first that is
// refused is
//
//	bucket          never, if one interval refills the cost: every*P >= cost*Q;
//	                else k = floor(((A-cost)*Q + B) / (cost*Q - every*P)) + 1
//	fixed_window    k = floor(left/cost) if that is before the window ends; else
//	                in the first window into which more than floor(Quota/cost)
//	                requests fall
//	sliding window  the least k at which (k+1)*cost, of the requests of the last
//	                window, and what is left by then of older units, is above Quota
//
// Within one window of a sliding counter what it weighs is linear in k, but for
// the rounding at the end, so that the first refusal is found by bisection.
//
// Three things are bounds. Of windows it looks a hundred ahead: a pace so close
// to the quota that only the odd one of many windows is used up counts as never.
// A state that lies ahead of a clock that went back counts as of now. Of a log
// whose entries are not all at hand (State.Log), the others count as spread
// evenly between those that are and the newest.
func (m *Meter) RefusesAfter(s State, now, cost, every int64) (micros int64, ok bool) {
	if !m.Admits(m.Left(s, now), cost) {
		return 0, true
	}
	if cost <= 0 {
		return 0, false
	}
	if s.T > now {
		cut(&s, now)
	}
	if m.Algorithm.Bucket() {
		return m.emptied(s, cost, every)
	}
	if every >= 2*m.Window { // nothing is left of one when the next comes
		return 0, false
	}
	if m.Algorithm == SlidingWindowLog {
		return m.logFull(s, now, cost, every)
	}
	return m.windowFull(s, now, cost, every)
}

// emptied is RefusesAfter of a bucket. While it empties its capacity does not
// matter: it only ever holds less than now.
func (m *Meter) emptied(s State, cost, every int64) (int64, bool) {
	product := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
	loss := product(cost, m.Q) // of one request and interval, in 1/Q of a unit
	if loss.Sub(loss, product(every, m.P)).Sign() <= 0 {
		return 0, false
	}
	held := product(s.A-cost, m.Q)
	k := held.Quo(held.Add(held, big.NewInt(s.B)), loss)
	k.Add(k, big.NewInt(1)).Mul(k, big.NewInt(every))
	if !k.IsInt64() {
		return maxForever, true
	}
	return min(k.Int64(), maxForever), true
}

// windowFull is RefusesAfter of what has windows: it goes through them.
func (m *Meter) windowFull(s State, now, cost, every int64) (int64, bool) {
	k := int64(0) // the first request that is not in a window yet
	for seen := range exhaustWindows {
		if seen >= 2 && m.bears(cost, every) {
			return 0, false
		}
		at := now + k*every
		rev := max(s.Rev, m.Rev)
		if s, _ = m.Settle(s, rev, at); s.Rev == 0 {
			s = m.Charge(s, rev, at, 1)
			s.A = 0
		}
		refused := func(j int64) bool {
			held := s
			held.A += j * cost
			return !m.Admits(m.Left(held, at+j*every), cost)
		}
		falls := (s.T + m.Window - at + every - 1) / every // requests in this window
		n := min(falls, (m.Quota-s.A)/cost+1)              // the last of which is refused if it is not the window's last
		switch {
		case refused(0):
			return k * every, true
		case refused(n - 1):
			return (k + first(n, refused)) * every, true
		}
		s.A += n * cost
		k += n
	}
	return 0, false
}

// bears reports whether no window can be used up in which nothing was charged but
// at a pace, nor in the one before. A fixed window has at most ceil(window/every)
// requests. A sliding counter never weighs more than 1 + window/every of them:
// with p of them in the previous window and o from its end to the first of this
// one, p = floor((window+o)/every), so that the mth weighs
// m+1 + p*(window-o-m*every)/window <= 1 + window/every.
func (m *Meter) bears(cost, every int64) bool {
	if m.Algorithm == FixedWindow {
		return (m.Window+every-1)/every <= m.Quota/cost
	}
	// cost*(every+window) < (quota+1)*every: less than one unit more is rounded off.
	weighs := new(big.Int).Mul(big.NewInt(cost), big.NewInt(every+m.Window))
	return weighs.Cmp(new(big.Int).Mul(big.NewInt(m.Quota+1), big.NewInt(every))) < 0
}

// first finds the least number below n of which something holds that holds of n-1,
// and of everything above one of which it holds.
func first(n int64, holds func(int64) bool) int64 {
	from, to := int64(0), n-1
	for from < to {
		if middle := from + (to-from)/2; holds(middle) {
			to = middle
		} else {
			from = middle + 1
		}
	}
	return to
}

// logFull is RefusesAfter of a log. From one request to the next that sees an
// entry leave, what is left of the older units stays as it is.
func (m *Meter) logFull(s State, now, cost, every int64) (int64, bool) {
	n := (m.Window + every - 1) / every // after so many the first of them leaves, and all older ones have
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

// spreadEntries is into how many parts the entries are put that are not at hand.
const spreadEntries = 64

// leaving gives the entries of a log, those that are not at hand in even parts.
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
