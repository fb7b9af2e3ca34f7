package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// The default length and the maximum length of the time range of a preview.
const (
	defaultSpan = 24 * time.Hour
	maxSpan     = 7 * 24 * time.Hour
)

// Bounds of the number of objects that a preview lists and reads.
const (
	// maxShown is the maximum number of tenants, of routes, and of keys that a figure lists: those
	// with the most denials.
	maxShown = 20
	// maxTenants is the maximum number of tenants of a plan whose counts are read. If the plan has
	// more, the tenants that were created first are read, and Preview.Left is the number of the
	// others.
	maxTenants = 10_000
)

// A Preview says how many requests of the recent past the draft of a plan would have denied, beside
// how many were denied.
type Preview struct {
	Plan plans.Plan
	// Published is the number of the current version. If there is none, it is 0, and every policy
	// counts as added.
	Published int
	// From and To are the time range, in whole minutes. If the current version was published later
	// than the requested start, From is the time of its publication, because another version
	// decided the requests before it (see Clipped).
	From, To time.Time
	// Clipped is a sentence that says why From is later than requested; "" if it is not.
	Clipped string
	// Requests is the number of requests of all tenants of the plan in the time range, and Refused
	// the number of those that limits denied. Both are counted, so they are exact.
	Requests, Refused int64
	// Tenants is the number of tenants of the plan whose counts were read. Active is the number of
	// those that had requests.
	Tenants, Active int
	// Left is the number of tenants whose counts were not read, because the plan has more than
	// maxTenants. Joined is the number of tenants that changed to this plan within the time range.
	// Their counts are left out, because another plan decided their earlier requests.
	Left, Joined int
	// Total bounds the number of requests that all enforced policies of the draft together would
	// deny. A request that two policies deny is one denial, so High is at most the sum over the
	// policies. Total is nil if one of these policies needs shadow.
	Total *Bounds
	// Estimate is the estimated number of requests that all enforced policies together would deny,
	// and AtLeast is a lower bound of it. Policies that need shadow are left out of both.
	Estimate, AtLeast int64
	// Policies are the policies of the draft in their order. After them come the policies that the
	// draft removes.
	Policies []Policy
}

// Bounds are a lower and an upper bound of a number that is not known exactly.
type Bounds struct{ Low, High int64 }

// A Change says how the draft changes a policy.
type Change string

// The kinds of change. Same means that the policy decides as before. Its description may differ.
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

// A Policy is a policy of the draft, or a published policy that the draft removes.
//
// If several enforced limits deny a request, the denial counts for the policy of the limit with the
// longest retry time. So the counted figures of all enforced policies add up to at most the number
// of denied requests. Estimated figures must not be added up, because each is computed as if the
// other policies did not exist. Preview.Total has bounds of their sum.
type Policy struct {
	Slug   string
	Change Change
	// Mode is the mode in the draft. For a removed policy, it is the mode in the published version.
	// Was is the mode in the published version; "" for an added policy.
	Mode, Was enforcement.PolicyMode
	// CountBy and Limits are those in the draft. For a removed policy, they are those in the
	// published version.
	CountBy []string
	Limits  []enforcement.Limit
	// Source is the slug of the published policy from whose counts Draft is computed. For an added
	// policy, it is another policy that matches the same requests and counts by the same
	// attributes. If the certainty is NeedsShadow, it is "".
	Source string

	Certainty Certainty
	// Why is a sentence that explains the certainty. If the certainty is NeedsShadow, it also says
	// what to do.
	Why string
	// Notes are sentences about requests that the figure leaves out, and about the assumptions of
	// the figure.
	Notes []string

	// Requests is the counted number of requests to which the policy applied. For an added policy,
	// it is the number of the policy Source, or 0 if there is no Source.
	Requests int64
	// Published contains the counted denials of the published policy. It is nil if the published
	// version does not have the policy, or has it in another mode than enforce.
	Published *Figure
	// Draft contains the denials that the policy of the draft would have caused. For a policy in
	// mode shadow, these are the denials that it would have caused if it had been enforced. Draft
	// is nil if the certainty is NeedsShadow.
	Draft *Figure
	// Shadow contains the counted denials that the published policy would have caused if it had
	// been enforced. It is nil if the published version does not have the policy in mode shadow.
	Shadow *Figure
}

// A Figure is the number of requests that a policy denied or would deny.
type Figure struct {
	// Refused is the number of denials. If it is an estimate, it is the result of a replay with the
	// requests of each minute spread evenly over the minute.
	Refused int64
	// Low and High are bounds of the true number of denials. Both equal Refused if it is exact.
	Low, High int64
	// Rate is Refused divided by Policy.Requests, from 0 to 1. Without requests, it is 0.
	Rate float64
	// Tenants are the tenants with the most denials, at most maxShown. AllTenants is the number of tenants for which
	// Refused is not 0.
	Tenants    []TenantFigure
	AllTenants int
	// Routes are the routes with the most denials, at most maxShown. Only counted figures have
	// them: Published, Shadow, and an exact Draft. For estimates they are unknown, because keys are
	// not counted by route.
	Routes []RouteFigure
	// Keys are the keys with the most denials, at most maxShown. Only an estimated Draft of a
	// policy with a count_by has them.
	Keys []KeyFigure
}

// A TenantFigure contains the denials of one tenant in a Figure.
type TenantFigure struct {
	ID, Slug, Name     string
	Requests           int64 // requests to which the policy applied
	Refused, Low, High int64
	// Unread says in a few words why the counts by minute of this tenant were not replayed. Its
	// bounds are then wide. It is "" if they were replayed, or if no replay was needed.
	Unread string
}

// A RouteFigure contains the denials on one route in a Figure.
type RouteFigure struct {
	Route string // a pattern
	// Refused is the number of denials on the route. Requests is the number of all requests on the route.
	Refused, Requests int64
	// Exact says that no other policy with the same mode can deny requests of the route. If it is
	// false, Refused includes the denials of such policies.
	Exact bool
}

// A KeyFigure contains the denials of one key in a Figure.
type KeyFigure struct {
	Tenant   string // slug
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool // Values are hashes
	Requests int64
	Refused  int64
}
