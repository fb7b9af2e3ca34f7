package metrics

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Refusal is a denied decision with its explanation at that time, kept for a day. Values are
// empty if the tenant redacts them.
type Refusal struct {
	ID           [16]byte // the decision's
	At           time.Time
	Tenant       uint32 // number
	TenantSlug   string
	Plan         string // slug; "" without a plan
	PlanVersion  int
	Route        string
	Reason       enforcement.Reason
	Policy       string // that the refusal belongs to; "" when no policy refused
	Limit        string // name; "" when no limit refused
	RetryAfterMS int64  // enforcement.Never: waiting does not help
	Degraded     bool
	Method       string
	Path         string
	Attributes   []enforcement.Attribute // values are "" when Redacted
	Redacted     bool
	Cost         int64
	Node         string
	// ListEntry, Block: the id of what refused, "" otherwise.
	ListEntry, Block string
	// Limits are those of every policy that applied, as the answer had them.
	Limits []RefusalLimit
	// Policies say of each policy of the plan why it applied or not.
	Policies []RefusalPolicy
}

// A RefusalLimit is one limit of a kept denial.
type RefusalLimit struct {
	Policy       string                 `json:"policy"`
	Limit        string                 `json:"limit"`
	Mode         enforcement.PolicyMode `json:"mode"`
	Algorithm    string                 `json:"algorithm"`
	Quota        int64                  `json:"quota"`
	Burst        int64                  `json:"burst,omitempty"`
	WindowMS     int64                  `json:"window_ms"`
	Cost         int64                  `json:"cost"`
	Remaining    int64                  `json:"remaining"`
	ResetAfterMS int64                  `json:"reset_after_ms"`
	RetryAfterMS int64                  `json:"retry_after_ms"`
	Allowed      bool                   `json:"allowed"`
	Override     string                 `json:"override,omitempty"` // id
}

// A RefusalPolicy is one policy of the plan of a kept denial.
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

// A RefusalFilter selects denials. Empty fields select all; all set fields must match.
type RefusalFilter struct {
	Tenant   uint32
	Policy   string
	Route    string
	Reason   enforcement.Reason
	Reasons  []enforcement.Reason // any of these
	From, To time.Time
	// Attributes are all among the refusal's, with these values: its key. The value
	// of ip may also be a network, 2001:db8::/64: all addresses in it are meant. Of
	// each page at most 5,000 rows are looked through, so it may be short.
	Attributes []enforcement.Attribute
	// Degraded are those that were decided while the limiter that all share was
	// away. Rows are looked through for them as for Attributes.
	Degraded bool
	// Before is the decision ID of the last row of the previous page: only older ones.
	Before [16]byte
	// After is a decision ID: only newer ones. IDs are in the order of decisions, not of arrival.
	After [16]byte
	Limit int
}
