package inprocess

import (
	"github.com/headgate/headgate/enforcement"
)

// This file stores the last known states of shared counters. The state of a key is in the table
// seen of the shard that also has the local counter of the key. Therefore Start needs only the
// lock of this shard, which Take uses too.

var _ enforcement.ShareMemory = (*Limiter)(nil)

// Now returns the time of the limiter's clock, in microseconds since the epoch.
func (l *Limiter) Now() int64 { return l.now() }

// Remember stores the last known state of a shared counter. It implements
// enforcement.ShareMemory.
func (l *Limiter) Remember(c *enforcement.Charge, state *enforcement.State, at, now int64) {
	hash := l.hash(&c.Key)
	s := &l.shards[shardOf(hash)]
	asNew := state.Fresh() || c.Meter.Algorithm.Bucket() && state.A >= c.Meter.Capacity
	stamp := uint32(at / 1000)
	s.lock()
	defer s.unlock()
	i := s.seen.find(&c.Key, uint32(hash))
	switch {
	case i != none && !newer(s.seen.cell(i), c.Meter, state, stamp):
		return
	case asNew:
		if i != none {
			l.forget(s, i, hash)
		}
		return
	case i == none:
		if l.remembered.full(&c.Key, 0) {
			return
		}
		i = s.seen.insert(&c.Key, uint32(hash))
		l.remembered.add(&c.Key, 1)
	}
	moved := enforcement.State{Rev: state.Rev, A: state.A, B: state.B, T: state.T + now - at}
	if c.Meter.Algorithm == enforcement.Concurrency {
		moved.B += now - at
	}
	s.seen.write(i, c.Meter, &moved, now)
	s.seen.cell(i).log = stamp
}

// stepMillis is the smallest difference, in milliseconds, that counts as a backward step of the
// shared limiter's clock. If a state is older than the stored one by less than that, its
// decision only arrived out of order.
const stepMillis = 10_000

// newer reports whether a state with the time stamp replaces the stored state. If both have the
// same millisecond, the state with fewer units left is kept.
func newer(c *cell, m *enforcement.Meter, state *enforcement.State, stamp uint32) bool {
	switch age := int32(stamp - c.log); {
	case age != 0:
		return age > 0 || age < -stepMillis
	case m.Algorithm.Bucket():
		return state.A <= c.a
	}
	return state.A >= c.a
}

// Start sets the local counter of a charge to this node's share of what is left of the shared
// counter. It implements enforcement.ShareMemory. The local counter uses the memory of the
// stored state, which Start deletes. Therefore the key does not have to use the overflow
// counter, even if there are more than Config.MaxCells cells.
func (l *Limiter) Start(c *enforcement.Charge, shared *enforcement.Meter, nodes int) (remembered enforcement.State, found bool) {
	w := work{key: c.Key, hash: l.hash(&c.Key)}
	s := &l.shards[shardOf(w.hash)]
	s.lock()
	defer s.unlock()
	i := s.seen.find(&w.key, uint32(w.hash))
	if i == none {
		return enforcement.State{}, false
	}
	seen, now := s.seen.cell(i), l.now()
	remembered = enforcement.State{Rev: seen.rev, A: seen.a, B: seen.b, T: seen.t}
	start := shared.StartShare(remembered, c.Rev, now, c.Meter, nodes)
	l.forget(s, i, w.hash)
	if start.Fresh() {
		return remembered, true
	}
	w.cell = s.find(&w.key, uint32(w.hash))
	w.state, _ = c.Meter.Settle(l.load(&w), c.Rev, now)
	w.state = c.Meter.Stricter(w.state, start, c.Rev, now)
	l.insertIfMissing(&w)
	s.write(w.cell, c.Meter, &w.state, now)
	l.keepList(s, &w, c.Meter)
	return remembered, true
}

// forget deletes cell i of the table seen.
func (l *Limiter) forget(s *shard, i int32, hash uint64) {
	c := s.seen.cell(i)
	key := c.key
	c.log = 0 // clear the timestamp, which remove would take for an index of log entries
	s.seen.remove(i, uint32(hash))
	l.remembered.add(&key, -1)
}
