package preview

import (
	"context"
	"maps"
	"slices"
	"strconv"
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
	// decided and counted are by index in policies, in microseconds: the time from which the draft decides, and
	// the time from which its decisions are counted.
	decided, counted []int64
	denies           []bool            // by index in policies: whether the published version enforces it
	level            int               // highest level of the minutes
	from, to         time.Time         // the run of minutes
	leftOut          []map[uint64]bool // by index in policies: keys that cannot be replayed
	sides            [2]tracedSide     // published and draft
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
	places   []int                  // by index in document: index in plan.Rules, or -1
	owner    []int16                // by request: index in document of the policy that denied, or one of the constants below
	over     []bool                 // by key: whether the limits of the policy did not allow the request
	known    []keyKnown             // by key: what was known of its counters at the request
	left     []bool                 // by key: whether the key is left out at the request
	keyRules []keyRules             // by index of a traced policy
	keys     []map[uint64]*keyState // by index of a traced policy
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
	run := bestRun(&trace, begin, whole)
	t.from, t.to, t.level = begin.Add(time.Duration(run.start)*time.Minute), begin.Add(time.Duration(run.end)*time.Minute), run.level
	for i := range trace.Minutes {
		minute := &trace.Minutes[i]
		if minute.At >= t.from.Unix() && minute.At < t.to.Unix() {
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

// A minuteRun is a half-open range of minutes without a gap, and the highest level of its minutes. share is the
// sum of the shares of their traced requests that are complete at this level, in thousandths.
type minuteRun struct {
	start, end, level int
	share             int
}

// bestRun returns the run of whole minutes of which the most can be replayed. A minute with many requests has a
// high level, at which few requests of the other minutes are complete. So it is left out if more is complete
// without it, even if it has most of the requests.
func bestRun(trace *metrics.Trace, begin time.Time, whole []bool) (best minuteRun) {
	levels := make(map[int]bool)
	for i := range trace.Minutes {
		levels[trace.Minutes[i].Level] = true
	}
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		fits, shares := slices.Clone(whole), make([]int, len(whole))
		for i := range trace.Minutes {
			m := &trace.Minutes[i]
			at := (m.At - begin.Unix()) / 60
			fits[at] = fits[at] && m.Level <= level
			complete := 0
			for k := range m.Requests {
				if slices.ContainsFunc(m.Requests[k].Keys, func(key metrics.TracedKey) bool {
					return key.Complete(level, len(trace.Policies[key.Policy].CountBy) > 0)
				}) {
					complete++
				}
			}
			shares[at] = 1000 * complete / max(1, len(m.Requests))
		}
		if run := longestRun(fits, shares); best.end == 0 || run.share > best.share {
			best, best.level = run, level
		}
	}
	return best
}

// longestRun returns the run of whole minutes with the largest share.
func longestRun(whole []bool, shares []int) (best minuteRun) {
	from, n := 0, 0
	for i := range whole {
		if !whole[i] {
			from, n = i+1, 0
			continue
		}
		if n += shares[i]; n >= best.share {
			best = minuteRun{start: from, end: i + 1, share: n}
		}
	}
	return best
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
	calendar, err := enforcement.NewCalendar(t.member.TimeZone, t.member.BillingAnchorDay)
	if err != nil {
		return err
	}
	t.addDrafted(r)
	for i, s := range []*side{&r.published, &r.draft} {
		of := &t.sides[i]
		of.document = s
		of.rules = make([]int, len(t.policies))
		for k := range t.policies {
			of.rules[k] = t.ruleOf(r, i, k)
		}
	}
	t.begin(r, calendar)
	for i := range t.sides {
		if err := t.compile(i); err != nil {
			return err
		}
		if err := t.decide(ctx, r, i, calendar); err != nil {
			return err
		}
	}
	return nil
}

// begin finds for each policy when the draft begins to decide, and when the state of its keys is known.
func (t *tracedTenant) begin(r *run, calendar *enforcement.Calendar) {
	t.decided, t.counted, t.denies = make([]int64, len(t.policies)), make([]int64, len(t.policies)), make([]bool, len(t.policies))
	for i := range t.policies {
		slug := t.policies[i].Slug
		ready := readyFrom(t.limits(i), maxTime(t.from, r.cuts[slug].at), calendar)
		t.decided[i], t.counted[i] = ready.UnixMicro(), maxTime(ready, r.countsFrom(slug)).UnixMicro()
		at := r.published.place(slug)
		t.denies[i] = at < 0 || r.published.policies[at].Mode.Denies()
		for k := range t.sides {
			s := &t.sides[k]
			var rules keyRules
			switch on := s.rules[i]; {
			case on < 0 || !limits(&s.document.policies[on]):
			case k == asPublished:
				rules = rulesOfPublished(&s.document.policies[on])
			case at < 0:
				rules = rulesOfDraft(&s.document.policies[on], nil)
			default:
				rules = rulesOfDraft(&s.document.policies[on], &r.published.policies[at])
			}
			s.keyRules, s.keys = append(s.keyRules, rules), append(s.keys, make(map[uint64]*keyState))
		}
	}
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
// under which key and at which cost. Limits that keep their counters have the cells of the published ones.
func (t *tracedTenant) compile(which int) (err error) {
	s, published := &t.sides[which], &t.sides[asPublished]
	var specs []enforcement.RuleSpec
	s.places = make([]int, len(s.document.policies))
	for i := range s.document.policies {
		p := &s.document.policies[i]
		s.places[i] = -1
		traced := slices.Index(s.rules, i)
		if !replayable(p) || traced < 0 {
			continue
		}
		number := strconv.Itoa(i)
		spec := enforcement.RuleSpec{
			Policy: p.Slug, Path: "*", Attributes: map[string]string{"p" + number: "1"}, CostFrom: "c" + number,
			Mode: p.Mode, DelayMS: p.DelayMS, CountBy: []string{"k" + number},
		}
		for k, l := range p.Limits {
			made := enforcement.RuleLimit{Limit: l, Cell: uint32(1 + which<<24 + i<<8 + k), Meter: l.Compile(1)}
			if at := published.rules[traced]; which == asDraft && at >= 0 && !s.keyRules[traced].fresh {
				former := slices.IndexFunc(published.document.policies[at].Limits, func(o enforcement.Limit) bool { return sameCounters(l, o) })
				if former >= 0 {
					made.Cell = uint32(1 + at<<8 + former)
					made.Meter = changed(l, published.document.policies[at].Limits[former], t.decided[traced])
				}
			}
			spec.Limits = append(spec.Limits, made)
		}
		s.places[i] = len(specs)
		specs = append(specs, spec)
	}
	s.plan, err = enforcement.CompilePlan("preview", 1, specs)
	return err
}

// changed returns the meter of a limit that had other numbers before the time at.
func changed(l, former enforcement.Limit, at int64) *enforcement.Meter {
	if l.Numbers() == former.Numbers() {
		return l.Compile(1)
	}
	m := l.Compile(2)
	m.Formers = []enforcement.Former{{Numbers: former.Numbers(), Rev: 1, Until: at, CarryOver: l.CarryOver}}
	return m
}

// note stores which limits do not allow request i, and returns its owner.
func (t *tracedTenant) note(s *tracedSide, i int, d *enforcement.Decision) (owner int16) {
	for k := range t.requests[i].Keys {
		at := s.rules[t.requests[i].Keys[k].Policy]
		for l := range d.Limits {
			if at >= 0 && d.Limits[l].Rule.Index == s.places[at] && !d.Limits[l].Allowed {
				s.over[t.first[i]+k] = true
			}
		}
	}
	if l := d.DenyingLimit(); !d.Allowed && l != nil {
		return int16(slices.Index(s.places, l.Rule.Index))
	}
	return nobody
}
