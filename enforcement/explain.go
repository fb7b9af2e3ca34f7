package enforcement

import "slices"

// An Explanation is a decision with its reasons: what a check would be answered
// now, and why each policy of the plan has a say in it or not.
type Explanation struct {
	// Decision is what a check would be answered at this instant, as Peek gives it.
	Decision Decision
	// PassesAt is the instant at which the same request would pass if no other came,
	// by the numbers that are in force now, in microseconds since the epoch; Never.
	PassesAt int64
	// Policies has every policy of the tenant's plan, in its order.
	Policies []PolicyExplanation
}

// A Why says why a policy applies or does not; the words are those on the wire.
type Why string

// The reasons of a policy, in the order in which they are asked.
const (
	WhyOff       Why = "off"       // the policy is off
	WhyMethod    Why = "method"    // another method
	WhyPath      Why = "path"      // another path
	WhyAttribute Why = "attribute" // an attribute of match is missing or has another value
	WhySkipped   Why = "skipped"   // an attribute of count_by is missing, and missing is skip
	WhyDenied    Why = "missing"   // an attribute of count_by is missing, and missing is deny
	WhyReplaced  Why = "replaced"  // another policy that applies replaces it
	WhyListed    Why = "list"      // a list or the tenant's status answered before any policy
	WhyBlocked   Why = "blocked"   // it applies, and the key is blocked
	WhyApplies   Why = "applies"   // it applies
)

// A PolicyExplanation is one policy of the plan in an Explanation.
type PolicyExplanation struct {
	Rule *Rule
	// Matches: method, path and attributes match, whatever the mode.
	Matches bool
	// Applies: it matches, and is asked: enforced or in shadow.
	Applies bool
	Why     Why
	// Attribute is the one behind WhyAttribute, WhySkipped and WhyDenied.
	Attribute string
	// ReplacedBy is the slug of the policy behind WhyReplaced.
	ReplacedBy string
	Override   *Override // in force for this request; nil: the plan's numbers
	Block      *Block    // in force for this request's key; nil: none
	// Limits, of a policy that matches: what each holds now. Empty when the
	// limiter could not be asked.
	Limits []LimitNow
}

// A LimitNow is what a limit holds for one key at an instant.
type LimitNow struct {
	Limit *RuleLimit // with the numbers in force
	// Remaining is what could be charged at once; ResetAfter in milliseconds,
	// rounded up.
	Remaining, ResetAfter int64
	// LeasedElsewhere, of a leased policy, is up to how many units other nodes hold
	// ahead: the limit may deny that many early. 0: it is decided exactly.
	LeasedElsewhere int64
}

// ExplainPolicies says of every policy of a tenant's plan why it has a say in a
// check or not, with the exceptions in force at an instant, in microseconds since the
// epoch. It asks no limiter: Limits are empty.
func ExplainPolicies(s *Subject, c *Check, now int64) []PolicyExplanation {
	return explainPolicies(nil, s, c, now)
}

// explainPolicies appends to a list.
func explainPolicies(list []PolicyExplanation, s *Subject, c *Check, now int64) []PolicyExplanation {
	if s.Plan == nil {
		return list
	}
	matching := s.Plan.match(c, nil)
	applying, _, _ := s.Plan.apply(matching, c, nil)
	answered, _ := s.before(c, now)
	for i, r := range s.Plan.Rules {
		x := PolicyExplanation{Rule: r, Matches: contains(matching, i)}
		switch {
		case r.Mode == PolicyOff:
			x.Why = WhyOff
		case !x.Matches:
			x.Why, x.Attribute = mismatch(r, c)
		case answered != "":
			x.Why = WhyListed
		case contains(applying, i):
			x.applies(c)
		default:
			x.stands(s.Plan, matching, c)
		}
		if x.Matches {
			x.addExceptions(s, c, now)
		}
		list = append(list, x)
	}
	return list
}

// mismatch says why a rule does not match a check.
func mismatch(r *Rule, c *Check) (why Why, attribute string) {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, c.Method) {
		return WhyMethod, ""
	}
	if !r.pattern.Match(c.Path) {
		return WhyPath, ""
	}
	for _, want := range r.attributes {
		if value, ok := c.attribute(want.Name); !ok || value != want.Value {
			return WhyAttribute, want.Name
		}
	}
	return WhyAttribute, "" // not reached: it matches
}

// applies says that a policy applies; one that denies does so by refusing.
func (x *PolicyExplanation) applies(c *Check) {
	x.Applies, x.Why = true, WhyApplies
	if x.Rule.Missing == MissingDeny && c.Mode != Force {
		if name := x.Rule.missing(c); name != "" {
			x.Why, x.Attribute = WhyDenied, name
		}
	}
}

// stands says why a policy that matches is not asked.
func (x *PolicyExplanation) stands(p *Plan, matching []uint16, c *Check) {
	name := x.Rule.missing(c)
	if name != "" && x.Rule.skips() {
		x.Why, x.Attribute = WhySkipped, name
		if x.Rule.Missing == MissingDeny {
			x.Why = WhyDenied
		}
		return
	}
	x.Why = WhyReplaced
	for _, i := range matching {
		by := p.Rules[i]
		if by.Mode != PolicyEnforce || by.missing(c) != "" && by.skips() {
			continue
		}
		if contains(by.replaces, x.Rule.Index) {
			x.ReplacedBy = by.Policy
			return
		}
	}
}

// addExceptions sets the override and the block that are in force for the check's key.
func (x *PolicyExplanation) addExceptions(s *Subject, c *Check, now int64) {
	of := s.Exceptions.of(x.Rule)
	if of == nil {
		return
	}
	if o, _ := of.choose(c, now); o != nil {
		x.Override = o.Override
	}
	if b := of.block(x.Rule.PartitionOf(c)); b != nil && now < b.Until && x.Rule.Mode == PolicyEnforce {
		x.Block = b
		if x.Why == WhyApplies && c.Mode != Force {
			x.Why = WhyBlocked
		}
	}
}
