package enforcement

// A Policy compiled for speed is a Rule; a plan's rules with their index are a
// Plan. Both are immutable and shared by all tenants of the plan.

// A RuleSpec is what a policy says, in the words of its writer. It must have
// been validated (plans.Validate); Compile reports what it cannot compile.
type RuleSpec struct {
	Policy     string // slug
	Methods    []string
	Path       string // pattern; "" or "*": everything
	Attributes map[string]string
	CountBy    []string
	Missing    Missing
	Replaces   []string
	Mode       PolicyMode
	OnFailure  OnFailure
	Limits     []RuleLimit
}

// A RuleLimit is one limit of a rule.
type RuleLimit struct {
	Limit
	// Cell is the number in Key.Cell.
	Cell uint32
	// Meter is the limit compiled, with its revision and former numbers.
	Meter *Meter
	// HeaderName is the limit's name in headers: the policy's slug, or
	// slug.limit when the policy has several.
	HeaderName string
}

// A Rule is a policy compiled.
type Rule struct {
	RuleSpec
	// Index is the place in the plan.
	Index int
}

// A Plan is a published version compiled.
type Plan struct {
	Slug    string
	Version int
	Rules   []*Rule
}
