package enforcement

// An Explanation is a decision with its reasons: what a check would be answered
// now, and why each policy of the plan has a say in it or not.
type Explanation struct {
	// Decision is what a check would be answered at this instant, as Peek gives it.
	Decision Decision
	// PassesAt is the first instant at which the same request would pass if
	// nothing else came, in microseconds since the epoch; Never.
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
}
