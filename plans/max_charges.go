package plans

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// MaxCharges is the maximum number of counters that one request may charge. It is bounded, because
// a limiter charges all counters of a request in one step. A plan with which a request could charge
// more cannot be published.
const MaxCharges = 32

// A load describes the largest number of counters that one request can charge.
type load struct {
	// charges is the largest possible number of charged counters. If exact is false, it is only
	// an upper bound of that number.
	charges int
	exact   bool
	// policies contains the slugs of the policies that apply to a request with this largest number
	// of charges, in the order of the plan.
	policies []string
}

// heaviest returns the load of the policies of a valid document. It searches for the policies that
// can all apply to one request and that together have the most limits.
//
// Two policies can apply to the same request if a request can have a method, a path and attributes
// that match both, and if neither policy replaces the other. For one method, it is enough to
// compare the policies in pairs. If every two path patterns have a common path, all of them have a
// common path. If the attributes of every two policies agree, some values match all policies. So
// for each method, the load is the heaviest clique in a graph of policies: the set of policies that
// all have edges to each other and that together have the most limits.
//
// A branch-and-bound search finds the clique. The search is slow only for unusual plans. After work
// steps, heaviest stops and returns an upper bound.
func heaviest(policies []Policy, work int) load {
	var g graph
	rules := matchers(policies)
	replaced := alwaysReplaced(rules)
	for i, r := range rules {
		if r.charges > 0 && !replaced[i] {
			g.rules = append(g.rules, r)
		}
	}
	slices.SortStableFunc(g.rules, func(a, b matcher) int { return cmp.Compare(b.charges, a.charges) })
	g.connect()
	g.work = work
	best := load{exact: true}
	together := g.takenTogether()
	for _, candidates := range together {
		g.best, g.bestWeight = nil, best.charges // search only for heavier cliques
		g.search(nil, candidates, 0)
		if g.work < 0 {
			return g.loosely(together)
		}
		if g.bestWeight > best.charges {
			best.charges, best.policies = g.bestWeight, g.slugs(g.best)
		}
	}
	return best
}

// loosely returns an upper bound of the load. It is used if the search takes too many steps.
func (g *graph) loosely(together []set) load {
	worst := load{}
	for _, candidates := range together {
		if bound := g.bound(candidates); bound > worst.charges {
			worst.charges, worst.policies = bound, g.slugs(candidates.members())
		}
	}
	return worst
}

// A matcher holds those properties of a policy that decide to which requests the policy applies.
// The methods meets and covers compare two matchers.
type matcher struct {
	Policy
	place   int
	pattern enforcement.Pattern
	charges int // number of limits; 0 if the policy is off
	removes set // indexes of the policies that this policy replaces
}

func matchers(policies []Policy) []matcher {
	out := make([]matcher, len(policies))
	places := make(map[string]int, len(policies))
	for i, p := range policies {
		places[p.Slug] = i
	}
	for i, p := range policies {
		out[i] = matcher{Policy: p, place: i}
		for _, slug := range p.Replaces {
			if place, known := places[slug]; known && p.Mode.InForce() {
				out[i].removes.add(place)
			}
		}
		// An invalid pattern is treated as a pattern that matches every path. This can only
		// increase the load.
		out[i].pattern, _ = enforcement.ParsePattern(p.Match.Path)
		if p.Mode.Counts() {
			out[i].charges = len(p.Limits)
		}
	}
	return out
}

// takes reports whether the policy matches requests with a method. The method "" stands for every
// method that no policy of the plan names.
func (m *matcher) takes(method string) bool {
	return len(m.Match.Methods) == 0 || slices.Contains(m.Match.Methods, method)
}

// meets reports whether one request can charge both policies. It does not compare their methods.
func (m *matcher) meets(o *matcher) bool {
	if m.removes.has(o.place) || o.removes.has(m.place) || !m.pattern.Overlaps(o.pattern) {
		return false
	}
	for name, value := range m.Match.Attributes {
		if other, both := o.Match.Attributes[name]; both && other != value {
			return false
		}
	}
	return true
}

// covers reports whether m applies to every request to which o applies.
func (m *matcher) covers(o *matcher) bool {
	if len(m.Match.Methods) > 0 && (len(o.Match.Methods) == 0 || slices.ContainsFunc(o.Match.Methods,
		func(name string) bool { return !m.takes(name) })) {
		return false
	}
	for name, value := range m.Match.Attributes {
		if o.Match.Attributes[name] != value {
			return false
		}
	}
	if m.Missing == enforcement.MissingSkip && slices.ContainsFunc(m.CountBy, func(name string) bool {
		return o.Match.Attributes[enforcement.CountedAttribute(name)] == ""
	}) {
		return false
	}
	return coversPattern(m.pattern.String(), o.pattern.String())
}

// coversPattern reports whether the path pattern wide matches every path that the pattern narrow
// matches.
func coversPattern(wide, narrow string) bool {
	if wide == "*" || wide == narrow {
		return true
	}
	if narrow == "*" {
		return false // unlike wide, narrow also matches a check without a path
	}
	w, n := strings.Split(wide, "/")[1:], strings.Split(narrow, "/")[1:]
	wideRest, narrowRest := w[len(w)-1] == "*", n[len(n)-1] == "*"
	if wideRest {
		w = w[:len(w)-1]
	}
	if narrowRest {
		n = n[:len(n)-1]
	}
	if len(n) < len(w) || !wideRest && (narrowRest || len(n) != len(w)) {
		return false
	}
	if len(w) > 0 && len(n) > 0 && n[0] == "" && w[0] != "" {
		return false // a wildcard does not match an empty segment
	}
	for i, s := range w {
		if !strings.HasPrefix(s, "{") && s != n[i] {
			return false
		}
	}
	return true
}

// alwaysReplaced returns for each policy whether another policy replaces it in every request. Such
// a policy is never charged.
func alwaysReplaced(rules []matcher) []bool {
	out := make([]bool, len(rules))
	for i := range rules {
		for _, o := range rules[i].removes.members() {
			out[o] = out[o] || rules[i].covers(&rules[o])
		}
	}
	return out
}

// A set is a set of policies as bits. The number of a bit is the index of a policy in a list.
type set [(MaxPolicies + 63) / 64]uint64

func (s *set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *set) remove(i int)   { s[i/64] &^= 1 << (i % 64) }

func (s set) and(o set) set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

func (s set) or(o set) set {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// first returns the smallest index in the set, or -1 if the set is empty.
func (s *set) first() int {
	for i, word := range s {
		if word != 0 {
			return i*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func (s set) members() []int {
	var out []int
	for i := s.first(); i >= 0; i = s.first() {
		out = append(out, i)
		s.remove(i)
	}
	return out
}

// A graph holds the state of the search. Its vertices are policies. Two policies have an edge if
// they can apply to the same request.
type graph struct {
	rules      []matcher // sorted by charges, highest first
	edges      []set
	work       int // number of remaining steps; negative if the search was stopped
	best       []int
	bestWeight int
}

func (g *graph) connect() {
	g.edges = make([]set, len(g.rules))
	for i := range g.rules {
		for j := range i {
			if g.rules[i].meets(&g.rules[j]) {
				g.edges[i].add(j)
				g.edges[j].add(i)
			}
		}
	}
}

// takenTogether returns a set of policies for each method that a policy names: the policies that
// match this method. It also returns the set of policies that match all other methods. If several
// sets are equal, it returns one of them.
func (g *graph) takenTogether() []set {
	var others set // policies that match every method
	named := map[string]set{}
	for i := range g.rules {
		if len(g.rules[i].Match.Methods) == 0 {
			others.add(i)
		}
		for _, name := range g.rules[i].Match.Methods {
			taking := named[name]
			taking.add(i)
			named[name] = taking
		}
	}
	list, seen := []set{others}, map[set]bool{others: true}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if taking := named[name].or(others); !seen[taking] {
			seen[taking] = true
			list = append(list, taking)
		}
	}
	return list
}

// search looks for a clique whose charges exceed g.bestWeight. chosen contains the policies
// that are already in the clique, and weight is the sum of their charges. candidates are the
// policies that have an edge to each policy in chosen.
func (g *graph) search(chosen []int, candidates set, weight int) {
	if weight > g.bestWeight {
		g.best, g.bestWeight = slices.Clone(chosen), weight
	}
	for i := candidates.first(); i >= 0; i = candidates.first() {
		if g.work--; g.work < 0 || weight+g.bound(candidates) <= g.bestWeight {
			return
		}
		g.search(append(chosen, i), candidates.and(g.edges[i]), weight+g.rules[i].charges)
		candidates.remove(i)
	}
}

// bound returns an upper bound of the charges of every clique in candidates. It divides the
// candidates into classes so that two policies of one class never have an edge. A clique then has
// at most one policy of each class. So the sum of the largest charges of the classes is an upper
// bound.
func (g *graph) bound(candidates set) int {
	sum := 0
	for first := candidates.first(); first >= 0; first = candidates.first() {
		sum += g.rules[first].charges // the first policy of a class has the most charges, because rules are sorted by charges
		free := candidates
		for i := first; i >= 0; i = free.first() {
			candidates.remove(i)
			free.remove(i)
			for word := range free {
				free[word] &^= g.edges[i][word]
			}
		}
	}
	return sum
}

// slugs returns the slugs of the policies with these indexes, in the order of the plan.
func (g *graph) slugs(members []int) []string {
	slices.SortFunc(members, func(a, b int) int { return cmp.Compare(g.rules[a].place, g.rules[b].place) })
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = g.rules[m].Slug
	}
	return out
}
