package enforcement

import (
	"context"
	"slices"
)

// refuseTogether reports whether an item of an atomic batch was refused without
// a limiter; then all are, and the limiter is not asked.
func refuseTogether(asks []ask, items []BatchItem) bool {
	if !slices.ContainsFunc(asks, func(a ask) bool { return a.refused }) {
		return false
	}
	withoutLimits(items)
	spread(items)
	return true
}

// withoutLimits takes back what decisions say of limits.
func withoutLimits(items []BatchItem) {
	for i := range items {
		items[i].Decision.Limits = items[i].Decision.Limits[:0]
	}
}

// spread denies the other items of an atomic batch of which an item is denied.
// They wait as long as the longest of those that are.
func spread(items []BatchItem) {
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
			d.Allowed, d.Reason, d.RetryAfter, d.List = false, ReasonBatchRefused, retry, nil
		}
	}
}

// longer is the later of two retries; Never is the latest.
func longer(a, b int64) int64 {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

// decideTogether asks the limiter for all items as one: the enforced charges of
// all are the set that is charged whole or not at all. With a blocked item the
// request is a peek, which finds how long the limits of all would still deny them.
func (e *Engine) decideTogether(ctx context.Context, w *scratch, items []BatchItem) {
	group := uint16(0)
	for i := range items {
		w.asks[i].enforced = w.charge(&w.asks[i], items[i], PolicyEnforce, &group)
	}
	for i := range items {
		w.asks[i].shadow = w.charge(&w.asks[i], items[i], PolicyShadow, &group)
	}
	blocked := slices.ContainsFunc(w.asks, func(a ask) bool { return a.blocked })
	if len(w.charges) > 0 {
		w.request(items[0], w.charges)
		if blocked {
			w.requests[0].Mode = Peek
		}
		e.take(ctx, w)
	}
	switch {
	case blocked && len(w.charges) == 0:
		spread(items)
	case blocked:
		e.answerBlocked(ctx, w, items, w.asks, &w.outcomes[0], 0)
	case len(w.charges) == 0:
	case !w.outcomes[0].Verdict.Decided():
		e.undecided(ctx, w, items, w.asks, &w.outcomes[0])
	default:
		for i := range items {
			e.remember(w, &w.asks[i], items[i], &w.outcomes[0], 0)
			if denied, retry := w.answer(&w.asks[i], items[i], &w.outcomes[0], 0); denied {
				items[i].Decision.overLimit(retry)
			}
		}
		spread(items)
	}
}

// answerBlocked answers items that are decided together, of which one is blocked,
// from the outcome of a peek, whose charges begin at base of w.charges. They would
// pass when the blocks have ended and the limits let all of them pass. The decisions
// have no limits: the peek found them as they would be after the charges.
func (e *Engine) answerBlocked(ctx context.Context, w *scratch, items []BatchItem, asks []ask, o *Outcome, base int) {
	if !o.Verdict.Decided() {
		e.away(ctx, o)
	} else {
		for i := range items {
			denied, retry := w.answer(&asks[i], items[i], o, base)
			if d := items[i].Decision; denied {
				if d.Allowed {
					d.Allowed, d.Reason = false, ReasonBatchRefused
				}
				d.RetryAfter = longer(d.RetryAfter, retry)
			}
		}
	}
	withoutLimits(items)
	spread(items)
}
