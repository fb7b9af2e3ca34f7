package redis

// grantsAfter counts the charges after charge k, and before the index to, that are on the counters of
// its grants.
func (c *call) grantsAfter(k, to int) (n int) {
	if c.charges[k].grant {
		return 0
	}
	for k+n+1 < to && c.charges[k+n+1].grant {
		n++
	}
	return n
}

// grantsLeft returns what the n grants from charge k on have left, after what the group has taken from
// them so far. from is the index of the first charge of the group.
func (c *call) grantsLeft(s *span, from, k, n int, now int64) (left int64) {
	for g := k; g < k+n; g++ {
		m := &c.charges[g]
		p := &c.params[m.param]
		state, _ := p.meter.Settle(c.work[m.cell], p.rev, now)
		left += p.meter.Left(state, now)
		for i := from; i < g; i++ {
			if c.charges[i].cell == m.cell {
				left -= c.used[i-s.from].spent
			}
		}
	}
	return left
}

// spendGrants charges the part of the cost of charge k that its window does not have left to the n
// grants that follow charge k. take.lua does the same.
func (c *call) spendGrants(s *span, from, k, n int, cost, now int64) {
	if n == 0 {
		return
	}
	m, u := &c.charges[k], &c.used[k-s.from]
	need := cost - max(c.params[m.param].meter.Left(u.state, now), 0)
	for g := k + 1; g <= k+n && need > 0; g++ {
		units := min(need, c.grantsLeft(s, from, g, 1, now))
		c.used[g-s.from].spent = units
		u.spent -= units
		need -= units
	}
}
