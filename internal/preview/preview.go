package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// Spans of time that can be asked for.
const (
	defaultSpan = 24 * time.Hour
	maxSpan     = 7 * 24 * time.Hour
)

// Bounds of what an answer lists and reads.
const (
	// maxShown is how many tenants, routes and keys a figure names, those with
	// the most refusals first.
	maxShown = 20
	// maxTenants is how many tenants of a plan are read at all. Of a plan with
	// more those that were made first are, and Preview.Left says how many are not.
	maxTenants = 10_000
)

// A Preview is a plan's draft held against what was counted of its tenants.
type Preview struct {
	Plan plans.Plan
	// Published is the number of the version that tenants follow; 0: none yet,
	// and every policy is added.
	Published int
	// From and To are the span in whole minutes. From is later than what was
	// asked when the published version began to hold later (Clipped says why):
	// what came before was decided by other policies.
	From, To time.Time
	// Clipped is a sentence that says why From is later than asked; "" when it is not.
	Clipped string
	// Requests and Refused are those of all tenants of the plan, as counted;
	// Refused are the refusals by limits. They are exact.
	Requests, Refused int64
	// Tenants is how many tenants of the plan were read, Active how many of them
	// asked anything.
	Tenants, Active int
	// Left is how many tenants of the plan were not read at all: the plan has more
	// than maxTenants. Joined is how many were put on it within the span; they are
	// left out, since what they did before was counted under another plan.
	Left, Joined int
	// Total bounds what all enforced policies of the draft together would
	// refuse of these requests. High is at most their sum: a request that two
	// policies refuse is one refusal. nil when a policy needs shadow that would be
	// enforced.
	Total *Bounds
	// Policies in the order of the draft, then those that it removes.
	Policies []Policy
}

// Bounds hold a number that is not known exactly.
type Bounds struct{ Low, High int64 }

// A Change says what a draft does to a policy.
type Change string

// The changes. A policy is Same when it decides as before: its description may
// differ.
const (
	Added   Change = "added"
	Changed Change = "changed"
	Same    Change = "same"
	Removed Change = "removed"
)

// A Certainty says how well a policy's figure of the draft is known.
type Certainty string

// The certainties.
const (
	Exact       Certainty = "exact"
	Estimated   Certainty = "estimated"
	NeedsShadow Certainty = "needs_shadow"
)

// A Policy is one policy of the draft or of the published version.
//
// A request belongs to a figure as a refusal belongs to a policy everywhere: of
// the enforced limits that refuse, to the one with the longest retry. So the
// figures of enforced policies add up to no more than the requests refused; but
// a policy that refuses more leaves less for others to refuse, and estimated
// figures take each policy by itself: do not add those up. Preview.Total has
// bounds of the sum.
type Policy struct {
	Slug   string
	Change Change
	// Mode in the draft; of a removed policy in the published version. Was is the
	// mode in the published version; "" of an added one.
	Mode, Was enforcement.PolicyMode
	// CountBy and Limits of the draft; of a removed policy of the published version.
	CountBy []string
	Limits  []enforcement.Limit
	// Source is the slug of the published policy whose counts Draft was made
	// from: another one's when the policy is new, and matches and counts as that
	// one does. "" with NeedsShadow.
	Source string

	Certainty Certainty
	// Why says in a sentence why the figure is that certain, and with NeedsShadow
	// what to do.
	Why string
	// Notes are sentences on what the figure leaves out or takes for granted.
	Notes []string

	// Requests that the policy applied to, as counted; of an added policy those of
	// its Source, and 0 without one.
	Requests int64
	// Published is what the published version refused by this policy, as counted;
	// nil when it had no such policy, or not enforced.
	Published *Figure
	// Draft is what the policy of the draft would refuse: in mode shadow, what it
	// would refuse if it were enforced. nil with NeedsShadow.
	Draft *Figure
	// Shadow is what the policy would have refused, as counted while it is
	// published in shadow; nil when it is not.
	Shadow *Figure
}

// A Figure is how many requests a policy refused or would refuse.
type Figure struct {
	// Refused is the number, or the best guess at it: what the limits' own
	// arithmetic refuses when requests come evenly within each minute.
	Refused int64
	// Low and High hold the true number; both are Refused when it is exact.
	Low, High int64
	// Rate is Refused over Policy.Requests, from 0 to 1; 0 without requests.
	Rate float64
	// Tenants are those with the most refusals, at most maxShown; AllTenants is
	// how many have any, by the best guess.
	Tenants    []TenantFigure
	AllTenants int
	// Routes are where the refusals were counted, most first, at most maxShown.
	// They are there of what was counted (Published, Shadow, and an exact Draft),
	// and not of estimates: routes are not counted by key.
	Routes []RouteFigure
	// Keys are those of which the most would be refused, at most maxShown. They
	// are there of an estimated Draft that counts by something.
	Keys []KeyFigure
}

// A TenantFigure is one tenant's part of a figure.
type TenantFigure struct {
	ID, Slug, Name     string
	Requests           int64 // that the policy applied to
	Refused, Low, High int64
	// Unread says in a few words why this tenant's minutes were not replayed; ""
	// when they were, or need not be. Its bounds are then wide.
	Unread string
}

// A RouteFigure is one route's part of a figure.
type RouteFigure struct {
	Route string // a pattern
	// Refused on the route, and the requests of all kinds that came to it.
	Refused, Requests int64
	// Exact: no other policy of the same mode applies on the route. Otherwise
	// Refused is how many were refused there by all of them together.
	Exact bool
}

// A KeyFigure is one key's part of a figure.
type KeyFigure struct {
	Tenant   string // slug
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool // Values are hashes
	Requests int64
	Refused  int64
}
