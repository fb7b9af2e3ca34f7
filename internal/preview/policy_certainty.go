package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// A side is the draft or the published version, the two documents that a preview compares.
type side struct {
	policies []plans.Policy
	patterns []enforcement.Pattern
}

func newSide(d plans.Document) side {
	policies := d.Policies()
	s := side{policies, make([]enforcement.Pattern, len(policies))}
	for i := range policies {
		s.patterns[i], _ = enforcement.ParsePattern(policies[i].Match.Path) // an invalid pattern is treated as one that matches every path
	}
	return s
}

// place returns the index of the policy with this slug, or -1 if the document does not have it.
func (s *side) place(slug string) int {
	return slices.IndexFunc(s.policies, func(p plans.Policy) bool { return p.Slug == slug })
}

// A patterned is a policy with its parsed path pattern.
type patterned struct {
	*plans.Policy
	pattern enforcement.Pattern
}

func (s *side) patterned(i int) patterned { return patterned{&s.policies[i], s.patterns[i]} }

// overlaps reports whether some request could match both policies. It ignores Replaces, so one
// of the two may still replace the other for such a request.
func (p patterned) overlaps(q patterned) bool {
	if !p.pattern.Overlaps(q.pattern) {
		return false
	}
	if len(p.Match.Methods) > 0 && len(q.Match.Methods) > 0 &&
		!slices.ContainsFunc(p.Match.Methods, func(m string) bool { return slices.Contains(q.Match.Methods, m) }) {
		return false
	}
	for name, value := range p.Match.Attributes {
		if other, both := q.Match.Attributes[name]; both && other != value {
			return false
		}
	}
	return true
}

// sameRequests reports whether two policies match the same requests and count them by the same
// attributes. If so, the number of requests of one policy is also that of the other.
func sameRequests(p, q *plans.Policy) bool {
	return sameSet(p.Match.Methods, q.Match.Methods) && cmp.Or(p.Match.Path, "*") == cmp.Or(q.Match.Path, "*") &&
		maps.Equal(p.Match.Attributes, q.Match.Attributes) &&
		slices.Equal(p.CountBy, q.CountBy) && p.Missing == q.Missing
}

// sameCost reports whether two policies charge every request with the same cost.
func sameCost(p, q *plans.Policy) bool {
	return p.CostFrom == q.CostFrom && (p.Cost == nil) == (q.Cost == nil) && (p.Cost == nil || *p.Cost == *q.Cost)
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// sameDecisions reports whether two policies make the same decision for every request while the
// limiter is available. Their failure modes and descriptions may differ.
func sameDecisions(p, q *plans.Policy) bool {
	return sameRequests(p, q) && sameCost(p, q) && p.Mode == q.Mode && sameSet(p.Replaces, q.Replaces) && sameLimits(p.Limits, q.Limits)
}

// sameLimits reports whether two lists of limits make the same decisions. It ignores the
// warning thresholds of the limits, whether their counters survive a loss of data, and how
// they are carried over, which only matters at the publication.
func sameLimits(p, q []enforcement.Limit) bool {
	return slices.EqualFunc(p, q, func(a, b enforcement.Limit) bool {
		a.WarnAt, b.WarnAt = enforcement.WarnAt{}, enforcement.WarnAt{}
		a.Durability, b.Durability = enforcement.DurableByWindow, enforcement.DurableByWindow
		a.CarryOver, b.CarryOver = enforcement.CarryKeep, enforcement.CarryKeep
		return a == b
	})
}

// replacers returns the policies in force of s that replace the policy with this slug.
func (s *side) replacers(slug string) (list []plans.Policy) {
	for _, p := range s.policies {
		if p.Mode.InForce() && slices.Contains(p.Replaces, slug) {
			list = append(list, p)
		}
	}
	return list
}

func sameReplacers(a, b []plans.Policy) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p plans.Policy) bool {
		return !slices.ContainsFunc(b, func(q plans.Policy) bool { return sameRequests(&p, &q) })
	})
}

// A verdict says how the preview computes the denials of one policy of the draft, and how
// certain the result is.
type verdict struct {
	certainty Certainty
	why       string
	how       how
	// source is the index of the published policy whose counts are used; -1 if none are used.
	source int
	// traced is the index of the published policy whose traced requests are those of this policy, or
	// -1. It is also set if the counts by minute of that policy are not enough.
	traced int
	// moved says that the modes differ: counts that were recorded in a mode that denies nothing
	// are used for mode enforce, or the reverse. This is valid only if limits caused all denials among these
	// counts. reconsider checks that.
	moved bool
	// rivals are the indexes of those other enforced policies of the draft that match some of
	// the same requests. If a rival denies a request, this policy does not count the denial as
	// its own.
	rivals []int
}

// how is the method by which the denials of one policy are computed.
type how int

const (
	howNone     how = iota
	howZero         // the policy denies nothing
	howCounted      // the counted denials of the published policy, which is enforced
	howShadow       // the counted requests over the limits of the published policy, which denies nothing
	howReplayed     // the counted requests of each minute, replayed against the new limits
)

// assess returns a verdict for each policy of the draft, in the order of the draft.
func assess(draft, published *side) []verdict {
	list := make([]verdict, len(draft.policies))
	for i := range list {
		v := assessPolicy(draft, published, i)
		for k := range draft.policies {
			if k != i && draft.policies[k].Mode.Denies() && draft.patterned(k).overlaps(draft.patterned(i)) {
				v.rivals = append(v.rivals, k)
			}
		}
		list[i] = v
	}
	return list
}

func assessPolicy(draft, published *side, i int) verdict {
	p := &draft.policies[i]
	v := verdict{certainty: Exact, how: howZero, source: published.place(p.Slug)}
	v.traced = v.source
	switch {
	case !p.Mode.Counts():
		v.why = "The policy is off in the draft, so it denies nothing."
		return v
	case len(p.Limits) == 0:
		v.why = "The policy has no limits, so it denies nothing by a limit."
		return v
	}
	if v.source >= 0 && sameDecisions(p, &published.policies[v.source]) {
		if other := changedBeside(draft, published, p.Slug); other == "" {
			v.how, v.why = howCounted, "Neither the policy nor an enforced policy that overlaps it changes: these are its counted denials."
			if !p.Mode.Denies() {
				v.how = howShadow
				v.why = "Neither the policy, which is in mode " + string(p.Mode) + ", nor an enforced policy that overlaps it changes: " +
					"this is its live figure."
			}
			return v
		}
	}
	if why := v.find(draft, published, i); why != "" {
		v.certainty, v.how, v.why, v.source, v.traced = NeedsShadow, howNone, why, -1, -1
		return v
	}
	v.traced = v.source
	q := &published.policies[v.source]
	if p.Mode != q.Mode && sameLimits(p.Limits, q.Limits) && alone(draft, published, i, v.source) {
		v.moved = true
		v.how, v.why = howCounted, "The policy changes to mode "+string(p.Mode)+" with the same numbers, and no other enforced policy "+
			"overlaps it: over its limits are the requests that it denied."
		if !q.Mode.Denies() {
			v.how, v.why = howShadow, "The policy is published in mode "+string(q.Mode)+" with these numbers, and no other enforced policy "+
				"overlaps it: this is its live figure."
		}
		return v
	}
	return v.replays(p, q)
}

// replays returns a verdict for policy p of the draft: a replay of the counted requests of the
// published policy q against the limits of p. If counts by minute are not enough for a replay,
// it returns a verdict with NeedsShadow.
func (v verdict) replays(p, q *plans.Policy) verdict {
	next := advice
	if p.Mode == enforcement.PolicyShadow && q.Mode == enforcement.PolicyShadow {
		next = inShadowAlready
	}
	none := func(format string, args ...any) verdict {
		return verdict{certainty: NeedsShadow, why: fmt.Sprintf(format, args...) + next, source: -1, traced: v.traced}
	}
	for _, l := range p.Limits {
		if l.Period != enforcement.NoPeriod {
			return none("The limit %s has calendar windows, which begin at another time for each tenant.", l.Name)
		}
		if l.Algorithm == enforcement.Concurrency {
			return none("The limit %s counts what is under way at the same time, but it is not recorded how long requests take.", l.Name)
		}
		if l.Window < time.Minute {
			return none("The limit %s has windows of %s, but requests are only recorded by minute.", l.Name, enforcement.FormatWindow(l.Window))
		}
	}
	if len(p.CountBy) > 0 && !q.Mode.InForce() {
		return none("The policy counts by %s, but the allowed requests of each key are not recorded for policies in mode shadow.",
			strings.Join(p.CountBy, ", "))
	}
	v.certainty, v.how = Estimated, howReplayed
	of := "its requests of each minute"
	if len(p.CountBy) > 0 {
		of = "the requests of its busiest keys of each minute"
	}
	v.why = "Only numbers differ from the published policy: " + of + " are replayed. Their order within a minute is unknown."
	switch {
	case p.Slug == q.Slug && sameDecisions(p, q):
		v.why = "The policy does not change, but another enforced policy does, which affects how many requests this policy denies: " +
			of + " are replayed."
	case p.Slug != q.Slug:
		v.why = "The policy is new. It applies to the same requests and keys as " + q.Slug + ": " + of + " are replayed. Their order within a " +
			"minute is unknown."
	}
	return v
}

// advice is the last sentence of Why for a policy with NeedsShadow. It says how to get figures.
const advice = " Publish it in mode shadow: then it counts what it would deny, and denies nothing."

// inShadowAlready replaces advice for a policy that both the draft and the published version have
// in mode shadow.
const inShadowAlready = " It is already in mode shadow and stays there: after the draft is published, its live figure shows what it " +
	"would deny."

// unusable returns the reason why the counts of the published policy with the index at do not contain
// the requests of policy i of the draft, or "".
func unusable(draft, published *side, i, at int) string {
	p, q := &draft.policies[i], &published.policies[at]
	switch {
	case !q.Mode.Counts():
		return "The published policy is off, so nothing was counted."
	case !slices.Equal(p.CountBy, q.CountBy):
		return "Its count_by is new: no published policy counted by " + words(p.CountBy) + "."
	case !sameRequests(p, q):
		return "It applies to other requests than the published policy."
	case !sameCost(p, q):
		return "It charges another cost for a request than the published policy."
	case !sameReplacers(draft.replacers(p.Slug), published.replacers(q.Slug)):
		return "It is replaced by other policies than before, so it applies to other requests."
	case p.Missing == enforcement.MissingDeny && p.Mode.InForce() != q.Mode.InForce():
		return "It denies requests without an attribute unless it is in shadow, so with another mode it applies to other requests."
	}
	return ""
}

// find sets v.source to the published policy whose counts can be used for policy i of the
// draft. That is the policy with the same slug, or, if its counts cannot be used, another
// policy that matches the same requests and counts by the same attributes. If there is none,
// find returns the reason.
func (v *verdict) find(draft, published *side, i int) (why string) {
	if v.source >= 0 {
		if why = unusable(draft, published, i, v.source); why == "" {
			return ""
		}
	} else {
		why = "The policy is new, and no published policy applies to the same requests and keys."
	}
	best := -1
	for at := range published.policies {
		if at != v.source && unusable(draft, published, i, at) == "" && (best < 0 || published.policies[at].Mode.Denies() &&
			!published.policies[best].Mode.Denies()) {
			best = at
		}
	}
	if best < 0 {
		return why + advice
	}
	v.source = best
	return ""
}

func words(countBy []string) string {
	if len(countBy) == 0 {
		return "the whole tenant"
	}
	return strings.Join(countBy, ", ")
}

// alone reports whether only the limits of policy i can deny its requests. That is the case if
// no other enforced policy of the draft or of the published version overlaps it. alone also
// returns false if the policy with the index source has another slug than policy i.
func alone(draft, published *side, i, source int) bool {
	p := draft.patterned(i)
	for _, s := range []*side{draft, published} {
		for k := range s.policies {
			q := s.patterned(k)
			if q.Slug != p.Slug && q.Mode.Denies() && q.overlaps(p) {
				return false
			}
		}
	}
	return published.policies[source].Slug == p.Slug
}

// changedBeside returns the slug of a changed policy that can affect the decisions of the
// unchanged policy slug, or "" if there is none. Such a policy is enforced, and overlaps the
// unchanged policy directly or through a chain of enforced policies that overlap each other. A
// change of the order of policies counts as a change.
func changedBeside(draft, published *side, slug string) string {
	say := map[string]bool{slug: true}
	for grown := true; grown; {
		grown = false
		for _, s := range []*side{draft, published} {
			for i := range s.policies {
				q := s.patterned(i)
				if say[q.Slug] || !q.Mode.Denies() || !s.overlapsAny(q, say) {
					continue
				}
				say[q.Slug], grown = true, true
			}
		}
	}
	var now, before []string
	for i := range draft.policies {
		if p := &draft.policies[i]; say[p.Slug] {
			at := published.place(p.Slug)
			if at < 0 || !sameDecisions(p, &published.policies[at]) {
				return p.Slug
			}
			now = append(now, p.Slug)
		}
	}
	for i := range published.policies {
		if p := &published.policies[i]; say[p.Slug] {
			if draft.place(p.Slug) < 0 {
				return p.Slug
			}
			before = append(before, p.Slug)
		}
	}
	for i := range now {
		if now[i] != before[i] {
			return now[i]
		}
	}
	return ""
}

// overlapsAny reports whether q overlaps a policy of s whose slug is in some.
func (s *side) overlapsAny(q patterned, some map[string]bool) bool {
	for i := range s.policies {
		if some[s.policies[i].Slug] && s.patterned(i).overlaps(q) {
			return true
		}
	}
	return false
}
