package requests

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
)

// DenialSentence says why a request was denied, in the words of the API. It leaves out the
// entry of the allow or deny list and the end of the block, because a stored denial does not
// have them.
func DenialSentence(r *metrics.Refusal) string {
	switch r.Reason {
	case enforcement.ReasonBlocked:
		return "the key of policy " + r.Policy + " was blocked"
	case enforcement.ReasonDeniedByList:
		return "an attribute had a value that was on the tenant's deny list"
	}
	d := enforcement.Decision{Reason: r.Reason, Policy: r.Policy, Subject: &enforcement.Subject{Tenant: r.TenantSlug}}
	for i := range r.Policies {
		if p := &r.Policies[i]; p.Why == enforcement.WhyDenied {
			d.Policy, d.Missing = p.Policy, p.Attribute
		}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		limit := &enforcement.RuleLimit{Limit: LimitOf(l), HeaderName: l.Policy}
		if SeveralLimits(r, l.Policy) {
			limit.HeaderName += "." + l.Limit
		}
		rule := &enforcement.Rule{RuleSpec: enforcement.RuleSpec{Mode: l.Mode}}
		d.Limits = append(d.Limits, enforcement.LimitState{Rule: rule, Limit: limit, RetryAfter: l.RetryAfterMS, Allowed: l.Allowed})
	}
	return r.Reason.Sentence(&d)
}

// LimitOf converts a limit of a stored denial to an enforcement.Limit.
func LimitOf(l *metrics.RefusalLimit) enforcement.Limit {
	algorithm, _ := enforcement.ParseAlgorithm(l.Algorithm)
	return enforcement.Limit{
		Name: l.Limit, Algorithm: algorithm, Quota: l.Quota, Window: time.Duration(l.WindowMS) * time.Millisecond, Burst: l.Burst,
	}
}

// SeveralLimits reports whether a denial has the state of more than one limit of a policy.
func SeveralLimits(r *metrics.Refusal, policy string) bool {
	n := 0
	for i := range r.Limits {
		if r.Limits[i].Policy == policy {
			n++
		}
	}
	return n > 1
}
