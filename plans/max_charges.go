package plans

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// MaxCharges is the most charges that one request may need. One step of a limiter
// handles that many. A plan that could exceed it cannot be published.
const MaxCharges = 32

// A load is the most charges that could fall on one request.
type load struct {
	// charges is that number, or a bound above it when exact is false.
	charges int
	exact   bool
	// policies are the policies that are charged, in the order of the plan.
	policies []string
}

// heaviest returns the load of a valid document: the set of policies with the most
// charges that can all apply to one request.
//
// Two policies can both apply if one request can match their methods, patterns
// and attributes, and neither is enforced and replaces the other. For one method,
// pairs are enough to know whole sets: patterns that overlap pairwise have a path
// in common, and attributes that agree pairwise have values in common. So the load
// is the heaviest clique of a graph, for each method. Branch and bound finds it.
// The search is slow only for unusual plans. After work steps, heaviest returns an
// upper bound instead.
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
		g.best, g.bestWeight = nil, best.charges // search only for heavier sets
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

// loosely returns an upper bound of the load.
func (g *graph) loosely(together []set) load {
	worst := load{}
	for _, candidates := range together {
		if bound := g.bound(candidates); bound > worst.charges {
			worst.charges, worst.policies = bound, g.slugs(candidates.members())
		}
	}
	return worst
}

// A matcher is a policy with the values that meets and covers compare.
type matcher struct {
	Policy
	place   int
	pattern enforcement.Pattern
	charges int // 0 for a policy that is off
	removes set // places of the policies that this one replaces
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
			if place, known := places[slug]; known && p.Mode == enforcement.PolicyEnforce {
				out[i].removes.add(place)
			}
		}
		out[i].pattern, _ = enforcement.ParsePattern(p.Match.Path) // valid, or everything: the safe side
		if p.Mode != enforcement.PolicyOff {
			out[i].charges = len(p.Limits)
		}
	}
	return out
}

// takes reports whether a request with this method can match. "" stands for a
// method that no policy names.
func (m *matcher) takes(method string) bool {
	return len(m.Match.Methods) == 0 || slices.Contains(m.Match.Methods, method)
}

// meets reports whether one request can be charged for both policies, if both
// take its method.
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

// covers reports whether m applies to every request that o matches.
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

// coversPattern reports whether wide matches every path that narrow matches.
func coversPattern(wide, narrow string) bool {
	if wide == "*" || wide == narrow {
		return true
	}
	if narrow == "*" {
		return false // it also matches a check without a path
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
		return false // "/" is no segment
	}
	for i, s := range w {
		if !strings.HasPrefix(s, "{") && s != n[i] {
			return false
		}
	}
	return true
}

// alwaysReplaced reports for each policy whether another policy always replaces it.
func alwaysReplaced(rules []matcher) []bool {
	out := make([]bool, len(rules))
	for i := range rules {
		for _, o := range rules[i].removes.members() {
			out[o] = out[o] || rules[i].covers(&rules[o])
		}
	}
	return out
}

// A set holds places in a list of policies.
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

// first returns the lowest member, or -1.
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

// A graph has an edge between two policies that meet.
type graph struct {
	rules      []matcher // heaviest first
	edges      []set
	work       int // remaining steps; below 0 after the search has given up
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

// takenTogether returns, for each named method and for all other methods, the
// policies that a request with that method can match. It returns equal sets once,
// in the order of their first method.
func (g *graph) takenTogether() []set {
	var others set // policies that take every method
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

// search looks for a heavier clique than best. The clique consists of chosen, which
// has this weight, and of some candidates. Every candidate meets all of chosen.
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

// bound returns a weight that no clique of the candidates exceeds. It splits the
// candidates into classes in which no two members meet. A clique has at most one
// member of each class, so the bound is the sum of their heaviest members.
func (g *graph) bound(candidates set) int {
	sum := 0
	for first := candidates.first(); first >= 0; first = candidates.first() {
		sum += g.rules[first].charges // rules come heaviest first
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

// slugs returns the slugs of members, in the order of the plan.
func (g *graph) slugs(members []int) []string {
	slices.SortFunc(members, func(a, b int) int { return cmp.Compare(g.rules[a].place, g.rules[b].place) })
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = g.rules[m].Slug
	}
	return out
}
