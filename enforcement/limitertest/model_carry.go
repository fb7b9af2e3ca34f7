package limitertest

import (
	"math/big"

	"github.com/headgate/headgate/enforcement"
)

// carry applies each change of the numbers that the counter does not have yet to a window or a log.
// The constants of enforcement.CarryOver define how. It returns false if the counter is unused
// afterwards.
func (c *counter) carry(m *enforcement.Meter, rev int64) bool {
	if c.rev >= rev || rev != m.Rev || m.Algorithm.Bucket() { // flow carries the level of a bucket
		return true
	}
	for i := range m.Formers {
		f, quota, nextRev := &m.Formers[i], m.Quota, m.Rev
		if i+1 < len(m.Formers) {
			quota, nextRev = m.Formers[i+1].Quota, m.Formers[i+1].Rev
		}
		if nextRev > c.rev && !c.carryOne(m.Algorithm, f, quota) {
			return false
		}
	}
	return true
}

// carryOne applies one change, from the numbers f to the quota next.
func (c *counter) carryOne(a enforcement.Algorithm, f *enforcement.Former, next int64) bool {
	before := func(at int64) bool { return at < f.Until }
	switch {
	case f.CarryOver == enforcement.CarryReset && a == enforcement.SlidingWindowLog:
		for len(c.entries) > 0 && before(c.entries[0].T) {
			c.entries = c.entries[1:]
		}
		return len(c.entries) > 0
	case f.CarryOver == enforcement.CarryReset:
		if before(c.start - f.Window) {
			c.previous = 0
		}
		return !before(c.start)
	case f.CarryOver != enforcement.CarryProportional || f.Quota == 0 || next == 0:
		return true
	case a == enforcement.SlidingWindowLog:
		c.carryEntries(f, next)
		return true
	}
	if before(c.start - f.Window) {
		c.previous = share(c.previous, next, f.Quota, countStops)
	}
	if before(c.start) {
		c.current = share(c.current, next, f.Quota, countStops)
	}
	return true
}

// carryEntries converts the log entries that are older than the change. It sets their units so that,
// for each entry, the units from it to the newest of these entries are the converted sum of the units
// before.
func (c *counter) carryEntries(f *enforcement.Former, next int64) {
	var older, newer, all []enforcement.Entry
	room := int64(countStops)
	for _, e := range c.entries {
		if e.T < f.Until {
			older = append(older, e)
		} else {
			newer, room = append(newer, e), room-e.Units
		}
	}
	for i, e := range older {
		var rest, after int64
		for _, later := range older[i:] {
			rest += later.Units
		}
		after = rest - e.Units
		if e.Units = share(rest, next, f.Quota, room) - share(after, next, f.Quota, room); e.Units > 0 {
			all = append(all, e)
		}
	}
	c.entries = append(all, newer...)
	c.start = c.entries[len(c.entries)-1].T
}

// carryLevel carries the level of a bucket over to the capacity next. charged is the time of the last
// charge.
func (c *counter) carryLevel(f *enforcement.Former, next, charged int64) {
	if f.CarryOver == enforcement.CarryReset && charged-f.Until < 1_000_000 {
		c.level = new(big.Rat).SetInt64(next)
		return
	}
	if f.Capacity == 0 || next == 0 {
		return
	}
	lowest := new(big.Rat).SetInt64(-enforcement.MaxQuota)
	switch f.CarryOver {
	case enforcement.CarryProportional:
		c.whole()
		c.level.Mul(c.level, new(big.Rat).SetFrac64(next, f.Capacity))
		c.whole()
	case enforcement.CarryAdditive:
		c.level.Add(c.level, new(big.Rat).SetInt64(next-f.Capacity))
		if floor(c.level).Cmp(floor(lowest)) < 0 { // the limit is on whole units
			part := new(big.Rat).Sub(c.level, new(big.Rat).SetInt(floor(c.level)))
			c.level = part.Add(part, lowest)
		}
		return
	}
	if c.level.Cmp(lowest) < 0 {
		c.level = lowest
	}
}

// share returns units * to / from, rounded up, at most most.
func share(units, to, from, most int64) int64 {
	n := new(big.Int).Mul(big.NewInt(units), big.NewInt(to))
	n.Add(n, big.NewInt(from-1))
	n.Div(n, big.NewInt(from))
	if n.Cmp(big.NewInt(most)) > 0 {
		return most
	}
	return n.Int64()
}

// change returns by how many units a charge with a receipt is to change. It is 0 if the counter may
// no longer have what was charged.
func (c *counter) change(charge *enforcement.Charge) int64 {
	delta := charge.Cost - charge.Receipt.Cost
	if delta < 0 && c.forgets(charge) {
		return 0
	}
	return delta
}

// forgets reports whether the counter may have less than the earlier charge, because it was carried
// over since. It also returns true if the caller has an older revision and cannot know this.
func (c *counter) forgets(charge *enforcement.Charge) bool {
	m, charged := charge.Meter, charge.Receipt.State.Rev
	if c.rev > charge.Rev {
		return charged < c.rev
	}
	for i, f := range m.Formers {
		ended := m.Rev
		if i+1 < len(m.Formers) {
			ended = m.Formers[i+1].Rev
		}
		if charge.Rev == m.Rev && ended > charged && (f.CarryOver == enforcement.CarryReset || f.CarryOver == enforcement.CarryProportional) {
			return true
		}
	}
	return false
}
