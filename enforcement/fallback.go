package enforcement

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// unavailableRetry is the RetryAfter of a denial because the limiter is unavailable, in
// milliseconds.
const unavailableRetry = 1000

// fallBack decides one item, or an atomic batch, if the shared limiter has not decided it. The failure modes of the
// policies in force decide:
//
//   - closed: the policy denies the check. A soft policy treats it as over its limits.
//   - local: the local limiter decides with this node's share of the quota. All such
//     policies of the items are decided together. A local counter starts from the last
//     known state of the shared counter (ShareMemory). Without a local limiter, the
//     policy decides as with closed.
//   - open: the policy allows the check.
//
// Grants are not spent: neither the local limiter nor the outage journal charges them.
//
// The decision lists only limits that the local limiter decided. Shadow policies are not charged. A check in mode Force
// is always allowed; its local policies are charged in the local limiter. The outage journal gets the charges of
// admitted items. o is the outcome of the shared limiter.
func (e *Engine) fallBack(ctx context.Context, w *call, items []item, o *Outcome) {
	first := &items[0]
	request := Request{
		ID: first.Decision.ID, Mode: first.Check.Mode, Home: first.Subject.Home, MaxKeys: first.Subject.MaxKeys, Lease: first.lease,
	}
	if first.keyed {
		request.Charges = append(request.Charges, e.chargeOfKey(first.Subject))
	}
	taken := int64(0)
	keys := len(request.Charges) // 1 if the check has an idempotency key, otherwise 0
	forced, closed := request.Mode == Force, false
	spans := make([]localSpans, len(items))
	for i := range items {
		it, d := &items[i], items[i].Decision
		d.Degraded = it.hasCharges()
		spans[i].enforced.from = len(request.Charges)
		soft := w.softLimits(it)
		closed = e.fallBackEnforced(w, it, &request, closed)
		spans[i].enforced.to = len(request.Charges)
		spans[i].softLimits = soft
	}
	for i := range items {
		if !closed || forced {
			e.fallBackSoftly(w, &items[i], &request, &spans[i], e.local)
		}
	}
	switch {
	case closed && !forced:
		dropLimits(items)
	case len(request.Charges) > keys:
		if first.keyed {
			request.Idempotency = idempotency(items, request.Charges)
		}
		taken = e.takeLocal(ctx, w, request, items, spans)
	}
	shareDenial(items)
	if request.Mode == TakeUpTo && first.Decision.Allowed && first.Decision.Idempotency == NotRepeated {
		w.shareAll(first, taken, LargestCost(request.Charges[:spans[0].enforced.to]))
	}
	e.recordAdmitted(w, items, o)
}

// fallBackEnforced applies the failure modes of an item's enforced limits. It appends the charges that the local
// limiter has to decide to the request, and only their limits stay in the decision. closed says whether a policy of
// an earlier item decides with failure mode closed. The result says whether a policy of an earlier item or of this
// item does.
func (e *Engine) fallBackEnforced(w *call, it *item, request *Request, closed bool) bool {
	d, forced, nodes := it.Decision, request.Mode == Force, e.nodeCount()
	kept := d.Limits[:0] // reuses the slice: positions ascend, so each limit is read before it is overwritten
	for k := it.enforced.from; k < it.enforced.to; k++ {
		if w.charges[k].Grant {
			continue // only the shared limiter spends grants
		}
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
			charge.Meter = l.share(nodes).In(it.Subject.Calendar, w.clock(e))
			if e.memory != nil && (!closed || forced) {
				e.startShare(it.Subject, &charge, &w.charges[k], nodes)
			}
			request.Charges = append(request.Charges, charge)
			kept = append(kept, l)
		}
	}
	d.Limits = kept
	return closed
}

// shareAll sets Taken of a decision in mode TakeUpTo that failure modes made. It also reduces the costs of all enforced
// and soft charges to the part that was taken, because the outage journal records these costs. taken is the number of
// units that the local limiter charged. most is the largest cost among the enforced charges that it decided; it is 0 if
// there are none, and then the whole cost is taken.
func (w *call) shareAll(it *item, taken, most int64) {
	d, all := it.Decision, LargestCost(w.charges[it.enforced.from:it.enforced.to])
	if d.Taken = all; most > 0 {
		d.Taken = UnitsFor(taken, most, all)
	}
	part := Taken{d.Taken, all}
	for i := it.enforced.from; i < it.soft.to; i++ {
		w.charges[i].Cost = part.Of(w.charges[i].Cost)
	}
}

// startShare sets the local counter to a share of the last known state of the shared counter. local is the charge of the
// local counter, and shared is the charge of the shared counter. The outage journal starts from the same state.
func (e *Engine) startShare(s *Subject, local, shared *Charge, nodes int) {
	if seen, first := e.memory.Start(local, shared.Meter, nodes); first && e.outage != nil && shared.Meter.Algorithm != Concurrency {
		e.outage.start(s, shared, seen)
	}
}

// localSpans has the ranges of one item's charges in a request to the local limiter: the charges of enforced policies,
// and after them those of soft policies. The limits of the decision are in the same order.
type localSpans struct {
	enforced, soft span
	softLimits     []LimitState // limits of the charges in item.soft
}

// softLimits returns the limits of the soft policies of an item, in the order of its charges.
func (w *call) softLimits(it *item) (list []LimitState) {
	for k := it.soft.from; k < it.soft.to; k++ {
		list = append(list, it.Decision.Limits[w.positions[k]])
	}
	return list
}

// fallBackSoftly applies the failure modes of an item's soft policies. If the limiter local must decide a limit,
// fallBackSoftly appends its charge to the request and the limit to the decision. If local is nil, the policies with
// failure mode local decide as with closed. If the outage journal must not get a charge, fallBackSoftly sets its cost to
// 0.
func (e *Engine) fallBackSoftly(w *call, it *item, request *Request, s *localSpans, local Limiter) {
	d := it.Decision
	s.soft.from = len(request.Charges)
	for i := range s.softLimits {
		k, l := it.soft.from+i, s.softLimits[i]
		switch mode := l.Rule.OnFailure; {
		case mode == OnFailureOpen:
		case mode == OnFailureClosed || local == nil:
			if request.Mode != Force {
				l.Allowed = false
				d.soften(&l)
				d.Delay = max(d.Delay, l.Delay)
				w.charges[k].Cost = 0
			}
		default:
			charge := w.charges[k]
			charge.Meter = l.share(e.nodeCount()).In(it.Subject.Calendar, w.clock(e))
			if e.memory != nil {
				e.startShare(it.Subject, &charge, &w.charges[k], e.nodeCount())
			}
			request.Charges = append(request.Charges, charge)
			d.Limits = append(d.Limits, l)
		}
	}
	s.soft.to = len(request.Charges)
}

// takeLocal decides items with the local limiter, in one request. The request has one charge
// for each limit. spans has, for each item, the ranges of its charges in the request. units is the
// number of units that the limiter charged in mode TakeUpTo.
func (e *Engine) takeLocal(ctx context.Context, w *call, request Request, items []item, spans []localSpans) (units int64) {
	forced := request.Mode == Force
	outcomes := make([]Outcome, 1)
	// The call must not end with ctx: a deadline of the caller may be the reason why
	// the shared limiter did not decide.
	takeFrom(context.WithoutCancel(ctx), e.local, []Request{request}, outcomes)
	o := &outcomes[0]
	switch repeated := markRepeated(items, o); {
	case repeated && len(o.Charges) == 0:
		dropLimits(items)
		return o.Units
	case repeated:
		metersAt(request.Charges, items[0].Subject.Calendar, o.At)
	case o.Verdict == Granted && items[0].keyed:
		items[0].localKey = newOutageKey(items[0].Subject, &request)
	}
	anyDenied := false
	for i, part := range spans {
		d := items[i].Decision
		if part.enforced.len()+part.soft.len() == 0 {
			continue
		}
		if !o.Verdict.Decided() {
			d.Limits = d.Limits[:0]
			switch {
			case forced:
			case part.enforced.len() > 0:
				d.denyUnavailable()
			default:
				e.fallBackSoftly(w, &items[i], &request, &part, nil)
			}
			continue
		}
		d.At = o.At
		denied, retry := d.fillLocal(&request, o, &part)
		slices.SortStableFunc(d.Limits, func(a, b LimitState) int { return cmp.Compare(a.Rule.Index, b.Rule.Index) })
		w.keepMade(&items[i], &request, o, part)
		if !denied || forced {
			d.nameLease(&items[i].lease) // for a repeated check, markRepeated then sets the lease of the first decision
		} else {
			anyDenied = true
			d.denyByLimit(retry)
		}
	}
	if o.Verdict == Refused && !anyDenied {
		refuseManyKeys(items, request.Charges[0].Meter, o)
	}
	return o.Units
}

// fillLocal fills in the limits of a decision from the outcome of the local limiter. part has the ranges of the charges
// of the item in the request. denied reports whether an enforced limit denies the item. retry is the longest RetryAfter
// of the denying limits.
func (d *Decision) fillLocal(request *Request, o *Outcome, part *localSpans) (denied bool, retry int64) {
	for k := range d.Limits {
		at := part.enforced.from + k
		if k >= part.enforced.len() {
			at = part.soft.from + k - part.enforced.len()
		}
		l, charge, charged := &d.Limits[k], &request.Charges[at], &o.Charges[at]
		l.fill(charge.Meter, charged, o.At, request.Mode, &request.Lease)
		if l.RetryAfter == Never && l.Limit.Meter.Possible(charged.Cost) {
			l.RetryAfter = unavailableRetry // the cost fits the whole limit, but is more than this node's share
		}
		if request.Mode == TakeUpTo && o.Verdict == Granted {
			l.Cost = TakenOf(request.Charges, o.Units).Of(l.Cost)
		}
		l.Delay = o.delay(request.Charges, at, request.Mode, l.Cost)
		if charge.Group != 0 && o.Verdict == Granted && request.Mode != Force {
			d.soften(l)
		}
		d.Delay = max(d.Delay, l.Delay)
		if !l.Allowed && charge.Group == 0 {
			denied, retry = true, longer(retry, l.RetryAfter)
		}
	}
	return denied, retry
}

// keepMade sets the cost of each soft charge that the local limiter did not make to 0, so that the outage journal does
// not get it.
func (w *call) keepMade(it *item, request *Request, o *Outcome, s localSpans) {
	at := s.soft.from
	for k := it.soft.from; k < it.soft.to; k++ {
		if s.softLimits[k-it.soft.from].Rule.OnFailure != OnFailureLocal {
			continue
		}
		// In mode TakeUpTo, a charge with less left than the check took counts as made with all that the check took:
		// only the share of this node had less left, and the outcome does not say how much.
		if request.Mode != Force && !o.made(request.Charges, at) {
			w.charges[k].Cost = 0
		}
		at++
	}
}

// remember stores the states of an item's shared counters, for policies with failure mode local. base is the index in
// w.charges of the first charge of o. After a peek, remember stores nothing, because the states then include charges
// that were not made.
func (e *Engine) remember(w *call, it *item, o *Outcome, base int) {
	if e.memory == nil || it.Check.Mode == Peek {
		return
	}
	now := int64(0)
	for _, part := range [...]span{it.enforced, it.soft} {
		for i := part.from; i < part.to; i++ {
			if w.charges[i].Grant || it.Decision.Limits[w.positions[i]].Rule.OnFailure != OnFailureLocal {
				continue
			}
			if now == 0 {
				now = e.memory.Now()
			}
			e.memory.Remember(&w.charges[i], &o.Charges[i-base].State, o.At, now)
		}
	}
}

// denyUnavailable denies a check because the limiter is unavailable.
func (d *Decision) denyUnavailable() {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonLimiterUnavailable, unavailableRetry
	d.Delay, d.ServeCheap = 0, false
}

// share returns the meter for one node's share of the limit: a meter whose quota is the quota of the limit divided by
// the number of nodes.
func (l *LimitState) share(nodes int) *Meter {
	if o := l.override; o != nil {
		return o.shares.of(o.limits, nodes)[l.position]
	}
	return l.Rule.shares.of(l.Rule.Limits, nodes)[l.position]
}

// logUnavailable logs that the limiter did not decide, at most once a second. It logs
// nothing if ctx has ended.
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
