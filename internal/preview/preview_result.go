package preview

import (
	"fmt"
	"strconv"
	"strings"
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
	// From and To are the time range, in whole minutes. If no counts before a publication can be
	// used for any policy, From is the time at which its version came into force (see Clipped). If
	// they cannot be used for one policy, its Notes say so.
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
	// NeedsShadow, or figures for only a part of the time range.
	Total *Bounds
	// Estimate is the estimated number of requests that all enforced policies of the draft
	// together would deny. AtLeast is a lower bound of this number. Both leave out policies
	// with the certainty NeedsShadow.
	Estimate, AtLeast int64
	// Replay is the comparison of single requests that were traced. It is nil if there are none.
	Replay *Replay
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

	// From is the start of the time whose counts are used: Preview.From, or a later publication if
	// an earlier version decided other requests under this policy.
	From time.Time
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
	// Replay compares traced requests. It is nil if there are none.
	Replay *PolicyReplay
}

// A Replay is the result of deciding traced requests again, one by one, with the published version and
// with the draft: those of a sample of the keys of each tenant, with all of their requests. Keys with
// an override are left out, and those whose requests the published version decided otherwise than the
// replay.
type Replay struct {
	// From and To are the time whose requests are replayed, in whole minutes.
	From, To time.Time
	// Tenants is the number of tenants whose requests are replayed. All is set if the replay has all
	// of their requests, and not only those of a sample of their keys.
	Tenants int
	All     bool
	// Parts is the number of these tenants of which only a part of the time range is replayed. Skipped is
	// the number of other tenants with requests. None of theirs are replayed.
	Parts, Skipped int
	// Without are the slugs of enforced policies of the draft that are not in the replay, because the
	// trace does not have their requests or keys. Draft is then what the others would deny without them.
	Without []string
	// Requests is the number of replayed requests. Published and Draft are the numbers of those that
	// enforced policies deny.
	Requests, Published, Draft int64
	// Points are the same numbers for each Step of the time range of the preview.
	Step   time.Duration
	Points []ReplayPoint
}

// String returns sentences that say which requests the replay has.
func (r *Replay) String() string {
	of := "all traced requests"
	if !r.All {
		of = "the requests of a sample of the keys"
	}
	text := fmt.Sprintf("The limiter decided %s of %s from %s to %s again, one by one, with the published version and with the draft. "+
		"Keys with an override are left out.", of, number(r.Tenants, "tenant", "tenants"),
		r.From.UTC().Format("2 January 15:04"), r.To.UTC().Format("2 January 15:04 MST"))
	if r.Parts > 0 {
		text += fmt.Sprintf(" Of %s, only a part of this time is replayed.", number(r.Parts, "tenant", "tenants"))
	}
	if r.Skipped > 0 {
		text += fmt.Sprintf(" %s not in the replay.", number(r.Skipped, "other tenant with requests is", "other tenants with requests are"))
	}
	if len(r.Without) > 0 {
		text += " Not in the replay: " + strings.Join(r.Without, ", ") + ". So it does not say how many requests the whole draft denies."
	}
	return text
}

// String returns a sentence with the result, such as "Of 412 sampled keys, all their 31,204 requests
// were decided again: 337 denied as published, 12 with the draft."
func (p *PolicyReplay) String() string {
	keys := number(int(p.Keys), "sampled key", "sampled keys")
	if p.All {
		keys = number(int(p.Keys), "key", "keys")
	}
	with := "with the draft"
	if len(p.Without) > 0 {
		with += " as if it did not have " + strings.Join(p.Without, ", ")
	}
	text := fmt.Sprintf("Of %s, all their %s were decided again: %s denied as published, %s %s.",
		keys, number(int(p.Requests), "request", "requests"), thousands(p.Published), thousands(p.Draft), with)
	if p.LeftOut > 0 {
		text += fmt.Sprintf(" %s left out, because of an override, or because a replay cannot repeat their decisions.",
			number(int(p.LeftOut), "key is", "keys are"))
	}
	if p.Parts > 0 {
		text += fmt.Sprintf(" Of %s, a part of the time is left out, because the replay decided otherwise.", number(int(p.Parts), "key", "keys"))
	}
	if p.Mixed {
		text += " Other policies deny what they denied where their key is left out or not in the sample."
	}
	return text
}

// thousands formats a number with separators.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// A ReplayPoint has the numbers of a Replay for the time from At until one Step later.
type ReplayPoint struct {
	At                         time.Time
	Requests, Published, Draft int64
}

// A PolicyReplay is the part of a Replay for one policy.
type PolicyReplay struct {
	// Keys is the number of keys with all of their Requests. All is set if these are all keys.
	// LeftOut is the number of keys that are left out. Parts is the number of those Keys of which only a
	// part of the time is replayed, because the replay decided a request otherwise than it was decided.
	Keys, Requests, LeftOut, Parts int64
	All                            bool
	// Published and Draft are the numbers of requests that the policy denies in the published version
	// and in the draft. In a mode that denies nothing, they are those over its limits.
	Published, Draft int64
	// Without are the slugs of enforced policies of the draft that may deny some of the requests first and
	// are not in the replay. Draft is then the number without them.
	Without []string
	// Mixed is set if other policies apply to some of the requests with keys that are not replayed.
	// They deny what they denied.
	Mixed bool
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
