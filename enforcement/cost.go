package enforcement

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate/headgate/internal/problem"
)

// defaultCost is the cost of a check for a policy if neither the check nor the policy states a
// cost.
const defaultCost = 1

var costRange = fmt.Sprintf("must be a whole number from 0 to %d", int64(MaxCost))

// ParseCost parses a cost: a decimal number from 0 to MaxCost, without a sign or leading
// zeros. It returns false if the text is not a cost.
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

// costOf returns the number of units that the rule charges for a check: the cost of one
// request, as often as the check has requests.
func (r *Rule) costOf(c *Check) int64 {
	cost := r.costOfOne(c)
	if c.Requests > 1 { // neither factor is above MaxCost, so the product does not overflow
		return min(cost*c.Requests, MaxCost)
	}
	return cost
}

// costOfOne returns the number of units that the rule charges for one request. The first of
// these applies: the attribute that cost_from names, the cost that the caller sent, the
// cost of the policy. Callers of the engine reject a check whose attribute is not a
// cost; see CostFault.
func (r *Rule) costOfOne(c *Check) int64 {
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

// CostFault finds an attribute of the check whose value must be a cost, because a policy of
// the tenant's plan names it in cost_from, but is not one. It returns the name of the
// attribute, and a message that says what is wrong with the value. Both are "" if there is no
// such attribute. The caller must reject such a check, because its cost is unknown.
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

// CostsBy reports whether a policy of the tenant's plan names the attribute in cost_from, so
// that its value is the cost.
func (s *Subject) CostsBy(attribute string) bool {
	return s.Plan != nil && slices.Contains(s.Plan.costFrom, attribute)
}

// SentCost returns the largest cost that the caller sent. That is the cost of the check, or
// the value of an attribute that a policy of the tenant's plan names in cost_from.
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

// costSentence returns the part of a Because sentence that says why the rule charges its own
// cost for a check. It returns "" if the caller sent the cost, if the cost is the default, or
// if the check is nil.
func (r *Rule) costSentence(c *Check) string {
	if c == nil {
		return ""
	}
	cost := strconv.FormatInt(r.costOfOne(c), 10)
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
