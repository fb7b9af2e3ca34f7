package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// The functions in this file change one counter for a decided request. Their caller must hold
// the lock of the counter's shard.

// insertIfMissing returns the shard of a counter. If the counter has no cell yet, it inserts a
// cell.
func (l *Limiter) insertIfMissing(w *work) *shard {
	s := &l.shards[shardOf(w.hash)]
	if w.cell == none {
		w.cell = s.insert(&w.key, uint32(w.hash))
		l.counted.add(&w.key, 1)
		if w.key.Partition == overflow {
			l.overflows.Add(1)
		}
	}
	return s
}

// keepClamp stores a state that Settle clamped: its time was in the future, and is now set to
// the present.
func (l *Limiter) keepClamp(w *work, m *enforcement.Meter, now int64) {
	s := l.insertIfMissing(w)
	s.write(w.cell, m, &w.state, now)
	l.keepList(s, w, m)
}

// keepList stores the list that belongs to the state of a counter: the log entries or the
// leases.
func (l *Limiter) keepList(s *shard, w *work, m *enforcement.Meter) {
	switch m.Algorithm {
	case enforcement.SlidingWindowLog:
		l.keepEntries(s, w, slices.Clone(w.state.Log))
	case enforcement.Concurrency:
		e := s.log(w.cell)
		before := e.blocks()
		e.holders = w.state.Holders // nothing changes the elements in place, so outcomes may share them
		l.counted.add(&w.key, e.blocks()-before)
	}
}

// keepEntries replaces the stored log entries of a counter with the entries in all.
func (l *Limiter) keepEntries(s *shard, w *work, all []enforcement.Entry) {
	e := s.log(w.cell)
	before := e.blocks()
	e.all, e.gone = all, 0
	l.counted.add(&w.key, e.blocks()-before)
	w.state.Log = all
}

// log returns the log entries of cell i. It creates an empty log if the cell has none.
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

// charge charges cost to a counter and stores it. A cost of 0 changes nothing.
func (l *Limiter) charge(w *work, c *enforcement.Charge, cost, now int64) {
	if cost == 0 {
		return
	}
	s := l.insertIfMissing(w)
	if c.Meter.Algorithm != enforcement.SlidingWindowLog {
		w.state = c.Meter.ChargeFor(w.state, c.Rev, now, cost, &w.lease)
		s.write(w.cell, c.Meter, &w.state, now)
		l.keepList(s, w, c.Meter)
		return
	}
	if c.Meter.Carries() && s.cell(w.cell).rev != w.state.Rev { // Settle may have changed any entry
		l.keepEntries(s, w, slices.Clone(w.state.Log))
	}
	e := s.log(w.cell)
	before := e.blocks()
	e.drop(len(e.live()) - len(w.state.Log)) // removes the entries that Settle removed from the state
	was := w.state
	w.state = chargedLog(was, c, cost, now)
	switch cost = w.state.A - was.A; {
	case w.state.B == was.B:
		e.all[len(e.all)-1].Units += cost
	case len(e.all) == cap(e.all) && len(e.live()) > 0 && l.counted.full(&w.key, w.bound):
		// The memory bound allows no further entry. Add the units to the newest entry and
		// set its time to now. Its earlier units then count longer than they should, but
		// never shorter.
		last := &e.all[len(e.all)-1]
		last.T, last.Units = now, last.Units+cost
		w.state.B = was.B
	default:
		e.all = append(e.all, enforcement.Entry{T: w.state.T, Units: cost})
	}
	if grown := e.blocks() - before; grown != 0 {
		l.counted.add(&w.key, grown)
	}
	w.state.Log = e.live()
	s.write(w.cell, c.Meter, &w.state, now)
}

// chargedLog returns the state of a log after a charge, but without the entries.
// Meter.Charge would copy all entries.
func chargedLog(s enforcement.State, c *enforcement.Charge, cost, now int64) enforcement.State {
	if s.Rev == 0 {
		return enforcement.State{Rev: c.Rev, A: cost, B: 1, T: now}
	}
	s.Log = nil
	return c.Meter.Charge(s, c.Rev, now, cost)
}

// peeked returns the state that a counter would have after a charge. It stores nothing.
func peeked(s enforcement.State, c *enforcement.Charge, cost, now int64, lease *enforcement.Lease) enforcement.State {
	if c.Meter.Algorithm != enforcement.SlidingWindowLog || cost == 0 {
		return c.Meter.ChargeFor(s, c.Rev, now, cost, lease)
	}
	after := chargedLog(s, c, cost, now)
	after.Log = s.Log
	if after.B == s.B && int64(len(s.Log)) == s.B { // the newest entry would change too, so the outcome must not have its old form
		after.Log = s.Log[:len(s.Log)-1]
	}
	return after
}

// refund returns cost units to a stored counter. If the counter is not stored, it does nothing.
// It does not change an overflow counter, because other keys are counted there too. An
// exception are the places of the request's own lease, which it also returns to an overflow
// counter.
func (l *Limiter) refund(w *work, c *enforcement.Charge, cost, now int64) {
	if w.cell == none || cost == 0 || w.shared && c.Meter.Algorithm != enforcement.Concurrency {
		return
	}
	w.state = c.Meter.RefundFor(w.state, cost, &w.lease)
	l.keepReduced(w, c.Meter, now)
}

// release ends the lease of a request on a counter of a concurrency limit. It returns the
// number of places that the lease held.
func (l *Limiter) release(w *work, c *enforcement.Charge, now int64) (units int64) {
	if w.state, units = c.Meter.Release(w.state, w.lease.ID); units > 0 {
		l.keepReduced(w, c.Meter, now)
	}
	return units
}

// keepReduced stores a counter after units were returned to it. If the counter is then unused,
// it deletes the counter instead.
func (l *Limiter) keepReduced(w *work, m *enforcement.Meter, now int64) {
	s := &l.shards[shardOf(w.hash)]
	if w.state.Fresh() {
		l.drop(s, w.cell, w.hash)
		w.cell = none
		return
	}
	s.write(w.cell, m, &w.state, now)
	l.keepList(s, w, m)
}

// reset deletes a counter. It does not delete an overflow counter, because other keys are
// counted there too.
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

// drop deletes cell i and its log entries.
func (l *Limiter) drop(s *shard, i int32, hash uint64) {
	c, freed := s.cell(i), int64(1)
	key := c.key
	if c.log != 0 {
		freed += s.logs[c.log-1].blocks()
	}
	if c.key.Partition == overflow {
		l.overflows.Add(-1)
	}
	s.remove(i, uint32(hash))
	l.counted.add(&key, -freed)
}
