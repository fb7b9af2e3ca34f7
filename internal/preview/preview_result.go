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
	// maxTenants is the maximum number of tenants whose counts are read. If the plan has more,
	// the preview reads the tenants that were created first, and Preview.Left is the number of
	// the others.
	maxTenants = 10_000
)

// A Preview compares the draft of a plan with the published version: how many requests of the
// recent past the draft would have denied, and how many were denied.
type Preview struct {
	Plan plans.Plan
	// Published is the number of the published version. If there is none, it is 0, and every
	// policy of the draft counts as added.
	Published int
	// From and To are the time range, in whole minutes. If the published version came into use
	// after the requested start, From is the time at which it came into use, because another
	// version decided the requests before (see Clipped).
	From, To time.Time
	// Clipped is a sentence that says why From is later than requested; "" if From is the
	// requested time.
	Clipped string
	// Requests is the counted number of requests of all tenants of the plan in the time range.
	// Refused is the counted number of those that limits denied. Both are exact.
	Requests, Refused int64
	// Tenants is the number of tenants of the plan whose counts were read. Active is the number
	// of those that had requests in the time range.
	Tenants, Active int
	// Left is the number of tenants whose counts were not read, because the plan has more than
	// maxTenants. Joined is the number of tenants that changed to this plan within the time
	// range. Their counts are not read either, because another plan decided their earlier
	// requests.
	Left, Joined int
	// Total has bounds of the number of requests that all enforced policies of the draft
	// together would deny. A request that two policies would deny counts once, so High is at
	// most the sum over the policies. Total is nil if one of these policies has the certainty
	// NeedsShadow.
	Total *Bounds
	// Estimate is the estimated number of requests that all enforced policies of the draft
	// together would deny. AtLeast is a lower bound of this number. Both leave out policies
	// with the certainty NeedsShadow.
	Estimate, AtLeast int64
	// Policies are the policies of the draft in their order. After them come the policies that the
	// draft removes.
	Policies []Policy
}

// Bounds are a lower and an upper bound of a number that is not known exactly.
type Bounds struct{ Low, High int64 }

// A Change says how the draft changes a policy.
type Change string

// The kinds of change. Same means that the policy makes the same decisions as the published
// one. Its description may differ.
const (
	Added   Change = "added"
	Changed Change = "changed"
	Same    Change = "same"
	Removed Change = "removed"
)

// A Certainty says how certain Policy.Draft is.
type Certainty string

// The certainties; the package comment explains them.
const (
	Exact       Certainty = "exact"
	Estimated   Certainty = "estimated"
	NeedsShadow Certainty = "needs_shadow"
)

// A Policy is a policy of the draft, or a published policy that the draft removes.
//
// If several enforced limits deny a request, only one policy counts the denial: that of the
// limit with the longest retry time. So the counted figures of all enforced policies add up to
// at most the number of denied requests. Estimated figures must not be added up, because each
// is computed as if the other policies did not exist. Preview.Total has bounds of the sum.
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
	// Source is the slug of the published policy from whose counts Draft is computed. For an
	// added policy, it is a published policy with another slug that matches the same requests
	// and counts by the same attributes. If the certainty is NeedsShadow, Source is "".
	Source string

	Certainty Certainty
	// Why is a sentence that explains the certainty. If the certainty is NeedsShadow, a second
	// sentence says what to do.
	Why string
	// Notes are sentences about requests that Draft leaves out, and about assumptions on which
	// Draft is based.
	Notes []string

	// Requests is the counted number of requests to which the published policy applied. For an
	// added policy, it is the number of the policy Source, or 0 if there is no Source.
	Requests int64
	// Published contains the counted denials of the published policy. It is nil unless the
	// published version has the policy in mode enforce.
	Published *Figure
	// Draft contains the denials that the policy would have caused with the draft. If the draft
	// has the policy in another mode than enforce, these are the requests that would have been over
	// its limits. Draft is nil if the certainty is NeedsShadow.
	Draft *Figure
	// Shadow contains the counted requests that were over the limits of the published policy. It is
	// nil unless the published version has the policy in mode shadow, degrade or delay.
	Shadow *Figure
}

// A Figure is the number of requests that a policy denied or would deny.
type Figure struct {
	// Refused is the number of denials. If the figure is an estimate, Refused is the result of
	// a replay in which the requests of each minute are spread evenly over the minute.
	Refused int64
	// Low and High are bounds of the true number of denials. If the figure is exact, both equal
	// Refused.
	Low, High int64
	// Rate is Refused divided by Policy.Requests, from 0 to 1. It is 0 if there were no
	// requests.
	Rate float64
	// Tenants are the tenants with the most denials, at most maxShown. AllTenants is the number
	// of all tenants for which Refused is not 0.
	Tenants    []TenantFigure
	AllTenants int
	// Routes are the routes with the most denials, at most maxShown. Only counted figures have
	// routes: Published, Shadow, and an exact Draft. An estimate has none, because requests of
	// a key are not counted by route.
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
	// Unread says in a few words why the counts by minute of this tenant were not replayed. Low
	// and High are then far apart. Unread is "" if the counts were replayed, or if no replay
	// was needed.
	Unread string
}

// A RouteFigure contains the denials on one route in a Figure.
type RouteFigure struct {
	Route string // a pattern
	// Refused is the number of denials on the route. Requests is the number of all requests on
	// the route.
	Refused, Requests int64
	// Exact says that Refused contains only denials of this policy. If it is false, Refused may
	// include denials of other policies with the same mode, or the counts of some tenants were
	// not read.
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
