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
	// Nodes is among how many nodes Local's quota is shared. Default: 1.
	Nodes int
	// Timeout is how long the limiter may take. One in this process never waits:
	// there a long one keeps a starved machine from looking like a limiter that
	// is away. Default: 50 ms.
	Timeout time.Duration
	// Recorder hears of every decision. Default: none.
	Recorder Recorder
	// Now is the clock by which lists, blocks and overrides end. It is asked only
	// for a tenant that has some, and to explain. Default: time.Now.
	Now func() time.Time
	// NewID makes decision ids. Default: UUIDv7.
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
	nodes    int
	timeout  time.Duration
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
		nodes:    max(cfg.Nodes, 1),
		timeout:  cfg.Timeout,
		recorder: cfg.Recorder,
		now:      cfg.Now,
		newID:    cfg.NewID,
		logger:   cfg.Logger,
	}
	if e.timeout <= 0 {
		e.timeout = 50 * time.Millisecond
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.newID == nil {
		e.newID = newUUIDv7
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

// scratch is what one call needs and the next can use again. Of the limits of
// all items of a call it has the charges in one list.
type scratch struct {
	one       [1]BatchItem
	asks      []ask
	charges   []Charge
	places    []int // of each charge: where its limit stands in its item's Decision.Limits
	requests  []Request
	outcomes  []Outcome
	partition Partition
	counted   []counted // of one item
	ahead     foresight
	outlooks  []outlook
	foreseen  bool  // of every item that may have to wait, with the check itself
	now       int64 // by the node's clock, in microseconds; 0: not asked yet
}

// clock asks this node's clock once a call.
func (w *scratch) clock(e *Engine) int64 {
	if w.now == 0 {
		w.now = e.now().UnixMicro()
	}
	return w.now
}

// counted is a partition that rules with one count_by share.
type counted struct {
	by  int
	sum [16]byte
}

// An ask is the charges of one item: spans of scratch.charges.
type ask struct {
	applying         ruleSet
	now              int64 // by this node's clock; of a subject that is steered
	enforced, shadow span
	refused          bool // without asking a limiter
	blocked          bool
	ends             int64 // of the last block
	request          int   // among those of the call; meaningless without charges
	looks            bool  // the time ahead is asked about
	ahead            int   // in scratch.outlooks
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
	}
	if e.recorder != nil {
		for i := range items {
			if items[i].Check.Mode != Peek {
				e.recorder.Record(items[i].Decision)
			}
		}
	}
	e.release(w)
}

// begin opens the decisions of items.
func (e *Engine) begin(w *scratch, items []BatchItem) {
	w.charges, w.places, w.requests, w.outcomes, w.outlooks = w.charges[:0], w.places[:0], w.requests[:0], w.outcomes[:0], w.outlooks[:0]
	w.asks = resized(w.asks, len(items))
	w.now, w.foreseen = 0, false
	w.ahead.reset()
	for i := range items {
		w.asks[i] = ask{}
		e.open(w, &w.asks[i], items[i])
	}
}

// resized gives a slice of so many elements in the room of another.
func resized[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// release gives w back, unless a limiter that ran out of time may still read it.
func (e *Engine) release(w *scratch) {
	if undecided(w.outcomes) {
		return
	}
	if cap(w.charges) > keepCharges || cap(w.asks) > keepCharges || cap(w.ahead.charges) > keepCharges {
		return
	}
	w.one[0] = BatchItem{}
	e.pool.Put(w)
}

func undecided(outcomes []Outcome) bool {
	for i := range outcomes {
		if !outcomes[i].Verdict.Decided() {
			return true
		}
	}
	return false
}

// open begins a decision: it says what can be said without a counter, and
// leaves in a the rules whose counters have to be asked.
//
// What answers here is asked in this order, and the first one that speaks is
// heard: the tenant's status; its deny list; its allow list, which lets pass;
// its default, when no policy applies; a missing attribute of the first policy,
// in the order of the plan, that denies it; a blocked key. Nothing is charged
// then, so a refusal here also wins over any limit and over a limiter that is
// away. A forced check is refused by none of them, as its work is done: it
// charges what applies.
func (e *Engine) open(w *scratch, a *ask, item BatchItem) {
	s, c, d := item.Subject, item.Check, item.Decision
	*d = Decision{ID: e.newID(), Subject: s, Check: c, Allowed: true, Reason: ReasonOK, Route: noRoute, Limits: d.Limits[:0]}
	if s.Steering != nil {
		a.now = w.clock(e)
	}
	var matching ruleSet
	if s.Plan != nil {
		matching = s.Plan.match(c)
		d.Route = s.Plan.route(&matching)
	}
	if s.Suspended || s.Steering != nil {
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
		a.applying, enforced = s.Plan.apply(matching, c)
		d.applied = a.applying
	}
	if c.Mode != Force {
		if a.deny(item, enforced); a.refused {
			return
		}
	} else if !enforced {
		d.Reason = ReasonNoPolicy
	}
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
		a.limits(item, s.Plan.Rules[i])
	}
	if s.Steering != nil && c.Mode != Force {
		w.block(a, item)
	}
}

// deny refuses a check that the policies do not let come to their limits.
func (a *ask) deny(item BatchItem, enforced bool) {
	s, c, d := item.Subject, item.Check, item.Decision
	if !enforced {
		d.Reason = ReasonNoPolicy
		if s.DenyUnmatched {
			a.refuse(d, ReasonNoPolicy)
			return
		}
	}
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
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

// block refuses a check with a blocked key. Its limits are still asked what they
// hold, to say when it would pass.
func (w *scratch) block(a *ask, item BatchItem) {
	s, d := item.Subject, item.Decision
	w.counted = w.counted[:0]
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
		r := s.Plan.Rules[i]
		of := s.Steering.of(r)
		if of == nil || len(of.blocks) == 0 {
			continue
		}
		b := of.blocks[w.partitionOf(r, item.Check)]
		if b == nil || a.now >= b.Until {
			continue
		}
		if !a.blocked {
			a.blocked, d.Allowed, d.Reason, d.Policy, d.Block = true, false, ReasonBlocked, r.Policy, b
		}
		a.ends = max(a.ends, b.Until)
		d.RetryAfter = a.wait(a.ends)
	}
}

// limits appends a rule's limits with the numbers that hold for the check.
func (a *ask) limits(item BatchItem, r *Rule) {
	s, d, from := item.Subject, item.Decision, len(item.Decision.Limits)
	// Filled in place: append would make each state twice.
	d.Limits = slices.Grow(d.Limits, len(r.Limits))[:from+len(r.Limits)]
	if s.Steering == nil {
		for k := range r.Limits {
			limit := &r.Limits[k]
			d.Limits[from+k] = LimitState{Rule: r, Limit: limit, Cost: item.Check.Cost, rev: max(limit.Meter.Rev, s.PlanRevision)}
		}
		return
	}
	n := s.numbers(r, item.Check, a.now)
	for k := range n.limits {
		l := &d.Limits[from+k]
		*l = LimitState{Rule: r, Limit: &n.limits[k], Cost: item.Check.Cost, rev: n.revision(k)}
		if n.override != nil {
			l.Override, l.override = &n.override.Override, n.override
		}
	}
}

// refuse answers without a limiter: waiting cannot help.
func (a *ask) refuse(d *Decision, why Reason) {
	a.refused, a.applying = true, ruleSet{}
	d.Allowed, d.Reason, d.RetryAfter = false, why, Never
}

// route is the pattern of the most specific of the matching rules.
func (p *Plan) route(matching *ruleSet) string {
	var best *Rule
	for i := matching.next(0); i >= 0; i = matching.next(i + 1) {
		if r := p.Rules[i]; best == nil || r.rank < best.rank {
			best = r
		}
	}
	if best == nil {
		return noRoute
	}
	return best.pattern.String()
}

// apply gives, of the matching rules, those that apply: without those that are
// off, that skip a check without their attribute, or that another one
// replaces. A rule replaces others even if it is itself replaced, but only in
// mode enforce.
//
// enforced tells whether a policy in mode enforce applies. Without one no
// policy decides, and the tenant's default does: so shadow policies change no
// answer, and leaving out an attribute is no way around a default of deny.
func (p *Plan) apply(matching ruleSet, c *Check) (applying ruleSet, enforced bool) {
	var replaced ruleSet
	for i := matching.next(0); i >= 0; i = matching.next(i + 1) {
		r := p.Rules[i]
		switch {
		case r.Mode == PolicyOff:
			continue
		case len(r.slots) > 0 && r.skips() && r.missing(c) != "":
			continue
		}
		applying.add(i)
		if r.Mode == PolicyEnforce {
			enforced = true
			replaced.join(&r.replaces)
		}
	}
	applying.remove(&replaced)
	return applying, enforced
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
	w.counted = w.counted[:0]
	s, c, d := item.Subject, item.Check, item.Decision
	cost := c.Cost
	if a.blocked {
		cost = 0 // asks what is left as it is
	}
	for i := a.applying.next(0); i >= 0; i = a.applying.next(i + 1) {
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
			w.charges = append(w.charges, Charge{
				Key:   Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: partition},
				Meter: l.Limit.Meter,
				Rev:   l.rev,
				Cost:  cost,
				Group: *group,
			})
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

// askEach makes the requests for items: one for each that has charges, and
// behind it those about its time ahead, where they could matter.
func (w *scratch) askEach(items []BatchItem) {
	for i := range items {
		a, group := &w.asks[i], uint16(0)
		a.enforced = w.charge(a, items[i], PolicyEnforce, &group)
		a.shadow = w.charge(a, items[i], PolicyShadow, &group)
	}
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
		if a.blocked || w.foreseen || items[i].Subject.Steering != nil && w.mayCross(items, i, 1) {
			a.looks, a.ahead = true, len(w.outlooks)
			w.outlooks = append(w.outlooks, w.foresee(items, i, 1))
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
		o := &w.outcomes[a.request]
		if !o.Verdict.Decided() {
			e.away(o)
			if a.blocked {
				items[i].Decision.Limits = items[i].Decision.Limits[:0]
				continue
			}
			e.fallBack(ctx, w, items[i:i+1], w.asks[i:i+1])
			continue
		}
		refusing, retry := w.answer(a, items[i], o, a.enforced.from)
		refusing = !a.blocked && (refusing || refuses(o, items[i]))
		if refusing {
			items[i].Decision.overLimit(retry)
		}
		if a.looks && (a.blocked || refusing) {
			look := &w.outlooks[a.ahead]
			w.hear(look, items)
			w.settle(look, items, i)
		}
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

// take asks the shared limiter.
func (e *Engine) take(ctx context.Context, w *scratch) {
	w.outcomes = resized(w.outcomes, len(w.requests))
	if len(w.requests) > 0 {
		e.takeFrom(ctx, e.limiter, w.requests, w.outcomes)
	}
}

// takeFrom asks a limiter within the time-out. An outcome that it leaves, or
// that does not cover every charge, counts as not decided.
func (e *Engine) takeFrom(ctx context.Context, l Limiter, requests []Request, outcomes []Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Err = 0, nil
	}
	bounded := &timeout{Context: ctx, deadline: time.Now().Add(e.timeout)}
	l.Take(bounded, requests, outcomes)
	bounded.end()
	for i := range outcomes {
		if outcomes[i].Verdict.Decided() && len(outcomes[i].Charges) != len(requests[i].Charges) {
			outcomes[i].Verdict = Unknown
		}
	}
}

// answer fills an item's limits from an outcome, whose charges begin at base of
// w.charges. refusing tells whether an enforced one of them refuses the item,
// and retry how long the longest of those does.
func (w *scratch) answer(a *ask, item BatchItem, o *Outcome, base int) (refusing bool, retry int64) {
	d, forced := item.Decision, item.Check.Mode == Force
	d.At = o.At
	for i := a.enforced.from; i < a.enforced.to; i++ {
		l := &d.Limits[w.places[i]]
		c, m := &o.Charges[i-base], w.charges[i].Meter
		if a.blocked {
			c.uncosted(m, l.Cost, o.At)
		}
		l.fill(m, c, o.At, forced)
		l.Shared = true
		if !l.Allowed {
			refusing, retry = true, longer(retry, l.RetryAfter)
		}
	}
	for i := a.shadow.from; i < a.shadow.to; i++ {
		l := &d.Limits[w.places[i]]
		c, m := &o.Charges[i-base], w.charges[i].Meter
		if a.blocked {
			c.uncosted(m, l.Cost, o.At)
		}
		l.fill(m, c, o.At, forced)
		l.Shared = true
	}
	return refusing && refuses(o, item), retry
}

// uncosted says of a charge of a blocked key, which was asked without its cost,
// whether that would fit.
func (c *Charged) uncosted(m *Meter, cost, at int64) {
	c.Cost, c.Fits = cost, m.Admits(m.Left(c.State, at), cost)
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

// newUUIDv7 makes an id of the time and 74 random bits. The generator is the
// runtime's own, which is strong and asks nobody.
func newUUIDv7() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|rand.Uint64()>>52|0x7000)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
