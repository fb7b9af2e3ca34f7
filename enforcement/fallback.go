package enforcement

import (
	"context"
	"time"
)

// awayRetry is what a caller is told to wait, in milliseconds, when nothing is
// known but that the limiter is away.
const awayRetry = 1000

// fallBack decides items together (one, or an atomic batch) by the failure modes of
// their enforced policies, the limiter having decided nothing:
//
//   - any closed one refuses, and so does a local one without a local limiter;
//   - otherwise the local ones decide together, all or none, with this node's
//     share of the numbers, which starts from what the shared counter was last
//     seen to have left (ShareMemory);
//   - open ones pass.
//
// Limits of which nothing is known (open, closed, shadow) are left out of the
// decision. Shadow policies are not charged. A forced check is allowed whatever
// answers, and is charged in the local limiter what is local.
func (e *Engine) fallBack(ctx context.Context, w *scratch, items []BatchItem, asks []ask) {
	request := Request{ID: items[0].Decision.ID, Mode: items[0].Check.Mode, Home: items[0].Subject.Home}
	forced := request.Mode == Force
	closed := false
	ranges := make([]span, len(items)) // of request.Charges
	for i := range items {
		a, d := &asks[i], items[i].Decision
		d.Degraded = a.enforced.len()+a.shadow.len() > 0
		ranges[i].from = len(request.Charges)
		kept := 0
		for k := a.enforced.from; k < a.enforced.to; k++ {
			l := d.Limits[w.places[k]]
			switch mode := l.Rule.OnFailure; {
			case mode == OnFailureOpen:
			case mode == OnFailureClosed || e.local == nil:
				closed = true
				if !forced {
					d.unavailable()
				}
			default:
				charge, shared := w.charges[k], w.charges[k].Meter
				charge.Meter = l.share(e.nodes)
				if e.memory != nil && (!closed || forced) {
					e.memory.Start(&charge, shared, e.nodes)
				}
				request.Charges = append(request.Charges, charge)
				d.Limits[kept] = l // places ascend: none is overwritten before it is read
				kept++
			}
		}
		d.Limits = d.Limits[:kept]
		ranges[i].to = len(request.Charges)
	}
	if closed && !forced {
		for i := range items {
			items[i].Decision.Limits = items[i].Decision.Limits[:0]
		}
		spread(items)
		return
	}
	if len(request.Charges) > 0 {
		e.takeLocal(ctx, request, items, ranges)
	}
	spread(items)
}

// remember notes what the shared counters of an item's local policies hold. base
// is where the charges of o begin in w.charges. A peek is left out: its states are
// those that a charge would have left.
func (e *Engine) remember(w *scratch, a *ask, item BatchItem, o *Outcome, base int) {
	if e.memory == nil || a.blocked || item.Check.Mode == Peek {
		return
	}
	now := int64(0)
	for i := a.enforced.from; i < a.enforced.to; i++ {
		if item.Decision.Limits[w.places[i]].Rule.OnFailure != OnFailureLocal {
			continue
		}
		if now == 0 {
			now = e.memory.Now()
		}
		e.memory.Remember(&w.charges[i], &o.Charges[i-base].State, o.At, now)
	}
}

// takeLocal has this node's limiter decide items together; ranges are their
// parts of the request's charges, which are those of their limits.
func (e *Engine) takeLocal(ctx context.Context, request Request, items []BatchItem, ranges []span) {
	forced := request.Mode == Force
	outcomes := make([]Outcome, 1)
	// The caller's own deadline may be what ran out.
	e.takeFrom(context.WithoutCancel(ctx), e.local, []Request{request}, outcomes)
	o := &outcomes[0]
	for i, part := range ranges {
		d := items[i].Decision
		if part.len() == 0 {
			continue
		}
		if !o.Verdict.Decided() {
			d.Limits = d.Limits[:0]
			if !forced {
				d.unavailable()
			}
			continue
		}
		d.At = o.At
		refusing, retry := false, int64(0)
		for k := range d.Limits {
			l, charge, charged := &d.Limits[k], &request.Charges[part.from+k], &o.Charges[part.from+k]
			l.fill(charge.Meter, charged, o.At, forced)
			if l.RetryAfter == Never && l.Limit.Meter.Possible(charged.Cost) {
				l.RetryAfter = awayRetry // more than this node's share, which ends when the shared limiter is back
			}
			if !l.Allowed {
				refusing, retry = true, longer(retry, l.RetryAfter)
			}
		}
		if refusing && !forced {
			d.overLimit(retry)
		}
	}
}

// unavailable is a refusal because nobody can say.
func (d *Decision) unavailable() {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonLimiterUnavailable, awayRetry
}

// share is the limit's meter for one of so many nodes.
func (l *LimitState) share(nodes int) *Meter {
	limits, shares := l.inForce()
	return shares.of(limits, nodes)[l.nth(limits)]
}

// inForce are the limits of the rule with the numbers in force, and their shares.
func (l *LimitState) inForce() ([]RuleLimit, *shares) {
	if l.override != nil {
		return l.override.limits, &l.override.shares
	}
	return l.Rule.Limits, &l.Rule.shares
}

// nth is the limit's place among those of its rule.
func (l *LimitState) nth(limits []RuleLimit) int {
	k := 0
	for &limits[k] != l.Limit {
		k++
	}
	return k
}

// away logs that the limiter did not decide, unless that is because the caller left.
func (e *Engine) away(ctx context.Context, o *Outcome) {
	if ctx.Err() != nil {
		return
	}
	now, last := time.Now().UnixNano(), e.logged.Load()
	if now-last < int64(time.Second) || !e.logged.CompareAndSwap(last, now) {
		return
	}
	e.logger.Warn("limiter away: failure modes answer", "verdict", o.Verdict.String(), "err", o.Err)
}
