package enforcement

import (
	"context"
	"net/netip"
)

// A Check is the question: may this request pass?
type Check struct {
	Method string // upper case letters as sent; "" when the caller has none
	Path   string // normalised by NormalizePath; "" when the caller has none
	// Attributes as sent, at most MaxAttributes; the ip attribute is in
	// canonical form already, and IP holds it parsed.
	Attributes []Attribute
	IP         netip.Addr // invalid when no ip was sent
	Cost       int64      // 0 to MaxCost
	Mode       Mode       // Enforce, Peek or Force
}

// Bounds of the attributes of one request; what is beyond is refused where it
// is read.
const (
	MaxAttributes     = 16
	MaxAttributeName  = 64   // bytes
	MaxAttributeValue = 1024 // bytes
)

// An Attribute of a request. An empty value is missing.
type Attribute struct{ Name, Value string }

// A Subject is a tenant with its compiled plan, as the snapshot holds it. It is
// immutable.
type Subject struct {
	TenantID  string // UUID
	Tenant    string // slug
	Number    uint32
	Home      string
	Suspended bool
	// DenyUnmatched: a request that matches no policy is refused.
	DenyUnmatched bool
	// PlanRevision is the revision at which the tenant was put on its plan.
	PlanRevision int64
	// Plan is nil for a tenant without one: no policy matches.
	Plan *Plan
	// Exceptions is what was set for the tenant beside its plan; nil: nothing.
	Exceptions *Exceptions
	// Redact: attribute values are not kept for people to look at.
	Redact bool
}

// A Reason says why a decision is as it is; the words are those on the wire.
type Reason string

// The reasons.
const (
	ReasonOK                 Reason = "ok"
	ReasonAllowedByList      Reason = "allowed_by_list"
	ReasonNoPolicy           Reason = "no_policy" // allowed or refused, as the tenant says
	ReasonOverLimit          Reason = "over_limit"
	ReasonCostExceedsQuota   Reason = "cost_exceeds_quota"
	ReasonBlocked            Reason = "blocked"
	ReasonDeniedByList       Reason = "denied_by_list"
	ReasonMissingAttribute   Reason = "missing_attribute"
	ReasonTenantSuspended    Reason = "tenant_suspended"
	ReasonBatchRefused       Reason = "batch_refused"
	ReasonLimiterUnavailable Reason = "limiter_unavailable"
	// ReasonOverloaded is the reason of a check that api turned away before the
	// engine decided it. No Engine returns it.
	ReasonOverloaded Reason = "overloaded"
)

// Never is a RetryAfter that will not come.
const Never int64 = -1

// A Decision is the answer to one Check.
type Decision struct {
	ID      [16]byte // UUIDv7
	Subject *Subject
	Check   *Check
	Allowed bool
	Reason  Reason
	// RetryAfter is the first millisecond, from At, at which the same request would
	// pass if no other came, by the numbers that are in force now: all denying
	// enforced limits would pass, and the blocks of its key have ended. 0 when the
	// request is allowed; Never.
	RetryAfter int64
	// NumbersUntil is set when RetryAfter may not hold: when an override in force
	// has ended at that instant, or a block has ended before it. It is the first
	// instant at which one of them ends, in microseconds since the epoch by this
	// node's clock; 0 when none does.
	NumbersUntil int64
	// Degraded: the shared limiter was away, and failure modes answered.
	Degraded bool
	// Missing names the attribute behind ReasonMissingAttribute, Policy the
	// policy that asked for it, or the one whose key is blocked.
	Missing, Policy string
	// List is the entry behind ReasonAllowedByList and ReasonDeniedByList, Block
	// the one behind ReasonBlocked.
	List  *ListEntry
	Block *Block
	// Route is the pattern of the most specific matching policy, "(none)"
	// without one: for counting.
	Route string
	// At is the instant of the decision, in microseconds since the epoch, by
	// the limiter's clock; 0 when no limiter was asked.
	At int64
	// Limits has every limit of every policy that applied, enforced and shadow,
	// in the order of the plan. It is empty if limits did not decide: in a denial
	// by a list, a missing attribute or a block, for example.
	Limits []LimitState
	// The policies that applied are those that the check was held against, also
	// when it was refused without asking their limits; none when a list or the
	// tenant's status answered.

	applied []uint16 // places in Subject.Plan of the policies that applied, ascending
}

// Reset empties d for another use, and keeps the room of its slices.
func (d *Decision) Reset() { *d = Decision{Limits: d.Limits[:0], applied: d.applied[:0]} }

// Applied calls yield with every policy that applied, in the order of the plan,
// also with those that have no limits.
func (d *Decision) Applied(yield func(*Rule) bool) {
	for _, i := range d.applied {
		if !yield(d.Subject.Plan.Rules[i]) {
			return
		}
	}
}

// A LimitState is one limit in a Decision.
type LimitState struct {
	Rule *Rule
	// Limit has the numbers in force: the plan's, or those of Override.
	Limit    *RuleLimit
	Override *Override
	// Partition is that of the counter's Key; zero when no counter was asked.
	Partition [16]byte
	Cost      int64
	// Remaining, in units, after the charge if it was made.
	Remaining int64
	// ResetAfter and RetryAfter in milliseconds, rounded up; RetryAfter may be Never.
	ResetAfter, RetryAfter int64
	Allowed                bool
	// Shared: decided by the shared limiter; else by a failure mode.
	Shared bool

	override *override // Override compiled
	rev      int64     // of the charge
}

// A Recorder hears of every decision that counts (not of peeks). It must not
// keep d, nor block.
type Recorder interface {
	Record(d *Decision)
}

// A Decider is what api calls; Engine is the one implementation.
type Decider interface {
	// Decide answers one check into d, whose slices are reused. If ctx ends before
	// the limiter has decided, the caller has left: d is then a denial with
	// ReasonLimiterUnavailable that is not Degraded and is not recorded. If ctx had
	// ended before, nothing is charged.
	Decide(ctx context.Context, s *Subject, c *Check, d *Decision)
	// DecideBatch answers many, each as Decide would, in order. With atomic all
	// are of one subject and either all are charged or none.
	DecideBatch(ctx context.Context, items []BatchItem, atomic bool)
	// Explain says what a check would be answered now, and why, into x, whose
	// slices are reused. It charges nothing and is not recorded. The check's mode
	// does not matter.
	Explain(ctx context.Context, s *Subject, c *Check, x *Explanation)
	// Reset forgets what every limit of a policy counted for one partition. An
	// error means that it may or may not have been done; it can be asked again.
	Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error
}

// A BatchItem is one check of a batch with its answer.
type BatchItem struct {
	Subject  *Subject
	Check    *Check
	Decision *Decision
}
