package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// What a decided request does to a counter. All of it runs with the counter's
// shard locked.

// own gives the counter a cell.
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

// keepClamp stores a state that was cut from the future to now.
func (l *Limiter) keepClamp(w *work, m *enforcement.Meter, now int64) {
	s := l.own(w)
	s.write(w.cell, m, &w.state, now)
	if m.Algorithm == enforcement.SlidingWindowLog {
		l.keepEntries(s, w, slices.Clone(w.state.Log))
	}
}

// keepEntries makes all the whole log of the counter.
func (l *Limiter) keepEntries(s *shard, w *work, all []enforcement.Entry) {
	e := s.log(w.cell)
	before := e.blocks()
	e.all, e.gone = all, 0
	l.counted.add(w.key.Tenant, e.blocks()-before)
	w.state.Log = all
}

// log gives cell i its entries.
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

// charge takes cost. A cost of 0 changes nothing.
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
	e.drop(len(e.live()) - len(w.state.Log)) // what Settle saw leave
	was := w.state
	w.state = chargedLog(was, c, cost, now)
	switch cost = w.state.A - was.A; {
	case w.state.B == was.B:
		e.all[len(e.all)-1].Units += cost
	case len(e.all) == cap(e.all) && len(e.live()) > 0 && l.counted.full(w.key.Tenant):
		// No memory for one more entry: the newest takes the units and becomes
		// as young as they are. It stays longer than it should, never shorter.
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

// chargedLog is the state of a log after a charge, all but the entries: Charge
// would copy them.
func chargedLog(s enforcement.State, c *enforcement.Charge, cost, now int64) enforcement.State {
	if s.Rev == 0 {
		return enforcement.State{Rev: c.Rev, A: cost, B: 1, T: now}
	}
	s.Log = nil
	return c.Meter.Charge(s, c.Rev, now, cost)
}

// peeked is the state as if it had been charged.
func peeked(s enforcement.State, c *enforcement.Charge, cost, now int64) enforcement.State {
	if c.Meter.Algorithm != enforcement.SlidingWindowLog || cost == 0 {
		return c.Meter.Charge(s, c.Rev, now, cost)
	}
	after := chargedLog(s, c, cost, now)
	after.Log = s.Log
	if after.B == s.B && int64(len(s.Log)) == s.B { // the newest entry would have grown
		after.Log = s.Log[:len(s.Log)-1]
	}
	return after
}

// refund gives cost back. What is not kept has nothing to get back, and an
// overflow counter keeps what it has: others' counts are in it.
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

// reset forgets the counter; an overflow counter is not one key's to forget.
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
