package enforcement

import (
	"context"
	"errors"
)

// answerEach fills in the decisions of the items from the outcomes of the limiter, one
// item at a time.
func (e *Engine) answerEach(ctx context.Context, w *call) {
	for i := range w.items {
		it, one := &w.items[i], w.items[i:i+1]
		if it.asks() {
			o := &w.outcomes[it.request]
			if it.reserves() {
				e.reserved.made(o)
			}
			repeated := it.keyed && w.repeated(one, o, it.first)
			if it.keyCharged && it.refundable() && o.Verdict == Granted {
				it.setRefundable(w, o)
				e.reserved.refundable.Add(1 - int64(boolByte(repeated)))
			}
			if repeated || it.reserves() && w.reserved(one, o, it.first) {
				continue
			}
			if it.hasCharges() || it.reserves() && !o.Verdict.Decided() {
				e.answer(ctx, w, one, o, it.first)
			}
		}
		if it.Check.Mode == TakeUpTo && it.Decision.Allowed && it.enforced.len() == 0 {
			it.Decision.Taken = it.Subject.SentCost(it.Check)
		}
		setNumbersUntil(one) // a blocked item may have no charges, but the end of its block counts
	}
}

// answer fills in the decisions of the items that one outcome decides: a single item, or all
// items of an atomic batch. base is the index in w.charges of the first charge of the outcome.
//
// A blocked item charges nothing: its request is a peek. Its RetryAfter is the time until the blocks have
// ended and the limits allow all items. Its decision lists no limits, because the states of a peek include
// charges that were not made.
func (e *Engine) answer(ctx context.Context, w *call, items []item, o *Outcome, base int) {
	blocked := false
	for i := range items {
		blocked = blocked || items[i].blocked
	}
	switch {
	case o.Verdict.Decided() && !blocked && w.tooManyKeys(items, o, base):
		return
	case o.Verdict.Decided():
		for i := range items {
			it := &items[i]
			if !blocked {
				e.remember(w, it, o, base)
			}
			denied, retry := w.fillLimits(it, o, base)
			switch d := it.Decision; {
			case !denied:
			case !blocked:
				d.denyByLimit(retry)
			default:
				if d.Allowed {
					d.Allowed, d.Reason = false, ReasonBatchRefused
				}
				d.RetryAfter = longer(d.RetryAfter, retry)
			}
		}
	case blocked:
		e.logUnavailable(ctx, o)
	default:
		e.undecided(ctx, w, items, o)
		return
	}
	if blocked {
		dropLimits(items)
	}
	shareDenial(items)
}

// undecided fills in the decisions of items that the limiter did not decide. The
// failure modes of their policies decide, unless the caller has left. If the caller has
// left, no client reads the decision, and the missing outcome does not show a failure of
// the limiter. The items are then denied with ReasonLimiterUnavailable. They are not
// degraded, charged or recorded.
func (e *Engine) undecided(ctx context.Context, w *call, items []item, o *Outcome) {
	if ctx.Err() == nil && !errors.Is(o.Err, ErrLeft) {
		e.logUnavailable(ctx, o)
		e.fallBack(ctx, w, items, o)
		return
	}
	dropLimits(items)
	for i := range items {
		items[i].unrecorded = true
		items[i].Decision.denyUnavailable()
	}
}

// fillLimits fills in the limits of an item's decision from an outcome. base is the index in w.charges of the first
// charge of the outcome. denied reports whether an enforced limit denies the item. retry is the longest RetryAfter of
// the limits that deny it.
func (w *call) fillLimits(it *item, o *Outcome, base int) (denied bool, retry int64) {
	d, mode := it.Decision, it.Check.Mode
	forced := mode == Force
	d.At = o.At
	var taken Taken
	if mode == TakeUpTo && o.Verdict == Granted {
		taken = Taken{o.Units, LargestCost(w.charges[it.enforced.from:it.enforced.to])}
		if it.enforced.len() > 0 {
			d.Taken = o.Units
		}
	}
	for n, part := range [chargeClasses]span{it.enforced, it.soft, it.shadow} {
		class := chargeClass(n)
		for i := part.from; i < part.to; i++ {
			if w.charges[i].Grant {
				continue // filled in with the limit before it
			}
			l := &d.Limits[w.positions[i]]
			l.fill(w.charges[i].Meter, &o.Charges[i-base], o.At, mode, &it.lease)
			w.fillGrants(l, o, base, i, part.to, mode)
			l.Cost, l.Shared = taken.Of(l.Cost), true
			l.Delay = o.delay(w.charges[base:base+len(o.Charges)], i-base, mode, l.Cost)
			if class == chargedSeparately && o.Verdict == Granted && !forced {
				d.soften(l)
			}
			if class != chargedInShadow && d.Allowed {
				d.Delay = max(d.Delay, l.Delay)
			}
			if class == chargedTogether && !l.Allowed {
				denied, retry = !forced, longer(retry, l.RetryAfter)
			}
		}
	}
	if !denied {
		d.nameLease(&it.lease)
		return denied, retry
	}
	if it.Subject.Exceptions != nil && retry != Never && mode != TakeUpTo {
		retry = w.retryOfGrants(it, o, base, retry)
	}
	if w.forgets(it, retry) {
		retry = Never
	}
	return denied, retry
}

// fillGrants adds to the limit of charge i what its grants have left. The charges on the grants follow charge i; to
// is the end of the charges of its class.
func (w *call) fillGrants(l *LimitState, o *Outcome, base, i, to int, mode Mode) {
	if n := GrantsAfter(w.charges, i, to); n > 0 {
		l.fillGrants(w.charges[i:i+n+1], o.Charges[i-base:i-base+n+1], o.At, mode)
	}
}

// soften applies a limit of a soft policy to an allowed decision: if the request is over the limit, it sets
// ServeCheap of the decision or Delay of the limit.
func (d *Decision) soften(l *LimitState) {
	switch {
	case l.Allowed || !d.Allowed:
	case l.Rule.Mode == PolicyDegrade:
		d.ServeCheap = true
	default:
		l.Delay = l.Rule.delay
	}
}

// forgets reports whether waiting retry milliseconds is too long for an enforced limit of an item. This happens if
// the cost only fits with units that were rolled over, and these units have ended by then.
func (w *call) forgets(it *item, retry int64) bool {
	for _, position := range w.positions[it.enforced.from:it.enforced.to] {
		if until := it.Decision.Limits[position].until; until > 0 && retry >= until {
			return true
		}
	}
	return false
}

// retryOfGrants returns the time in milliseconds at which all limits of an item allow it, including those with
// grants. The result is at least retry. base is the index in w.charges of the first charge of the outcome.
func (w *call) retryOfGrants(it *item, o *Outcome, base int, retry int64) int64 {
	from, to := it.enforced.from-base, it.enforced.to-base
	micros, ok := RetryOfAll(w.charges[it.enforced.from:it.enforced.to], o.Charges[from:to], o.At, retry*1000)
	if !ok {
		return Never
	}
	return Milliseconds(micros)
}

// nameLease sets Lease and LeaseTTL of an allowed decision if one of its limits is a concurrency limit.
func (d *Decision) nameLease(l *Lease) {
	if !d.Allowed {
		return
	}
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.Limit.Algorithm != Concurrency || limit.Cost == 0 {
			continue
		}
		ttl := l.TTL / 1000
		if ttl == 0 {
			ttl = limit.Limit.Window.Milliseconds()
		}
		if d.Lease == "" || ttl < d.LeaseTTL {
			d.LeaseTTL = ttl
		}
		if d.Lease = d.Check.leaseName(); d.Lease == "" {
			d.Lease = uuidText(l.ID)
		}
	}
}

// fill sets the state of one limit in a decision from the result of its charge. A
// forced charge that did not fit leaves no units, even if the counter is at its upper
// bound.
func (l *LimitState) fill(m *Meter, c *Charged, at int64, mode Mode, lease *Lease) {
	l.Allowed = c.Fits
	l.Remaining = m.Remaining(c.State, at)
	l.ResetAfter = Milliseconds(m.ResetAfter(c.State, at))
	if m.Period != NoPeriod {
		l.window, l.RolledOver = m.WindowAt(&c.State, at)/1000, m.RolledOver(&c.State)
		if forgotten := m.forgotten(&c.State, c.Cost); forgotten > 0 && mode != TakeUpTo {
			l.until = Milliseconds(forgotten - at)
		}
	}
	if c.Fits {
		return
	}
	cost := c.Cost
	switch mode {
	case Force:
		l.Remaining = 0
	case TakeUpTo:
		cost = min(cost, 1) // one unit is enough
	}
	l.RetryAfter = Never
	if micros, ok := m.RetryAfterFor(c.State, at, cost, lease); ok {
		l.RetryAfter = Milliseconds(micros)
	}
}

// denyByLimit sets a decision to denied by limits. retry is the longest RetryAfter of
// the denying limits, in milliseconds.
func (d *Decision) denyByLimit(retry int64) {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonOverLimit, retry
	d.Delay, d.ServeCheap = 0, false
	if retry == Never {
		d.Reason = ReasonCostExceedsQuota
	}
}

// dropLimits removes the limits from the decisions of items that were decided by something other than limits, such as
// a block.
func dropLimits(items []item) {
	for i := range items {
		items[i].Decision.Limits = items[i].Decision.Limits[:0]
	}
}

// shareDenial denies all items of an atomic batch if one of them is denied. The items
// that were allowed get the longest RetryAfter of the denied items.
func shareDenial(items []item) {
	if len(items) == 1 {
		return
	}
	denied, retry := false, int64(0)
	for i := range items {
		if d := items[i].Decision; !d.Allowed {
			denied, retry = true, longer(retry, d.RetryAfter)
		}
	}
	if !denied {
		return
	}
	for i := range items {
		if d := items[i].Decision; d.Allowed || d.Reason == ReasonBatchRefused {
			d.Allowed, d.Reason, d.RetryAfter, d.List, d.Lease = false, ReasonBatchRefused, retry, nil, ""
			d.LeaseTTL, d.Delay, d.ServeCheap = 0, 0, false
		}
	}
}

// longer returns the longer of two waits. Never is the longest.
func longer(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

// setNumbersUntil sets Decision.NumbersUntil of denied items that were decided
// together. RetryAfter is computed from the quotas in force now. If an override ends
// before RetryAfter has passed, RetryAfter may change. If a block ends before that,
// RetryAfter stays, but the reason for the denial changes from the block to a limit.
func setNumbersUntil(items []item) {
	if items[0].Subject.Exceptions == nil || items[0].Decision.Allowed {
		return
	}
	first := int64(0)
	for i := range items {
		switch items[i].Decision.Reason {
		case ReasonOverLimit, ReasonCostExceedsQuota, ReasonBlocked, ReasonBatchRefused:
			first = earlier(first, items[i].overridesUntil)
		default:
			return // RetryAfter does not depend on quotas
		}
	}
	for i := range items {
		it, d := &items[i], items[i].Decision
		if first != 0 && (d.RetryAfter == Never || it.wait(first) <= d.RetryAfter) {
			d.NumbersUntil = first
		}
		if b := d.Block; b != nil && (d.RetryAfter == Never || it.wait(b.Until) < d.RetryAfter) {
			d.NumbersUntil = earlier(d.NumbersUntil, b.Until)
		}
	}
}

// earlier returns the earlier of two times. 0 stands for no time.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
