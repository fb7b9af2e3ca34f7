package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// What shared counters were last seen to hold. A remembered state lies in the
// shard of its key, in a table of its own: so Start moves it into the counter
// under the lock under which Take finds the counter.

var _ enforcement.ShareMemory = (*Limiter)(nil)

// Now is the limiter's clock, in microseconds since the epoch.
func (l *Limiter) Now() int64 { return l.now() }

// Remember notes what a shared counter holds, as enforcement.ShareMemory says.
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
		if l.remembered.full(c.Key.Tenant) {
			return
		}
		i = s.seen.insert(&c.Key, uint32(hash))
		l.remembered.add(c.Key.Tenant, 1)
	}
	moved := enforcement.State{Rev: state.Rev, A: state.A, B: state.B, T: state.T + now - at}
	s.seen.write(i, c.Meter, &moved, now)
	s.seen.cell(i).log = stamp
}

// stepMillis is how far a shared limiter's clock must go back for its states to
// replace those from before: by less, they are of decisions that end out of order.
const stepMillis = 10_000

// newer reports whether a state that was decided at stamp replaces a remembered
// one. Of two of one millisecond the one that leaves less stays.
func newer(c *cell, m *enforcement.Meter, state *enforcement.State, stamp uint32) bool {
	switch age := int32(stamp - c.log); {
	case age != 0:
		return age > 0 || age < -stepMillis
	case m.Algorithm.Bucket():
		return state.A <= c.a
	}
	return state.A >= c.a
}

// Start begins the counter of a charge with what is left of the shared one, as
// enforcement.ShareMemory says. The remembered state's place in memory becomes the
// counter's, so a key that was remembered has a counter of its own above
// Config.MaxCells too.
func (l *Limiter) Start(c *enforcement.Charge, shared *enforcement.Meter, nodes int) {
	w := work{key: c.Key, hash: l.hash(&c.Key)}
	s := &l.shards[shardOf(w.hash)]
	s.lock()
	defer s.unlock()
	i := s.seen.find(&w.key, uint32(w.hash))
	if i == none {
		return
	}
	seen, now := s.seen.cell(i), l.now()
	start := shared.StartShare(enforcement.State{Rev: seen.rev, A: seen.a, B: seen.b, T: seen.t}, c.Rev, now, c.Meter, nodes)
	l.forget(s, i, w.hash)
	if start.Fresh() {
		return
	}
	w.cell = s.find(&w.key, uint32(w.hash))
	w.state, _ = c.Meter.Settle(l.load(&w), c.Rev, now)
	w.state = c.Meter.Stricter(w.state, start, c.Rev, now)
	l.own(&w)
	s.write(w.cell, c.Meter, &w.state, now)
	if c.Meter.Algorithm == enforcement.SlidingWindowLog {
		l.keepEntries(s, &w, slices.Clone(w.state.Log))
	}
}

// forget removes remembered cell i.
func (l *Limiter) forget(s *shard, i int32, hash uint64) {
	c := s.seen.cell(i)
	tenant := c.key.Tenant
	c.log = 0 // no log of the table
	s.seen.remove(i, uint32(hash))
	l.remembered.add(tenant, -1)
}
