package enforcement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// A Rule is a Policy that is compiled for fast decisions. A Plan has the rules of one version of a
// plan, with an index. Both are immutable, and all tenants with the plan share them.

// A RuleLimit is one limit of a rule, compiled.
type RuleLimit struct {
	Limit
	// Cell is the number that stands for the limit in the Keys of its counters.
	Cell uint32
	// Meter is the limit in the form that the algorithms use, with its revision and its former
	// Numbers.
	Meter *Meter
	// HeaderName is the name of the limit in response headers. It is the slug of the
	// policy, or "slug.limit" if the policy has several limits. CompilePlan sets it.
	HeaderName string
}

// A Rule is a compiled policy.
type Rule struct {
	RuleSpec
	// Index is the index of the rule in Plan.Rules.
	Index int

	pattern    Pattern
	attributes []Attribute // required by match, sorted by name
	slots      []slot      // of count_by
	countedBy  int         // index of the first rule of the plan with the same count_by
	cost       int64       // RuleSpec.Cost with its default filled in
	delay      int64       // RuleSpec.DelayMS with its default filled in
	class      chargeClass // class of Mode; has no meaning if the mode is off
	replaces   []uint16    // indexes in the plan of the rules that this rule replaces, ascending
	rank       int         // 0 for the most specific rule of the plan, 1 for the next one, and so on
	shares     shares
	sentLimits sentLimits
}

// A Plan is one published version of a plan, compiled.
type Plan struct {
	Slug    string
	Version int
	Rules   []*Rule

	index    index
	places   map[string]int // index in Rules by policy slug
	costFrom []string       // names in cost_from of the rules, each once
}

// Rule returns the rule of the policy with a slug. It returns false if the plan does not have the
// policy.
func (p *Plan) Rule(slug string) (*Rule, bool) {
	place, ok := p.places[slug]
	if !ok {
		return nil, false
	}
	return p.Rules[place], true
}

// MaxRules is the maximum number of policies in a plan. It must be below 2^16, because indexes of
// rules are of type uint16.
const MaxRules = 1_000

// The attribute ip, and the count_by entry ip/64, which counts IPv6 addresses by their /64 network.
const (
	ipAttribute = "ip"
	ipPrefix    = "ip/64"
)

// A slot is a compiled entry of count_by: an attribute, for ip/64 with prefix set.
type slot struct {
	name   string // of the attribute
	prefix bool   // ip/64
}

// Pattern returns the pattern of the paths that the rule matches.
func (r *Rule) Pattern() Pattern { return r.pattern }

// CompilePlan compiles the policies of one version of a plan. The rules are in the order of specs.
// Empty modes get their defaults. CompilePlan does not rely on an earlier validation: for an
// invalid policy, it returns an error that names the policy, and never panics.
func CompilePlan(slug string, version int, specs []RuleSpec) (*Plan, error) {
	if len(specs) > MaxRules {
		return nil, fmt.Errorf("plan %s has %d policies: at most %d", slug, len(specs), MaxRules)
	}
	p := &Plan{Slug: slug, Version: version, Rules: make([]*Rule, len(specs))}
	places := make(map[string]int, len(specs))
	for i, spec := range specs {
		if spec.Policy == "" {
			return nil, fmt.Errorf("plan %s: policy %d has no slug", slug, i+1)
		}
		if _, taken := places[spec.Policy]; taken {
			return nil, fmt.Errorf("plan %s: policy %s: its slug is taken by another policy", slug, spec.Policy)
		}
		places[spec.Policy] = i
	}
	cells, countedBy := make(map[uint32]string), make(map[string]int)
	for i, spec := range specs {
		r, err := compileRule(spec, i)
		if err == nil {
			err = r.compileReplaces(places)
		}
		if err == nil {
			err = claimCells(cells, r)
		}
		if err != nil {
			return nil, fmt.Errorf("plan %s: policy %s: %w", slug, spec.Policy, err)
		}
		p.Rules[i] = r
		by := fmt.Sprintf("%q", r.CountBy)
		if _, known := countedBy[by]; !known {
			countedBy[by] = i
		}
		r.countedBy = countedBy[by]
		if r.CostFrom != "" && !slices.Contains(p.costFrom, r.CostFrom) {
			p.costFrom = append(p.costFrom, r.CostFrom)
		}
	}
	if r := findCycle(p.Rules); r != nil {
		return nil, fmt.Errorf("plan %s: policy %s: replaces itself through other policies", slug, r.Policy)
	}
	rank(p.Rules)
	p.index, p.places = newIndex(p.Rules), places
	return p, nil
}

func compileRule(spec RuleSpec, place int) (*Rule, error) {
	r := &Rule{RuleSpec: spec, Index: place}
	for _, c := range choices(&r.Missing, &r.Mode, &r.OnFailure, &r.Consistency) {
		c.fillDefault()
		if fault := c.fault(); fault != "" {
			return nil, fmt.Errorf("%s %s", c.Field, fault)
		}
	}
	if r.DelayMS < 0 || r.DelayMS > MaxPolicyDelay {
		return nil, fmt.Errorf("delay_ms %s", policyDelayRange)
	}
	r.delay, r.class = policyDelay(r.DelayMS), r.Mode.class()
	if r.cost = defaultCost; r.Cost != nil {
		r.cost = *r.Cost
	}
	if r.cost < 0 || r.cost > MaxCost {
		return nil, fmt.Errorf("cost %s", costRange)
	}
	if slices.Contains(r.Methods, "") {
		return nil, fmt.Errorf("a method is empty")
	}
	var err error
	if r.pattern, err = ParsePattern(r.Path); err != nil {
		return nil, fmt.Errorf("path %w", err)
	}
	if r.attributes, err = compileAttributes(r.Attributes); err != nil {
		return nil, err
	}
	for _, name := range r.CountBy {
		switch name {
		case "":
			return nil, fmt.Errorf("a name in count_by is empty")
		case ipPrefix:
			r.slots = append(r.slots, slot{name: ipAttribute, prefix: true})
		default:
			r.slots = append(r.slots, slot{name: name})
		}
	}
	return r, r.compileLimits()
}

// compileAttributes returns the attribute values that a check must have to match a policy. They are
// sorted by name. The value of ip is in canonical form.
func compileAttributes(match map[string]string) ([]Attribute, error) {
	var list []Attribute
	for name, value := range match {
		if name == "" || value == "" {
			return nil, fmt.Errorf("attribute %q matches %q: neither may be empty", name, value)
		}
		if name == ipAttribute {
			_, canonical, err := CanonicalIP(value)
			if err != nil {
				return nil, fmt.Errorf("attribute ip: %w", err)
			}
			value = canonical
		}
		list = append(list, Attribute{name, value})
	}
	slices.SortFunc(list, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

func (r *Rule) compileLimits() error {
	r.Limits = slices.Clone(r.Limits)
	names := make(map[string]bool, len(r.Limits))
	for i := range r.Limits {
		l := &r.Limits[i]
		if names[l.Name] {
			return fmt.Errorf("limit %q: its name is taken by another limit", l.Name)
		}
		names[l.Name] = true
		if err := l.check(); err != nil {
			return fmt.Errorf("limit %q: %w", l.Name, err)
		}
		l.HeaderName = r.Policy
		if len(r.Limits) > 1 {
			l.HeaderName = r.Policy + "." + l.Name
		}
	}
	return nil
}

// check returns an error if the limit is invalid, or if its meter was not compiled from this limit.
func (l *RuleLimit) check() error {
	if faults := l.Validate(); len(faults) > 0 {
		return fmt.Errorf("%s %s", faults[0].Pointer[1:], faults[0].Message)
	}
	switch {
	case l.Cell > maxCell:
		return fmt.Errorf("its cell %d is above %d", l.Cell, maxCell)
	case l.Meter == nil:
		return fmt.Errorf("has no meter")
	case l.Meter.Algorithm != l.Algorithm || l.Meter.Numbers != l.Numbers():
		return fmt.Errorf("its meter belongs to another limit")
	case l.Meter.Rev < 1:
		return fmt.Errorf("its meter has no revision")
	}
	for _, f := range l.Meter.Formers {
		if l.Algorithm.Bucket() && (f.Q < 1 || f.P < 0 || f.Capacity < 0) {
			return fmt.Errorf("its former numbers are invalid")
		}
	}
	return nil
}

// compileReplaces sets r.replaces to the indexes of the rules that this rule replaces.
func (r *Rule) compileReplaces(places map[string]int) error {
	for _, slug := range r.Replaces {
		place, known := places[slug]
		if !known {
			return fmt.Errorf("replaces %q, which is not a policy of the plan", slug)
		}
		if place == r.Index {
			return fmt.Errorf("replaces itself")
		}
		r.replaces = append(r.replaces, uint16(place))
	}
	slices.Sort(r.replaces)
	return nil
}

// claimCells adds the cell numbers (Key.Cell) of a rule's limits to cells, which has the numbers of
// the earlier rules. It returns an error if an earlier limit has the same number, because both
// limits would then use the same counters.
func claimCells(cells map[uint32]string, r *Rule) error {
	for i := range r.Limits {
		l := &r.Limits[i]
		if holder, taken := cells[l.Cell]; taken {
			return fmt.Errorf("limit %q: its cell %d is that of %s", l.Name, l.Cell, holder)
		}
		cells[l.Cell] = r.Policy + "." + l.Name
	}
	return nil
}

// findCycle returns a rule that replaces itself, directly or through other rules. If there is none,
// it returns nil.
func findCycle(rules []*Rule) *Rule {
	const entered, left = 1, 2
	visited := make([]uint8, len(rules))
	var visit func(r *Rule) *Rule
	visit = func(r *Rule) *Rule {
		visited[r.Index] = entered
		for _, i := range r.replaces {
			switch visited[i] {
			case entered:
				return rules[i]
			case left:
				continue
			}
			if found := visit(rules[i]); found != nil {
				return found
			}
		}
		visited[r.Index] = left
		return nil
	}
	for _, r := range rules {
		if visited[r.Index] == left {
			continue
		}
		if found := visit(r); found != nil {
			return found
		}
	}
	return nil
}

// rank sets Rule.rank. The most specific rule has the lowest rank. A rule with more literal
// segments in its path is more specific. Among equals, a rule with a list of methods is more
// specific. Among those, the rule whose slug comes first in the alphabet is more specific.
func rank(rules []*Rule) {
	order := slices.Clone(rules)
	slices.SortFunc(order, func(a, b *Rule) int {
		return cmp.Or(
			cmp.Compare(b.pattern.literals(), a.pattern.literals()),
			cmp.Compare(min(len(b.Methods), 1), min(len(a.Methods), 1)),
			strings.Compare(a.Policy, b.Policy))
	})
	for i, r := range order {
		r.rank = i
	}
}

// attributesMatch reports whether a check has all attribute values that the policy requires.
func (r *Rule) attributesMatch(c *Check) bool {
	for _, want := range r.attributes {
		if value, ok := c.attribute(want.Name); !ok || value != want.Value {
			return false
		}
	}
	return true
}

// missing returns the name of the first attribute of count_by that the check does not have. If the
// check has all of them, missing returns "".
func (r *Rule) missing(c *Check) string {
	for _, s := range r.slots {
		if _, ok := c.attribute(s.name); !ok {
			return s.name
		}
	}
	return ""
}

// partition returns the partition in which the rule counts a check. A missing attribute counts
// as a separate value.
func (r *Rule) partition(c *Check, p *Partition) [16]byte {
	for _, s := range r.slots {
		value, ok := c.attribute(s.name)
		switch {
		case !ok:
			p.addMissing()
		case s.prefix && c.IP.IsValid():
			p.addPrefix(c.IP)
		default:
			p.Add(value)
		}
	}
	return p.Sum()
}

// attribute returns the value of an attribute. It returns false if the check does not have the
// attribute, or if its value is empty.
func (c *Check) attribute(name string) (string, bool) {
	for i := range c.Attributes {
		if c.Attributes[i].Name == name {
			return c.Attributes[i].Value, c.Attributes[i].Value != ""
		}
	}
	return "", false
}

// A shares caches the meters for one node's share of a rule's limits.
type shares struct{ made atomic.Pointer[sharesOf] }

type sharesOf struct {
	nodes  int
	meters []*Meter
}

// of returns the meters for one node's share of limits. In these, the quota, the burst and the
// maximum rollover are divided by the number of nodes. It keeps the result for the next call with
// the same number of nodes.
func (s *shares) of(limits []RuleLimit, nodes int) []*Meter {
	if made := s.made.Load(); made != nil && made.nodes == nodes {
		return made.meters
	}
	made := &sharesOf{nodes: nodes, meters: make([]*Meter, len(limits))}
	for i := range limits {
		l := limits[i].Limit
		l.Quota, l.Burst, l.MaxRollover = shareOf(l.Quota, nodes), shareOf(l.Burst, nodes), shareOf(l.MaxRollover, nodes)
		made.meters[i] = l.Compile(limits[i].Meter.Rev)
	}
	s.made.Store(made)
	return made.meters
}

// shareOf returns n divided by the number of nodes, rounded up. 0 stays 0: a quota of 0 denies all
// requests, and a burst of 0 means that the burst equals the quota.
func shareOf(n int64, nodes int) int64 {
	if n == 0 {
		return 0
	}
	return (n-1)/int64(nodes) + 1
}
