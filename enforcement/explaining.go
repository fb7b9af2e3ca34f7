package enforcement

import "context"

// Explain says what a check would be answered now, and why, in one call of the
// limiter: the check itself as a peek, what every limit of the policies that
// match holds, and what the time ahead brings.
func (e *Engine) Explain(ctx context.Context, s *Subject, c *Check, x *Explanation) {
	peek := *c
	peek.Mode = Peek
	w := e.pool.Get().(*scratch)
	w.one[0] = BatchItem{Subject: s, Check: &peek, Decision: &x.Decision}
	items := w.one[:]
	e.begin(w, items)
	w.foreseen = true
	now := w.clock(e)
	x.Policies = explainPolicies(x.Policies[:0], s, &peek, now)
	held := x.holdings(items[0], now)
	if len(held) > 0 {
		w.request(items[0], held)
	}
	w.askEach(items)
	e.take(ctx, w)
	e.answerEach(ctx, w, items)
	if len(held) > 0 {
		x.hold(held, &w.outcomes[0])
	}
	x.PassesAt = x.passesAt(w, now)
	e.release(w)
}

// holdings are the charges, of nothing, of every limit of the policies that
// match: what the limiter then answers is what the limits hold.
func (x *Explanation) holdings(item BatchItem, now int64) (held []Charge) {
	for i := range x.Policies {
		p := &x.Policies[i]
		if !p.Matches {
			continue
		}
		n := item.Subject.numbers(p.Rule, item.Check, now)
		partition := p.Rule.PartitionOf(item.Check)
		for k := range n.limits {
			p.Limits = append(p.Limits, LimitNow{Limit: &n.limits[k]})
			held = append(held, Charge{
				Key:   Key{Tenant: item.Subject.Number, Cell: n.limits[k].Cell, Partition: partition},
				Meter: n.limits[k].Meter,
				Rev:   n.revision(k),
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

// passesAt is when the check passes: to the microsecond if the limiter could say.
func (x *Explanation) passesAt(w *scratch, now int64) int64 {
	d, a := &x.Decision, &w.asks[0]
	at := d.At
	if at == 0 {
		at = now
	}
	switch {
	case d.Allowed:
		return at
	case d.RetryAfter == Never:
		return Never
	case a.blocked && d.At == 0: // nobody was asked about limits
		return a.ends
	case a.looks && !d.Degraded && d.At != 0:
		look := &w.outlooks[a.ahead]
		w.hear(look, w.one[:])
		passes := w.ahead.passes(look.hurdles, a.now, max(a.now, a.ends), 1)
		if look.heard && passes != Never {
			return at + passes - a.now
		}
	}
	return at + d.RetryAfter*1000
}
