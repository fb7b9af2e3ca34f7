package enforcement

import (
	"context"
	"math"
)

// When a refused check of a steered tenant will pass. Without anything steered
// the longest wait of its limits is the answer, because a limit that lets a check
// pass goes on to do so while nobody else comes. An override that ends may take
// that back, and a block begins to count when its limits may long have passed.
//
// So the time ahead is cut into phases, in each of which a limit has one set of
// numbers, and the limiter is asked what each phase's numbers make of the
// counter as it is stored now: the state that other numbers settled does not
// tell, as it flowed at their rate and rolled by their window. These questions
// change nothing, go out in one call, and are asked only where they matter: with
// the check itself when its key is blocked, and after a refusal whose wait
// reaches beyond the end of an override.

// foresight is what was asked and answered about the time ahead, of some items.
// Its slices are used again.
type foresight struct {
	hurdles  []hurdle
	phases   []phase
	charges  []Charge
	requests []Request
	outcomes []Outcome
}

// A hurdle is one enforced limit that an item has to pass.
type hurdle struct {
	item, place int // of the item, and of the limit in its Decision.Limits
	phases      span
}

// A phase is a time in which one set of numbers holds. Its instants are
// microseconds by this node's clock.
type phase struct {
	from, until int64
	meter       *Meter
	rev         int64
	request     int   // among those of the call
	charge      int   // of the request
	opens       int64 // when the numbers let the check pass if nobody else comes; Never
}

// An outlook is one group of a foresight that is judged together: an item, or an
// atomic batch.
type outlook struct {
	hurdles  span
	requests span
	heard    bool
}

const (
	forever   = math.MaxInt64
	maxPhases = 16 // of a limit: numbers after so many ends count as the last
)

func (f *foresight) reset() {
	f.hurdles, f.phases, f.charges, f.requests = f.hurdles[:0], f.phases[:0], f.charges[:0], f.requests[:0]
}

// crosses reports whether an override of the item's enforced rules ends before
// the item would pass, by the numbers in force after retry milliseconds; then
// these do not tell. So it is while the end of one is not yet in the revision.
func (a *ask) crosses(item BatchItem, retry int64) bool {
	s := item.Subject
	if s.Steering == nil {
		return false
	}
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
		r := s.Plan.Rules[i]
		of := s.Steering.of(r)
		if of == nil || r.Mode != PolicyEnforce {
			continue
		}
		o, ended := of.choose(item.Check, a.now)
		if ended > 0 || o != nil && (retry == Never || o.Until-a.now <= retry*1000) {
			return true
		}
	}
	return false
}

// foresee makes the questions about items that are judged together, beginning
// at item first of their call.
func (w *scratch) foresee(items []BatchItem, first, count int) outlook {
	f := &w.ahead
	look := outlook{hurdles: span{from: len(f.hurdles)}, requests: span{from: len(f.requests)}}
	longest := 0
	for i := first; i < first+count; i++ {
		a, d := &w.asks[i], items[i].Decision
		nth := 0 // of its rule's limits
		for k := a.enforced.from; k < a.enforced.to; k++ {
			l := &d.Limits[w.places[k]]
			if k == a.enforced.from || d.Limits[w.places[k-1]].Rule != l.Rule {
				nth = 0
			}
			h := hurdle{item: i, place: w.places[k], phases: f.phasesOf(items[i], l, nth, a.now)}
			f.hurdles = append(f.hurdles, h)
			longest = max(longest, h.phases.len())
			nth++
		}
	}
	look.hurdles.to = len(f.hurdles)
	for n := range longest {
		w.ahead.request(items, look.hurdles, n)
	}
	look.requests.to = len(f.requests)
	return look
}

// phasesOf appends the phases of a limit, the nth of its rule.
func (f *foresight) phasesOf(item BatchItem, l *LimitState, nth int, now int64) span {
	part := span{from: len(f.phases)}
	of := item.Subject.Steering.of(l.Rule)
	p := phase{from: now, until: forever, meter: l.Limit.Meter, rev: l.rev}
	if of == nil {
		f.phases = append(f.phases, p)
		return span{part.from, len(f.phases)}
	}
	o, ended := of.choose(item.Check, now)
	// The end of an override raises the revision, or will: a fraction that was
	// counted before is lost then, and former numbers are no longer asked.
	after := l.rev + ended + 1
	if ended > 0 {
		p.rev = after
	}
	for o != nil && len(f.phases)-part.from < maxPhases-1 {
		p.until = o.Until
		f.phases = append(f.phases, p)
		next, _ := of.choose(item.Check, o.Until)
		p = phase{from: o.Until, until: forever, meter: l.Rule.Limits[nth].Meter, rev: after}
		if next != nil {
			p.meter = next.limits[nth].Meter
		}
		o = next
	}
	f.phases = append(f.phases, p)
	return span{part.from, len(f.phases)}
}

// request appends the question about the nth phase of hurdles.
func (f *foresight) request(items []BatchItem, hurdles span, nth int) {
	from := len(f.charges)
	var item BatchItem
	for _, h := range f.hurdles[hurdles.from:hurdles.to] {
		if nth >= h.phases.len() {
			continue
		}
		item = items[h.item]
		l, p := &item.Decision.Limits[h.place], &f.phases[h.phases.from+nth]
		p.request, p.charge = len(f.requests), len(f.charges)-from
		f.charges = append(f.charges, Charge{
			Key:   Key{Tenant: item.Subject.Number, Cell: l.Limit.Cell, Partition: l.Partition},
			Meter: p.meter,
			Rev:   p.rev,
			Cost:  item.Check.Cost,
		})
	}
	// A slice that grows later leaves these charges where they are.
	f.requests = append(f.requests, Request{ID: item.Decision.ID, Mode: Peek, Home: item.Subject.Home, Charges: f.charges[from:len(f.charges):len(f.charges)]})
}

// askAhead asks the shared limiter what was not asked with the checks.
func (e *Engine) askAhead(ctx context.Context, w *scratch) {
	f := &w.ahead
	f.outcomes = resized(f.outcomes, len(f.requests))
	e.takeFrom(ctx, e.limiter, f.requests, f.outcomes)
}

// hear takes over the answers to an outlook's questions; outcomes are those of
// all questions. What was not decided is not known, and the outlook not heard.
func (w *scratch) hear(look *outlook, items []BatchItem, outcomes []Outcome) {
	f := &w.ahead
	for i := look.requests.from; i < look.requests.to; i++ {
		if !outcomes[i].Verdict.Decided() {
			return
		}
	}
	look.heard = true
	for _, h := range f.hurdles[look.hurdles.from:look.hurdles.to] {
		d, now := items[h.item].Decision, w.asks[h.item].now
		for i := h.phases.from; i < h.phases.to; i++ {
			p := &f.phases[i]
			o := &outcomes[p.request]
			charged := &o.Charges[p.charge]
			p.opens = o.At - d.At + now
			if charged.Fits {
				continue
			}
			micros, ok := p.meter.RetryAfter(charged.State, o.At, charged.Cost)
			if p.opens += micros; !ok {
				p.opens = Never
			}
		}
	}
}

// passes gives the first instant, from on, at which hurdles let pass; Never. It
// is a whole number of steps of so many microseconds after now.
func (f *foresight) passes(hurdles span, now, from, step int64) int64 {
	for t := from; ; {
		next := t
		for _, h := range f.hurdles[hurdles.from:hurdles.to] {
			if next = f.next(h, now, next, step); next == Never {
				return Never
			}
		}
		if next == t || hurdles.len() == 1 {
			return upTo(now, next, step)
		}
		t = next
	}
}

// next is the first instant from t on at which one hurdle lets pass; Never.
func (f *foresight) next(h hurdle, now, t, step int64) int64 {
	for _, p := range f.phases[h.phases.from:h.phases.to] {
		if p.opens == Never {
			continue
		}
		if at := upTo(now, max(t, p.from, p.opens), step); at < p.until {
			return at
		}
	}
	return Never
}

// upTo rounds t up to whole steps after now.
func upTo(now, t, step int64) int64 { return now + (t-now+step-1)/step*step }

// settle says when an item of an outlook passes, in milliseconds, and corrects
// what its limits say.
func (w *scratch) settle(look *outlook, items []BatchItem, i int) {
	a, d, f := &w.asks[i], items[i].Decision, &w.ahead
	if !look.heard {
		return
	}
	own := span{look.hurdles.to, look.hurdles.from}
	for k := look.hurdles.from; k < look.hurdles.to; k++ {
		if h := f.hurdles[k]; h.item == i {
			own.from, own.to = min(own.from, k), max(own.to, k+1)
			if l := &d.Limits[h.place]; !l.Allowed {
				l.RetryAfter = a.wait(f.passes(span{k, k + 1}, a.now, a.now+1, 1000))
			}
		}
	}
	retry := a.wait(f.passes(own, a.now, max(a.now+1, a.ends), 1000))
	if a.blocked {
		d.RetryAfter = retry
		return
	}
	d.overLimit(retry)
}

// wait is how many milliseconds from now an instant is.
func (a *ask) wait(instant int64) int64 {
	if instant == Never {
		return Never
	}
	return milliseconds(min(instant-a.now, maxForever))
}
