package enforcement

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config of an Engine.
type Config struct {
	// Local is this node's in-process limiter: it answers for policies with the
	// failure mode local while the shared one is away. Default: none, and those
	// policies are closed.
	Local Limiter
	// Memory remembers what shared counters hold, for the start of Local's share.
	// Default: none, and a share starts full.
	Memory ShareMemory
	// Nodes is among how many nodes Local's quota is shared. Default: 1.
	Nodes int
	// Recorder is called once for every decision that counts. Default: none.
	Recorder Recorder
	// Now is the clock by which lists, blocks and overrides end, and which dates the
	// decision ids of the default NewID. It is read at most once for a call.
	// Default: time.Now.
	Now func() time.Time
	// NewID makes decision ids. Default: UUIDv7 at the instant of Now.
	NewID func() [16]byte
	// Logger hears of a limiter that is away, at most once a second. Default: none.
	Logger *slog.Logger
}

// An Engine answers checks: it finds the policies that apply, turns them into
// charges, and has a Limiter take them, in one call for everything that was
// asked at once and never a second time. It implements Decider.
type Engine struct {
	limiter  Limiter
	local    Limiter
	memory   ShareMemory
	nodes    int
	recorder Recorder
	now      func() time.Time
	newID    func() [16]byte
	logger   *slog.Logger
	pool     sync.Pool // of *scratch
	logged   atomic.Int64
}

// NewEngine makes an Engine that asks a limiter.
func NewEngine(limiter Limiter, cfg Config) *Engine {
	e := &Engine{
		limiter:  limiter,
		local:    cfg.Local,
		memory:   cfg.Memory,
		nodes:    max(cfg.Nodes, 1),
		recorder: cfg.Recorder,
		now:      cfg.Now,
		newID:    cfg.NewID,
		logger:   cfg.Logger,
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	e.pool.New = func() any { return new(scratch) }
	return e
}

// noRoute is the Route of a request that no policy matches.
const noRoute = "(none)"

// Decide answers one check into d, whose slices are reused.
func (e *Engine) Decide(ctx context.Context, s *Subject, c *Check, d *Decision) {
	w := e.pool.Get().(*scratch)
	w.one[0] = BatchItem{Subject: s, Check: c, Decision: d}
	e.decide(ctx, w, w.one[:], false)
}

// DecideBatch answers many checks, each as Decide would, in order. With atomic
// all are of one subject and one mode, and either all are charged or none.
func (e *Engine) DecideBatch(ctx context.Context, items []BatchItem, atomic bool) {
	if len(items) > 0 {
		e.decide(ctx, e.pool.Get().(*scratch), items, atomic)
	}
}

// scratch is the state of one call of the engine. It is pooled. The charges of all
// items of the call are in one list.
type scratch struct {
	one       [1]BatchItem
	asks      []ask
	charges   []Charge
	places    []int // of each charge: where its limit stands in its item's Decision.Limits
	requests  []Request
	outcomes  []Outcome
	partition Partition
	matching  []uint16  // of one item: places of rules in its plan
	counted   []counted // of one item
	now       int64     // by the node's clock, in microseconds; 0: not read yet
}

// clock is this node's clock, read once for a call.
func (w *scratch) clock(e *Engine) int64 {
	if w.now == 0 {
		w.now = e.now().UnixMicro()
	}
	return w.now
}

// id makes the id of a decision, and reads the clock only if the id needs it.
func (w *scratch) id(e *Engine) [16]byte {
	if e.newID != nil {
		return e.newID()
	}
	return newUUIDv7(w.clock(e))
}

// idAt makes the id of a request that is no decision.
func (e *Engine) idAt(micros int64) [16]byte {
	if e.newID != nil {
		return e.newID()
	}
	return newUUIDv7(micros)
}

// counted is a partition that rules with one count_by share.
type counted struct {
	by  int
	sum [16]byte
}

// An ask is the state of one item of a call. Its spans are of scratch.charges.
type ask struct {
	now              int64 // by this node's clock; of a subject with exceptions
	enforced, shadow span
	refused          bool  // without asking a limiter
	shadows          bool  // a shadow policy may apply
	blocked          bool  // its key is blocked; the limiter only says what its limits hold
	abandoned        bool  // the caller left before the limiter decided; not recorded
	overridesUntil   int64 // the first end of the overrides in force on enforced limits; 0: none
	request          int   // among those of the call; meaningless without charges
}

type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// keepCharges bounds what the pool keeps of an unusually large batch.
const keepCharges = 4096

// decide answers items with one call of the limiter.
func (e *Engine) decide(ctx context.Context, w *scratch, items []BatchItem, atomic bool) {
	e.begin(w, items)
	switch {
	case !atomic:
		e.decideEach(ctx, w, items)
	case !refuseTogether(w.asks, items):
		e.decideTogether(ctx, w, items)
		setNumbersUntil(w.asks, items)
	}
	if e.recorder != nil {
		for i := range items {
			if items[i].Check.Mode != Peek && !w.asks[i].abandoned {
				e.recorder.Record(items[i].Decision)
			}
		}
	}
	e.release(w)
}

// begin opens the decisions of items.
func (e *Engine) begin(w *scratch, items []BatchItem) {
	w.charges, w.places, w.requests, w.outcomes = w.charges[:0], w.places[:0], w.requests[:0], w.outcomes[:0]
	w.asks = resized(w.asks, len(items))
	w.now = 0
	for i := range items {
		w.asks[i] = ask{}
		e.open(w, &w.asks[i], items[i])
	}
}

// resized gives a slice of so many elements in the room of another.
func resized[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// release puts w back into the pool, unless a limiter that returned without a
// decision may still read it.
func (e *Engine) release(w *scratch) {
	if anyUndecided(w.outcomes) {
		return
	}
	if cap(w.charges) > keepCharges || cap(w.asks) > keepCharges {
		return
	}
	w.one[0] = BatchItem{}
	e.pool.Put(w)
}

func anyUndecided(outcomes []Outcome) bool {
	for i := range outcomes {
		if !outcomes[i].Verdict.Decided() {
			return true
		}
	}
	return false
}

// open begins a decision: it decides what needs no counter, and fills in the
// limits whose counters decide the rest.
//
// Checks run in this order; the first match wins: the tenant's status; its deny
// list; its allow list, which allows; its default, if no policy applies; a missing
// attribute of the first policy, in the order of the plan, that denies it; a
// blocked key. Nothing is charged then, so such a denial also wins over any limit
// and over a limiter that is away. None of them denies a forced check, because its
// work is done: it charges what applies.
func (e *Engine) open(w *scratch, a *ask, item BatchItem) {
	s, c, d := item.Subject, item.Check, item.Decision
	*d = Decision{
		ID: w.id(e), Subject: s, Check: c, Allowed: true, Reason: ReasonOK, Route: noRoute, Limits: d.Limits[:0], applied: d.applied[:0],
	}
	if s.Exceptions != nil {
		a.now = w.clock(e)
	}
	if s.Plan != nil {
		w.matching = s.Plan.match(c, w.matching[:0])
		d.Route = s.Plan.route(w.matching)
	}
	if s.Suspended || s.Exceptions != nil {
		if why, entry := s.before(c, a.now); why != "" {
			d.List, d.Reason = entry, why
			if why != ReasonAllowedByList {
				a.refuse(d, why)
			}
			return
		}
	}
	enforced := false
	if s.Plan != nil {
		d.applied, enforced, a.shadows = s.Plan.apply(w.matching, c, d.applied)
	}
	if c.Mode != Force {
		if a.deny(item, enforced); a.refused {
			return
		}
	} else if !enforced {
		d.Reason = ReasonNoPolicy
	}
	for _, i := range d.applied {
		a.limits(item, s.Plan.Rules[i])
	}
	if s.Exceptions != nil && c.Mode != Force {
		w.block(a, item)
	}
}

// deny denies a check by the tenant's default or by a missing attribute.
func (a *ask) deny(item BatchItem, enforced bool) {
	s, c, d := item.Subject, item.Check, item.Decision
	if !enforced {
		d.Reason = ReasonNoPolicy
		if s.DenyUnmatched {
			a.refuse(d, ReasonNoPolicy)
			return
		}
	}
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		if r.Missing == MissingDeny && r.Mode == PolicyEnforce {
			if name := r.missing(c); name != "" {
				a.refuse(d, ReasonMissingAttribute)
				d.Missing, d.Policy = name, r.Policy
				return
			}
		}
	}
}

// block denies a check with a blocked key. It would pass when the last of its
// blocks has ended and its limits let it pass, so the limiter is still asked about
// these.
func (w *scratch) block(a *ask, item BatchItem) {
	s, d := item.Subject, item.Decision
	w.counted = w.counted[:0]
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		of := s.Exceptions.of(r)
		if of == nil || of.blocks.Len() == 0 {
			continue
		}
		b := of.block(w.partitionOf(r, item.Check))
		if b == nil || a.now >= b.Until {
			continue
		}
		if !a.blocked {
			a.blocked, d.Allowed, d.Reason, d.Policy, d.Block = true, false, ReasonBlocked, r.Policy, b
		}
		d.RetryAfter = max(d.RetryAfter, a.wait(b.Until))
	}
}

// wait is the time from now to an instant, in milliseconds, rounded up.
func (a *ask) wait(instant int64) int64 { return milliseconds(instant - a.now) }

// limits appends a rule's limits with the numbers in force for the check.
func (a *ask) limits(item BatchItem, r *Rule) {
	s, d, from := item.Subject, item.Decision, len(item.Decision.Limits)
	// Filled in place: append would make each state twice.
	d.Limits = slices.Grow(d.Limits, len(r.Limits))[:from+len(r.Limits)]
	if s.Exceptions == nil {
		for k := range r.Limits {
			limit := &r.Limits[k]
			d.Limits[from+k] = LimitState{Rule: r, Limit: limit, Cost: item.Check.Cost, rev: max(limit.Meter.Rev, s.PlanRevision)}
		}
		return
	}
	n := s.numbers(r, item.Check, a.now)
	if n.override != nil && r.Mode == PolicyEnforce && len(n.limits) > 0 {
		a.overridesUntil = earlier(a.overridesUntil, n.override.Until)
	}
	for k := range n.limits {
		l := &d.Limits[from+k]
		*l = LimitState{Rule: r, Limit: &n.limits[k], Cost: item.Check.Cost, rev: n.revision(k)}
		if n.override != nil {
			l.Override, l.override = n.override.Override, n.override
		}
	}
}

// refuse denies a check without a limiter: waiting does not help.
func (a *ask) refuse(d *Decision, why Reason) {
	a.refused = true
	d.Allowed, d.Reason, d.RetryAfter = false, why, Never
}

// route is the pattern of the most specific of the matching rules.
func (p *Plan) route(matching []uint16) string {
	var best *Rule
	for _, i := range matching {
		if r := p.Rules[i]; best == nil || r.rank < best.rank {
			best = r
		}
	}
	if best == nil {
		return noRoute
	}
	return best.pattern.String()
}

// apply appends the places of the matching rules that apply: without those that are
// off, that skip a check without their attribute, or that another one replaces. A
// rule replaces others even if it is itself replaced, but only in mode enforce.
//
// enforced reports whether a policy in mode enforce applies. Without one no policy
// decides, and the tenant's default does: so shadow policies change no answer, and
// leaving out an attribute is no way around a default of deny. shadows is false if
// no shadow policy applies.
func (p *Plan) apply(matching []uint16, c *Check, to []uint16) (applying []uint16, enforced, shadows bool) {
	var room [64]uint16 // more are rare
	applying, replaced := to, room[:0]
	for _, i := range matching {
		r := p.Rules[i]
		if r.Mode == PolicyOff || len(r.slots) > 0 && r.skips() && r.missing(c) != "" {
			continue
		}
		applying = append(applying, i)
		if r.Mode == PolicyShadow {
			shadows = true
			continue
		}
		enforced = true
		replaced = append(replaced, r.replaces...)
	}
	if len(replaced) > 0 {
		slices.Sort(replaced)
		applying = slices.DeleteFunc(applying, func(i uint16) bool { return contains(replaced, int(i)) })
	}
	return applying, enforced, shadows
}

// skips reports whether the rule does not apply to a check without one of its
// attributes. A shadow policy that denies has nothing to charge: it would refuse.
func (r *Rule) skips() bool {
	return r.Missing == MissingSkip || r.Missing == MissingDeny && r.Mode == PolicyShadow
}

// charge appends the charges of an item's rules of one mode: those enforced in
// group 0, those of each shadow rule in the next group.
func (w *scratch) charge(a *ask, item BatchItem, mode PolicyMode, group *uint16) span {
	from, place := len(w.charges), 0
	if a.refused || mode == PolicyShadow && !a.shadows {
		return span{from, from}
	}
	w.counted = w.counted[:0]
	s, c, d := item.Subject, item.Check, item.Decision
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		if r.Mode != mode || len(r.Limits) == 0 {
			place += len(r.Limits)
			continue
		}
		if mode == PolicyShadow {
			*group++
		}
		partition := w.partitionOf(r, c)
		for range r.Limits {
			l := &d.Limits[place]
			l.Partition = partition
			// Filled in place: append would make each charge twice.
			w.charges = slices.Grow(w.charges, 1)[:len(w.charges)+1]
			w.charges[len(w.charges)-1] = Charge{
				Key:   Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: partition},
				Meter: l.Limit.Meter,
				Rev:   l.rev,
				Cost:  c.Cost,
				Group: *group,

				Leased: r.Consistency == Leased,
			}
			w.places = append(w.places, place)
			place++
		}
	}
	return span{from, len(w.charges)}
}

// partitionOf hashes a check's values once for all rules that count by the same.
func (w *scratch) partitionOf(r *Rule, c *Check) [16]byte {
	if len(r.slots) == 0 {
		return [16]byte{}
	}
	for i := range w.counted {
		if w.counted[i].by == r.countedBy {
			return w.counted[i].sum
		}
	}
	sum := r.partition(c, &w.partition)
	w.counted = append(w.counted, counted{r.countedBy, sum})
	return sum
}

// decideEach asks the limiter for every item by itself, in one call.
func (e *Engine) decideEach(ctx context.Context, w *scratch, items []BatchItem) {
	w.askEach(items)
	e.take(ctx, w)
	e.answerEach(ctx, w, items)
}

// askEach makes the requests for items, one for each that has charges. That of a
// blocked check is a peek, which finds how long its limits would still deny it.
func (w *scratch) askEach(items []BatchItem) {
	for i := range items {
		a, group := &w.asks[i], uint16(0)
		a.enforced = w.charge(a, items[i], PolicyEnforce, &group)
		a.shadow = w.charge(a, items[i], PolicyShadow, &group)
	}
	// Only now do the charges stay where they are.
	for i := range items {
		a := &w.asks[i]
		if a.enforced.from == a.shadow.to {
			continue
		}
		a.request = len(w.requests)
		w.request(items[i], w.charges[a.enforced.from:a.shadow.to])
		if a.blocked {
			w.requests[a.request].Mode = Peek
		}
	}
}

// answerEach reads the answers to the requests of askEach.
func (e *Engine) answerEach(ctx context.Context, w *scratch, items []BatchItem) {
	for i := range items {
		a := &w.asks[i]
		if a.enforced.from == a.shadow.to {
			continue
		}
		o, base := &w.outcomes[a.request], a.enforced.from
		switch {
		case a.blocked:
			e.answerBlocked(ctx, w, items[i:i+1], w.asks[i:i+1], o, base)
		case !o.Verdict.Decided():
			e.undecided(ctx, w, items[i:i+1], w.asks[i:i+1], o)
		default:
			e.remember(w, a, items[i], o, base)
			if denied, retry := w.answer(a, items[i], o, base); denied {
				items[i].Decision.overLimit(retry)
			}
		}
		setNumbersUntil(w.asks[i:i+1], items[i:i+1])
	}
}

// undecided answers items that the limiter did not decide: by their failure modes,
// unless the caller has left. An answer to a caller that has left reaches nobody,
// and its request tells nothing about the limiter: the items are denied with
// ReasonLimiterUnavailable, are not degraded, are charged nowhere else, and are
// not recorded.
func (e *Engine) undecided(ctx context.Context, w *scratch, items []BatchItem, asks []ask, o *Outcome) {
	if ctx.Err() == nil {
		e.away(ctx, o)
		e.fallBack(ctx, w, items, asks)
		return
	}
	withoutLimits(items)
	for i := range items {
		asks[i].abandoned = true
		items[i].Decision.unavailable()
	}
}

func (w *scratch) request(item BatchItem, charges []Charge) {
	w.requests = append(w.requests, Request{
		ID:      item.Decision.ID,
		Mode:    item.Check.Mode,
		Home:    item.Subject.Home,
		Charges: charges,
	})
}

// take asks the shared limiter, unless the caller has left already.
func (e *Engine) take(ctx context.Context, w *scratch) {
	w.outcomes = resized(w.outcomes, len(w.requests))
	if len(w.requests) == 0 {
		return
	}
	if err := ctx.Err(); err != nil {
		for i := range w.outcomes {
			w.outcomes[i].Verdict, w.outcomes[i].Err = Failed, err
		}
		return
	}
	e.takeFrom(ctx, e.limiter, w.requests, w.outcomes)
}

// takeFrom calls a limiter, which bounds its own calls: the engine sets no
// deadline. An outcome that the limiter leaves as it was, or that does not cover
// every charge, counts as not decided.
func (e *Engine) takeFrom(ctx context.Context, l Limiter, requests []Request, outcomes []Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Err = 0, nil
	}
	l.Take(ctx, requests, outcomes)
	for i := range outcomes {
		if outcomes[i].Verdict.Decided() && len(outcomes[i].Charges) != len(requests[i].Charges) {
			outcomes[i].Verdict = Unknown
		}
	}
}

// answer fills an item's limits from an outcome, whose charges begin at base of
// w.charges. denied reports whether an enforced limit denies the item, and retry
// is the longest RetryAfter of those that do.
func (w *scratch) answer(a *ask, item BatchItem, o *Outcome, base int) (denied bool, retry int64) {
	d, forced := item.Decision, item.Check.Mode == Force
	d.At = o.At
	for n, part := range [...]span{a.enforced, a.shadow} {
		for i := part.from; i < part.to; i++ {
			l := &d.Limits[w.places[i]]
			l.fill(w.charges[i].Meter, &o.Charges[i-base], o.At, forced)
			l.Shared = true
			if n == 0 && !l.Allowed {
				denied, retry = !forced, longer(retry, l.RetryAfter)
			}
		}
	}
	return denied, retry
}

// setNumbersUntil sets NumbersUntil of denied items that were decided together.
// The wait of a denial is computed from the numbers in force now. An override in
// force that has ended by then makes it uncertain. A block that ends before it
// does not, but the answer names its end too: it is when blocked becomes denied by
// a limit.
func setNumbersUntil(asks []ask, items []BatchItem) {
	if items[0].Subject.Exceptions == nil || items[0].Decision.Allowed {
		return
	}
	first := int64(0)
	for i := range items {
		switch items[i].Decision.Reason {
		case ReasonOverLimit, ReasonCostExceedsQuota, ReasonBlocked, ReasonBatchRefused:
			first = earlier(first, asks[i].overridesUntil)
		default:
			return // the wait comes from no numbers
		}
	}
	for i := range items {
		a, d := &asks[i], items[i].Decision
		if first != 0 && (d.RetryAfter == Never || a.wait(first) <= d.RetryAfter) {
			d.NumbersUntil = first
		}
		if b := d.Block; b != nil && (d.RetryAfter == Never || a.wait(b.Until) < d.RetryAfter) {
			d.NumbersUntil = earlier(d.NumbersUntil, b.Until)
		}
	}
}

// earlier returns the earlier of two instants; 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// overLimit is a refusal by limits. retry is the longest of the refusing ones.
func (d *Decision) overLimit(retry int64) {
	d.Allowed, d.Reason, d.RetryAfter = false, ReasonOverLimit, retry
	if retry == Never {
		d.Reason = ReasonCostExceedsQuota
	}
}

// fill says of a limit what became of its charge. Of a forced charge that did
// not fit nothing remains, whatever a counter at its bound may say.
func (l *LimitState) fill(m *Meter, c *Charged, at int64, forced bool) {
	l.Allowed = c.Fits
	l.Remaining = m.Remaining(c.State, at)
	l.ResetAfter = milliseconds(m.ResetAfter(c.State, at))
	if c.Fits {
		return
	}
	if forced {
		l.Remaining = 0
	}
	l.RetryAfter = Never
	if micros, ok := m.RetryAfter(c.State, at, c.Cost); ok {
		l.RetryAfter = milliseconds(micros)
	}
}

// milliseconds rounds microseconds up.
func milliseconds(micros int64) int64 { return (micros + 999) / 1000 }

// newUUIDv7 makes an id of an instant in microseconds since the epoch and 74
// random bits. The generator is the runtime's own, which is strong and takes no
// lock.
func newUUIDv7(micros int64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(micros/1000)<<16|rand.Uint64()>>52|0x7000)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
