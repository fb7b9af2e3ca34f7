package enforcement

import "slices"

// An index finds the rules whose path pattern and method match a check. It is a tree with one level
// for each segment of the patterns. A search follows the segments of the check's path, so it visits
// only rules that match the path so far. The time of a search grows with the number of rules that
// match, not with the number of all rules. It also grows with each segment of the path that matches
// both a literal segment and a {name}, because the search then follows both.
type index struct {
	everything ruleList // rules whose pattern matches all paths; they also match checks without a path
	root       *segmentNode
}

// A segmentNode stands for all patterns that begin with the same segments.
type segmentNode struct {
	literals map[string]*segmentNode // child nodes by the next literal segment
	variable *segmentNode            // child node if the next segment is {name}; nil: none
	ends     ruleList                // rules whose pattern ends here
	rest     ruleList                // rules whose pattern ends here with *, so that they also match all longer paths
}

// A ruleList has an entry for each method of each rule. A rule that applies to all methods has an
// entry with the method "".
type ruleList []ruleEntry

type ruleEntry struct {
	method string
	place  uint16 // index of the rule in the plan
}

func newIndex(rules []*Rule) index {
	x := index{root: new(segmentNode)}
	for _, r := range rules {
		list := &x.everything
		if r.pattern.text != "" {
			list = x.root.at(r.pattern)
		}
		list.add(r)
	}
	return x
}

// at returns the rule list for a pattern. It creates missing nodes of the tree.
func (n *segmentNode) at(p Pattern) *ruleList {
	for _, segment := range p.segments {
		if segment == "" {
			if n.variable == nil {
				n.variable = new(segmentNode)
			}
			n = n.variable
			continue
		}
		next := n.literals[segment]
		if next == nil {
			if n.literals == nil {
				n.literals = make(map[string]*segmentNode)
			}
			next = new(segmentNode)
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

// find appends to found the indexes of the rules in the list that match a method.
func (l ruleList) find(method string, found []uint16) []uint16 {
	for i := range l {
		if e := &l[i]; e.method == "" || e.method == method {
			found = append(found, e.place)
		}
	}
	return found
}

// find appends to found the indexes of the rules whose pattern and methods match, in no particular
// order.
func (x *index) find(path, method string, found []uint16) []uint16 {
	found = x.everything.find(method, found)
	if path == "" {
		return found
	}
	return x.root.find(path, method, found)
}

func (n *segmentNode) find(path, method string, found []uint16) []uint16 {
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

// match returns the indexes of the rules whose method, path and attributes match a check, in the
// order of the plan. It ignores the modes of the rules. found must be empty; match reuses its
// memory.
func (p *Plan) match(c *Check, found []uint16) []uint16 {
	found = p.index.find(c.Path, c.Method, found)
	matching := found[:0]
	for _, i := range found {
		if p.Rules[i].attributesMatch(c) {
			matching = append(matching, i)
		}
	}
	slices.Sort(matching)
	return matching
}

// contains reports whether the sorted list places has the index place.
func contains(places []uint16, place int) bool {
	_, ok := slices.BinarySearch(places, uint16(place))
	return ok
}
