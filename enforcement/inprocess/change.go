package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// This file has the changes that a decided request makes to a counter. The caller of
// these functions holds the lock of the counter's shard.

// own returns the shard of the counter. It inserts a cell if the counter has none.
func (l *Limiter) own(w *work) *shard {
	s := &l.shards[shardOf(w.hash)]
	if w.cell == none {
		w.cell = s.insert(&w.key, uint32(w.hash))
		l.counted.add(w.key.Tenant, 1)
		if w.key.Partition == overflow {
			l.overflows.Add(1)
		}
	}
	return s
}

// keepClamp stores a state that Settle clamped to now.
func (l *Limiter) keepClamp(w *work, m *enforcement.Meter, now int64) {
	s := l.own(w)
	s.write(w.cell, m, &w.state, now)
	if m.Algorithm == enforcement.SlidingWindowLog {
		l.keepEntries(s, w, slices.Clone(w.state.Log))
	}
}

// keepEntries replaces the log of the counter by all.
func (l *Limiter) keepEntries(s *shard, w *work, all []enforcement.Entry) {
	e := s.log(w.cell)
	before := e.blocks()
	e.all, e.gone = all, 0
	l.counted.add(w.key.Tenant, e.blocks()-before)
	w.state.Log = all
}

// log returns the entries of cell i. It creates them if the cell has none.
func (s *shard) log(i int32) *entries {
	c := s.cell(i)
	if c.log == 0 {
		if n := len(s.freeLogs); n > 0 {
			c.log = s.freeLogs[n-1] + 1
			s.freeLogs = s.freeLogs[:n-1]
			s.logs[c.log-1] = new(entries)
		} else {
			s.logs = append(s.logs, new(entries))
			c.log = uint32(len(s.logs))
		}
	}
	return s.logs[c.log-1]
}

// charge charges cost to the counter. A cost of 0 changes nothing.
func (l *Limiter) charge(w *work, c *enforcement.Charge, cost, now int64) {
	if cost == 0 {
		return
	}
	s := l.own(w)
	if c.Meter.Algorithm != enforcement.SlidingWindowLog {
		w.state = c.Meter.Charge(w.state, c.Rev, now, cost)
		s.write(w.cell, c.Meter, &w.state, now)
		return
	}
	e := s.log(w.cell)
	before := e.blocks()
	e.drop(len(e.live()) - len(w.state.Log)) // the entries that Settle removed
	was := w.state
	w.state = chargedLog(was, c, cost, now)
	switch cost = w.state.A - was.A; {
	case w.state.B == was.B:
		e.all[len(e.all)-1].Units += cost
	case len(e.all) == cap(e.all) && len(e.live()) > 0 && l.counted.full(w.key.Tenant):
		// There is no memory for another entry: add the units to the newest one and set
		// its time to now. Its old units then count longer than they should, never shorter.
		last := &e.all[len(e.all)-1]
		last.T, last.Units = now, last.Units+cost
		w.state.B = was.B
	default:
		e.all = append(e.all, enforcement.Entry{T: w.state.T, Units: cost})
	}
	if grown := e.blocks() - before; grown != 0 {
		l.counted.add(w.key.Tenant, grown)
	}
	w.state.Log = e.live()
	s.write(w.cell, c.Meter, &w.state, now)
}

// chargedLog returns the state of a log after a charge, without the entries, because
// Charge would copy them.
func chargedLog(s enforcement.State, c *enforcement.Charge, cost, now int64) enforcement.State {
	if s.Rev == 0 {
		return enforcement.State{Rev: c.Rev, A: cost, B: 1, T: now}
	}
	s.Log = nil
	return c.Meter.Charge(s, c.Rev, now, cost)
}

// peeked returns the state as it would be after the charge.
func peeked(s enforcement.State, c *enforcement.Charge, cost, now int64) enforcement.State {
	if c.Meter.Algorithm != enforcement.SlidingWindowLog || cost == 0 {
		return c.Meter.Charge(s, c.Rev, now, cost)
	}
	after := chargedLog(s, c, cost, now)
	after.Log = s.Log
	if after.B == s.B && int64(len(s.Log)) == s.B { // the charge would change the newest entry
		after.Log = s.Log[:len(s.Log)-1]
	}
	return after
}

// refund returns cost to the counter. It does nothing if the counter is not stored. It
// does not change an overflow counter, because that counts other keys, too.
func (l *Limiter) refund(w *work, c *enforcement.Charge, cost, now int64) {
	if w.cell == none || w.shared || cost == 0 {
		return
	}
	s := l.own(w)
	w.state = c.Meter.Refund(w.state, cost)
	if w.state.Fresh() {
		l.drop(s, w.cell, w.hash)
		w.cell = none
		return
	}
	s.write(w.cell, c.Meter, &w.state, now)
	if c.Meter.Algorithm == enforcement.SlidingWindowLog {
		l.keepEntries(s, w, slices.Clone(w.state.Log))
	}
}

// reset deletes the counter. It does not delete an overflow counter, which counts other
// keys, too.
func (l *Limiter) reset(w *work, c *enforcement.Charge, now int64) {
	if w.shared {
		return
	}
	if w.cell != none {
		l.drop(&l.shards[shardOf(w.hash)], w.cell, w.hash)
		w.cell = none
	}
	w.state, _ = c.Meter.Settle(enforcement.State{}, c.Rev, now)
}

// drop removes cell i.
func (l *Limiter) drop(s *shard, i int32, hash uint64) {
	c, freed := s.cell(i), int64(1)
	tenant := c.key.Tenant
	if c.log != 0 {
		freed += s.logs[c.log-1].blocks()
	}
	if c.key.Partition == overflow {
		l.overflows.Add(-1)
	}
	s.remove(i, uint32(hash))
	l.counted.add(tenant, -freed)
}
