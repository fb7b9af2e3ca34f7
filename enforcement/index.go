package enforcement

import "slices"

// An index finds the rules whose path and method match a check. It is a tree of
// the segments of all patterns: a walk along a path meets only rules that match it
// so far, so that its cost does not grow with the number of rules. It grows with
// the number of matching rules, and with the number of ways to read the path where
// literal segments and {name} stand side by side.
type index struct {
	everything ruleList // of rules that match every path, and checks without one
	root       *node
}

// A node is what the patterns have in common up to a segment.
type node struct {
	literals map[string]*node // by the next segment
	variable *node            // after {name}; nil: none
	ends     ruleList         // of patterns that end here
	rest     ruleList         // of patterns that end here with *, and match all below
}

// A ruleList has an entry for each method that a rule lists, and one entry with the
// method "" for a rule without a list of methods.
type ruleList []ruleEntry

type ruleEntry struct {
	method string
	place  uint16 // of the rule in the plan
}

func newIndex(rules []*Rule) index {
	x := index{root: new(node)}
	for _, r := range rules {
		list := &x.everything
		if r.pattern.text != "" {
			list = x.root.at(r.pattern)
		}
		list.add(r)
	}
	return x
}

// at returns the list of a pattern, and makes the nodes on the way.
func (n *node) at(p Pattern) *ruleList {
	for _, segment := range p.segments {
		if segment == "" {
			if n.variable == nil {
				n.variable = new(node)
			}
			n = n.variable
			continue
		}
		next := n.literals[segment]
		if next == nil {
			if n.literals == nil {
				n.literals = make(map[string]*node)
			}
			next = new(node)
			n.literals[segment] = next
		}
		n = next
	}
	if p.rest {
		return &n.rest
	}
	return &n.ends
}

func (l *ruleList) add(r *Rule) {
	methods := r.Methods
	if len(methods) == 0 {
		methods = []string{""}
	}
	for i, m := range methods {
		if !slices.Contains(methods[:i], m) {
			*l = append(*l, ruleEntry{m, uint16(r.Index)})
		}
	}
}

// find appends the rules of the list that match a method.
func (l ruleList) find(method string, found []uint16) []uint16 {
	for i := range l {
		if e := &l[i]; e.method == "" || e.method == method {
			found = append(found, e.place)
		}
	}
	return found
}

// find appends the rules whose pattern and methods match a path and a method, in
// no order.
func (x *index) find(path, method string, found []uint16) []uint16 {
	found = x.everything.find(method, found)
	if path == "" {
		return found
	}
	return x.root.find(path, method, found)
}

func (n *node) find(path, method string, found []uint16) []uint16 {
	for {
		found = n.rest.find(method, found)
		segment, below, ok := cutSegment(path)
		if !ok {
			return n.ends.find(method, found)
		}
		literal := n.literals[segment]
		switch {
		case n.variable == nil && literal == nil:
			return found
		case n.variable == nil:
			n = literal
		case literal == nil:
			n = n.variable
		default:
			found = literal.find(below, method, found)
			n = n.variable
		}
		path = below
	}
}

// match appends the places of the rules whose method, path and attributes match a
// check, whatever their mode, in the order of the plan. found is empty.
func (p *Plan) match(c *Check, found []uint16) []uint16 {
	found = p.index.find(c.Path, c.Method, found)
	matching := found[:0]
	for _, i := range found {
		if p.Rules[i].wants(c) {
			matching = append(matching, i)
		}
	}
	slices.Sort(matching)
	return matching
}

// contains reports whether a list of places has one.
func contains(places []uint16, place int) bool {
	_, ok := slices.BinarySearch(places, uint16(place))
	return ok
}
