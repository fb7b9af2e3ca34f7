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
	// Local is the in-process limiter of this node. It decides policies with the
	// failure mode local while the shared limiter is unavailable. Default: none;
	// those policies then act as closed.
	Local Limiter
	// Memory stores the last states of shared counters. Local starts from them.
	// Default: none; Local then starts with full counters.
	Memory ShareMemory
	// Nodes is the number of nodes that share the quota of Local. Default: 1.
	Nodes int
	// Recorder is called once for each decision except peeks. Default: none.
	Recorder Recorder
	// Now is the clock for the ends of list entries, blocks and overrides, and for
	// the timestamps in IDs of the default NewID. A call reads it at most once.
	// Default: time.Now.
	Now func() time.Time
	// NewID makes decision IDs. Default: UUIDv7 at the instant of Now.
	NewID func() [16]byte
	// Logger logs that the limiter is unavailable, at most once a second.
	// Default: none.
	Logger *slog.Logger
}

// An Engine decides checks. It finds the policies that apply, computes their
// charges, and passes all charges of a call to a Limiter in one Take. It never
// repeats a Take. Engine implements Decider.
type Engine struct {
	limiter  Limiter
	local    Limiter
	memory   ShareMemory
	nodes    int
	recorder Recorder
	now      func() time.Time
	newID    func() [16]byte
	logger   *slog.Logger
	calls    sync.Pool    // of *call
	logged   atomic.Int64 // when logUnavailable last logged, in nanoseconds since the epoch
}

// NewEngine returns an Engine that charges a limiter.
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
	e.calls.New = func() any { return new(call) }
	return e
}

// Decide decides one check and stores the result in d. It reuses the slices of d.
func (e *Engine) Decide(ctx context.Context, s *Subject, c *Check, d *Decision) {
	w := e.newCall(1)
	w.items[0].BatchItem = BatchItem{Subject: s, Check: c, Decision: d}
	e.decide(ctx, w, false)
}

// DecideBatch decides checks in order, each as Decide does. With atomic, all
// checks have one subject and one mode, and either all are charged or none.
func (e *Engine) DecideBatch(ctx context.Context, items []BatchItem, atomic bool) {
	if len(items) == 0 {
		return
	}
	w := e.newCall(len(items))
	for i := range items {
		w.items[i].BatchItem = items[i]
	}
	e.decide(ctx, w, atomic)
}

// A call is the state of one call of the engine. Calls are pooled.
type call struct {
	items     []item
	charges   []Charge // of all items
	positions []int    // for each charge: the index of its limit in its item's Decision.Limits
	requests  []Request
	outcomes  []Outcome
	now       int64 // by the node's clock, in microseconds since the epoch; 0: not read yet

	// Scratch space for one item.
	partition Partition
	matching  []uint16 // positions of rules in the plan
	hashed    []hashedPartition
}

// A hashedPartition is the partition of all rules with one count_by. The first
// rule with that count_by identifies it.
type hashedPartition struct {
	countedBy int
	sum       [16]byte
}

// An item is one check of a call and its state.
type item struct {
	BatchItem
	enforced, shadow span  // in call.charges
	request          int   // index in call.requests; meaningless without charges
	now              int64 // copy of call.now; set only for a subject with exceptions
	overridesUntil   int64 // the first end of the overrides in force on enforced limits; 0: none
	denied           bool  // without the limiter: no charges are made
	hasShadow        bool  // a shadow policy may apply
	blocked          bool  // the key is blocked; the limiter is asked only for the wait
	abandoned        bool  // the caller left before the limiter decided; not recorded
}

// A span is a range of indexes: from is included, to is not.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// hasCharges reports whether the item has charges. An item's spans are adjacent,
// except in an atomic batch.
func (it *item) hasCharges() bool { return it.enforced.len()+it.shadow.len() > 0 }

// maxPooledCharges bounds the size of a call that goes back to the pool.
const maxPooledCharges = 4096

// newCall returns a call with n empty items.
func (e *Engine) newCall(n int) *call {
	w := e.calls.Get().(*call)
	w.charges, w.positions, w.requests, w.outcomes = w.charges[:0], w.positions[:0], w.requests[:0], w.outcomes[:0]
	w.items = resized(w.items, n)
	w.now = 0
	return w
}

// resized returns a slice of n elements that reuses the memory of s. The elements
// have arbitrary values.
func resized[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }

// release clears the items and puts w back into the pool. It does not pool w if
// the limiter returned without a decision: the limiter may still read w.
func (e *Engine) release(w *call) {
	clear(w.items)
	for i := range w.outcomes {
		if !w.outcomes[i].Verdict.Decided() {
			return
		}
	}
	if cap(w.charges) <= maxPooledCharges && cap(w.items) <= maxPooledCharges {
		e.calls.Put(w)
	}
}

// decide decides the items of w with one Take, and releases w.
func (e *Engine) decide(ctx context.Context, w *call, atomic bool) {
	for i := range w.items {
		e.open(w, &w.items[i])
	}
	if atomic {
		e.decideTogether(ctx, w)
	} else {
		e.decideEach(ctx, w)
	}
	if e.recorder != nil {
		for i := range w.items {
			if it := &w.items[i]; it.Check.Mode != Peek && !it.abandoned {
				e.recorder.Record(it.Decision)
			}
		}
	}
	e.release(w)
}

// decideEach decides each item by itself.
func (e *Engine) decideEach(ctx context.Context, w *call) {
	w.requestEach()
	e.take(ctx, w)
	e.answerEach(ctx, w)
}

// decideTogether decides all items as one: it applies the enforced charges of all
// items, or none.
func (e *Engine) decideTogether(ctx context.Context, w *call) {
	if slices.ContainsFunc(w.items, func(it item) bool { return it.denied }) {
		dropLimits(w.items)
		shareDenial(w.items)
		return
	}
	w.requestTogether()
	e.take(ctx, w)
	if len(w.requests) > 0 {
		e.answer(ctx, w, w.items, &w.outcomes[0], 0)
	} else {
		shareDenial(w.items)
	}
	setNumbersUntil(w.items)
}

// take charges the shared limiter, unless the caller has left.
func (e *Engine) take(ctx context.Context, w *call) {
	w.outcomes = resized(w.outcomes, len(w.requests))
	if len(w.requests) == 0 {
		return
	}
	if err := HasLeft(ctx, true); err != nil {
		for i := range w.outcomes {
			w.outcomes[i].Verdict, w.outcomes[i].Err = Failed, err
		}
		return
	}
	takeFrom(ctx, e.limiter, w.requests, w.outcomes)
}

// takeFrom calls a limiter. The engine sets no deadline: a limiter bounds its own
// calls. An outcome that the limiter did not set, or that does not have every
// charge, is not a decision.
func takeFrom(ctx context.Context, l Limiter, requests []Request, outcomes []Outcome) {
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

// noRoute is the Route of a request that no policy matches.
const noRoute = "(none)"

// open starts a decision. It decides what needs no counter, and fills in the
// limits whose counters decide the rest.
//
// Checks run in this order; the first match wins:
//
//  1. the tenant is suspended
//  2. the deny list
//  3. the allow list: it allows the check
//  4. no enforced policy applies, and the tenant denies such checks
//  5. the check lacks an attribute, and a policy denies such checks; the first
//     policy of the plan counts
//  6. the key is blocked
//
// These denials charge nothing. They take precedence over limits and over an
// unavailable limiter. None of them denies a check in mode Force, because the
// work is already done; the policies that apply are charged.
func (e *Engine) open(w *call, it *item) {
	s, c, d := it.Subject, it.Check, it.Decision
	*it = item{BatchItem: it.BatchItem}
	*d = Decision{
		ID: w.newID(e), Subject: s, Check: c, Allowed: true, Reason: ReasonOK, Route: noRoute, Limits: d.Limits[:0], applied: d.applied[:0],
	}
	if s.Exceptions != nil {
		it.now = w.clock(e)
	}
	if s.Plan != nil {
		w.matching = s.Plan.match(c, w.matching[:0])
		d.Route = s.Plan.route(w.matching)
	}
	if s.Suspended || s.Exceptions != nil {
		if reason, entry := s.beforePolicies(c, it.now); reason != "" {
			d.List, d.Reason = entry, reason
			if reason != ReasonAllowedByList {
				it.deny(reason)
			}
			return
		}
	}
	enforced := false
	if s.Plan != nil {
		d.applied, enforced, it.hasShadow = s.Plan.apply(w.matching, c, d.applied)
	}
	if !enforced {
		d.Reason = ReasonNoPolicy
	}
	if c.Mode != Force && it.denyWithoutCounters(enforced) {
		return
	}
	for _, i := range d.applied {
		it.addLimits(s.Plan.Rules[i])
	}
	if s.Exceptions != nil && c.Mode != Force {
		w.block(it)
	}
}

// clock returns the time of this node's clock. A call reads the clock once.
func (w *call) clock(e *Engine) int64 {
	if w.now == 0 {
		w.now = e.now().UnixMicro()
	}
	return w.now
}

// newID returns the ID of a decision. It reads the clock only for the default NewID.
func (w *call) newID(e *Engine) [16]byte {
	if e.newID != nil {
		return e.newID()
	}
	return newUUIDv7(w.clock(e))
}

// newIDAt returns the ID of a request that is not a decision.
func (e *Engine) newIDAt(micros int64) [16]byte {
	if e.newID != nil {
		return e.newID()
	}
	return newUUIDv7(micros)
}

// deny denies a check without the limiter. Waiting does not help.
func (it *item) deny(reason Reason) {
	it.denied = true
	it.Decision.Allowed, it.Decision.Reason, it.Decision.RetryAfter = false, reason, Never
}

// denyWithoutCounters denies a check that no enforced policy applies to, or that
// lacks an attribute, if the tenant or a policy denies such checks.
func (it *item) denyWithoutCounters(enforced bool) bool {
	s, d := it.Subject, it.Decision
	if !enforced && s.DenyUnmatched {
		it.deny(ReasonNoPolicy)
		return true
	}
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		if r.Missing != MissingDeny || r.Mode != PolicyEnforce {
			continue
		}
		if name := r.missing(it.Check); name != "" {
			it.deny(ReasonMissingAttribute)
			d.Missing, d.Policy = name, r.Policy
			return true
		}
	}
	return false
}

// block denies a check with a blocked key. The wait lasts until the last block of
// the key ends and the limits allow the check, so the limiter is still asked.
func (w *call) block(it *item) {
	s, d := it.Subject, it.Decision
	w.hashed = w.hashed[:0]
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		exceptions := s.Exceptions.of(r)
		if exceptions == nil || exceptions.blocks.Len() == 0 {
			continue
		}
		b := exceptions.block(w.partitionOf(r, it.Check))
		if b == nil || it.now >= b.Until {
			continue
		}
		if !it.blocked {
			it.blocked, d.Allowed, d.Reason, d.Policy, d.Block = true, false, ReasonBlocked, r.Policy, b
		}
		d.RetryAfter = max(d.RetryAfter, it.wait(b.Until))
	}
}

// wait returns the time from now to an instant, in milliseconds, rounded up.
func (it *item) wait(instant int64) int64 { return Milliseconds(instant - it.now) }

// addLimits appends the limits of a rule with the numbers in force.
func (it *item) addLimits(r *Rule) {
	s, d, from := it.Subject, it.Decision, len(it.Decision.Limits)
	// append would build each state twice.
	d.Limits = slices.Grow(d.Limits, len(r.Limits))[:from+len(r.Limits)]
	if s.Exceptions == nil {
		for k := range r.Limits {
			limit := &r.Limits[k]
			d.Limits[from+k] = LimitState{
				Rule: r, Limit: limit, Cost: it.Check.Cost, position: uint16(k), rev: max(limit.Meter.Rev, s.PlanRevision),
			}
		}
		return
	}
	n := s.numbers(r, it.Check, it.now)
	if n.override != nil && r.Mode == PolicyEnforce && len(n.limits) > 0 {
		it.overridesUntil = earlier(it.overridesUntil, n.override.Until)
	}
	for k := range n.limits {
		l := &d.Limits[from+k]
		*l = LimitState{Rule: r, Limit: &n.limits[k], Cost: it.Check.Cost, position: uint16(k), rev: n.revision(k)}
		if n.override != nil {
			l.Override, l.override = n.override.Override, n.override
		}
	}
}

// newUUIDv7 returns an ID with an instant in microseconds since the epoch and 74
// random bits. The runtime's generator is secure and takes no lock.
func newUUIDv7(micros int64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(micros/1000)<<16|rand.Uint64()>>52|0x7000)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
