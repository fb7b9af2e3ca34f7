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
	spread(items, true)
	return true
}

// withoutLimits takes back what decisions say of limits.
func withoutLimits(items []BatchItem) {
	for i := range items {
		items[i].Decision.Limits = items[i].Decision.Limits[:0]
	}
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
// all are the set that is charged whole or not at all.
func (e *Engine) decideTogether(ctx context.Context, w *scratch, items []BatchItem) {
	group := uint16(0)
	for i := range items {
		w.asks[i].enforced = w.charge(&w.asks[i], items[i], PolicyEnforce, &group)
	}
	for i := range items {
		w.asks[i].shadow = w.charge(&w.asks[i], items[i], PolicyShadow, &group)
	}
	if slices.ContainsFunc(w.asks, func(a ask) bool { return a.blocked }) {
		e.waitTogether(ctx, w, items)
		return
	}
	if len(w.charges) == 0 {
		w.outcomes = w.outcomes[:0]
		return
	}
	w.request(items[0], w.charges)
	looks, look := w.mayCross(items, 0, len(items)), outlook{}
	if looks {
		look = w.foresee(items, 0, len(items))
	}
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
	if looks && refuses(o, items[0]) {
		w.hear(&look, items)
		w.settleTogether(&look, items, 0)
	}
}

// waitTogether says when the items of an atomic batch with a blocked key would
// pass. Their limits are only asked that, and left out of the decisions.
func (e *Engine) waitTogether(ctx context.Context, w *scratch, items []BatchItem) {
	look, ends := w.foresee(items, 0, len(items)), int64(0)
	for i := range w.asks {
		ends = max(ends, w.asks[i].ends)
	}
	e.take(ctx, w)
	for i := range items {
		switch {
		case len(w.outcomes) == 0:
		case w.outcomes[0].Verdict.Decided():
			items[i].Decision.At = w.outcomes[0].At
		case i == 0:
			e.away(&w.outcomes[0])
		}
	}
	spread(items, true)
	w.hear(&look, items)
	w.settleTogether(&look, items, ends)
	withoutLimits(items)
}

// settleTogether says when refused items would pass, not before an instant: those
// that pass by themselves when all do.
func (w *scratch) settleTogether(look *outlook, items []BatchItem, from int64) {
	if !look.heard {
		return
	}
	now := w.asks[0].now
	all := w.asks[0].wait(w.ahead.passes(look.hurdles, now, max(now+1, from), 1000))
	for i := range items {
		d := items[i].Decision
		if d.Reason == ReasonBatchRefused {
			d.RetryAfter = all
			continue
		}
		w.settle(look, items, i)
	}
}

// refuses reports whether an outcome refuses: a forced check never is.
func refuses(o *Outcome, item BatchItem) bool {
	return o.Verdict == Refused && item.Check.Mode != Force
}
