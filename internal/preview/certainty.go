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

// A side is one of the two compared documents.
type side struct {
	policies []plans.Policy
	patterns []enforcement.Pattern
}

func newSide(d plans.Document) side {
	policies := d.Policies()
	s := side{policies, make([]enforcement.Pattern, len(policies))}
	for i := range policies {
		s.patterns[i], _ = enforcement.ParsePattern(policies[i].Match.Path) // an invalid pattern matches everything
	}
	return s
}

// place returns the index of a policy by its slug, or -1.
func (s *side) place(slug string) int {
	return slices.IndexFunc(s.policies, func(p plans.Policy) bool { return p.Slug == slug })
}

// A party is one policy with its pattern.
type party struct {
	*plans.Policy
	pattern enforcement.Pattern
}

func (s *side) party(i int) party { return party{&s.policies[i], s.patterns[i]} }

// meets reports whether one request can match both policies, ignoring replaces.
func (p party) meets(q party) bool {
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
// keys.
func sameRequests(p, q *plans.Policy) bool {
	return sameSet(p.Match.Methods, q.Match.Methods) && cmp.Or(p.Match.Path, "*") == cmp.Or(q.Match.Path, "*") &&
		maps.Equal(p.Match.Attributes, q.Match.Attributes) &&
		slices.Equal(p.CountBy, q.CountBy) && p.Missing == q.Missing
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// sameDecisions reports whether two policies decide alike while the limiter is available. It
// ignores the failure mode and the description.
func sameDecisions(p, q *plans.Policy) bool {
	return sameRequests(p, q) && p.Mode == q.Mode && sameSet(p.Replaces, q.Replaces) && slices.Equal(p.Limits, q.Limits)
}

// replacers returns the policies that replace another one.
func (s *side) replacers(slug string) (list []plans.Policy) {
	for _, p := range s.policies {
		if p.Mode == enforcement.PolicyEnforce && slices.Contains(p.Replaces, slug) {
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

// A verdict says how the figure of a draft's policy is computed.
type verdict struct {
	certainty Certainty
	why       string
	how       how
	// source is the index of the published policy whose counts are used; -1: none.
	source int
	// moved is set if the counts of one mode are used for the other. This is valid only if nothing
	// but limits denied.
	moved bool
	// rivals are the indexes of enforced policies of the draft that may deny its requests first.
	rivals []int
}

// how says how a figure is computed.
type how int

const (
	howNone     how = iota
	howZero         // it refuses nothing
	howCounted      // as the published policy refused
	howShadow       // as it would have refused in shadow
	howReplayed     // from minutes
)

// judge returns the verdict of each policy of the draft.
func judge(draft, published *side) []verdict {
	list := make([]verdict, len(draft.policies))
	for i := range list {
		v := judgeOne(draft, published, i)
		for k := range draft.policies {
			if k != i && draft.policies[k].Mode == enforcement.PolicyEnforce && draft.party(k).meets(draft.party(i)) {
				v.rivals = append(v.rivals, k)
			}
		}
		list[i] = v
	}
	return list
}

func judgeOne(draft, published *side, i int) verdict {
	p := &draft.policies[i]
	v := verdict{certainty: Exact, how: howZero, source: published.place(p.Slug)}
	switch {
	case p.Mode == enforcement.PolicyOff:
		v.why = "The policy is off in the draft: it refuses nothing."
		return v
	case len(p.Limits) == 0:
		v.why = "The policy has no limits: it refuses nothing for being over one."
		return v
	}
	if v.source >= 0 && sameDecisions(p, &published.policies[v.source]) {
		if other := changedBeside(draft, published, p.Slug); other == "" {
			v.how, v.why = howCounted, "The policy is as published, and nothing that is enforced beside it changes: these are its counted refusals."
			if p.Mode == enforcement.PolicyShadow {
				v.how, v.why = howShadow, "The policy is in shadow as published, and nothing that is enforced beside it changes: this is its live "+
					"figure."
			}
			return v
		}
	}
	if why := v.find(draft, published, i); why != "" {
		v.certainty, v.how, v.why, v.source = NeedsShadow, howNone, why, -1
		return v
	}
	q := &published.policies[v.source]
	if p.Mode != q.Mode && slices.Equal(p.Limits, q.Limits) && alone(draft, published, i, v.source) {
		v.moved = true
		v.how, v.why = howCounted, "The policy goes into shadow with the numbers that it has, and no other one that is enforced meets it: it "+
			"would refuse what was refused."
		if q.Mode == enforcement.PolicyShadow {
			v.how, v.why = howShadow, "The policy is published in shadow with these numbers, and no other one that is enforced meets it: this is "+
				"its live figure."
		}
		return v
	}
	return v.replays(p, q)
}

// replays returns a verdict for an estimate, if minutes are sufficient.
func (v verdict) replays(p, q *plans.Policy) verdict {
	next := advice
	if p.Mode == enforcement.PolicyShadow && q.Mode == enforcement.PolicyShadow {
		next = inShadowAlready
	}
	none := func(format string, args ...any) verdict {
		return verdict{certainty: NeedsShadow, why: fmt.Sprintf(format, args...) + next, source: -1}
	}
	for _, l := range p.Limits {
		if l.Window < time.Minute {
			return none("The limit %s counts windows of %s, and what was counted is minutes.", l.Name, enforcement.FormatWindow(l.Window))
		}
	}
	if len(p.CountBy) > 0 && q.Mode != enforcement.PolicyEnforce {
		return none("The policy counts by %s, and what each key was allowed is only known of policies that are enforced.",
			strings.Join(p.CountBy, ", "))
	}
	v.certainty, v.how = Estimated, howReplayed
	of := "its requests of each minute"
	if len(p.CountBy) > 0 {
		of = "the requests of its busiest keys of each minute"
	}
	v.why = "Only numbers differ from what is published: " + of + " are replayed; their order within a minute is not known."
	switch {
	case p.Slug == q.Slug && sameDecisions(p, q):
		v.why = "The policy is as published, but another one that is enforced changes and may leave it more or less to refuse: " +
			of + " are replayed."
	case p.Slug != q.Slug:
		v.why = "The policy is new, and applies and counts as " + q.Slug + " does: " + of + " are replayed; their order within a minute is not " +
			"known."
	}
	return v
}

// advice says what to do about a policy that needs shadow.
const advice = " Publish it in mode shadow: then it counts what it would refuse, and refuses nothing."

// inShadowAlready is the advice for a policy that is in shadow and stays there.
const inShadowAlready = " It is in shadow already, and stays there: once the draft is published, its live figure tells."

// find sets v.source to the published policy whose recorded counts can stand for policy i of the
// draft: the one with the same slug if it counts the same keys, else another. It returns the reason
// if there is none.
func (v *verdict) find(draft, published *side, i int) (why string) {
	p := &draft.policies[i]
	usable := func(at int) string {
		q := &published.policies[at]
		switch {
		case q.Mode == enforcement.PolicyOff:
			return "The policy is off as published, so nothing was counted."
		case !slices.Equal(p.CountBy, q.CountBy):
			return "What it counts by is new: nobody counted by " + words(p.CountBy) + "."
		case !sameRequests(p, q):
			return "It applies to other requests than the published policy does."
		case !sameReplacers(draft.replacers(p.Slug), published.replacers(q.Slug)):
			return "It is replaced by other policies than before, so it applies to other requests."
		case p.Missing == enforcement.MissingDeny && p.Mode != q.Mode:
			return "It refuses requests without an attribute only when it is enforced, so it then applies to other requests."
		}
		return ""
	}
	if v.source >= 0 {
		if why = usable(v.source); why == "" {
			return ""
		}
	} else {
		why = "The policy is new, and no published one applies and counts as it does."
	}
	best := -1
	for at := range published.policies {
		if at != v.source && usable(at) == "" && (best < 0 || published.policies[at].Mode == enforcement.PolicyEnforce &&
			published.policies[best].Mode != enforcement.PolicyEnforce) {
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

// alone reports whether no other enforced policy of either document meets a policy, so that only
// its own limits deny its requests, and source has its slug.
func alone(draft, published *side, i, source int) bool {
	p := draft.party(i)
	for _, s := range []*side{draft, published} {
		for k := range s.policies {
			q := s.party(k)
			if q.Slug != p.Slug && q.Mode == enforcement.PolicyEnforce && q.meets(p) {
				return false
			}
		}
	}
	return published.policies[source].Slug == p.Slug
}

// changedBeside returns a changed policy that affects the decisions of an unchanged one: an
// enforced policy that meets it, directly or through others, or that changed its place. "" if
// there is none.
func changedBeside(draft, published *side, slug string) string {
	say := map[string]bool{slug: true}
	for grown := true; grown; {
		grown = false
		for _, s := range []*side{draft, published} {
			for i := range s.policies {
				q := s.party(i)
				if say[q.Slug] || q.Mode != enforcement.PolicyEnforce || !s.meetsAny(q, say) {
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

// meetsAny reports whether a policy meets one of some policies of s.
func (s *side) meetsAny(q party, some map[string]bool) bool {
	for i := range s.policies {
		if some[s.policies[i].Slug] && s.party(i).meets(q) {
			return true
		}
	}
	return false
}
