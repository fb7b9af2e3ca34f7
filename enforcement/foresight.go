package enforcement

import "math"

// When a refused check of a steered tenant will pass. Without anything steered
// the longest wait of its limits is the answer, because a limit that lets a check
// pass goes on to do so while nobody else comes. An override that ends may take
// that back, and a block begins to count when its limits may long have passed.
//
// So the time ahead is cut into phases, in each of which a limit has one set of
// numbers, and the limiter is asked what each phase's numbers make of the
// counter as it is stored: the state that other numbers settled does not tell,
// as it flowed at their rate and rolled by their window. These questions change
// nothing and go out in the call of the check itself, which is the only one: so
// they are asked before the answer is known, wherever it could matter.
//
// In a batch they stand right behind their own check. They see what the checks
// before it charged, and the check itself charged nothing if it was refused; what
// the checks after it charge they do not see. So an item is told what a check
// alone would be at its place: when it passes if nothing comes after it, be that
// in the same call or later.

// foresight is what was asked and answered about the time ahead, of some items.
// Its slices are used again.
type foresight struct {
	hurdles []hurdle
	phases  []phase
	charges []Charge
}

// A hurdle is one enforced limit that an item has to pass.
type hurdle struct {
	item, place int // of the item, and of the limit in its Decision.Limits
	phases      span
	// once: one question tells about all phases; lead is the hurdle that asks it,
	// the first on its counter, and cost what that is asked for, of all together.
	once bool
	lead int
	cost int64
}

// questions is how many requests ask about a hurdle.
func (h *hurdle) questions() int {
	if h.once {
		return 1
	}
	return h.phases.len()
}

// A phase is a time in which one set of numbers holds. Its instants are
// microseconds by this node's clock.
type phase struct {
	from, until int64
	meter       *Meter
	rev         int64
	request     int   // of the call
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
	f.hurdles, f.phases, f.charges = f.hurdles[:0], f.phases[:0], f.charges[:0]
}

// mayCross reports whether items that are judged together could wait beyond the
// end of an override, whatever their counters hold. They could if one ends within
// the longest wait that their limits can impose, or if the numbers in force can
// never let them pass: then only later ones tell. So they could while an end is
// not yet in the revision.
func (w *scratch) mayCross(items []BatchItem, first, count int) bool {
	if items[first].Subject.Steering == nil || items[first].Check.Mode == Force {
		return false
	}
	cost, ends := int64(0), int64(forever) // of the first override in force
	for i := first; i < first+count; i++ {
		cost += items[i].Check.Cost // at most, of all on one counter
	}
	for i := first; i < first+count; i++ {
		until, now := w.asks[i].firstEnd(items[i], cost)
		if now {
			return true
		}
		ends = min(ends, until)
	}
	return ends < forever && ends <= w.asks[first].now+w.longest(items, first, count, cost)
}

// firstEnd is when the first of the overrides in force for an item's enforced
// limits ends, or forever. now: one has ended already, or has numbers that never
// let pass what costs so much.
func (a *ask) firstEnd(item BatchItem, cost int64) (until int64, now bool) {
	until = forever
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
		r := item.Subject.Plan.Rules[i]
		of := item.Subject.Steering.of(r)
		if of == nil || len(of.overrides) == 0 || r.Mode != PolicyEnforce {
			continue
		}
		o, ended := of.choose(item.Check, a.now)
		if ended > 0 {
			return 0, true
		}
		if o == nil {
			continue
		}
		for k := range o.limits {
			if !o.limits[k].Meter.Possible(cost) {
				return 0, true
			}
		}
		until = min(until, o.Until)
	}
	return until, false
}

// longest is the longest wait that the items' enforced limits can impose, in
// microseconds, rounded up to milliseconds as retries are.
func (w *scratch) longest(items []BatchItem, first, count int, cost int64) (micros int64) {
	for i := first; i < first+count; i++ {
		limits := items[i].Decision.Limits
		for k := range limits {
			if limits[k].Rule.Mode == PolicyEnforce {
				micros = max(micros, limits[k].Limit.Meter.LongestRetry(cost))
			}
		}
	}
	return milliseconds(micros) * 1000
}

// foresee asks about items that are judged together, beginning at item first of
// their call: one request for each phase.
func (w *scratch) foresee(items []BatchItem, first, count int) outlook {
	f := &w.ahead
	look := outlook{hurdles: span{from: len(f.hurdles)}, requests: span{from: len(w.requests)}}
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
			h.once, h.lead, h.cost = f.once(h.phases), len(f.hurdles), items[i].Check.Cost
			f.hurdles = append(f.hurdles, h)
			longest = max(longest, h.questions())
			nth++
		}
	}
	look.hurdles.to = len(f.hurdles)
	if count > 1 {
		f.lead(items, look.hurdles)
	}
	for n := range longest {
		w.askPhase(items, look.hurdles, n)
	}
	look.requests.to = len(w.requests)
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

// once reports whether one question tells about all phases of a limit: of a log
// without a longer window than that of the numbers in force, whose entries are
// all there. It is asked by these numbers, because a limiter that has to settle
// one log by two sets of numbers may need two round trips.
func (f *foresight) once(phases span) bool {
	meter := f.phases[phases.from].meter
	if meter.Algorithm != SlidingWindowLog {
		return false
	}
	for _, p := range f.phases[phases.from:phases.to] {
		if p.meter.Window > meter.Window {
			return false
		}
	}
	return true
}

// lead has the first of the hurdles on one log ask for all of them.
func (f *foresight) lead(items []BatchItem, hurdles span) {
	first := make(map[Key]int)
	for i := hurdles.from; i < hurdles.to; i++ {
		h := &f.hurdles[i]
		l := &items[h.item].Decision.Limits[h.place]
		key := Key{Cell: l.Limit.Cell, Partition: l.Partition}
		if lead, seen := first[key]; seen && h.once {
			f.hurdles[lead].cost += h.cost
			h.lead, h.cost = lead, 0
		} else if h.once {
			first[key] = i
		}
	}
}

// enough is the cost to ask a log for, by its numbers in force, so that the
// answer has all entries that the cost waits for by the numbers of any phase. It
// is within the quota if that cost is.
func (f *foresight) enough(h *hurdle) int64 {
	least := int64(MaxQuota)
	for _, p := range f.phases[h.phases.from:h.phases.to] {
		if p.meter.Possible(h.cost) {
			least = min(least, p.meter.Quota)
		}
	}
	return max(h.cost+f.phases[h.phases.from].meter.Quota-least, 0)
}

// askPhase asks about the nth phase of hurdles.
func (w *scratch) askPhase(items []BatchItem, hurdles span, nth int) {
	f := &w.ahead
	from := len(f.charges)
	var item BatchItem
	for i := hurdles.from; i < hurdles.to; i++ {
		h := &f.hurdles[i]
		if nth >= h.questions() || h.lead != i {
			continue
		}
		item = items[h.item]
		l, p := &item.Decision.Limits[h.place], &f.phases[h.phases.from+nth]
		p.request, p.charge = len(w.requests), len(f.charges)-from
		c := Charge{
			Key:   Key{Tenant: item.Subject.Number, Cell: l.Limit.Cell, Partition: l.Partition},
			Meter: p.meter,
			Rev:   p.rev,
			Cost:  item.Check.Cost,
		}
		if h.once {
			c.Rev, c.Cost = l.rev, f.enough(h)
		}
		f.charges = append(f.charges, c)
	}
	// A slice that grows later leaves these charges where they are.
	w.request(item, f.charges[from:len(f.charges):len(f.charges)])
	w.requests[len(w.requests)-1].Mode = Peek
}

// hear takes over the answers to an outlook's questions. What was not decided is
// not known, and the outlook not heard.
func (w *scratch) hear(look *outlook, items []BatchItem) {
	f := &w.ahead
	for i := look.requests.from; i < look.requests.to; i++ {
		if !w.outcomes[i].Verdict.Decided() {
			return
		}
	}
	look.heard = true
	for i := look.hurdles.from; i < look.hurdles.to; i++ {
		h := &f.hurdles[i]
		since := w.asks[h.item].now - items[h.item].Decision.At // of this node's clock and the limiter's
		for k := h.phases.from; k < h.phases.to; k++ {
			p := &f.phases[k]
			if h.once {
				lead := &f.hurdles[h.lead]
				asked := &f.phases[lead.phases.from]
				p.hearLog(&w.outcomes[asked.request], asked.charge, lead.cost, since)
				continue
			}
			p.hear(&w.outcomes[p.request], since)
		}
	}
}

// hear takes over when the phase's numbers let pass; since is to be added to the
// limiter's instants.
func (p *phase) hear(o *Outcome, since int64) {
	charged := &o.Charges[p.charge]
	p.opens = o.At + since
	if charged.Fits {
		return
	}
	micros, ok := p.meter.RetryAfter(charged.State, o.At, charged.Cost)
	if p.opens += micros; !ok {
		p.opens = Never
	}
}

// hearLog takes it over from the question that tells about all phases of a log.
// If what it asked for fits, the cost fits in every phase that can admit it.
func (p *phase) hearLog(o *Outcome, charge int, cost, since int64) {
	charged := &o.Charges[charge]
	p.opens = o.At + since
	switch {
	case !p.meter.Possible(cost):
		p.opens = Never
	case !charged.Fits:
		settled, _ := p.meter.Settle(charged.State, p.rev, o.At)
		micros, _ := p.meter.RetryAfter(settled, o.At, cost)
		p.opens += micros
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
	own := span{look.hurdles.from, look.hurdles.from}
	for k := look.hurdles.from; k < look.hurdles.to; k++ {
		h := f.hurdles[k]
		if h.item < i {
			own = span{k + 1, k + 1}
		}
		if h.item != i {
			continue
		}
		own.to = k + 1
		if l := &d.Limits[h.place]; !l.Allowed {
			l.RetryAfter = a.wait(f.passes(span{k, k + 1}, a.now, a.now+1, 1000))
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
