package enforcement

import (
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config has the optional parts and settings of an Engine.
type Config struct {
	// Local is the in-process limiter of this node. While the shared limiter is
	// unavailable, it decides the policies with failure mode local. Default: none;
	// those policies then deny, as with failure mode closed.
	Local Limiter
	// Memory stores the last known states of shared counters. While the shared limiter
	// is unavailable, the counters of Local start from these states. Default: none; the
	// counters of Local then start full.
	Memory ShareMemory
	// Nodes is the number of nodes that share each quota while the shared limiter is unavailable. The Local of each node
	// then allows the quota divided by Nodes. SetNodes changes the number. Default: 1.
	Nodes int
	// OutageJournalKeys is the maximum number of counters in the outage journal. The journal
	// records what failure modes admitted, and charges it when the shared limiter is available
	// again. A negative number disables the journal. Default: 100,000.
	OutageJournalKeys int
	// Recorder is called once for each decision except peeks. Default: none.
	Recorder Recorder
	// IdempotencyKeys is the maximum number of new idempotency keys and refundable checks of
	// one tenant in IdempotencyPeriod. The key of an atomic batch counts as one key for every 8
	// limits, and a refundable check once for each IdempotencyPeriod in which it can be
	// refunded. Default: 100,000.
	IdempotencyKeys int64
	// Reserver is the limiter that stores the reservations and lists them. Default: the limiter
	// of the engine, if it is a Reserver.
	Reserver Reserver
	// Reservations is the largest number of outstanding reservations of one tenant. Default:
	// 10,000.
	Reservations int64
	// Now is the clock that decides when list entries, blocks and overrides end. The
	// default NewID uses it too. Each call of the engine reads it at most once.
	// Default: time.Now.
	Now func() time.Time
	// NewID returns the ID of a new decision. Default: a UUIDv7 with the time of Now.
	NewID func() [16]byte
	// Logger logs when the limiter is unavailable, at most once a second. Default:
	// none.
	Logger *slog.Logger
}

// An Engine decides checks. It finds the policies that apply, computes their
// charges, and passes all charges of a call to a Limiter in one Take. It never
// repeats a Take. Engine implements Decider.
type Engine struct {
	limiter  Limiter
	local    Limiter
	memory   ShareMemory
	nodes    atomic.Int64
	outage   *outageJournal // nil if it is disabled
	recorder Recorder
	keys     *Meter // meter of the counter that bounds new records; see chargeKey
	reserver Reserver
	// mostReservations is Config.Reservations.
	mostReservations int64
	reserved         reservationCounters
	leases           leaseCounters
	now              func() time.Time
	newID            func() [16]byte
	logger           *slog.Logger
	calls            sync.Pool    // of *call
	logged           atomic.Int64 // when logUnavailable last logged, in nanoseconds since the epoch
}

const defaultIdempotencyKeys = 100_000

// NewEngine returns an Engine that charges the counters of a limiter.
func NewEngine(limiter Limiter, cfg Config) *Engine {
	e := &Engine{
		limiter:  limiter,
		local:    cfg.Local,
		memory:   cfg.Memory,
		recorder: cfg.Recorder,
		keys:     keyMeter(cmp.Or(cfg.IdempotencyKeys, defaultIdempotencyKeys)),
		now:      cfg.Now,
		newID:    cfg.NewID,
		logger:   cfg.Logger,
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.reserver, e.mostReservations = cfg.Reserver, cmp.Or(cfg.Reservations, defaultReservations); e.reserver == nil {
		e.reserver, _ = limiter.(Reserver)
	}
	e.logger = cmp.Or(e.logger, slog.New(slog.DiscardHandler))
	e.calls.New = func() any { return new(call) }
	e.SetNodes(cfg.Nodes)
	if cfg.OutageJournalKeys >= 0 {
		e.outage = newOutageJournal(cmp.Or(cfg.OutageJournalKeys, defaultOutageJournalKeys), e.localClock)
	}
	return e
}

// SetNodes sets the number of nodes. While the shared limiter is unavailable, each node decides with the quota divided by
// this number. A number below 1 counts as 1.
func (e *Engine) SetNodes(n int) { e.nodes.Store(int64(max(n, 1))) }

func (e *Engine) nodeCount() int { return int(e.nodes.Load()) }

// localClock returns the time by the clock that the states in Memory use. Without Memory, it returns the time of the
// engine's clock.
func (e *Engine) localClock() int64 {
	if e.memory != nil {
		return e.memory.Now()
	}
	return e.now().UnixMicro()
}

// Decide decides one check and stores the result in d. It reuses the slices of d.
func (e *Engine) Decide(ctx context.Context, s *Subject, c *Check, d *Decision) {
	w := e.newCall(1)
	w.items[0].BatchItem = BatchItem{Subject: s, Check: c, Decision: d}
	e.decide(ctx, w, false)
}

// DecideBatch decides checks in order, each as Decide does. If atomic is true, all
// checks must have the same subject and mode, and either all are charged or none.
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

// A call has the state of one call of Decide, DecideBatch or Explain. Calls are pooled.
type call struct {
	items     []item
	charges   []Charge // of all items
	positions []int    // for each charge: the index of its limit in its item's Decision.Limits
	requests  []Request
	outcomes  []Outcome
	now       int64 // by the node's clock, in microseconds since the epoch; 0: not read yet

	// Memory that is reused for each item.
	partition Partition
	matching  []uint16 // positions of rules in the plan
	hashed    []hashedPartition
	grants    []*grant
}

// A hashedPartition caches the partition of one check, which is the same for all rules with the same count_by. countedBy
// is the index of the first rule with that count_by.
type hashedPartition struct {
	countedBy int
	sum       [16]byte
}

// An item is one check of a call, with its decision and the state of its processing.
type item struct {
	BatchItem
	enforced       span       // in call.charges
	soft, shadow   span       // in call.charges
	first          int        // index in call.charges of the first charge of the item's request
	request        int        // index in call.requests; only valid if asks is true
	lease          Lease      // of the request
	now            int64      // copy of call.now; set only if the subject has exceptions
	overridesUntil int64      // the first end of the overrides in force on enforced limits; 0: none
	denied         bool       // denied without the limiter: the item has no charges
	classes        classSet   // classes of the policies that may apply
	blocked        bool       // the key is blocked; the limiter only computes RetryAfter
	keyed          bool       // the check has an idempotency key
	keyCharged     bool       // the first charge of the request is on the counter of new records; see chargeKey
	localKey       *outageKey // set if the local limiter stored a record of the key; recordAdmitted reads it
	unrecorded     bool       // the decision is not recorded: the caller left before, or the check repeats a used idempotency key
}

// A span is the range of the indexes i with from <= i < to.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

// hasCharges reports whether the item has charges. The enforced, the soft and the shadow
// charges of an item are adjacent in w.charges, except in an atomic batch.
func (it *item) hasCharges() bool { return it.enforced.len()+it.soft.len()+it.shadow.len() > 0 }

// asks reports whether the limiter gets a request for the item. There are three cases in
// which it does: the item has charges; the check has an idempotency key, because an earlier
// check with the same key may have had charges; or the check makes a reservation, which the
// limiter stores.
func (it *item) asks() bool { return it.keyed || it.hasCharges() || it.reserves() }

// reserves reports whether the item creates a reservation.
func (it *item) reserves() bool { return it.Check.Reservation != nil && !it.denied && !it.blocked }

// maxPooledCharges is the largest capacity of a call's slices for which release puts the call into the pool. The garbage
// collector frees larger calls.
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

// release clears the items and puts w back into the pool. If the limiter returned
// without a decision, it may still read w, so release does not pool w.
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

// decide decides the items of w with one call of Limiter.Take, and then releases w.
func (e *Engine) decide(ctx context.Context, w *call, atomic bool) {
	for i := range w.items {
		e.open(w, &w.items[i])
	}
	if atomic {
		e.decideTogether(ctx, w)
	} else {
		e.decideEach(ctx, w)
	}
	for i := range w.items {
		it := &w.items[i]
		if it.Check.Mode == Peek || it.unrecorded {
			continue
		}
		e.leases.held(it.Decision)
		if e.recorder != nil {
			e.recorder.Record(it.Decision)
		}
	}
	e.release(w)
}

// decideEach decides each item independently of the others.
func (e *Engine) decideEach(ctx context.Context, w *call) {
	w.requestEach(e)
	e.take(ctx, w)
	e.answerEach(ctx, w)
}

// decideTogether decides an atomic batch: it applies the enforced charges of all items,
// or none.
func (e *Engine) decideTogether(ctx context.Context, w *call) {
	denied := slices.ContainsFunc(w.items, func(it item) bool { return it.denied })
	if denied {
		dropLimits(w.items)
	}
	w.requestTogether(e, denied)
	e.take(ctx, w)
	switch {
	case len(w.requests) > 0 && w.repeated(w.items, &w.outcomes[0], 0):
		return
	case len(w.charges) > 0:
		e.answer(ctx, w, w.items, &w.outcomes[0], 0)
	default:
		shareDenial(w.items)
	}
	if !denied {
		setNumbersUntil(w.items)
	}
}

// take passes all requests of w to the shared limiter, unless the caller has closed the connection.
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
	if e.outage != nil && e.outage.keysHeld.Load() > 0 {
		e.storeKeysOf(ctx, w.requests)
	}
	takeFrom(ctx, e.limiter, w.requests, w.outcomes)
}

// takeFrom calls Limiter.Take. An outcome that the limiter did not set, or that lacks
// results of charges, counts as undecided. takeFrom sets no deadline, because a limiter
// bounds the time of its own calls.
func takeFrom(ctx context.Context, l Limiter, requests []Request, outcomes []Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Err, outcomes[i].Replayed, outcomes[i].Record = 0, nil, false, nil
	}
	l.Take(ctx, requests, outcomes)
	for i := range outcomes {
		o := &outcomes[i]
		complete := len(o.Charges) == len(requests[i].Charges) || !o.Verdict.hasCharges() || o.Replayed && len(o.Charges) == 0
		if o.Verdict.Decided() && !complete {
			o.Verdict = Unknown
		}
	}
}

// noRoute is the Route of a request that no policy matches.
const noRoute = "(none)"

// open begins the decision of an item. It makes the decisions that need no counter. For
// all other checks, it fills in the limits whose counters the limiter must check.
//
// The following rules apply in this order; the first match wins:
//
//  1. The tenant is suspended: deny.
//  2. The deny list has an attribute value of the check: deny.
//  3. The allow list has an attribute value of the check: allow.
//  4. No policy in force applies, and the tenant denies such checks: deny.
//  5. The check lacks an attribute, and a policy denies such checks: deny. If there
//     are several such policies, the first one of the plan is reported.
//  6. The key is blocked: deny.
//
// These denials charge nothing. They have precedence over limits and over an
// unavailable limiter. They do not apply to a check in mode Force, because that work is
// already done. For such a check, the policies that apply are charged.
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
	if s.Plan != nil {
		d.applied, it.classes = s.Plan.apply(w.matching, c, d.applied)
	}
	if !it.classes.inForce() {
		d.Reason = ReasonNoPolicy
	}
	if c.Mode != Force && it.denyWithoutCounters() {
		return
	}
	sentTo := -1
	if c.SentLimit != (SentLimit{}) {
		sentTo = s.Plan.sentTo(d.applied)
	}
	for _, i := range d.applied {
		it.addLimits(s.Plan.Rules[i], int(i) == sentTo)
	}
	if c.Reservation != nil {
		d.clampEstimates()
	}
	if s.Exceptions != nil && c.Mode != Force {
		w.block(it)
	}
}

// clock returns the time of this node's clock. It reads the clock only once for each call.
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

// newIDAt returns an ID for a request to the limiter that does not come from a decision.
func (e *Engine) newIDAt(micros int64) [16]byte {
	if e.newID != nil {
		return e.newID()
	}
	return newUUIDv7(micros)
}

// deny denies a check without the limiter. RetryAfter is Never, because waiting does
// not help.
func (it *item) deny(reason Reason) {
	it.denied = true
	it.Decision.Allowed, it.Decision.Reason, it.Decision.RetryAfter = false, reason, Never
}

// denyWithoutCounters denies a check in two cases and then returns true: if no policy in force
// applies and the tenant denies such checks, or if the check does not have an attribute and a
// policy denies checks without it.
func (it *item) denyWithoutCounters() bool {
	s, d := it.Subject, it.Decision
	if !it.classes.inForce() && s.DenyUnmatched {
		it.deny(ReasonNoPolicy)
		return true
	}
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		if r.Missing != MissingDeny || !r.Mode.InForce() {
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

// block denies a check whose key is blocked. It sets RetryAfter to the time until the last of the key's blocks ends. If
// the limits allow the check only later, answer raises RetryAfter to that time. To compute it, the engine calls the
// limiter for a blocked check too, without a charge.
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

// wait returns the time from now until an instant, in milliseconds, rounded up.
func (it *item) wait(instant int64) int64 { return Milliseconds(instant - it.now) }

// addLimits appends the limits of a rule to the decision, with the quotas in force for the check. If sent is true, the
// check's SentLimit replaces the limits of the rule.
func (it *item) addLimits(r *Rule, sent bool) {
	if sent && it.addSentLimit(r) {
		return
	}
	s, d, from, cost := it.Subject, it.Decision, len(it.Decision.Limits), r.costOf(it.Check)
	// Growing the slice in place is faster than append, which would build the state
	// first and then copy it.
	d.Limits = slices.Grow(d.Limits, len(r.Limits))[:from+len(r.Limits)]
	if s.Exceptions == nil {
		for k := range r.Limits {
			limit := &r.Limits[k]
			d.Limits[from+k] = LimitState{
				Rule: r, Limit: limit, Cost: cost, position: uint16(k), rev: max(limit.Meter.Rev, s.PlanRevision),
			}
		}
		return
	}
	n := s.numbers(r, it.Check, it.now)
	if n.override != nil && r.Mode.Denies() && len(n.limits) > 0 {
		it.overridesUntil = earlier(it.overridesUntil, n.override.Until)
	}
	for k := range n.limits {
		l := &d.Limits[from+k]
		*l = LimitState{Rule: r, Limit: &n.limits[k], Cost: cost, position: uint16(k), rev: n.revision(k)}
		if n.override != nil {
			l.Override, l.override = n.override.Override, n.override
		}
	}
}

// addSentLimit appends the check's SentLimit to the decision and returns true. If an override of the rule is in force, it
// appends nothing and returns false.
func (it *item) addSentLimit(r *Rule) bool {
	n := it.Subject.numbers(r, it.Check, it.now)
	if n.override != nil {
		return false
	}
	o := r.sent(it.Check.SentLimit)
	limit := &o.limits[0]
	it.Decision.Limits = append(it.Decision.Limits, LimitState{
		Rule: r, Limit: limit, Cost: r.costOf(it.Check), override: o, rev: max(limit.Meter.Rev, it.Subject.PlanRevision),
	})
	return true
}

// newUUIDv7 returns a UUIDv7 from a time in microseconds since the epoch and 74 random
// bits. The random generator of the Go runtime is secure and takes no lock.
func newUUIDv7(micros int64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(micros/1000)<<16|rand.Uint64()>>52|0x7000)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
