package lease

// Stats has the counts of a Limiter since New, and the quota that it holds on lease now.
type Stats struct {
	// Drawn is the number of units that the node has drawn. Each unit was spent, returned, is
	// still held, or was lost. Units are lost if a reply is lost, or if their lot ends.
	Drawn int64
	// Spent is the number of units that checks used. Returned is the number of units
	// that the node returned to the shared limiter.
	Spent, Returned int64
	// Answered is the number of checks that were decided without a call of the shared limiter.
	Answered int64
	// Held is the number of units that the node holds on lease now. Counters is the number of
	// counters to which these units belong.
	Held, Counters int64
}

// Stats returns the current counts.
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
