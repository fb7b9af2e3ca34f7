package metrics

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Refusal is a kept decision: a denial, or an allowed request if Allowed is set. It explains for
// every policy why the policy applied or did not apply at the time of the decision. By default, it
// is kept for a day. If the tenant redacts values, the attribute values are "".
type Refusal struct {
	ID          [16]byte // of the decision
	At          time.Time
	Tenant      uint32 // number
	TenantSlug  string
	Plan        string // slug; "" without a plan
	PlanVersion int
	Route       string
	Allowed     bool `json:",omitempty"`
	Reason      enforcement.Reason
	// the policy that denied the request; for an allowed request, the policy that has the least
	// left; "" if there is none
	Policy       string
	Limit        string // name of the limit of Policy that denied the request or has the least left; "" if there is none
	RetryAfterMS int64  // enforcement.Never if waiting does not help
	Degraded     bool
	Method       string
	Path         string
	Attributes   []enforcement.Attribute // values are "" when Redacted
	Redacted     bool
	Cost         int64
	Node         string
	// ListEntry is the ID of the list entry that denied the request, and Block is the ID of the
	// block that denied it. At most one of the two is set.
	ListEntry, Block string
	// Limits are the states of the limits of every policy that applied, in the order of
	// Decision.Limits.
	Limits []RefusalLimit
	// Policies has one element for each policy of the plan. The element says why the policy applied
	// or did not apply.
	Policies []RefusalPolicy
}

// A RefusalLimit is the state of one limit in a kept denial.
type RefusalLimit struct {
	Policy       string                 `json:"policy"`
	Limit        string                 `json:"limit"`
	Mode         enforcement.PolicyMode `json:"mode"`
	Algorithm    string                 `json:"algorithm"`
	Quota        int64                  `json:"quota"`                 // of the window, with RolledOver
	RolledOver   int64                  `json:"rolled_over,omitempty"` // see enforcement.LimitState
	Burst        int64                  `json:"burst,omitempty"`
	WindowMS     int64                  `json:"window_ms"`
	Cost         int64                  `json:"cost"`
	Remaining    int64                  `json:"remaining"`
	ResetAfterMS int64                  `json:"reset_after_ms"`
	RetryAfterMS int64                  `json:"retry_after_ms"`
	Allowed      bool                   `json:"allowed"`
	Override     string                 `json:"override,omitempty"` // id
}

// A RefusalPolicy says whether one policy of the plan applied to a denied request, and why.
type RefusalPolicy struct {
	Policy     string                 `json:"policy"`
	Mode       enforcement.PolicyMode `json:"mode"`
	Matches    bool                   `json:"matches"`
	Applies    bool                   `json:"applies"`
	Why        enforcement.Why        `json:"why"`
	Attribute  string                 `json:"attribute,omitempty"`
	ReplacedBy string                 `json:"replaced_by,omitempty"`
	Override   string                 `json:"override,omitempty"` // id
	Block      string                 `json:"block,omitempty"`    // id
}

// An Outcome selects kept decisions: denials, allowed requests, or both.
type Outcome string

// The values of Outcome.
const (
	OutcomeDenied  Outcome = "denied"
	OutcomeAllowed Outcome = "allowed"
	OutcomeAny     Outcome = "any"
)

// A RefusalFilter selects kept denials and kept allowed requests. A decision is selected if it
// matches all fields that are set.
type RefusalFilter struct {
	// Outcome selects denials by default.
	Outcome Outcome
	Tenant  uint32
	// Policy selects denials by this policy, and allowed requests to which the policy applied. For
	// allowed requests, the store examines at most 5,000 rows, as for Attributes.
	Policy   string
	Route    string
	Reason   enforcement.Reason
	Reasons  []enforcement.Reason // matches any of these
	From, To time.Time
	// Attributes selects denials that have all these attributes with these values. The value of the
	// attribute ip may also be a network, such as 2001:db8::/64, which matches all its addresses.
	// For one query, the store examines at most 5,000 rows. Therefore the result may have fewer
	// denials than Limit even if older rows match.
	Attributes []enforcement.Attribute
	// Degraded, if true, selects only denials that were decided while the shared limiter was unavailable. For one
	// query, the store examines at most 5,000 rows.
	Degraded bool
	// RetryAfter selects denials whose retry time in milliseconds is greater than From and at most
	// To. If To is enforcement.Never, it selects denials for which waiting does not help. If
	// RetryAfter is nil, every denial matches. The store examines at most 5,000 rows, as for
	// Attributes.
	RetryAfter *Bucket
	// Before is a decision ID. Only denials with a lower ID, which are older, match. To read the
	// next page, callers set Before to the ID of the last denial of the previous page.
	Before [16]byte
	// After is a decision ID. Only denials with a higher ID, which are newer, match. IDs are in the
	// order of the decisions, not in the order in which the denials were stored.
	After [16]byte
	Limit int
}
