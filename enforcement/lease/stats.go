package lease

// Stats is what a Limiter has done since it was made, and what it holds.
type Stats struct {
	// Drawn is how many units the node drew ahead. They were spent, returned, are
	// held, or were lost: with a reply, or with a lot that ended.
	Drawn int64
	// Spent and Returned are how many of them checks used and the node gave back.
	Spent, Returned int64
	// Answered is how many checks needed no call of the shared limiter.
	Answered int64
	// Held is how many units the node holds now, of so many Counters.
	Held, Counters int64
}

// Stats returns the sums now.
func (l *Limiter) Stats() Stats {
	sum := Stats{Answered: l.answered.Load(), Spent: l.spent.Load()}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		sum.Drawn += s.count.Drawn
		sum.Spent += s.count.Spent
		sum.Returned += s.count.Returned
		sum.Answered += s.count.Answered
		for _, c := range s.cells {
			if held := c.held(); held > 0 {
				sum.Held += held
				sum.Counters++
			}
		}
		s.mu.Unlock()
	}
	return sum
}
