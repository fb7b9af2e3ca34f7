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
	for i := range items {
		items[i].Decision.Limits = items[i].Decision.Limits[:0]
	}
	spread(items, true)
	return true
}

// spread tells the items of an atomic batch that pass by themselves that others
// do not, and how long to wait for those. refused says so although none does.
func spread(items []BatchItem, refused bool) {
	retry := int64(0)
	for i := range items {
		if d := items[i].Decision; !d.Allowed {
			refused, retry = true, longer(retry, d.RetryAfter)
		}
	}
	if !refused {
		return
	}
	for i := range items {
		if d := items[i].Decision; d.Allowed {
			d.Allowed, d.Reason, d.RetryAfter = false, ReasonBatchRefused, retry
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
// all are the set that is charged whole or not at all.
func (e *Engine) decideTogether(ctx context.Context, w *scratch, items []BatchItem) {
	group := uint16(0)
	for i := range items {
		w.asks[i].enforced = w.charge(&w.asks[i], items[i], PolicyEnforce, &group)
	}
	for i := range items {
		w.asks[i].shadow = w.charge(&w.asks[i], items[i], PolicyShadow, &group)
	}
	if len(w.charges) == 0 {
		w.outcomes = w.outcomes[:0]
		return
	}
	w.request(items[0], w.charges)
	e.take(ctx, w)
	o := &w.outcomes[0]
	if !o.Verdict.Decided() {
		e.away(o)
		e.fallBack(ctx, w, items, w.asks)
		return
	}
	for i := range items {
		// Only the items that do not fit refuse by themselves.
		if refusing, retry := w.answer(&w.asks[i], items[i], o, 0); refusing {
			items[i].Decision.overLimit(retry)
		}
	}
	spread(items, refuses(o, items[0]))
}

// refuses reports whether an outcome refuses: a forced check never is.
func refuses(o *Outcome, item BatchItem) bool {
	return o.Verdict == Refused && item.Check.Mode != Force
}
