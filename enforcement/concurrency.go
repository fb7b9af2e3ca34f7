package enforcement

import "slices"

// MaxLeases is the largest number of leases on one counter of a concurrency limit, and
// the largest quota of such a limit.
const MaxLeases = 1_000

// A Lease is the part of a request that describes its places on concurrency limits: under which
// ID the request holds them, and for how long. A request with cost n takes n places.
type Lease struct {
	// ID identifies the lease on each counter. If a lease with this ID exists and has not ended,
	// the request renews it: the cost and the TTL of the request replace its places and its end.
	ID [16]byte
	// TTL is the time to live in microseconds, from the decision on. 0 stands for the window
	// of the limit.
	TTL int64
}

// A Holder is a lease on a counter.
type Holder struct {
	ID    [16]byte
	Until int64 // the end of the lease, in microseconds since the epoch; at this time its places are free
	Units int64 // the places that the lease holds
}

// LeftFor returns the largest cost that a request with this lease can be charged now. It
// differs from Left only for a concurrency limit on which the lease already holds places. Those
// places count as free, because the request keeps them instead of taking others. The request
// may keep them even if more places are held than the quota now allows.
func (m *Meter) LeftFor(s *State, now int64, l *Lease) int64 {
	left := m.left(s, now)
	if m.Algorithm != Concurrency {
		return left
	}
	if own := s.unitsOf(l.ID); own > 0 {
		return own + max(left, 0)
	}
	return left
}

// ChargeFor is Charge for a request with a lease. Only a concurrency limit uses the lease:
// after the charge, the lease holds as many places as the cost. If the counter already has
// MaxLeases other leases, the state does not change. Only forced charges can lead to so many
// leases.
func (m *Meter) ChargeFor(s State, rev, now, cost int64, l *Lease) State {
	if m.Algorithm != Concurrency {
		return m.Charge(s, rev, now, cost)
	}
	if cost == 0 {
		return s
	}
	if s.Rev == 0 {
		s = State{Rev: rev, T: now}
	}
	holders := s.withoutHolder(l.ID)
	if len(holders) >= MaxLeases {
		return s
	}
	s.A -= s.unitsOf(l.ID)
	s.T = max(s.T, now)
	h := Holder{ID: l.ID, Until: s.T + l.TTL, Units: min(cost, MaxCost)}
	if l.TTL == 0 {
		h.Until = s.T + m.Window
	}
	s.Holders = insertHolder(holders, h)
	s.A += h.Units
	s.B = s.Holders[len(s.Holders)-1].Until
	return s
}

// Release ends a lease on a counter. units is the number of places that the lease held, or 0 if
// there is no such lease. For algorithms other than concurrency, Release changes nothing.
func (m *Meter) Release(s State, id [16]byte) (released State, units int64) {
	if m.Algorithm != Concurrency {
		return s, 0
	}
	if units = s.unitsOf(id); units == 0 {
		return s, 0
	}
	if s.Holders = s.withoutHolder(id); len(s.Holders) == 0 {
		return State{}, units
	}
	s.A -= units
	s.B = s.Holders[len(s.Holders)-1].Until
	return s, units
}

// RefundFor is Refund for a request with a lease. For a concurrency limit, it frees up to cost
// places of the lease.
func (m *Meter) RefundFor(s State, cost int64, l *Lease) State {
	if m.Algorithm != Concurrency {
		return m.Refund(s, cost)
	}
	own := s.unitsOf(l.ID)
	if cost >= own {
		s, _ = m.Release(s, l.ID)
		return s
	}
	s.Holders = slices.Clone(s.Holders)
	for i := range s.Holders {
		if s.Holders[i].ID == l.ID {
			s.Holders[i].Units -= cost
			s.A -= cost
		}
	}
	return s
}

// RetryAfterFor is RetryAfter for a request with a lease. For a concurrency limit, it returns
// the time until enough leases have expired. That is the longest possible wait, because leases
// may be released earlier.
func (m *Meter) RetryAfterFor(s State, now, cost int64, l *Lease) (micros int64, ok bool) {
	if m.Algorithm != Concurrency {
		return m.RetryAfter(s, now, cost)
	}
	if !m.Possible(cost) {
		return 0, false
	}
	if cost <= m.LeftFor(&s, now, l) {
		return 0, true
	}
	return s.freed(now, s.A-s.unitsOf(l.ID)+cost-m.Quota, l), true
}

// freed returns the time in microseconds from now until so many leases have expired that the
// missing number of places is free. It skips the lease l of the request, because the request
// already counts the places of l as free. l may be nil.
func (s *State) freed(now, missing int64, l *Lease) int64 {
	at := s.B
	for _, h := range s.Holders {
		if l != nil && h.ID == l.ID {
			continue
		}
		if missing -= h.Units; missing <= 0 {
			at = h.Until
			break
		}
	}
	return min(at-now, maxForever)
}

// endLeases removes the leases that have expired. A state without Holders does not say which
// leases it has. All its places then stay held until s.B, the end of the last lease.
func (s *State) endLeases(now int64) {
	seen, ended := max(now, s.T), 0
	for ended < len(s.Holders) && s.Holders[ended].Until <= seen {
		s.A -= s.Holders[ended].Units
		ended++
	}
	if s.Holders = s.Holders[ended:]; s.B <= seen {
		*s = State{}
	}
}

// holdMore returns the state with units more places held until the given time. It adds the
// places to the lease whose ID is zero. If units is below 1, the state does not change.
func (s State) holdMore(units, until int64) State {
	if units < 1 {
		return s
	}
	h := Holder{Until: until, Units: units}
	at := slices.IndexFunc(s.Holders, func(h Holder) bool { return h.ID == [16]byte{} })
	if at >= 0 {
		h.Until, h.Units = max(until, s.Holders[at].Until), units+s.Holders[at].Units
	}
	s.Holders = insertHolder(s.withoutHolder(h.ID), h)
	s.A += units
	s.B = s.Holders[len(s.Holders)-1].Until
	return s
}

// insertHolder inserts a lease into a list in the order in which the leases end.
func insertHolder(list []Holder, h Holder) []Holder {
	at := len(list)
	for at > 0 && list[at-1].Until > h.Until {
		at--
	}
	return slices.Insert(list, at, h)
}

// unitsOf returns the number of places that the lease with this ID holds, or 0.
func (s *State) unitsOf(id [16]byte) int64 {
	for i := range s.Holders {
		if s.Holders[i].ID == id {
			return s.Holders[i].Units
		}
	}
	return 0
}

// withoutHolder returns a copy of the leases without the lease that has this ID.
func (s *State) withoutHolder(id [16]byte) []Holder {
	holders := make([]Holder, 0, len(s.Holders)+1)
	for _, h := range s.Holders {
		if h.ID != id {
			holders = append(holders, h)
		}
	}
	return holders
}
