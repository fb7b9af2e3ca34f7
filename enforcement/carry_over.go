package enforcement

import (
	"slices"

	"github.com/headgate/headgate/internal/problem"
)

// A CarryOver determines what happens to the counters of a limit when a new version of the plan changes the quota,
// the window or the burst of the limit. The CarryOver in the new version applies.
//
// A counter is carried over once for each change: when a limiter first settles its state with the new numbers. The
// state then has the revision of the change. A node that still has the former numbers does not convert such a
// state.
type CarryOver uint8

// The ways to carry a counter over. In the formulas, "limit" is the quota of a window or a log, and the burst of a
// bucket. All results are rounded so that the caller has less left, not more.
const (
	// CarryKeep keeps the count of a window, the entries of a log, and the units left in a bucket,
	// at most the new burst.
	CarryKeep CarryOver = iota
	// CarryReset makes the counter an unused one. Charges after the change stay: the count of a
	// window that began after it, and later entries of a log. A bucket is reset only if it was
	// last charged at most resetWithin after the change.
	CarryReset
	// CarryProportional keeps the used share of the limit: used units become ceil(used * new limit / former limit). A
	// fraction of a unit in a bucket is lost. Charges after the change are not scaled; CarryReset defines which ones
	// these are. If one of the limits is 0, CarryProportional is the same as CarryKeep.
	CarryProportional
	// CarryAdditive adds the difference of the limits to what was left, so that the used units stay. The result can
	// be below 0 for a bucket. For windows and logs, or if one of the limits is 0, CarryAdditive is the same as
	// CarryKeep.
	CarryAdditive
)

var carryOverNames = [...]string{"keep", "reset", "proportional", "additive"}

// resetWithin is the time in microseconds after a change within which a bucket can be reset.
//
// The state of a bucket does not say whether the bucket was charged before or after the change. A node that does
// not have the change yet may charge it after the change. To reset each bucket only once, Redis and the in-process
// limiter store an unused bucket for at least this time. Otherwise a bucket could be reset, expire, be created
// again by such a node, and be reset a second time.
const resetWithin = 1_000_000

// String returns the value of carry_over in the API, for example "keep".
func (c CarryOver) String() string {
	if int(c) < len(carryOverNames) {
		return carryOverNames[c]
	}
	return carryOverNames[CarryKeep]
}

// ParseCarryOver returns the carry-over that has this name in the API. It returns false if there is none.
func ParseCarryOver(name string) (CarryOver, bool) {
	i := slices.Index(carryOverNames[:], name)
	return CarryOver(max(i, 0)), i >= 0
}

const carryOverUnknown = "must be keep, reset, proportional or additive"

func (l Limit) validateCarryOver() (f problem.Fields) {
	switch {
	case l.CarryOver > CarryAdditive:
		f.Add("/carry_over", "%s", carryOverUnknown)
	case l.CarryOver == CarryProportional && l.Algorithm == LeakyBucket:
		f.Add("/carry_over", "must be keep, reset or additive: the requests that wait in a leaky_bucket stay as many")
	case l.CarryOver != CarryKeep && l.Algorithm == Concurrency:
		f.Add("/carry_over", "must be keep, or left out: a concurrency limit counts the places that are held now")
	}
	return f
}

// changes calls change for each change of a limit's Numbers after the revision stored, the oldest first. former
// has the numbers before the change, next has the numbers after it, and nextRev is the revision of next. rev is
// the revision of the caller. If the caller does not have the revision of m, changes does nothing.
func (m *Meter) changes(stored, rev int64, change func(former *Former, next *Numbers, nextRev int64)) {
	if stored >= rev || rev != m.Rev {
		return
	}
	for i := range m.Formers {
		next, nextRev := &m.Numbers, m.Rev
		if i+1 < len(m.Formers) {
			next, nextRev = &m.Formers[i+1].Numbers, m.Formers[i+1].Rev
		}
		if nextRev > stored {
			change(&m.Formers[i], next, nextRev)
		}
	}
}

// Carries reports whether a change of the numbers can change the count of a window or the entries
// of a log.
func (m *Meter) Carries() bool {
	return slices.ContainsFunc(m.Formers, func(f Former) bool { return f.CarryOver == CarryReset || f.CarryOver == CarryProportional })
}

// Carried reports whether a change after the revision stored can have reset or scaled the count of a window, the
// entries of a log, or the level of a bucket. Charges from before the change must then not be returned: the
// counter may no longer have them, or only a part of them.
func (m *Meter) Carried(stored, rev int64) (carried bool) {
	m.changes(stored, rev, func(f *Former, _ *Numbers, _ int64) {
		carried = carried || f.CarryOver == CarryReset || f.CarryOver == CarryProportional
	})
	return carried
}

// carryCounts carries the state of a window or a log over to the numbers in force. It returns false if the state
// has become the zero State, because no units are left in it. For buckets, convert does this.
func (m *Meter) carryCounts(s *State, rev int64) bool {
	if len(m.Formers) == 0 || m.Algorithm.Bucket() {
		return true
	}
	m.changes(s.Rev, rev, func(f *Former, next *Numbers, _ int64) {
		if s.Rev == 0 || f.CarryOver != CarryReset && f.CarryOver != CarryProportional {
			return
		}
		share := func(units int64) int64 { return f.carry(units, next) }
		switch {
		case m.Algorithm == Concurrency: // validate rejects it
		case m.Algorithm == SlidingWindowLog:
			carryLog(s, f.Until, share)
		case s.T < f.Until && f.CarryOver == CarryReset:
			*s = State{}
		default:
			if m.Algorithm == SlidingWindowCounter && s.T-f.Window < f.Until { // the start of the previous window
				s.B = share(s.B)
			}
			if s.T < f.Until {
				s.A = share(s.A)
			}
		}
	})
	return s.Rev != 0
}

// carry returns the count that a window has after the change from f to next, if it had units before.
func (f *Former) carry(units int64, next *Numbers) int64 {
	switch {
	case f.CarryOver == CarryReset:
		return 0
	case f.Quota == 0 || next.Quota == 0:
		return units
	}
	return proportional(units, next.Quota, f.Quota)
}

// proportional returns ceil(units * to / from), at most maxCount.
func proportional(units, to, from int64) int64 {
	quo, _, ok := mulAddDiv(units, to, from-1, from)
	if !ok {
		return maxCount
	}
	return min(quo, maxCount)
}

// carryLog carries over the log entries that are older than until. share converts a number of units. carryLog does
// not convert each entry on its own: it goes from the newest of these entries to the oldest, and converts the sum
// of their units so far. When the older entries have left the window, the log therefore still has the converted
// sum of the others, and never less.
func carryLog(s *State, until int64, share func(int64) int64) {
	older := len(s.Log)
	for older > 0 && s.Log[older-1].T >= until {
		older--
	}
	if older == 0 {
		return
	}
	entries, newer := slices.Clone(s.Log), int64(0)
	for i := older; i < len(entries); i++ {
		newer += entries[i].Units
	}
	sum, shared := int64(0), int64(0)
	for i := older - 1; i >= 0; i-- {
		sum += entries[i].Units
		now := min(share(sum), maxCount-newer)
		entries[i].Units, shared = now-shared, now
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Units == 0 })
	if len(entries) == 0 {
		*s = State{}
		return
	}
	s.Log, s.A, s.B, s.T = entries, shared+newer, int64(len(entries)), entries[len(entries)-1].T
}

// carryLevel carries the level of a bucket over to the numbers next. at is the time of the last charge to the
// bucket.
func (f *Former) carryLevel(s *State, next *Numbers, at int64) {
	used := f.Capacity - s.A
	switch {
	case f.CarryOver == CarryReset && at < f.Until+resetWithin:
		s.A, s.B = next.Capacity, 0
	case f.Capacity == 0 || next.Capacity == 0:
	case f.CarryOver == CarryProportional:
		s.A, s.B = max(next.Capacity-proportional(used, next.Capacity, f.Capacity), -MaxQuota), 0
	case f.CarryOver == CarryAdditive:
		s.A = max(next.Capacity-used, -MaxQuota)
	}
}
