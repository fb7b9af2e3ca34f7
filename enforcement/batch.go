package enforcement

import (
	"context"
	"slices"
)

// refuseTogether reports whether an item of an atomic batch was refused without
// a limiter, or has a blocked key; then all are, and the limiter is not asked.
// What they are told to wait for is the end of the last block: the limits may
// take longer.
func refuseTogether(asks []ask, items []BatchItem) bool {
	if !slices.ContainsFunc(asks, func(a ask) bool { return a.refused || a.blocked }) {
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
	crossing := false
	for i := range items {
		// Only the items that do not fit refuse by themselves.
		if refusing, retry := w.answer(&w.asks[i], items[i], o, 0); refusing {
			items[i].Decision.overLimit(retry)
		}
	}
	spread(items, refuses(o, items[0]))
	for i := range items {
		d := items[i].Decision
		crossing = crossing || !d.Allowed && w.asks[i].crosses(items[i], d.RetryAfter)
	}
	if crossing {
		e.lookAheadTogether(ctx, w, items)
	}
}

// lookAheadTogether says when refused items would pass, of which some wait
// beyond an override's end: those that pass by themselves when all do.
func (e *Engine) lookAheadTogether(ctx context.Context, w *scratch, items []BatchItem) {
	look := w.foresee(items, 0, len(items))
	e.askAhead(ctx, w)
	w.hear(&look, items, w.ahead.outcomes)
	if !look.heard {
		return
	}
	now := w.asks[0].now
	all := w.asks[0].wait(w.ahead.passes(look.hurdles, now, now+1, 1000))
	for i := range items {
		d := items[i].Decision
		if d.Reason == ReasonBatchRefused {
			d.RetryAfter = all
			continue
		}
		w.settle(&look, items, i)
	}
}

// refuses reports whether an outcome refuses: a forced check never is.
func refuses(o *Outcome, item BatchItem) bool {
	return o.Verdict == Refused && item.Check.Mode != Force
}
