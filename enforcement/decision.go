package enforcement

import "context"

// A Subject is a tenant with its compiled plan, as the snapshot holds it. It is
// immutable.
type Subject struct {
	TenantID  string // UUID
	Tenant    string // slug
	Number    uint32 // Key.Tenant
	Home      string // Request.Home
	Suspended bool
	// DenyUnmatched denies requests that no policy in mode enforce applies to.
	DenyUnmatched bool
	// PlanRevision is the control-plane revision at which the tenant got its plan.
	PlanRevision int64
	// Plan is nil for a tenant without a plan. No policy matches then.
	Plan *Plan
	// Exceptions holds the tenant's overrides, list entries and blocks. It is nil
	// if there are none.
	Exceptions *Exceptions
	// Redact is set if attribute values must not be stored for display.
	Redact bool
}

// A Decision is the answer to one Check.
type Decision struct {
	ID      [16]byte // UUIDv7
	Subject *Subject
	Check   *Check
	Allowed bool
	Reason  Reason
	// RetryAfter is the time from At, in milliseconds, after which the same request
	// is allowed, if no other request comes and the numbers in force do not change.
	// It covers all denying enforced limits and the blocks of the key. It is 0 if
	// the request is allowed, and Never if waiting does not help.
	RetryAfter int64
	// NumbersUntil is the first instant at which the numbers behind RetryAfter
	// change, in microseconds since the epoch by this node's clock: an override in
	// force has ended when the wait ends, or a block ends before the wait does. It
	// is 0 if neither is the case.
	NumbersUntil int64
	// Degraded is set if the shared limiter was unavailable and failure modes decided.
	Degraded bool
	// Missing is the attribute behind ReasonMissingAttribute. Policy is the slug of
	// the policy that denied the request for it, or whose key is blocked.
	Missing, Policy string
	// List is the entry behind ReasonAllowedByList and ReasonDeniedByList.
	List *ListEntry
	// Block is the block behind ReasonBlocked.
	Block *Block
	// Route is the pattern of the most specific matching policy, or "(none)".
	// Counts are grouped by it.
	Route string
	// At is the instant of the decision by the limiter's clock, in microseconds
	// since the epoch. It is 0 if no limiter was asked.
	At int64
	// Limits has each limit of each policy that applied, enforced and shadow, in
	// the order of the plan. It is empty if limits did not decide: for a denial by
	// a list, a block or a missing attribute, for example.
	Limits []LimitState

	applied []uint16 // positions in Subject.Plan of the policies that applied, ascending
}

// Reset empties d and keeps the memory of its slices.
func (d *Decision) Reset() { *d = Decision{Limits: d.Limits[:0], applied: d.applied[:0]} }

// Applied calls yield with each policy that applied, in the order of the plan. It
// includes policies without limits, and policies of a check that was denied before
// their limits were asked. It is empty if a list or the tenant's status decided.
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
	// Limit has the numbers in force: those of the plan or of Override.
	Limit    *RuleLimit
	Override *Override
	// Partition is that of the counter's Key. It is zero if no counter was asked.
	Partition [16]byte
	Cost      int64
	// Remaining is the number of units left, after the charge if it was made.
	Remaining int64
	// ResetAfter and RetryAfter are in milliseconds, rounded up. RetryAfter may be Never.
	ResetAfter, RetryAfter int64
	Allowed                bool
	// Shared is set if the shared limiter decided, and not a failure mode.
	Shared bool

	position uint16    // of the limit in its rule
	override *override // compiled form of Override
	rev      int64     // Charge.Rev
}

// Denies reports whether the limit denies the request. Limits of shadow policies
// deny nothing.
func (l *LimitState) Denies() bool { return !l.Allowed && l.Rule.Mode == PolicyEnforce }

// DenyingLimit returns the denying limit with the longest RetryAfter, the first one
// of equals. It returns nil if no limit denies.
func (d *Decision) DenyingLimit() *LimitState {
	var longest *LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Denies() {
			continue
		}
		if longest == nil || longest.RetryAfter != Never && (l.RetryAfter == Never || l.RetryAfter > longest.RetryAfter) {
			longest = l
		}
	}
	return longest
}

// A Recorder is called with each decision except peeks. It must not keep d and
// must not block.
type Recorder interface {
	Record(d *Decision)
}

// A Decider decides checks. Engine implements it.
type Decider interface {
	// Decide decides one check and stores the result in d. It reuses the slices of
	// d. If ctx ends before the limiter has decided, d is a denial with
	// ReasonLimiterUnavailable that is neither Degraded nor recorded. If ctx ended
	// before the call, nothing is charged.
	Decide(ctx context.Context, s *Subject, c *Check, d *Decision)
	// DecideBatch decides checks in order, each as Decide does. With atomic, all
	// checks have one subject and one mode, and either all are charged or none.
	DecideBatch(ctx context.Context, items []BatchItem, atomic bool)
	// Explain stores in x what Decide would answer now, and why. It reuses the
	// slices of x. It charges nothing, records nothing, and ignores the mode of c.
	Explain(ctx context.Context, s *Subject, c *Check, x *Explanation)
	// Reset deletes the counters of all limits of a policy for one partition. After
	// an error, the counters may or may not be deleted; the caller can retry.
	Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error
}

// A BatchItem is one check of a batch, and where its decision is stored.
type BatchItem struct {
	Subject  *Subject
	Check    *Check
	Decision *Decision
}
