package enforcement

import "context"

// Explain says what a check would be answered now, and why, in one call of the
// limiter: the check itself as a peek, and what every limit of the policies that
// match holds.
func (e *Engine) Explain(ctx context.Context, s *Subject, c *Check, x *Explanation) {
	peek := *c
	peek.Mode = Peek
	w := e.pool.Get().(*scratch)
	w.one[0] = BatchItem{Subject: s, Check: &peek, Decision: &x.Decision}
	items := w.one[:]
	e.begin(w, items)
	now := w.clock(e)
	x.Policies = explainPolicies(x.Policies[:0], s, &peek, now)
	nodes := e.nodes
	if e.local == nil { // this process counts alone: it leases nothing
		nodes = 1
	}
	held := x.holdings(items[0], now, nodes)
	if len(held) > 0 {
		w.request(items[0], held)
	}
	w.askEach(items)
	e.take(ctx, w)
	e.answerEach(ctx, w, items)
	if len(held) > 0 {
		x.hold(held, &w.outcomes[0])
	}
	x.PassesAt = x.Decision.passesAt(now)
	e.release(w)
}

// holdings are the charges, of nothing, of every limit of the policies that
// match: what the limiter then answers is what the limits hold.
func (x *Explanation) holdings(item BatchItem, now int64, nodes int) (held []Charge) {
	for i := range x.Policies {
		p := &x.Policies[i]
		if !p.Matches {
			continue
		}
		n := item.Subject.numbers(p.Rule, item.Check, now)
		partition := p.Rule.PartitionOf(item.Check)
		for k := range n.limits {
			holding := LimitNow{Limit: &n.limits[k]}
			if p.Rule.Consistency == Leased && nodes > 1 {
				holding.LeasedElsewhere = int64(nodes-1) * n.limits[k].Meter.LeaseBatch(nodes)
			}
			p.Limits = append(p.Limits, holding)
			held = append(held, Charge{
				Key:   Key{Tenant: item.Subject.Number, Cell: n.limits[k].Cell, Partition: partition},
				Meter: n.limits[k].Meter,
				Rev:   n.revision(k),

				Leased: p.Rule.Consistency == Leased,
			})
		}
	}
	return held
}

// hold fills in what the limits hold, or leaves them out when nobody knows.
func (x *Explanation) hold(held []Charge, o *Outcome) {
	next := 0
	for i := range x.Policies {
		p := &x.Policies[i]
		if !o.Verdict.Decided() {
			p.Limits = nil
			continue
		}
		for k := range p.Limits {
			m, state := held[next].Meter, o.Charges[next].State
			p.Limits[k].Remaining = m.Remaining(state, o.At)
			p.Limits[k].ResetAfter = milliseconds(m.ResetAfter(state, o.At))
			next++
		}
	}
}

// passesAt is the instant at which the check passes; now is that of the node's
// clock, for a decision that no limiter dated.
func (d *Decision) passesAt(now int64) int64 {
	switch {
	case d.RetryAfter == Never:
		return Never
	case d.At == 0:
		return now + d.RetryAfter*1000
	}
	return d.At + d.RetryAfter*1000
}
