package inprocess

import "github.com/headgate/headgate/enforcement"

// Restore replaces the states of counters with stored states that are newer. Decisions
// may run at the same time.
func (l *Limiter) Restore(stored []enforcement.Stored) {
	for i := range stored {
		if s := &stored[i]; !s.State.Fresh() {
			l.restore(s)
		}
	}
}

func (l *Limiter) restore(stored *enforcement.Stored) {
	w := work{key: stored.Key, hash: l.hash(&stored.Key)}
	s := &l.shards[shardOf(w.hash)]
	s.lock()
	defer s.unlock()
	w.cell = s.find(&w.key, uint32(w.hash))
	if has := l.load(&w); !stored.Newer(&has) {
		return
	}
	l.insertIfMissing(&w)
	c, state := s.cell(w.cell), &stored.State
	c.rev, c.a, c.b, c.t = state.Rev, state.A, state.B, state.T
	c.due = dueTick(stored.Ends)
	if s.next == 0 || c.due < s.next {
		s.next = c.due
	}
}
