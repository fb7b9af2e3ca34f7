package metrics

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A Refusal is a kept denial: a denied decision and the explanation for it at that time. By default, it is kept for a
// day. If the tenant redacts values, the attribute values are empty.
type Refusal struct {
	ID           [16]byte // of the decision
	At           time.Time
	Tenant       uint32 // number
	TenantSlug   string
	Plan         string // slug; "" without a plan
	PlanVersion  int
	Route        string
	Reason       enforcement.Reason
	Policy       string // the policy that denied; "" if no policy denied
	Limit        string // name of the limit that denied; "" if no limit denied
	RetryAfterMS int64  // enforcement.Never if waiting does not help
	Degraded     bool
	Method       string
	Path         string
	Attributes   []enforcement.Attribute // values are "" when Redacted
	Redacted     bool
	Cost         int64
	Node         string
	// ListEntry and Block are the ID of the list entry or the block that denied, otherwise "".
	ListEntry, Block string
	// Limits are the limits of every policy that applied, as in the decision.
	Limits []RefusalLimit
	// Policies explain for each policy of the plan why it applied or did not apply.
	Policies []RefusalPolicy
}

// A RefusalLimit is the state of one limit in a kept denial.
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

// A RefusalPolicy explains one policy of the plan in a kept denial.
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

// A RefusalFilter selects kept denials. An empty field matches every denial; all other fields must match.
type RefusalFilter struct {
	Tenant   uint32
	Policy   string
	Route    string
	Reason   enforcement.Reason
	Reasons  []enforcement.Reason // matches any of these
	From, To time.Time
	// Attributes selects denials that have all these attributes with these values. The value of ip may be a network,
	// like 2001:db8::/64, and then matches all its addresses. The store examines at most 5,000 rows for one page, so
	// a page may be short.
	Attributes []enforcement.Attribute
	// Degraded selects denials that were decided while the shared limiter was unavailable. The store examines at most
	// 5,000 rows for one page, as for Attributes.
	Degraded bool
	// RetryAfter selects denials whose retry time in milliseconds is greater than From and at most To. If To is
	// enforcement.Never, it selects those for which waiting does not help. nil: all. The store examines at most 5,000
	// rows for one page, as for Attributes.
	RetryAfter *Bucket
	// Before is the decision ID of the last row of the previous page. Only older denials match.
	Before [16]byte
	// After is a decision ID; only newer denials match. IDs are ordered by the time of the decision, not of the
	// arrival in the database.
	After [16]byte
	Limit int
}
