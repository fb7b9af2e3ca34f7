package enforcement

// A ShareMemory stores the last known states of shared counters. When the shared limiter
// becomes unavailable, this node decides with its share of each quota, and the local counters
// start from these states. Without the states, the local counters would start full, although a
// part of the quota has been used. The in-process limiter in Config.Local implements
// ShareMemory.
type ShareMemory interface {
	// Now returns the time of the local limiter's clock, in microseconds since the epoch.
	Now() int64
	// Remember stores the state of a counter that the shared limiter returned for a
	// charge. The state was settled at the time at by the clock of the shared limiter.
	// It arrived at the time now by the clock of this ShareMemory. Remember corrects
	// the times in the state by the difference of the clocks. It ignores a state that
	// is older than the stored one. A state that is Fresh removes the stored one. If
	// the memory is full, Remember ignores new keys.
	Remember(c *Charge, state *State, at, now int64)
	// Start sets the local counter of a charge to StartShare of the remembered state, and then
	// deletes the remembered state. The Meter of the charge belongs to this node's share; shared
	// is the meter of the shared counter. If the local limiter already has the counter, Start
	// sets it to the Stricter of both states. If Start is called again before Remember, it
	// changes nothing. found is true if there was a remembered state; seen is that state, with
	// times by the clock of this ShareMemory.
	Start(c *Charge, shared *Meter, nodes int) (seen State, found bool)
}

// wholeLog returns the remembered state of a log with all its units in Log. A ShareMemory does
// not store the entries of a log. Therefore wholeLog makes one entry with all units, at the
// time of the newest entry.
func (m *Meter) wholeLog(seen State) State {
	if m.Algorithm == SlidingWindowLog && seen.Rev != 0 && int64(len(seen.Log)) != seen.B {
		seen.B, seen.Log = 1, []Entry{{T: seen.T, Units: seen.A}}
	}
	return seen
}

// StartShare returns the first state of a local counter. share is the meter of one
// node's share. m is the meter of the shared counter, whose last known state is
// seen, with instants on the clock of now. The share has
//
//	left = min(share, ceil(left of seen at now / nodes))
//
// units left. A window keeps its start, so that it ends when the shared one does.
// A bucket refills from now at the rate of the share; its debt is divided too. The
// previous count of a sliding counter is divided and rounded down, and the current
// count gets the rest. Without a current count, the previous one gets everything. A
// log becomes one entry at the instant of its newest entry: its units return later
// than in the shared log, never sooner. In the same way, the leases of a concurrency
// limit become one lease until the last of them ends.
//
// The zero State means that the share is full.
func (m *Meter) StartShare(seen State, rev, now int64, share *Meter, nodes int) State {
	if seen, _ = m.Settle(m.wholeLog(seen), rev, now); seen.Fresh() {
		return State{}
	}
	full := share.Quota
	if share.Algorithm.Bucket() {
		full = share.Burst()
	}
	full += share.Rollover
	left := min(ceilDiv(m.Left(seen, now), int64(nodes)), full)
	s := State{Rev: seen.Rev, A: full - left, T: seen.T}
	switch {
	case share.Period != NoPeriod:
		rolled := max(left-share.Quota, 0)
		s.A = share.Quota + rolled - left
		s.setWindow(calendarWindow{length: m.end(&seen) - seen.T, rolled: rolled})
	case share.Algorithm.Bucket():
		if left == full {
			return State{}
		}
		s.A = max(left, -max(full, 1)) - share.Queue
	case share.Algorithm == SlidingWindowCounter && seen.A == 0:
		// A has to be counted, but only the previous count can be charged. Compute the least
		// previous count B that still counts as at least A: floor(B*rest/W) >= A.
		rest := m.Window - max(now-s.T, 0)
		s.B, _, _ = mulAddDiv(s.A, m.Window, rest-1, rest)
		s.A = 0
	case share.Algorithm == SlidingWindowCounter:
		s.B = seen.B / int64(nodes)
		s.A = max(s.A-share.faded(&s, now), 0)
	case s.A == 0 && (share.Algorithm == SlidingWindowLog || share.Algorithm == Concurrency):
		return State{}
	case share.Algorithm == SlidingWindowLog:
		s.B, s.Log = 1, []Entry{{T: s.T, Units: s.A}}
	case share.Algorithm == Concurrency:
		s.B, s.Holders = seen.B, []Holder{{Until: seen.B, Units: s.A}}
	}
	return s
}

// Stricter combines two states, both settled at now, into one that has no more units left than
// each of them. For buckets, it takes the lower level. For windows and logs, it takes the
// state that ends later, and charges more to it if the other state has less left. For
// concurrency, it adds a lease without an ID instead, until the other state ends.
func (m *Meter) Stricter(a, b State, rev, now int64) State {
	switch {
	case a.Fresh():
		return b
	case b.Fresh():
		return a
	case m.Algorithm.Bucket():
		return State{Rev: max(a.Rev, b.Rev), A: min(a.A, b.A), B: min(a.B, b.B), T: max(a.T, b.T)}
	case m.Algorithm == Concurrency:
		if b.B > a.B {
			a, b = b, a
		}
		return a.holdMore(m.Left(a, now)-m.Left(b, now), b.B)
	case b.T > a.T:
		a, b = b, a
	}
	return m.Charge(a, rev, now, max(m.Left(a, now)-m.Left(b, now), 0))
}

// ceilDiv returns a / b rounded up. b is above 0.
func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return a / b
	}
	return (a-1)/b + 1
}
