package preview

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
)

// A decider replays the requests of a trace on one side.
type decider struct {
	t        *tracedTenant
	r        *run
	side     *tracedSide
	draft    bool
	since    int64 // time from which the published version decided, in microseconds
	calendar *enforcement.Calendar
	clock    atomic.Int64
	engine   *enforcement.Engine
	// subject has the plan of the side. published has that of the published version: a key that follows the
	// trace is charged with its numbers.
	subject, published *enforcement.Subject
	check              enforcement.Check
	decision           enforcement.Decision
	followed           []int // indexes of the keys of the request that follow the trace
}

// decide replays the requests on one side with the engine and a limiter that starts without counters.
func (t *tracedTenant) decide(ctx context.Context, r *run, which int, calendar *enforcement.Calendar) error {
	s := &t.sides[which]
	s.owner, s.over = make([]int16, len(t.requests)), make([]bool, t.keys)
	s.known, s.left = make([]keyKnown, t.keys), make([]bool, t.keys)
	d := &decider{t: t, r: r, side: s, draft: which == asDraft, since: r.since.UnixMicro(), calendar: calendar}
	limiter, cleanup, err := r.service.c.NewLimiter(d.clock.Load)
	if err != nil {
		return err
	}
	defer cleanup()
	d.engine = enforcement.NewEngine(limiter, enforcement.Config{
		Now:   func() time.Time { return time.UnixMicro(d.clock.Load()) },
		NewID: func() (id [16]byte) { return id },
	})
	d.subject = &enforcement.Subject{
		TenantID: t.member.ID, Tenant: t.member.Slug, Number: 1, Home: "preview", Plan: s.plan, PlanRevision: 1, Calendar: calendar,
	}
	published := *d.subject
	published.Plan = t.sides[asPublished].plan
	d.published = &published
	for i := range t.requests {
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		d.clock.Store(max(d.clock.Load(), t.requests[i].At))
		s.owner[i] = d.request(ctx, i)
	}
	return nil
}

// request replays request i and returns its owner.
func (d *decider) request(ctx context.Context, i int) (owner int16) {
	if d.t.requests[i].Other {
		return skipped
	}
	owner = d.sort(i)
	if owner == nobody && len(d.check.Attributes) > 0 {
		owner = d.ask(ctx, i)
	}
	for _, k := range d.followed {
		d.follow(ctx, i, k, owner == nobody)
	}
	return owner
}

// sort adds the keys that the side decides to the check, and the others to d.followed. If the policy of
// one of the others denied the request, it returns this policy, or another if the side does not replay it.
func (d *decider) sort(i int) (owner int16) {
	q := &d.t.requests[i]
	d.check = enforcement.Check{Path: "/", Cost: 1, Attributes: d.check.Attributes[:0]}
	if q.Forced {
		d.check.Mode = enforcement.Force
	}
	d.followed = d.followed[:0]
	owner = nobody
	for k := range q.Keys {
		key := &q.Keys[k]
		at := d.side.rules[key.Policy]
		if at < 0 || !limits(&d.side.document.policies[at]) {
			continue
		}
		denied := key.Over && !q.Forced && d.side.document.policies[at].Mode.Denies()
		switch {
		case d.side.places[at] < 0 || !d.t.usable(key):
			if denied {
				owner = another
			}
		case q.At < d.r.cuts[d.t.policies[key.Policy].Slug].at.UnixMicro():
		case d.decides(i, k):
			d.check.Attributes = appendKey(d.check.Attributes, at, d.state(key).text, key.Cost)
		default:
			d.followed = append(d.followed, k)
			d.side.over[d.t.first[i]+k] = key.Over
			if denied && owner == nobody {
				owner = int16(at)
			}
		}
	}
	switch {
	case owner != nobody || len(d.check.Attributes) > 0:
	case len(d.followed) == 0:
		return skipped
	case !q.Forced && d.t.deniedThen(q):
		return another
	}
	return owner
}

// deniedThen reports whether an enforced policy of the published version denied the request.
func (t *tracedTenant) deniedThen(q *metrics.TracedRequest) bool {
	for k := range q.Keys {
		if q.Keys[k].Over && t.denies[q.Keys[k].Policy] {
			return true
		}
	}
	return false
}

// state returns the state of a key.
func (d *decider) state(key *metrics.TracedKey) *keyState {
	list := d.side.keys[key.Policy]
	if list[key.Hash] == nil {
		from := maxTime(d.t.from, d.r.cuts[d.t.policies[key.Policy].Slug].at)
		ready := d.ready(key.Policy, from)
		if d.draft { // what it decides begins later
			ready = d.ready(key.Policy, time.UnixMicro(d.t.decided[key.Policy]))
		}
		k := &keyState{hash: key.Hash}
		k.restart(from.UnixMicro(), ready)
		list[key.Hash] = k
	}
	return list[key.Hash]
}

// ready returns the time from which the counters of a policy depend only on requests since the time from.
func (d *decider) ready(policy int, from time.Time) int64 {
	return readyFrom(d.side.document.policies[d.side.rules[policy]].Limits, from, d.calendar).UnixMicro()
}

// decides notes that request i of key k came, and reports whether the side decides it. Otherwise its key
// follows the trace.
func (d *decider) decides(i, k int) bool {
	q := &d.t.requests[i]
	key, n := &q.Keys[k], d.t.first[i]+k
	state, rules := d.state(key), &d.side.keyRules[key.Policy]
	if !d.draft && q.At >= d.since && state.last < d.since && d.since > d.t.from.UnixMicro() {
		// Until then, the counters of the replay are not those of the versions that decided.
		state.restart(d.since, d.ready(key.Policy, time.UnixMicro(d.since)))
	}
	weight := key.Cost
	if q.Forced {
		weight = -1 - weight
	}
	if q.At == state.last && weight != state.weight { // which of the two came first is not recorded
		state.known, state.ready = keyUnknown, d.ready(key.Policy, time.UnixMicro(q.At))
	}
	state.see(q.At, rules)
	state.weight = weight
	state.costs = state.costs || weight != 1
	d.side.known[n], d.side.left[n] = state.known, state.left
	if state.known == keyUnknown && rules.slack > 0 && !state.costs {
		d.side.known[n] = keyBounded
	}
	return q.At >= d.t.decided[key.Policy] && (d.draft || state.known == keySettled || q.At < d.since)
}

// appendKey adds the attributes of a key of the policy with the index at.
func appendKey(list []enforcement.Attribute, at int, text string, cost int64) []enforcement.Attribute {
	number := strconv.Itoa(at)
	list = append(list, enforcement.Attribute{Name: "p" + number, Value: "1"}, enforcement.Attribute{Name: "k" + number, Value: text})
	if cost != 1 {
		list = append(list, enforcement.Attribute{Name: "c" + number, Value: strconv.FormatInt(cost, 10)})
	}
	return list
}

// ask decides the check of request i and returns the owner. Keys whose requests the published version
// decided otherwise are left out until their state is known again.
func (d *decider) ask(ctx context.Context, i int) int16 {
	q := &d.t.requests[i]
	d.decision.Reset()
	d.engine.Decide(ctx, d.subject, &d.check, &d.decision)
	owner := d.t.note(d.side, i, &d.decision)
	if d.draft || q.At < d.since {
		return owner
	}
	for k := range q.Keys {
		key, n := &q.Keys[k], d.t.first[i]+k
		if d.side.known[n] != keySettled || q.At < d.t.decided[key.Policy] || d.side.over[n] == key.Over {
			continue
		}
		state := d.state(key)
		state.restart(q.At, d.ready(key.Policy, time.UnixMicro(q.At)))
		state.left, d.side.left[n] = true, true
	}
	return owner
}

// follow charges key k of request i with what was charged as recorded. charged says whether no policy
// denied the request.
func (d *decider) follow(ctx context.Context, i, k int, charged bool) {
	q := &d.t.requests[i]
	key := &q.Keys[k]
	state, rules := d.state(key), &d.side.keyRules[key.Policy]
	switch {
	case rules.fresh || d.t.sides[asPublished].rules[key.Policy] < 0:
	case q.Forced: // charged, whether it fits or not
		state.over = 0
		d.charge(ctx, key, state.text, key.Cost)
	case key.Over:
		state.over = key.Cost
		if rules.burst > 0 && key.Cost == 1 && state.known != keySettled {
			state.renew()
			d.charge(ctx, key, state.text, rules.burst)
		}
	case charged:
		if rules.firstHit && state.over > 0 && key.Cost >= state.over && state.known != keySettled {
			state.renew()
			if !d.draft {
				state.known = keySettled
			}
		}
		state.over = 0
		d.charge(ctx, key, state.text, key.Cost)
	}
}

// charge charges a key with the numbers of the published version.
func (d *decider) charge(ctx context.Context, key *metrics.TracedKey, text string, cost int64) {
	list := appendKey(nil, d.t.sides[asPublished].rules[key.Policy], text, cost)
	d.decision.Reset()
	d.engine.Decide(ctx, d.published, &enforcement.Check{Path: "/", Cost: 1, Mode: enforcement.Force, Attributes: list}, &d.decision)
}
