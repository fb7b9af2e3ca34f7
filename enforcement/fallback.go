package enforcement

import (
	"context"
	"time"
)

// unavailableRetry is the RetryAfter of a denial, in milliseconds, if the only
// known fact is that the limiter is unavailable.
const unavailableRetry = 1000

// fallBack decides one item, or an atomic batch, by the failure modes of its
// enforced policies. The shared limiter decided nothing.
//
//   - A closed policy denies. A local policy denies if there is no local limiter.
//   - The other local policies are decided together by the local limiter, with
//     this node's share of the numbers. The share starts from the last known state
//     of the shared counter (ShareMemory).
//   - An open policy allows.
//
// The decision lists only limits that the local limiter decided. Shadow policies
// are not charged. A check in mode Force is always allowed; its local policies are
// charged in the local limiter.
func (e *Engine) fallBack(ctx context.Context, w *call, items []item) {
	first := &items[0]
	request := Request{ID: first.Decision.ID, Mode: first.Check.Mode, Home: first.Subject.Home}
	forced, closed := request.Mode == Force, false
	spans := make([]span, len(items)) // in request.Charges
	for i := range items {
		it, d := &items[i], items[i].Decision
		d.Degraded = it.hasCharges()
		spans[i].from = len(request.Charges)
		kept := d.Limits[:0] // positions ascend: no limit is overwritten before it is read
		for k := it.enforced.from; k < it.enforced.to; k++ {
			l := d.Limits[w.positions[k]]
			switch mode := l.Rule.OnFailure; {
			case mode == OnFailureOpen:
			case mode == OnFailureClosed || e.local == nil:
				closed = true
				if !forced {
					d.denyUnavailable()
				}
			default:
				charge := w.charges[k]
				charge.Meter = l.share(e.nodes)
				if e.memory != nil && (!closed || forced) {
					e.memory.Start(&charge, w.charges[k].Meter, e.nodes)
				}
				request.Charges = append(request.Charges, charge)
				kept = append(kept, l)
			}
		}
		d.Limits = kept
		spans[i].to = len(request.Charges)
	}
	switch {
	case closed && !forced:
		dropLimits(items)
	case len(request.Charges) > 0:
		e.takeLocal(ctx, request, items, spans)
	}
	shareDenial(items)
}

// takeLocal decides items together in the local limiter. spans are their parts of
// the request's charges, one charge for each limit.
func (e *Engine) takeLocal(ctx context.Context, request Request, items []item, spans []span) {
	forced := request.Mode == Force
	outcomes := make([]Outcome, 1)
	// The deadline of the caller may be the reason for the fallback.
	takeFrom(context.WithoutCancel(ctx), e.local, []Request{request}, outcomes)
	o := &outcomes[0]
	for i, part := range spans {
		d := items[i].Decision
		if part.len() == 0 {
			continue
		}
		if !o.Verdict.Decided() {
			d.Limits = d.Limits[:0]
			if !forced {
				d.denyUnavailable()
			}
			continue
		}
		d.At = o.At
		denied, retry := false, int64(0)
		for k := range d.Limits {
			l, charge, charged := &d.Limits[k], &request.Charges[part.from+k], &o.Charges[part.from+k]
			l.fill(charge.Meter, charged, o.At, forced)
			if l.RetryAfter == Never && l.Limit.Meter.Possible(charged.Cost) {
				l.RetryAfter = unavailableRetry // it fits the limit, but never this node's share
			}
			if !l.Allowed {
				denied, retry = true, longer(retry, l.RetryAfter)
			}
		}
		if denied && !forced {
			d.denyByLimit(retry)
		}
	}
}

// remember stores the states of the shared counters of an item's local policies.
// The charges of o begin at base in w.charges. A peek is not stored: its states
// are those after a charge that was not made.
func (e *Engine) remember(w *call, it *item, o *Outcome, base int) {
	if e.memory == nil || it.Check.Mode == Peek {
		return
	}
	now := int64(0)
	for i := it.enforced.from; i < it.enforced.to; i++ {
		if it.Decision.Limits[w.positions[i]].Rule.OnFailure != OnFailureLocal {
			continue
		}
		if now == 0 {
			now = e.memory.Now()
		}
		e.memory.Remember(&w.charges[i], &o.Charges[i-base].State, o.At, now)
	}
}

// denyUnavailable denies a decision that no limiter can make.
func (d *Decision) denyUnavailable() {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonLimiterUnavailable, unavailableRetry
}

// share returns the meter of the limit for one of so many nodes.
func (l *LimitState) share(nodes int) *Meter {
	if o := l.override; o != nil {
		return o.shares.of(o.limits, nodes)[l.position]
	}
	return l.Rule.shares.of(l.Rule.Limits, nodes)[l.position]
}

// logUnavailable logs that the limiter did not decide, unless ctx has ended.
func (e *Engine) logUnavailable(ctx context.Context, o *Outcome) {
	if ctx.Err() != nil {
		return
	}
	now, last := time.Now().UnixNano(), e.logged.Load()
	if now-last < int64(time.Second) || !e.logged.CompareAndSwap(last, now) {
		return
	}
	e.logger.Warn("limiter unavailable: failure modes decide", "verdict", o.Verdict.String(), "err", o.Err)
}
