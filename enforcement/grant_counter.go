package enforcement

import "math"

// GrantCell is the number in Key.Cell of the counters of grants. The partition of such a key is
// the ID of the grant. No limit has this number.
const GrantCell = math.MaxUint32 - 2

// grantPeriod is the Period of the counter of a grant. Such a counter has only one window, from the
// start to the end of the grant. Limits do not use this Period.
const grantPeriod Period = 255

// GrantMeter returns the meter of the counter of a grant: a fixed window whose quota is the units of the
// grant. The window begins at from and ends at until, in microseconds since the epoch. After that, no
// units are left. rev is the revision at which the grant was made.
//
// The state of the counter has the form of a calendar window: A has the units that were charged, T is
// from, and B is until - from.
func GrantMeter(units, from, until, rev int64) *Meter {
	return &Meter{
		Numbers:   Numbers{Quota: units, Window: until - from},
		Algorithm: FixedWindow, Period: grantPeriod, Edges: Edges{from, until, until}, Rev: rev, Durable: true,
	}
}

// IsGrant reports whether the meter belongs to the counter of a grant.
func (m *Meter) IsGrant() bool { return m.Period == grantPeriod }

// spentGrant returns the state of a grant that has ended: all units are charged.
func (m *Meter) spentGrant(rev int64) State {
	return State{Rev: rev, A: m.Quota, B: m.Edges[1] - m.Edges[0], T: m.Edges[0]}
}

// settleGrant does the work of settle for the counter of a grant that was charged before.
func (m *Meter) settleGrant(s *State, rev, now int64) {
	s.Rev = max(s.Rev, rev)
	if now >= m.Edges[1] {
		*s = m.spentGrant(s.Rev)
	}
}

// WithGrants returns the number of units that can be charged to a window and its grants together. left
// is what the window has left, and granted is what the grants have left. If left is below 0, the debt of
// the window does not reduce what the grants have left.
func WithGrants(left, granted int64) int64 {
	if granted == 0 {
		return left
	}
	return max(left, 0) + granted
}

// GrantsAfter counts the charges that follow charges[i] and are on the counters of its grants. It stops
// before the index to.
func GrantsAfter(charges []Charge, i, to int) (n int) {
	if charges[i].Grant {
		return 0
	}
	for i+n+1 < to && charges[i+n+1].Grant {
		n++
	}
	return n
}

// grantsLeft returns the number of units that grants have left. left counts only the grants that still
// run at the later time then. charges are on the counters of the grants, and charged are their results
// at the time at.
func grantsLeft(charges []Charge, charged []Charged, at, then int64) (left int64) {
	for i := range charges {
		if c := &charges[i]; then < c.Meter.Edges[1] {
			left += c.Meter.Remaining(charged[i].State, at)
		}
	}
	return left
}

// RetryWithGrants returns the time in microseconds from at until the window of charges[0] and its grants
// together have cost units left, if no other request comes. charges[1:] are on the counters of the
// grants. charged has the results of the charges at the time at. ok is false if the cost never fits. The
// result is at least from, which is also in microseconds from at.
//
// While time passes, grants end and none begin. The part of the cost that the window must have left
// therefore only rises, and the loop stops at the latest after the end of the last grant.
func RetryWithGrants(charges []Charge, charged []Charged, at, from, cost int64) (micros int64, ok bool) {
	m, state := charges[0].Meter, charged[0].State
	for micros = from; ; {
		granted := grantsLeft(charges[1:], charged[1:], at, at+micros)
		if m.Quota > 0 && granted > 0 && granted >= cost {
			return micros, true // whatever the window has left
		}
		next, ok := m.RetryAfter(state, at, cost-granted)
		if until := m.forgotten(&state, cost-granted); !ok || until != 0 && at+micros >= until {
			return 0, false
		}
		if next <= micros {
			return micros, true
		}
		micros = next
	}
}

// RetryOfAll returns the time in microseconds from at, at least micros, at which all windows with grants
// have their costs left together. charges are the charges of one group. If micros is a whole number of
// milliseconds, the result is too. If there is no such time, ok is false.
//
// RetryOfAll repeats its search, because grants end: a cost that fits now with a grant may not fit any
// more when another limit allows the request. Windows without grants need no search: once a cost fits
// such a window, it still fits later.
func RetryOfAll(charges []Charge, charged []Charged, at, micros int64) (later int64, ok bool) {
	for again := true; again; {
		again = false
		for i := range charges {
			n := GrantsAfter(charges, i, len(charges))
			if n == 0 {
				continue
			}
			next, ok := RetryWithGrants(charges[i:i+n+1], charged[i:i+n+1], at, micros, charged[i].Cost)
			if !ok {
				return 0, false
			}
			if next > micros {
				micros, again = (next+999)/1000*1000, true
			}
		}
	}
	return micros, true
}

// AdjustedCosts returns the cost to which a request with mode Adjust changes each charge, if the request
// has charges on the counters of grants. Without such charges, it returns nil: each charge then changes
// to its own Cost.
//
// If the cost of a window rises, the window takes what it has left. Then the grants that follow take
// what they have left, in their order. The window takes the rest. left returns the units that the
// counter of charge i has left.
func AdjustedCosts(charges []Charge, left func(i int) int64) []int64 {
	var costs []int64
	for i := range charges {
		n := GrantsAfter(charges, i, len(charges))
		if n == 0 {
			continue
		}
		if costs == nil {
			costs = make([]int64, len(charges))
			for k := range charges {
				costs[k] = charges[k].Cost
			}
		}
		more := charges[i].Cost - charges[i].Receipt.Cost
		if more <= 0 {
			continue
		}
		need := more - min(more, max(left(i), 0))
		for k := i + 1; k <= i+n && need > 0; k++ {
			taken := min(need, left(k))
			costs[k] += taken
			costs[i] -= taken
			need -= taken
		}
	}
	return costs
}
