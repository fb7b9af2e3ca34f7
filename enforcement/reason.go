package enforcement

import "time"

// A Reason is the reason why a request is allowed or denied. The API uses the same
// values.
type Reason string

// The reasons for decisions, in the form in which the API returns them.
const (
	ReasonOK                 Reason = "ok"
	ReasonAllowedByList      Reason = "allowed_by_list"
	ReasonNoPolicy           Reason = "no_policy" // allowed or denied, as Subject.DenyUnmatched says
	ReasonOverLimit          Reason = "over_limit"
	ReasonCostExceedsQuota   Reason = "cost_exceeds_quota"
	ReasonBlocked            Reason = "blocked"
	ReasonDeniedByList       Reason = "denied_by_list"
	ReasonMissingAttribute   Reason = "missing_attribute"
	ReasonTenantSuspended    Reason = "tenant_suspended"
	ReasonBatchRefused       Reason = "batch_refused"
	ReasonLimiterUnavailable Reason = "limiter_unavailable"
	// ReasonOverloaded is the reason of a check that package api denied because this node is
	// overloaded. The engine does not use it.
	ReasonOverloaded Reason = "overloaded"
)

// Never is the value of RetryAfter if waiting does not help.
const Never int64 = -1

// Sentence returns the reason for a denied decision as a sentence for people. The
// sentence begins with a lower-case letter and has no full stop.
func (r Reason) Sentence(d *Decision) string { return string(r.AppendSentence(nil, d)) }

// AppendSentence appends to b what Sentence returns. For a denial by a limit, it allocates memory
// only if b must grow.
func (r Reason) AppendSentence(b []byte, d *Decision) []byte {
	switch r {
	case ReasonOverLimit:
		b = append(b, "over the limit of policy "...)
		return d.appendNumbersUntil(d.AppendDenyingNames(b, "", ", ", false))
	case ReasonCostExceedsQuota:
		b = append(b, "policy "...)
		b = append(d.AppendDenyingNames(b, "", ", ", true), " can never hold this cost"...)
		return d.appendNumbersUntil(b)
	case ReasonBlocked:
		b = append(append(b, "the key of policy "...), d.Policy...)
		return appendInstant(append(b, " is blocked until "...), d.Block.Until)
	case ReasonDeniedByList:
		return append(b, "the attribute "+d.List.Attribute+" has a value that is on the tenant's deny list"...)
	case ReasonNoPolicy:
		return append(b, "no policy of the tenant's plan matches, and the tenant denies requests that match none"...)
	case ReasonMissingAttribute:
		return append(b, "policy "+d.Policy+" counts by the attribute "+d.Missing+", which was not sent"...)
	case ReasonTenantSuspended:
		return append(b, "tenant "+d.Subject.Tenant+" is suspended"...)
	case ReasonBatchRefused:
		return append(b, "another check of this atomic batch was denied, and nothing was charged"...)
	case ReasonLimiterUnavailable:
		return append(b, "the limiter is unavailable, and a policy that applies denies requests in that case"...)
	}
	return append(b, "denied"...)
}

// AppendDenyingNames appends the header names of the limits that deny the decision. It puts quote
// before and after each name, and sep between two names. If never is true, it appends only limits
// for which waiting does not help.
func (d *Decision) AppendDenyingNames(b []byte, quote, sep string, never bool) []byte {
	from := len(b)
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Denies() || never && l.RetryAfter != Never {
			continue
		}
		if len(b) > from {
			b = append(b, sep...)
		}
		b = append(b, quote...)
		b = append(b, l.Limit.HeaderName...)
		b = append(b, quote...)
	}
	return b
}

// appendNumbersUntil appends the time at which another limit comes into force, if NumbersUntil is
// set.
func (d *Decision) appendNumbersUntil(b []byte) []byte {
	if d.NumbersUntil == 0 {
		return b
	}
	return appendInstant(append(b, "; other numbers are in force from "...), d.NumbersUntil)
}

// Milliseconds converts microseconds to milliseconds, rounded up.
func Milliseconds(micros int64) int64 { return (micros + 999) / 1000 }

// Instant converts microseconds since the epoch to a time in UTC, rounded up to the millisecond.
// It rounds up so that an exception has really ended at the time that a page shows as its end.
func Instant(micros int64) time.Time { return time.UnixMilli(Milliseconds(micros)).UTC() }

// InstantLayout is RFC 3339 with milliseconds.
const InstantLayout = "2006-01-02T15:04:05.000Z07:00"

func appendInstant(b []byte, micros int64) []byte {
	return Instant(micros).AppendFormat(b, InstantLayout)
}
