package preview

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
)

// NewLimiter returns a new Limiter in this process without counters. now is its clock, in
// microseconds since the epoch. cleanup must be called after its last use.
type NewLimiter func(now func() int64) (l enforcement.Limiter, cleanup func(), err error)

// maxReplayed is the maximum number of traced requests that one preview replays.
const maxReplayed = 200_000

// replayPoints is the maximum number of points of Replay.Points.
const replayPoints = 48

// replayTraces replays the traced requests of the members, the busiest first, and adds the result to
// the preview. It narrows the bounds of the parts of each member.
func (r *run) replayTraces(ctx context.Context, order []*member) error {
	if r.service.c.NewLimiter == nil || r.preview.Published == 0 || !r.preview.To.After(r.preview.From) {
		return nil
	}
	rows, left := r.service.c.Traces, maxReplayed
	skipped := 0
	for _, m := range order {
		if m.total.Requests == 0 {
			continue
		}
		if m.NoTrace || rows <= 0 || left <= 0 {
			skipped++
			continue
		}
		t, read, err := r.readTrace(ctx, m, rows)
		if err != nil {
			return err
		}
		rows -= read
		if t == nil {
			skipped++
			continue
		}
		for t.size() > left {
			t.level++ // fewer keys
			t.index()
		}
		left -= t.size()
		if err := t.replay(ctx, r); err != nil {
			return err
		}
		t.settle(r)
	}
	if r.preview.Replay != nil {
		r.preview.Replay.Skipped = skipped
	}
	r.finishReplay()
	return nil
}

// tracedTenant is the trace of one tenant, in the longest run of minutes whose trace is complete.
type tracedTenant struct {
	member   *member
	policies []metrics.TracedPolicy
	requests []metrics.TracedRequest // oldest first
	first    []int                   // by request: index of its first key in the lists by key
	keys     int                     // number of all keys of requests
	counted  []int64                 // by index in policies: time from which on decisions are counted, in microseconds
	level    int                     // highest level of the minutes
	from, to time.Time               // the run of minutes
	leftOut  []map[uint64]bool       // by index in policies: keys that cannot be replayed
	sides    [2]tracedSide           // published and draft
	// drafted is the index in the draft, by index in policies, or -1. The last policies are copies of
	// others, for new policies of the draft; copyOf is the index of the first, by index in policies.
	drafted, copyOf []int
}

const (
	asPublished = iota
	asDraft
)

// A tracedSide is the replay of a trace with the published version or with the draft.
type tracedSide struct {
	document *side
	rules    []int // by index of a traced policy: index of the policy in document, or -1 if it is not replayed
	plan     *enforcement.Plan
	places   []int   // by index in document: index in plan.Rules, or -1
	owner    []int16 // by request: index in document of the policy that denied, or one of the constants below
	over     []bool  // by key: whether the limits of the policy did not allow the request
}

// Values of tracedSide.owner.
const (
	nobody  = -1 // allowed
	another = -2 // denied by a policy that is not replayed, as it was decided
	skipped = -3 // not replayed
)

func (t *tracedTenant) size() int { return len(t.requests) }

// traceWarmUp is the number of minutes before the time range from which traces are read.
func (r *run) traceWarmUp() int {
	warm := 0
	for _, s := range []*side{&r.published, &r.draft} {
		for i := range s.policies {
			warm = max(warm, warmUp(s.policies[i].Limits))
		}
	}
	return min(warm, int(maxWarmUp/time.Minute))
}

// traceTries is how many times readTrace halves the time range if the trace has too many rows.
const traceTries = 4

// readTrace reads the trace of a tenant and the counts with which it must agree. It returns nil if
// there is no trace, or if it has more than most rows. read is the number of rows.
func (r *run) readTrace(ctx context.Context, m *member, most int) (t *tracedTenant, read int, err error) {
	begin := r.preview.From.Add(-time.Duration(r.traceWarmUp()) * time.Minute)
	trace, err := r.service.c.Analytics.Trace(ctx, m.Number, begin, r.preview.To, most)
	for tries := 0; err == nil && trace.Cut && tries < traceTries; tries++ {
		begin = begin.Add(r.preview.To.Sub(begin) / 2).Truncate(time.Minute)
		trace, err = r.service.c.Analytics.Trace(ctx, m.Number, begin, r.preview.To, most)
	}
	if err != nil || len(trace.Minutes) == 0 {
		return nil, 0, err
	}
	rows, err := r.service.c.Analytics.PolicyMinutes(ctx, m.Number, nil, begin, r.preview.To)
	if err != nil {
		return nil, 0, err
	}
	t = &tracedTenant{member: m, policies: trace.Policies}
	n := int(r.preview.To.Sub(begin) / time.Minute)
	counts := make([]map[string]int64, n)
	for i := range rows {
		at := int((rows[i].At - begin.Unix()) / 60)
		if counts[at] == nil {
			counts[at] = make(map[string]int64)
		}
		counts[at][rows[i].Name] += rows[i].Requests
	}
	whole := make([]bool, n)
	for i := range counts {
		whole[i] = len(counts[i]) == 0
	}
	for i := range trace.Minutes {
		minute := &trace.Minutes[i]
		whole[(minute.At-begin.Unix())/60] = agrees(minute, trace.Policies, counts[(minute.At-begin.Unix())/60])
	}
	start, end := longestRun(whole, counts)
	t.from, t.to = begin.Add(time.Duration(start)*time.Minute), begin.Add(time.Duration(end)*time.Minute)
	for i := range trace.Minutes {
		minute := &trace.Minutes[i]
		if minute.At >= t.from.Unix() && minute.At < t.to.Unix() {
			t.level = max(t.level, minute.Level)
			t.requests = append(t.requests, minute.Requests...)
		}
	}
	t.index()
	return t, len(trace.Minutes), nil
}

// agrees reports whether a minute of a trace saw as many requests of each policy as were counted.
func agrees(m *metrics.TraceMinute, policies []metrics.TracedPolicy, counts map[string]int64) bool {
	seen := make(map[string]int64)
	for i, n := range m.Seen {
		seen[policies[i].Slug] += n
	}
	for slug, n := range counts {
		if seen[slug] != n {
			return false
		}
		delete(seen, slug)
	}
	for _, n := range seen {
		if n != 0 {
			return false
		}
	}
	return true
}

// longestRun returns the run of whole minutes with the most requests, as a half-open range.
func longestRun(whole []bool, counts []map[string]int64) (start, end int) {
	var most, n int64
	from := 0
	for i := range whole {
		if !whole[i] {
			from, n = i+1, 0
			continue
		}
		for _, c := range counts[i] {
			n += c
		}
		if n >= most {
			start, end, most = from, i+1, n
		}
	}
	return start, end
}

// index drops the requests of which no key is complete at the level of t, and finds the keys that
// cannot be replayed.
func (t *tracedTenant) index() {
	t.first, t.keys, t.leftOut = nil, 0, make([]map[uint64]bool, len(t.policies))
	for i := range t.leftOut {
		t.leftOut[i] = make(map[uint64]bool)
	}
	list := t.requests[:0]
	for _, q := range t.requests {
		if !slices.ContainsFunc(q.Keys, func(k metrics.TracedKey) bool { return t.complete(&k) }) {
			continue
		}
		t.first = append(t.first, t.keys)
		t.keys += len(q.Keys)
		list = append(list, q)
		for _, k := range q.Keys {
			if q.Other || k.Overridden {
				t.leftOut[k.Policy][k.Hash] = true
			}
		}
	}
	t.requests = list
}

func (t *tracedTenant) complete(k *metrics.TracedKey) bool {
	return k.Complete(t.level, len(t.policies[k.Policy].CountBy) > 0)
}

// usable reports whether the requests of a key are complete and can be replayed.
func (t *tracedTenant) usable(k *metrics.TracedKey) bool {
	return t.complete(k) && !t.leftOut[k.Policy][k.Hash]
}

// replay decides the requests with the published version and with the draft.
func (t *tracedTenant) replay(ctx context.Context, r *run) error {
	t.addDrafted(r)
	for i, s := range []*side{&r.published, &r.draft} {
		of := &t.sides[i]
		of.document = s
		of.owner, of.over = make([]int16, len(t.requests)), make([]bool, t.keys)
		of.rules = make([]int, len(t.policies))
		for k := range t.policies {
			of.rules[k] = t.ruleOf(r, i, k)
		}
		if err := of.compile(); err != nil {
			return err
		}
		if err := t.decide(ctx, r, of); err != nil {
			return err
		}
	}
	return nil
}

// addDrafted finds the policies of the draft that apply to the traced requests of each policy. If there
// are several, it adds a copy of the policy for each of them but one.
func (t *tracedTenant) addDrafted(r *run) {
	copies := make([][]int, len(t.policies)) // by index of a traced policy: the indexes of its copies
	for i := range copies {
		t.drafted, t.copyOf = append(t.drafted, -1), append(t.copyOf, i)
	}
	for i := range copies {
		at := r.published.place(t.policies[i].Slug)
		if at < 0 || !slices.Equal(r.published.policies[at].CountBy, t.policies[i].CountBy) {
			continue
		}
		for k := range r.verdicts {
			switch {
			case r.verdicts[k].traced != at:
			case t.drafted[i] < 0:
				t.drafted[i] = k
			default:
				copies[i] = append(copies[i], len(t.policies))
				t.policies = append(t.policies, t.policies[i])
				t.drafted, t.copyOf = append(t.drafted, k), append(t.copyOf, i)
			}
		}
	}
	if len(t.policies) == len(copies) {
		return
	}
	for i := range t.requests {
		keys := slices.Clip(t.requests[i].Keys)
		for _, k := range keys {
			for _, c := range copies[k.Policy] {
				keys = append(keys, metrics.TracedKey{Policy: c, Hash: k.Hash, Cost: k.Cost, Overridden: k.Overridden})
			}
		}
		t.requests[i].Keys = keys
	}
	t.index()
}

// ruleOf returns the index of the policy of a document that applies to the requests of the traced
// policy k, or -1.
func (t *tracedTenant) ruleOf(r *run, which, k int) int {
	switch {
	case t.drafted[k] < 0 && which == asDraft:
		return -1
	case which == asDraft:
		return t.drafted[k]
	case t.copyOf[k] != k:
		return -1
	}
	at := r.published.place(t.policies[k].Slug)
	if at < 0 || !slices.Equal(r.published.policies[at].CountBy, t.policies[k].CountBy) {
		return -1
	}
	return at
}

// replayable reports whether the engine can replay the policy from a trace. It is not recorded how
// long requests hold the places of a concurrency limit.
func replayable(p *plans.Policy) bool {
	return p.Mode.Counts() && len(p.Limits) > 0 &&
		!slices.ContainsFunc(p.Limits, func(l enforcement.Limit) bool { return l.Algorithm == enforcement.Concurrency })
}

// compile makes a plan in which an attribute of a check says which policies apply, and others say
// under which key and at which cost.
func (s *tracedSide) compile() (err error) {
	var specs []enforcement.RuleSpec
	cell := uint32(0)
	s.places = make([]int, len(s.document.policies))
	for i := range s.document.policies {
		p := &s.document.policies[i]
		s.places[i] = -1
		if !replayable(p) || !slices.Contains(s.rules, i) {
			continue
		}
		number := strconv.Itoa(i)
		spec := enforcement.RuleSpec{
			Policy: p.Slug, Path: "*", Attributes: map[string]string{"p" + number: "1"}, CostFrom: "c" + number,
			Mode: p.Mode, DelayMS: p.DelayMS,
		}
		if len(p.CountBy) > 0 {
			spec.CountBy = []string{"k" + number}
		}
		for _, l := range p.Limits {
			cell++
			spec.Limits = append(spec.Limits, enforcement.RuleLimit{Limit: l, Cell: cell, Meter: l.Compile(1)})
		}
		s.places[i] = len(specs)
		specs = append(specs, spec)
	}
	s.plan, err = enforcement.CompilePlan("preview", 1, specs)
	return err
}

// decide replays the requests with the engine and a limiter that starts without counters.
func (t *tracedTenant) decide(ctx context.Context, r *run, s *tracedSide) error {
	var clock atomic.Int64
	limiter, cleanup, err := r.service.c.NewLimiter(clock.Load)
	if err != nil {
		return err
	}
	defer cleanup()
	engine := enforcement.NewEngine(limiter, enforcement.Config{
		Now:   func() time.Time { return time.UnixMicro(clock.Load()) },
		NewID: func() (id [16]byte) { return id },
	})
	calendar, err := enforcement.NewCalendar(t.member.TimeZone, t.member.BillingAnchorDay)
	if err != nil {
		return err
	}
	subject := &enforcement.Subject{
		TenantID: t.member.ID, Tenant: t.member.Slug, Number: 1, Home: "preview", Plan: s.plan, PlanRevision: 1, Calendar: calendar,
	}
	texts := make(map[uint64]string)
	var check enforcement.Check
	var decision enforcement.Decision
	for i := range t.requests {
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		q := &t.requests[i]
		if s.owner[i] = t.prepare(r, s, q, &check, texts); s.owner[i] != nobody {
			continue
		}
		clock.Store(max(clock.Load(), q.At))
		decision.Reset()
		engine.Decide(ctx, subject, &check, &decision)
		t.note(s, i, &decision)
	}
	return nil
}

// prepare sets check to the request q. It returns nobody if the engine decides it.
func (t *tracedTenant) prepare(r *run, s *tracedSide, q *metrics.TracedRequest, check *enforcement.Check, texts map[uint64]string) int16 {
	*check = enforcement.Check{Path: "/", Cost: 1, Attributes: check.Attributes[:0]}
	if q.Forced {
		check.Mode = enforcement.Force
	}
	if q.Other {
		return skipped
	}
	for i := range q.Keys {
		k := &q.Keys[i]
		at := s.rules[k.Policy]
		if at < 0 || !s.document.policies[at].Mode.Counts() || len(s.document.policies[at].Limits) == 0 {
			continue
		}
		place := s.places[at]
		if place < 0 || !t.usable(k) {
			if k.Over && s.document.policies[at].Mode.Denies() {
				return another
			}
			continue
		}
		if q.At < r.cuts[t.policies[k.Policy].Slug].at.UnixMicro() {
			continue
		}
		number := strconv.Itoa(at)
		check.Attributes = append(check.Attributes, enforcement.Attribute{Name: "p" + number, Value: "1"})
		if len(t.policies[k.Policy].CountBy) > 0 {
			text, known := texts[k.Hash]
			if !known {
				text = strconv.FormatUint(k.Hash, 16)
				texts[k.Hash] = text
			}
			check.Attributes = append(check.Attributes, enforcement.Attribute{Name: "k" + number, Value: text})
		}
		if k.Cost != 1 {
			check.Attributes = append(check.Attributes, enforcement.Attribute{Name: "c" + number, Value: strconv.FormatInt(k.Cost, 10)})
		}
	}
	if len(check.Attributes) == 0 {
		return skipped
	}
	return nobody
}

// note stores the decision of request i.
func (t *tracedTenant) note(s *tracedSide, i int, d *enforcement.Decision) {
	for k := range t.requests[i].Keys {
		at := s.rules[t.requests[i].Keys[k].Policy]
		for l := range d.Limits {
			if at >= 0 && d.Limits[l].Rule.Index == s.places[at] && !d.Limits[l].Allowed {
				s.over[t.first[i]+k] = true
			}
		}
	}
	if d.Allowed {
		return
	}
	if l := d.DenyingLimit(); l != nil {
		s.owner[i] = int16(slices.Index(s.places, l.Rule.Index))
	}
}

// countsFrom returns the time from which on decisions about the requests of a policy are counted: the
// start of the time range, or later, when the replayed counters have run for the memory of the limits.
func (t *tracedTenant) countsFrom(r *run, slug string, limits []enforcement.Limit) time.Time {
	begin := maxTime(t.from, r.cuts[slug].at)
	return maxTime(begin.Add(time.Duration(warmUp(limits))*time.Minute), r.countsFrom(slug))
}
