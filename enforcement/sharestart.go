package enforcement

// A ShareMemory keeps what shared counters were last seen to hold, so that this
// node's share of a limit does not start full in the middle of a window. The
// in-process limiter that is Config.Local implements it.
type ShareMemory interface {
	// Now is the clock of the local limiter, in microseconds since the epoch.
	Now() int64
	// Remember notes the state that the shared limiter returned for a charge. It
	// was settled at the instant at by that limiter's clock, and arrived at the
	// instant now by Now: the difference moves its instants onto that clock. A
	// state older than the one that is kept changes nothing; a state as new
	// removes what is kept. When the memory is full, new keys are not kept.
	Remember(c *Charge, state *State, at, now int64)
	// Start sets the local counter of a charge, whose Meter is this node's share,
	// to what StartShare makes of the state that Remember kept, and removes that
	// state: a second Start without a Remember between them changes nothing. A
	// counter that the local limiter has already becomes the Stricter of the two.
	Start(c *Charge, shared *Meter, nodes int)
}

// StartShare is the state with which the counter of one of so many nodes starts,
// by the meter share, when the shared counter of meter m was last seen in the
// state seen, whose instants are on the clock of now:
//
//	left = min(share, ceil(left of seen at now / nodes))
//
// A window keeps its start, so that it ends when the shared one would. A bucket
// refills at the share's rate from now; a debt is divided too. The previous count
// of a sliding counter is divided, rounded down, and the current count takes the
// rest; without a current count the previous one takes all. A log becomes one entry as young as the newest one seen: its units come
// back later than they would in the shared log, never sooner.
//
// The zero State means a counter as new: the share is full.
func (m *Meter) StartShare(seen State, rev, now int64, share *Meter, nodes int) State {
	if m.Algorithm == SlidingWindowLog && seen.Rev != 0 && int64(len(seen.Log)) != seen.B {
		seen.B, seen.Log = 1, []Entry{{T: seen.T, Units: seen.A}} // only the oldest entries are here
	}
	if seen, _ = m.Settle(seen, rev, now); seen.Fresh() {
		return State{}
	}
	full := share.Quota
	if share.Algorithm.Bucket() {
		full = share.Capacity
	}
	left := min(ceilDiv(m.Left(seen, now), int64(nodes)), full)
	s := State{Rev: seen.Rev, A: full - left, T: seen.T}
	switch {
	case share.Algorithm.Bucket():
		if left == full {
			return State{}
		}
		s.A = max(left, -max(full, 1))
	case share.Algorithm == SlidingWindowCounter && seen.A == 0:
		// The smallest previous count that weighs as much: floor(B*rest/W) >= A.
		rest := m.Window - max(now-s.T, 0)
		s.B, _, _ = mulAddDiv(s.A, m.Window, rest-1, rest)
		s.A = 0
	case share.Algorithm == SlidingWindowCounter:
		s.B = seen.B / int64(nodes)
		s.A = max(s.A-share.faded(&s, now), 0)
	case share.Algorithm == SlidingWindowLog:
		if s.A == 0 {
			return State{}
		}
		s.B, s.Log = 1, []Entry{{T: s.T, Units: s.A}}
	}
	return s
}

// Stricter is a state that leaves no more than either of two, both settled at
// now: of buckets the lower level, else the one that ends later, charged what the
// other leaves less.
func (m *Meter) Stricter(a, b State, rev, now int64) State {
	switch {
	case a.Fresh():
		return b
	case b.Fresh():
		return a
	case m.Algorithm.Bucket():
		return State{Rev: max(a.Rev, b.Rev), A: min(a.A, b.A), B: min(a.B, b.B), T: max(a.T, b.T)}
	case b.T > a.T:
		a, b = b, a
	}
	return m.Charge(a, rev, now, max(m.Left(a, now)-m.Left(b, now), 0))
}

// ceilDiv is a / b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return a / b
	}
	return (a-1)/b + 1
}
