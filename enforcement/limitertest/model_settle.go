package limitertest

import (
	"maps"
	"math/big"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// at returns a copy of the counter, settled at the time now. clamped is true if the
// time of the counter was further in the future than maxAhead.
func (c *counter) at(m *enforcement.Meter, rev, now int64) (n *counter, clamped bool) {
	n = c.clone()
	if m.IsGrant() {
		n.endGrant(m, rev, now)
		return n, false
	}
	if !n.open {
		if m.Algorithm.Bucket() {
			n.open, n.rev, n.start, n.level = true, rev, now, new(big.Rat).SetInt64(m.Capacity)
		}
		return n, false
	}
	if !n.carry(m, rev) {
		return new(counter), false
	}
	if m.Period == enforcement.NoPeriod && n.start > now+maxAhead(m) {
		clamped = true
		n.shift(now - n.start)
		n.start = now
		for i := range n.entries {
			n.entries[i].T = min(n.entries[i].T, now)
		}
	}
	switch m.Algorithm {
	case enforcement.FixedWindow:
		if m.Period != enforcement.NoPeriod {
			if !n.align(m, now) {
				return n.next(m, rev, now), false
			}
			clamped = n.clampWindow(m, now)
			break
		}
		if now-n.start >= m.Window {
			return new(counter), false
		}
	case enforcement.SlidingWindowCounter:
		for now-n.start >= m.Window {
			n.start += m.Window
			n.previous, n.current = n.current, 0
			if n.previous == 0 {
				return new(counter), false
			}
		}
	case enforcement.Concurrency:
		seen := max(now, n.start)
		maps.DeleteFunc(n.leases, func(_ [16]byte, h enforcement.Holder) bool { return h.Until <= seen })
		if len(n.leases) == 0 {
			return new(counter), false
		}
	case enforcement.SlidingWindowLog:
		seen := max(now, n.start)
		n.entries = slices.DeleteFunc(n.entries, func(e enforcement.Entry) bool { return seen-e.T >= m.Window })
		if len(n.entries) == 0 {
			return new(counter), false
		}
	default:
		n.flow(m, rev, now)
	}
	n.rev = max(n.rev, rev)
	return n, clamped
}

// endGrant uses up all units of a grant that has ended at the time now.
func (c *counter) endGrant(m *enforcement.Meter, rev, now int64) {
	if now >= m.Edges[1] {
		c.open, c.rev, c.start, c.length, c.current = true, max(c.rev, rev), m.Edges[0], m.Edges[1]-m.Edges[0], m.Quota
	}
}

// clampWindow moves a calendar window that begins too far in the future to the time now, and reports whether it did.
func (c *counter) clampWindow(m *enforcement.Meter, now int64) bool {
	if c.start <= now+m.Window {
		return false
	}
	c.idle = 0
	c.setWindow(calendarWindow(m, now))
	return true
}

// shift adds micros to the ends of all leases.
func (c *counter) shift(micros int64) {
	for id, h := range c.leases {
		h.Until += micros
		c.leases[id] = h
	}
}

// align moves a counter to the calendar window that contains the middle of its present window. It returns false if
// the former has ended.
func (c *counter) align(m *enforcement.Meter, now int64) bool {
	from, till := calendarWindow(m, c.middle(m))
	if now >= till {
		return false
	}
	c.setWindow(from, till)
	return true
}

// middle returns the middle of the calendar window of the counter.
func (c *counter) middle(m *enforcement.Meter) int64 {
	if c.length > m.Window { // the counter is of a longer period
		return c.start + m.Window/2
	}
	return c.start + c.length/2
}

// calendarWindow returns the start and the end of the calendar window that contains a
// time. It walks from the windows that the caller passed.
func calendarWindow(m *enforcement.Meter, at int64) (from, till int64) {
	from, till = m.Edges[0], m.Edges[1]
	for at < from {
		from, till = from-(m.Edges[1]-m.Edges[0]), from
	}
	for at >= till {
		from, till = till, till+m.Edges[2]-m.Edges[1]
	}
	return from, till
}

// maxAhead returns how far in the future the time of a counter may be without being
// clamped: one window, or the time in which a bucket fills.
func maxAhead(m *enforcement.Meter) int64 {
	if !m.Algorithm.Bucket() || m.Quota == 0 {
		return m.Window
	}
	fill := new(big.Int).Mul(big.NewInt(m.Burst()), big.NewInt(m.Window))
	fill.Add(fill, big.NewInt(m.Quota-1))
	fill.Quo(fill, big.NewInt(m.Quota))
	if !fill.IsInt64() || fill.Int64() > 1<<53 {
		return 1 << 53
	}
	return fill.Int64()
}

// flow refills a bucket until now. It uses each former rate for the time while that rate was in force, and then the
// present rate. It rounds the fraction of a unit down to a multiple that the present numbers can store. It drops a
// fraction that was stored with unknown numbers.
func (c *counter) flow(m *enforcement.Meter, rev, now int64) {
	written, charged := c.rev, c.start
	if c.rev < rev && rev == m.Rev {
		for i, f := range m.Formers {
			next, nextRev := m.Numbers, m.Rev
			if i+1 < len(m.Formers) {
				next, nextRev = m.Formers[i+1].Numbers, m.Formers[i+1].Rev
			}
			if nextRev <= c.rev {
				continue
			}
			if written != f.Rev {
				c.whole()
			}
			c.cut(f.Capacity)
			if until := min(f.Until, now); until > c.start {
				c.fill(f.Numbers, until-c.start)
				c.start = until
			}
			c.carryLevel(&f, next.Capacity, charged)
			c.round(next)
			written = nextRev
		}
	}
	if written != rev {
		c.whole()
	}
	if c.rev <= rev {
		c.cut(m.Capacity)
	}
	if now > c.start {
		c.fill(m.Numbers, now-c.start)
		c.start = now
	}
	if c.rev > rev {
		c.whole() // the later revision has another denominator for fractions
	}
}

// fill adds the units that refill in elapsed microseconds.
func (c *counter) fill(n enforcement.Numbers, elapsed int64) {
	if n.Quota == 0 || c.level.Cmp(new(big.Rat).SetInt64(n.Capacity)) >= 0 { // later numbers may have a larger capacity
		return
	}
	c.level.Add(c.level, new(big.Rat).SetFrac(
		new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(n.Quota)), big.NewInt(n.Window)))
	c.cut(n.Capacity)
}

func (c *counter) cut(capacity int64) {
	if full := new(big.Rat).SetInt64(capacity); c.level.Cmp(full) > 0 {
		c.level = full
	}
}

// round rounds the level down to the nearest fraction that can be stored with the
// numbers n.
func (c *counter) round(n enforcement.Numbers) {
	if n.Quota == 0 {
		c.whole()
		return
	}
	unit := new(big.Rat).SetFrac64(n.Quota, n.Window).Denom()
	scaled := new(big.Rat).Mul(c.level, new(big.Rat).SetInt(unit))
	c.level = new(big.Rat).SetFrac(floor(scaled), unit)
}

// whole rounds the level down to whole units.
func (c *counter) whole() { c.level = new(big.Rat).SetInt(floor(c.level)) }

func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // rounds down, because Denom is positive
}
