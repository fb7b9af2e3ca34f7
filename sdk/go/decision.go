package headgate

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Kind says who made a Decision: Headgate, or this client because Headgate did not decide.
type Kind string

const (
	KindDecision Kind = "decision" // Headgate allows the request
	KindDenial   Kind = "denial"   // Headgate denies the request
	KindFallback Kind = "fallback" // Headgate did not decide; Err has the cause
)

// Reason is why Headgate allows or denies a request. Later versions may add values.
type Reason string

const (
	ReasonOK                 Reason = "ok"
	ReasonAllowedByList      Reason = "allowed_by_list"
	ReasonNoPolicy           Reason = "no_policy"
	ReasonOverLimit          Reason = "over_limit"
	ReasonCostExceedsQuota   Reason = "cost_exceeds_quota"
	ReasonBlocked            Reason = "blocked"
	ReasonDeniedByList       Reason = "denied_by_list"
	ReasonMissingAttribute   Reason = "missing_attribute"
	ReasonTenantSuspended    Reason = "tenant_suspended"
	ReasonBatchRefused       Reason = "batch_refused"
	ReasonLimiterUnavailable Reason = "limiter_unavailable"
	ReasonOverloaded         Reason = "overloaded" // Headgate did not decide; the client returns a fallback
)

// Serve says which answer an allowed request gets. Later versions may add values.
type Serve string

// ServeCheap stands for an answer that costs less than the full one.
const ServeCheap Serve = "cheap"

// A Decision says whether a request may pass, and why.
type Decision struct {
	// Kind is decision, denial or fallback. A fallback only has the fields Kind, Allowed, Status
	// and Err.
	Kind    Kind `json:"kind"`
	Allowed bool `json:"allowed"`
	// Status is the HTTP status for a response to a denied request: 429, 403 or 503. For an allowed
	// request, it is 200.
	Status       int    `json:"status"`
	DecisionID   string `json:"decision_id"`
	Tenant       string `json:"tenant"`
	Plan         string `json:"plan"`         // "" if the tenant has no plan
	PlanVersion  int    `json:"plan_version"` // 0 if the tenant has no plan
	Mode         Mode   `json:"mode"`
	Reason       Reason `json:"reason"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // nil if waiting does not help
	// DelayMS is how many milliseconds the caller waits before it serves the request, because of a
	// leaky_bucket or a policy in mode delay. Middleware waits; a caller of Check uses Wait.
	DelayMS int64 `json:"delay_ms"`
	// Serve is ServeCheap if the request is over a limit of a policy in mode degrade: serve an
	// answer that costs less. Otherwise it is "".
	Serve    Serve `json:"serve,omitempty"`
	Degraded bool  `json:"degraded"` // Redis did not answer; the failure modes of the policies decided
	Replayed bool  `json:"replayed"` // repeats the first decision for the same IdempotencyKey; nothing was charged again
	// Taken is the number of units that a check with the mode TakeUpTo was charged.
	Taken int64 `json:"taken"`
	// RefundableUntil is the time until which a check with Refundable can be refunded, in RFC 3339;
	// empty if there is nothing to refund.
	RefundableUntil string `json:"refundable_until"`
	// Lease holds the places of the request on concurrency limits; nil if there are none. If the
	// lease is not renewed, its first place is free again TTLMS milliseconds after the decision.
	Lease *Lease `json:"lease"`
	// NearLimit is the largest warn_at threshold that a limit has reached, in percent;
	// nil if there is none.
	NearLimit        *int         `json:"near_limit"`
	Limits           []LimitState `json:"limits"`
	Type             string       `json:"type"` // the problem type of a denial
	Title            string       `json:"title"`
	Detail           string       `json:"detail"`
	ViolatedPolicies []string     `json:"violated-policies"`
	RequestID        string       `json:"request_id"`

	// Remembered says that the client remembered a denial and made no call.
	Remembered bool `json:"-"`
	// Err is the reason why Headgate did not decide: an *UnreachableError or a *ProblemError.
	Err error `json:"-"`
	// Header has the headers of Headgate's response. Do not change it, because it is shared.
	Header http.Header `json:"-"`
}

// A LimitState is one limit that applied.
type LimitState struct {
	Policy       string `json:"policy"`
	Limit        string `json:"limit"`
	Algorithm    string `json:"algorithm"`
	Quota        int64  `json:"quota"`       // of the window, with RolledOver
	RolledOver   *int64 `json:"rolled_over"` // units that were rolled over from earlier windows; nil: none
	Burst        *int64 `json:"burst"`       // nil unless the algorithm is a bucket
	WindowMS     int64  `json:"window_ms"`
	Cost         int64  `json:"cost"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // nil if waiting does not help
	Allowed      bool   `json:"allowed"`
	DelayMS      *int64 `json:"delay_ms"`   // of a leaky_bucket or in mode delay
	NearLimit    *int   `json:"near_limit"` // the largest warn_at threshold reached, in percent; nil: none
	Mode         string `json:"mode"`       // enforce, degrade, delay or shadow
}

// Wait waits for the delay of an allowed request. It returns the error of ctx if ctx ends first.
func (d *Decision) Wait(ctx context.Context) error {
	if !d.Allowed || d.DelayMS <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(d.DelayMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RetryAfter returns the time until the same request would be allowed. It returns false if waiting
// does not help, or if the time is unknown.
func (d *Decision) RetryAfter() (time.Duration, bool) {
	if d.RetryAfterMS == nil {
		return 0, false
	}
	return time.Duration(*d.RetryAfterMS) * time.Millisecond, true
}

// SetHeaders copies the rate-limit headers of Headgate's response, such as RateLimit and
// Retry-After, to the headers of a response to the caller.
func (d *Decision) SetHeaders(to http.Header) {
	for name, values := range d.Header {
		if strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit") {
			to[name] = values
		}
	}
	switch {
	case d.Allowed:
	case d.Kind == KindFallback && d.Status == http.StatusServiceUnavailable:
		to.Set("Retry-After", "1")
	case d.RetryAfterMS != nil:
		to.Set("Retry-After", strconv.FormatInt(max(1, (*d.RetryAfterMS+999)/1000), 10))
	}
}
