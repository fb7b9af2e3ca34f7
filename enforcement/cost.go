package enforcement

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/internal/problem"
)

// defaultCost is the cost of a check if neither the check nor the policy has one.
const defaultCost = 1

var costRange = fmt.Sprintf("must be a whole number from 0 to %d", int64(MaxCost))

// ParseCost parses a cost: a decimal number from 0 to MaxCost, without a sign or leading zeros. It
// returns false for any other text.
func ParseCost(text string) (int64, bool) {
	if text == "" || len(text) > len("2147483647") || text[0] == '0' && text != "0" {
		return 0, false
	}
	n := int64(0)
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= MaxCost
}

// costOf returns the number of units that the rule charges for a check. It uses the first of these
// that exists: the attribute that cost_from names, the cost that the caller sent, and the cost of
// the policy. If the value of the attribute is not a cost, the caller of the engine has already
// rejected the check; see CostFault.
func (r *Rule) costOf(c *Check) int64 {
	if r.CostFrom != "" {
		if value, ok := c.attribute(r.CostFrom); ok {
			if n, ok := ParseCost(value); ok {
				return n
			}
		}
	}
	if c.DefaultCost {
		return r.cost
	}
	return c.Cost
}

// CostFault returns the name of an attribute of the check whose value is not a cost although a
// policy of the tenant's plan names it as cost_from. message says what is wrong with the value. If
// there is no such attribute, both are "". Otherwise the caller must reject the check, because its
// cost is unknown.
func (s *Subject) CostFault(c *Check) (attribute, message string) {
	if s.Plan == nil {
		return "", ""
	}
	for _, name := range s.Plan.costFrom {
		if value, ok := c.attribute(name); ok {
			if _, ok := ParseCost(value); !ok {
				return name, costRange + ", because it is the cost for a policy of the plan"
			}
		}
	}
	return "", ""
}

// SentCost returns the largest cost that the caller has chosen in the check: the cost of the check,
// or the value of an attribute that a policy of the tenant's plan names as cost_from.
func (s *Subject) SentCost(c *Check) int64 {
	largest := c.Cost
	if s.Plan == nil {
		return largest
	}
	for _, name := range s.Plan.costFrom {
		if value, ok := c.attribute(name); ok {
			if n, ok := ParseCost(value); ok {
				largest = max(largest, n)
			}
		}
	}
	return largest
}

// validateCost returns the errors of the fields cost and cost_from.
func (p *Policy) validateCost() (f problem.Fields) {
	if p.Cost != nil && (*p.Cost < 0 || *p.Cost > MaxCost) {
		f.Add("/cost", "%s", costRange)
	}
	switch {
	case p.CostFrom == "":
	case CountedAttribute(p.CostFrom) == ipAttribute:
		f.Add("/cost_from", "must not be %s: an address is no number", p.CostFrom)
	case slices.Contains(p.CountBy, p.CostFrom):
		f.Add("/cost_from", "must not be an attribute of count_by: each cost would have its own counter")
	default:
		if fault := AttributeNameFault(p.CostFrom); fault != "" {
			f.Add("/cost_from", "the attribute name %s", fault)
		}
	}
	return f
}

// costSentence returns the part of a Because sentence that says why the rule charges this cost. It
// is "" if the caller sent the cost, if the cost is the default, and if c is nil.
func (r *Rule) costSentence(c *Check) string {
	if c == nil {
		return ""
	}
	cost := strconv.FormatInt(r.costOf(c), 10)
	if r.CostFrom != "" {
		if _, ok := c.attribute(r.CostFrom); ok {
			return ", and charges " + cost + " units, the value of the attribute " + r.CostFrom
		}
	}
	if c.DefaultCost && r.Cost != nil {
		return ", and charges " + cost + " units, the cost of the policy"
	}
	return ""
}
