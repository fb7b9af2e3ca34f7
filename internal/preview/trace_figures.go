package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A keyTally has the decisions of a replay about the requests of one key of one policy.
type keyTally struct {
	requests, published, draft int64
	// settled is the number of requests for which the state of the counters was known or bounded. settledDraft is the
	// number of those that the draft would deny.
	settled, settledDraft int64
	slack                 int64 // by how many denials settledDraft may be wrong
	left                  bool  // set if requests are left out, because the replay decided one otherwise than it was decided
	// mixed is set if a limit of another policy, whose keys are not replayed, may deny requests.
	mixed bool
}

// tallies are by index of a traced policy, and by key.
type tallies []map[uint64]*keyTally

// tally counts the decisions of the replays.
func (t *tracedTenant) tally() tallies {
	list := make(tallies, len(t.policies))
	for i := range t.policies {
		list[i] = make(map[uint64]*keyTally)
	}
	for i := range t.requests {
		q := &t.requests[i]
		mixed := t.mixed(i)
		for k := range q.Keys {
			key := &q.Keys[k]
			if q.At < t.counted[key.Policy] || t.unused(key.Policy) || !t.usable(key) || t.skips(i) {
				continue
			}
			one := list[key.Policy][key.Hash]
			if one == nil {
				one = new(keyTally)
				list[key.Policy][key.Hash] = one
			}
			if t.leaves(i, k) {
				one.left = true
				continue
			}
			one.mixed = one.mixed || mixed
			one.add(t, i, k)
		}
	}
	return list
}

// leaves reports whether key k of request i is left out at this request, because the replay decided an
// earlier one otherwise than it was decided.
func (t *tracedTenant) leaves(i, k int) bool {
	key := &t.requests[i].Keys[k]
	for o := range t.requests[i].Keys { // a copy is left out with its original
		other := &t.requests[i].Keys[o]
		if other.Policy == t.copyOf[key.Policy] && other.Hash == key.Hash && t.sides[asPublished].left[t.first[i]+o] {
			return true
		}
	}
	return false
}

// unused reports whether neither document has a policy for the requests of a traced policy.
func (t *tracedTenant) unused(policy int) bool {
	return t.sides[asPublished].rules[policy] < 0 && t.sides[asDraft].rules[policy] < 0
}

// skips reports whether neither side replays request i.
func (t *tracedTenant) skips(i int) bool {
	return t.sides[asPublished].owner[i] == skipped && t.sides[asDraft].owner[i] == skipped
}

// add counts key k of request i.
func (one *keyTally) add(t *tracedTenant, i, k int) {
	one.requests++
	published, draft := &t.sides[asPublished], &t.sides[asDraft]
	if published.denied(t, i, k) {
		one.published++
	}
	denied := draft.denied(t, i, k)
	if denied {
		one.draft++
	}
	known := draft.known[t.first[i]+k]
	if known == keyUnknown {
		return
	}
	if known == keyBounded {
		one.slack = draft.keyRules[t.requests[i].Keys[k].Policy].slack
	}
	one.settled++
	if denied {
		one.settledDraft++
	}
}

// denied reports whether the policy of key k denies request i, or, in a mode that denies nothing,
// whether the request is over its limits.
func (s *tracedSide) denied(t *tracedTenant, i, k int) bool {
	at := s.rules[t.requests[i].Keys[k].Policy]
	switch {
	case at < 0 || s.owner[i] <= another:
		return false
	case s.document.policies[at].Mode.Denies():
		return int(s.owner[i]) == at
	}
	return s.owner[i] == nobody && s.over[t.first[i]+k]
}

// limits returns the limits of a traced policy in the published version and in the draft.
func (t *tracedTenant) limits(policy int) (list []enforcement.Limit) {
	for i := range t.sides {
		if at := t.sides[i].rules[policy]; at >= 0 {
			list = append(list, t.sides[i].document.policies[at].Limits...)
		}
	}
	return list
}

// mixed reports whether an enforced policy applied to request i that is not replayed for its key.
func (t *tracedTenant) mixed(i int) bool {
	for k := range t.requests[i].Keys {
		key := &t.requests[i].Keys[k]
		for s := range t.sides {
			side := &t.sides[s]
			at := side.rules[key.Policy]
			if at >= 0 && side.document.policies[at].Mode.Denies() && len(side.document.policies[at].Limits) > 0 &&
				(side.places[at] < 0 || !t.usable(key)) {
				return true
			}
		}
	}
	return false
}

// A known is what the trace of a tenant says about a policy of the draft, apart from keys whose
// counters were not known: requests of its source, and how many of them the draft would deny, or at most
// slack more or fewer. replayed and guess are the same numbers with those keys.
type known struct{ requests, refused, slack, replayed, guess int64 }

// least returns the least number of requests that the draft would deny.
func (k *known) least() int64 { return max(0, k.refused-k.slack) }

// settle adds the tenant to the replay of the preview and of its policies.
func (t *tracedTenant) settle(r *run) {
	list := t.tally()
	if r.preview.Replay == nil {
		r.preview.Replay = newReplay(&r.preview)
		for i := range r.draft.policies {
			r.preview.Replay.Without = append(r.preview.Replay.Without, r.notReplayed([]int{i})...)
		}
		r.replays = make(map[string]*PolicyReplay)
	}
	all := r.preview.Replay
	all.Tenants++
	all.All = all.All && t.level == 0
	if t.from.After(r.preview.From) || t.to.Before(r.preview.To.Add(-unfinished)) {
		all.Parts++
	}
	if all.From.IsZero() || t.from.Before(all.From) {
		all.From = maxTime(t.from, r.preview.From)
	}
	all.To = maxTime(all.To, t.to)
	t.member.known = make([]known, len(r.draft.policies))
	for i := range t.policies {
		to := t.sides[asDraft].rules[i]
		if t.unused(i) {
			continue
		}
		p := r.replayOf(t.policies[i].Slug, t.sides[asPublished].rules[i], to)
		p.All = p.All && t.level == 0
		p.LeftOut += int64(len(t.leftOut[i]))
		for _, one := range list[i] {
			if one.requests == 0 {
				p.LeftOut++
				continue
			}
			p.add(one)
			if to >= 0 {
				t.member.known[to].add(one)
			}
		}
	}
	t.draw(r, list)
}

func (k *known) add(one *keyTally) {
	k.replayed += one.requests
	k.guess += one.draft
	if one.mixed {
		return
	}
	k.requests += one.settled
	k.refused += one.settledDraft
	k.slack += min(one.slack, one.settled)
}

// replayOf returns the replay of policy to of the draft, or, if to is -1, of the published policy slug,
// whose index is at. If the trace does not show what one of them denies, the result is not part of the
// preview.
func (r *run) replayOf(slug string, at, to int) *PolicyReplay {
	other := r.draft.place(slug)
	switch {
	case at >= 0 && limits(&r.published.policies[at]) && !replayable(&r.published.policies[at]),
		to >= 0 && limits(&r.draft.policies[to]) && !replayable(&r.draft.policies[to]),
		to < 0 && other >= 0 && limits(&r.draft.policies[other]):
		return new(PolicyReplay)
	case to >= 0:
		slug = r.draft.policies[to].Slug
	}
	p := r.replays[slug]
	if p == nil {
		p = &PolicyReplay{All: true}
		r.replays[slug] = p
		if to >= 0 {
			p.Without = r.notReplayed(r.verdicts[to].rivals)
		}
	}
	return p
}

// notReplayed returns the slugs of those policies of the draft that can deny requests and that no
// replay has.
func (r *run) notReplayed(of []int) (slugs []string) {
	for _, i := range of {
		p := &r.draft.policies[i]
		if !p.Mode.Denies() || !limits(p) || r.verdicts[i].traced >= 0 && (replayable(p) || r.verdicts[i].how == howCounted) {
			continue
		}
		slugs = append(slugs, p.Slug)
	}
	return slugs
}

// limits reports whether a policy has limits that count requests.
func limits(p *plans.Policy) bool { return p.Mode.Counts() && len(p.Limits) > 0 }

func (p *PolicyReplay) add(one *keyTally) {
	p.Keys++
	p.Requests += one.requests
	p.Published += one.published
	p.Draft += one.draft
	p.Mixed = p.Mixed || one.mixed
	if one.left {
		p.Parts++
	}
}

func newReplay(p *Preview) *Replay {
	length := p.To.Sub(p.From)
	step := (length/replayPoints + time.Minute - 1).Truncate(time.Minute)
	out := &Replay{All: true, Step: max(step, time.Minute)}
	for at := p.From; at.Before(p.To); at = at.Add(out.Step) {
		out.Points = append(out.Points, ReplayPoint{At: at})
	}
	return out
}

// draw adds the requests of t to the totals and to the points of the replay.
func (t *tracedTenant) draw(r *run, list tallies) {
	out := r.preview.Replay
	for i := range t.requests {
		q := &t.requests[i]
		if q.At < r.preview.From.UnixMicro() || !t.drawn(i, list) {
			continue
		}
		at := int((q.At - r.preview.From.UnixMicro()) / out.Step.Microseconds())
		if at >= len(out.Points) {
			continue
		}
		point := &out.Points[at]
		out.Requests++
		point.Requests++
		if o := t.sides[asPublished].owner[i]; o >= 0 || o == another {
			out.Published++
			point.Published++
		}
		if o := t.sides[asDraft].owner[i]; o >= 0 || o == another {
			out.Draft++
			point.Draft++
		}
	}
}

// drawn reports whether a key of request i is counted, and none is left out.
func (t *tracedTenant) drawn(i int, list tallies) bool {
	if t.skips(i) {
		return false
	}
	found := false
	for k := range t.requests[i].Keys {
		key := &t.requests[i].Keys[k]
		if one := list[key.Policy][key.Hash]; one == nil || one.requests == 0 && !one.left {
			continue
		}
		if t.leaves(i, k) {
			return false
		}
		found = found || t.requests[i].At >= t.counted[key.Policy]
	}
	return found
}

// unfinished is the longest time at the end of the range whose trace may not be written yet.
const unfinished = 2 * time.Minute

// finishReplay narrows the bounds of each member by what the traces say, and replaces verdicts that
// need shadow if nearly all requests are replayed.
func (r *run) finishReplay() {
	if r.preview.Replay == nil {
		return
	}
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.traced < 0 {
			continue
		}
		all := r.rivalsTraced(i)
		switch {
		case v.how == howNone && !all, v.how != howReplayed && v.how != howNone:
			continue
		case v.how == howNone && !r.trust(i):
			r.setFloor(i)
			continue
		}
		for _, m := range r.members {
			if m.known == nil || m.NoPolicy == tenants.Deny && !r.draft.policies[i].Mode.Denies() {
				continue
			}
			m.parts[i].estimate(m.known[i])
			if all {
				m.parts[i].narrow(m.known[i])
			}
		}
		if all && r.replayedWhole(i) {
			v.why = whyTraced
		}
	}
}

const whyTraced = "The requests of its keys were traced: the limiter decided them again, one by one."

// replayedWhole reports whether the replay alone says how many requests policy i of the draft denies.
func (r *run) replayedWhole(i int) bool {
	replayed := false
	for _, m := range r.members {
		p := &m.parts[i]
		if p.requests > 0 && (m.known == nil || m.known[i].requests < p.requests || p.low != p.high) {
			return false
		}
		replayed = replayed || p.requests > 0
	}
	return replayed
}

// setFloor sets the part of each member for policy i, which needs shadow, to the denials that the replay
// proves: the least of what the policy would deny.
func (r *run) setFloor(i int) {
	for _, m := range r.members {
		if m.known == nil || m.NoPolicy == tenants.Deny && !r.draft.policies[i].Mode.Denies() {
			continue
		}
		least := m.known[i].least()
		m.parts[i] = counted(least, least)
		m.parts[i].floor = least
	}
}

// rivalsTraced reports whether the replay contains every enforced policy of the draft that applies to
// some of the same requests as policy i.
func (r *run) rivalsTraced(i int) bool {
	for _, k := range append([]int{i}, r.verdicts[i].rivals...) {
		p := &r.draft.policies[k]
		if limits(p) && (r.verdicts[k].traced < 0 || !replayable(p) || r.tracedFrom(k).After(r.tracedFrom(i))) {
			return false
		}
	}
	return true
}

// tracedFrom returns the time from which on the traced requests of policy i of the draft are used.
func (r *run) tracedFrom(i int) time.Time {
	if r.verdicts[i].traced < 0 {
		return r.preview.From
	}
	return r.countsFrom(r.published.policies[r.verdicts[i].traced].Slug)
}

// trust replaces the verdict of policy i, which needs shadow, if the counters of at least nine in ten
// of its requests are replayed.
func (r *run) trust(i int) bool {
	v := &r.verdicts[i]
	slug := r.published.policies[v.traced].Slug
	var all, replayed int64
	for _, m := range r.members {
		all += m.counts(slug).Requests
		if m.known != nil {
			replayed += m.known[i].requests
		}
	}
	if all == 0 || replayed < all-all/10 {
		return false
	}
	v.certainty, v.how, v.source = Estimated, howReplayed, v.traced
	v.why = whyTraced
	for _, m := range r.members {
		c := m.counts(slug)
		m.parts[i] = part{requests: c.Requests, high: c.Requests}
	}
	return true
}

// estimate sets the estimate of a part to the result of a replay, if nearly all requests are replayed.
func (p *part) estimate(k known) {
	if k.replayed >= p.requests-p.requests/10 {
		p.refused = min(max(k.guess, p.low), p.high)
	}
}

// narrow narrows the bounds of a part to what is known, and moves the estimate between them.
func (p *part) narrow(k known) {
	p.low, p.floor = max(p.low, k.least()), max(p.floor, k.least())
	p.high = max(p.low, min(p.high, k.refused+k.slack+max(0, p.requests-k.requests)))
	p.refused = min(max(p.refused, p.low), p.high)
	if 10*(p.high-p.low) <= p.requests {
		p.unread = ""
	}
}
