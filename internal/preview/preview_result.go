package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// The default and the longest time span of a preview.
const (
	defaultSpan = 24 * time.Hour
	maxSpan     = 7 * 24 * time.Hour
)

// Bounds of what a preview lists and reads.
const (
	// maxShown is the maximum number of tenants, routes and keys that a figure lists: the ones with the most denials.
	maxShown = 20
	// maxTenants is the maximum number of tenants of a plan that are read. If the plan has more, the oldest ones are read,
	// and Preview.Left is the number of the others.
	maxTenants = 10_000
)

// A Preview compares the draft of a plan with the recorded counts of the plan's tenants.
type Preview struct {
	Plan plans.Plan
	// Published is the number of the current version. It is 0 if there is none; then every policy counts as added.
	Published int
	// From and To are the span, in whole minutes. From is later than requested if the published version came into use
	// later, because other policies decided the requests before (see Clipped).
	From, To time.Time
	// Clipped is a sentence that says why From is later than requested; "" if it is not.
	Clipped string
	// Requests and Refused are the counted requests and denials by limits of all tenants of the plan. They are exact.
	Requests, Refused int64
	// Tenants is the number of tenants of the plan that were read. Active is the number of them that had requests.
	Tenants, Active int
	// Left is the number of tenants that were not read, because the plan has more than maxTenants. Joined is the number
	// of tenants that changed to the plan within the span. They are left out, because their earlier requests were counted
	// under another plan.
	Left, Joined int
	// Total bounds the number of these requests that all enforced policies of the draft together would deny. High is
	// at most the sum of the policies: a request that two policies deny is one denial. Total is nil if a policy that
	// would be enforced needs shadow.
	Total *Bounds
	// Estimate is the estimated number of these denials, and AtLeast is a lower bound. If Total is nil, they leave out
	// the denials of the policies that need shadow.
	Estimate, AtLeast int64
	// Policies are in the order of the draft, followed by the policies that the draft removes.
	Policies []Policy
}

// Bounds are a lower and an upper bound of a number that is not known exactly.
type Bounds struct{ Low, High int64 }

// A Change says how the draft changes a policy.
type Change string

// The kinds of change. Same means that the policy decides as before; only its description may differ.
const (
	Added   Change = "added"
	Changed Change = "changed"
	Same    Change = "same"
	Removed Change = "removed"
)

// A Certainty says how certain the figure for a policy of the draft is.
type Certainty string

// The certainties; the package comment explains them.
const (
	Exact       Certainty = "exact"
	Estimated   Certainty = "estimated"
	NeedsShadow Certainty = "needs_shadow"
)

// A Policy is one policy of the draft or of the published version.
//
// A denied request counts for one policy only: the one with the longest retry time among the enforced limits that
// deny the request. So the counted figures of enforced policies add up to at most the number of denied requests.
// Estimated figures must not be added up, because each is computed as if the other policies did not exist.
// Preview.Total has bounds of the sum.
type Policy struct {
	Slug   string
	Change Change
	// Mode is the mode in the draft, or the published mode of a removed policy. Was is the mode in the published
	// version; "" for an added policy.
	Mode, Was enforcement.PolicyMode
	// CountBy and Limits are those of the draft, or the published ones of a removed policy.
	CountBy []string
	Limits  []enforcement.Limit
	// Source is the slug of the published policy whose counts Draft is computed from. For a new policy, it is another
	// policy that matches the same requests and counts by the same attributes. It is "" with NeedsShadow.
	Source string

	Certainty Certainty
	// Why is a sentence that explains the certainty. With NeedsShadow, it also says what to do.
	Why string
	// Notes are sentences about requests that the figure leaves out and about its assumptions.
	Notes []string

	// Requests is the counted number of requests to which the policy applied. For an added policy, it is that of
	// Source, or 0 without one.
	Requests int64
	// Published contains the counted denials of the policy in the published version. It is nil if the published
	// version does not have the policy or does not enforce it.
	Published *Figure
	// Draft contains the denials that the policy of the draft would cause. In mode shadow, it contains the denials
	// that it would cause if it were enforced. It is nil with NeedsShadow.
	Draft *Figure
	// Shadow contains the counted denials that the policy would have caused while it was published in mode shadow. It
	// is nil if it was not.
	Shadow *Figure
}

// A Figure is the number of requests that a policy denied or would deny.
type Figure struct {
	// Refused is the number of denials. For an estimate, it is the result of a replay in which the requests of each
	// minute are spread evenly.
	Refused int64
	// Low and High are bounds of the true number. Both equal Refused if the number is exact.
	Low, High int64
	// Rate is Refused over Policy.Requests, from 0 to 1; 0 without requests.
	Rate float64
	// Tenants are the tenants with the most denials, at most maxShown. AllTenants is the number of tenants for which
	// Refused is not 0.
	Tenants    []TenantFigure
	AllTenants int
	// Routes are the routes with the most counted denials, at most maxShown. They are set for counted figures
	// (Published, Shadow, and an exact Draft). They are not set for estimates, because routes are not counted by key.
	Routes []RouteFigure
	// Keys are the keys with the most denials, at most maxShown. They are set only for an estimated Draft of a policy
	// with a count_by.
	Keys []KeyFigure
}

// A TenantFigure is the part of a figure that belongs to one tenant.
type TenantFigure struct {
	ID, Slug, Name     string
	Requests           int64 // requests to which the policy applied
	Refused, Low, High int64
	// Unread is the reason why this tenant's minutes were not replayed, in a few words. Then the bounds are wide. It
	// is "" if they were replayed or no replay was needed.
	Unread string
}

// A RouteFigure is the part of a figure that belongs to one route.
type RouteFigure struct {
	Route string // a pattern
	// Refused is the number of denials on the route. Requests is the number of all requests on the route.
	Refused, Requests int64
	// Exact means that no other policy of the same mode applies on the route. Otherwise Refused is the sum over all
	// these policies.
	Exact bool
}

// A KeyFigure is the part of a figure that belongs to one key.
type KeyFigure struct {
	Tenant   string // slug
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool // Values are hashes
	Requests int64
	Refused  int64
}
