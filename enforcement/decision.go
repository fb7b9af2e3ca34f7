package enforcement

import "context"

// A Subject is a tenant with its compiled plan and exceptions. The snapshot has one for
// each tenant. A Subject is immutable.
type Subject struct {
	TenantID  string // UUID
	Tenant    string // slug
	Number    uint32 // Key.Tenant
	Home      string // Request.Home
	Suspended bool
	// DenyUnmatched is set if requests are denied to which no policy in force applies; see
	// PolicyMode.InForce.
	DenyUnmatched bool
	// PlanRevision is the control-plane revision at which the tenant was assigned its
	// plan.
	PlanRevision int64
	// Plan is nil for a tenant without a plan. No policy matches then.
	Plan *Plan
	// Exceptions holds the tenant's overrides, list entries and blocks. It is nil
	// if there are none.
	Exceptions *Exceptions
	// Redact is set if attribute values of the tenant's requests must not be stored for display.
	Redact bool
	// SampleAllowed is N if one in N allowed requests is recorded with its explanation, and
	// 0 if none is.
	SampleAllowed uint32
	// NoTrace is set if no requests of the tenant are traced for previews of drafts.
	NoTrace bool
	// Calendar determines the calendar windows of the tenant. nil stands for UTC with the anchor day 1.
	Calendar *Calendar
	// RequireRoute is set if a check must have a method and a path. The API rejects
	// other checks; the Engine does not read it.
	RequireRoute bool
	// MaxKeys is the value of Request.MaxKeys for requests of this tenant.
	MaxKeys int64
}

// A Decision is the result of one Check: whether it is allowed, why, and the state of each limit.
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
	// NumbersUntil is set if an override in force or a block ends before RetryAfter has passed, and 0
	// otherwise. It is the earliest of these ends, in microseconds since the epoch by this node's clock. From
	// then on, RetryAfter or the reason may be different.
	NumbersUntil int64
	// Delay is the time from At, in milliseconds, that the caller waits before it serves the
	// request, if the request is allowed. It is the longest Delay of the limits of policies in
	// force.
	Delay int64
	// ServeCheap is set if the request is allowed and over a limit of a policy in mode degrade. The
	// caller then serves an answer that costs less.
	ServeCheap bool
	// Degraded is set if the shared limiter was unavailable and failure modes decided.
	Degraded bool
	// Idempotency says what the check's IdempotencyKey did. With KeyReused and TooManyKeys,
	// the check was not decided.
	Idempotency IdempotencyResult
	// Taken is the number of units that a check in mode TakeUpTo was charged, on the enforced limit with the
	// largest cost. The Cost of each other limit is the share of that limit. If no limit applies, or if
	// failure modes allow everything, Taken is the whole cost.
	Taken int64
	// Reservation is the reservation that the check made or repeated, or nil.
	Reservation *Reserved
	// Lease is the ID of the lease, as the caller wrote it. It is set if the check was allowed
	// and a concurrency limit applied; otherwise it is "". If it is set, LeaseTTL is the time in
	// milliseconds from At until the lease ends on at least one of these limits.
	Lease    string
	LeaseTTL int64
	// RefundableUntil is the end of the time in which RefundCheck can return what a check with
	// Refundable charged. It is in microseconds since the epoch by the limiter's clock. It is 0
	// if there is nothing to return.
	RefundableUntil int64
	// Missing is the name of the missing attribute if Reason is ReasonMissingAttribute. Policy is the slug of
	// the policy that denied the request: for the missing attribute, or because its key is blocked.
	Missing, Policy string
	// List is the list entry that decided the check if Reason is ReasonAllowedByList or ReasonDeniedByList.
	// Otherwise it is nil.
	List *ListEntry
	// Block is the block that denied the check if Reason is ReasonBlocked. Otherwise it is nil.
	Block *Block
	// Route is the pattern of the most specific matching policy, or "(none)".
	// Counts are grouped by it.
	Route string
	// At is the time of the decision by the limiter's clock, in microseconds since the
	// epoch. It is 0 if no limiter was called.
	At int64
	// Limits has each limit of each policy that applied, in whatever mode, in
	// the order of the plan. It is empty if limits did not decide: for a denial by
	// a list, a block or a missing attribute, for example.
	Limits []LimitState

	applied []uint16 // indexes in Subject.Plan.Rules of the policies that applied, ascending
}

// Reset clears d, but keeps the memory of its slices for the next decision.
func (d *Decision) Reset() { *d = Decision{Limits: d.Limits[:0], applied: d.applied[:0]} }

// Applied calls yield with each policy that applied, in the order of the plan. That includes policies
// without limits. It also includes the policies of a check that was denied before the limiter was called.
// If a list or the tenant's status decided the check, Applied does not call yield.
func (d *Decision) Applied(yield func(*Rule) bool) {
	for _, i := range d.applied {
		if !yield(d.Subject.Plan.Rules[i]) {
			return
		}
	}
}

// A LimitState is one limit of a Decision, with its state after the decision.
type LimitState struct {
	Rule *Rule
	// Limit has the quota, burst and window in force. They come from the plan, or from Override.
	Limit    *RuleLimit
	Override *Override
	// Partition is the partition in the Key of the counter. It is zero if no counter
	// was read.
	Partition [16]byte
	// Cost is the cost of the check. In mode TakeUpTo, it is the share of the limit in the units that an
	// allowed check took. An enforced limit was charged exactly this share. The limit of a soft or shadow
	// policy was charged at most this share, if it had less left.
	Cost int64
	// Remaining is the number of units left, after the charge if it was made.
	Remaining int64
	// RolledOver is the number of units that were rolled over into the current window. The window
	// has them in addition to the quota of Limit.
	RolledOver int64
	// ResetAfter and RetryAfter are in milliseconds, rounded up. RetryAfter may be Never.
	ResetAfter, RetryAfter int64
	// Delay is the time in milliseconds for which the request waits: after a charge to a leaky bucket, or
	// because it is over the limit of a policy in mode delay. Otherwise it is 0.
	Delay   int64
	Allowed bool
	// Shared is set if the shared limiter decided this limit, and not a failure mode.
	Shared bool

	position uint16    // index of the limit in its rule
	override *override // compiled form of Override, or of Check.SentLimit
	rev      int64     // Charge.Rev
	window   int64     // length of the current calendar window, in milliseconds; 0 for other windows
	until    int64     // time from the decision, in milliseconds, at which Meter.forgotten of the counter comes; 0: none
}

// WindowMS returns the length of the window in milliseconds. For a calendar window it is
// the length of the current one.
func (l *LimitState) WindowMS() int64 {
	if l.Limit.Period == NoPeriod {
		return l.Limit.Window.Milliseconds()
	}
	return l.window
}

// Quota returns the number of units that the current window has: the quota, and what was rolled
// over into the window.
func (l *LimitState) Quota() int64 { return l.Limit.Quota + l.RolledOver }

// Capacity returns Quota, or the burst of a bucket.
func (l *LimitState) Capacity() int64 { return l.Limit.Capacity() + l.RolledOver }

// Denies reports whether the limit denies the request. Limits of policies in another mode than
// enforce deny nothing.
func (l *LimitState) Denies() bool { return !l.Allowed && l.Rule.Mode.Denies() }

// DenyingLimit returns the limit that denies the request for the longest time. If
// several have the same RetryAfter, it returns the first. It returns nil if no limit
// denies.
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

// A Recorder is called with each decision, except those of peeks. It must not keep d
// after it returns, and it must not block.
type Recorder interface {
	Record(d *Decision)
}

// A Decider decides checks. Engine implements it.
type Decider interface {
	// Decide decides one check and stores the result in d. It reuses the slices of d. If ctx ends before the
	// limiter has decided, the decision is a denial with ReasonLimiterUnavailable. Such a denial is not
	// Degraded and not recorded. If ctx ended before the call, nothing is charged.
	Decide(ctx context.Context, s *Subject, c *Check, d *Decision)
	// DecideBatch decides checks in order, each as Decide does. If atomic is true, it
	// charges either all checks or none. All checks must then have the same subject and
	// mode.
	DecideBatch(ctx context.Context, items []BatchItem, atomic bool)
	// Explain stores two things in x: the decision for a check now, and the reason why each policy applies or
	// not. It reuses the slices of x. It charges and records nothing, and ignores the mode of c.
	Explain(ctx context.Context, s *Subject, c *Check, x *Explanation)
	// Reset deletes the counters of all limits of a policy for one partition. If it
	// returns an error, the counters may or may not be deleted. The caller can try
	// again.
	Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error
}

// A BatchItem is one check of a batch, and the place for its decision.
type BatchItem struct {
	Subject  *Subject
	Check    *Check
	Decision *Decision
}
