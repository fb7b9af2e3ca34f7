package api

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
)

// reasonType maps the reason of a denial to the name of a problem type in problem.Catalog. The
// catalog holds the HTTP status of each type. "" means the type quota-exceeded, which is registered
// with IANA and has the status 429.
var reasonType = map[enforcement.Reason]string{
	enforcement.ReasonOverLimit:          "",
	enforcement.ReasonCostExceedsQuota:   "cost-exceeds-quota",
	enforcement.ReasonBlocked:            "blocked",
	enforcement.ReasonDeniedByList:       "denied-by-list",
	enforcement.ReasonNoPolicy:           "no-policy",
	enforcement.ReasonMissingAttribute:   "missing-attribute",
	enforcement.ReasonTenantSuspended:    "tenant-suspended",
	enforcement.ReasonBatchRefused:       "batch-refused",
	enforcement.ReasonLimiterUnavailable: "limiter-unavailable",
	enforcement.ReasonOverloaded:         "overloaded",
}

// reasonWords returns the reasons that a recorded decision can have. They are the allowed values of
// the query parameter reason.
func reasonWords() []string {
	words := []string{string(enforcement.ReasonOK), string(enforcement.ReasonAllowedByList)}
	for r := range reasonType {
		if r != enforcement.ReasonOverloaded {
			words = append(words, string(r))
		}
	}
	slices.Sort(words)
	return words
}

// denial returns the problem type for a denial with this reason.
func (t problemTypes) denial(r enforcement.Reason) problemType {
	if name := reasonType[r]; name != "" {
		return t.byName[name]
	}
	return problemType{quotaExceeded, "Quota exceeded", http.StatusTooManyRequests}
}

// decisionStatus returns the HTTP status for a decision. If deny is not 0, it replaces the status
// 403 or 429 of a denial.
func (a *API) decisionStatus(d *enforcement.Decision, deny int) int {
	if d.Allowed {
		return http.StatusOK
	}
	status := a.types.denial(d.Reason).status
	if deny != 0 && status != http.StatusServiceUnavailable {
		return deny
	}
	return status
}

// appendDecision appends the JSON body of a decision to b. If status is not 200, the body also has
// the members of a problem. item is set for one result of a batch: its body has the member status
// even for an allowed check, and has no request_id. request is the ID of the request; "" means that
// the request has the same ID as the decision.
func (a *API) appendDecision(b []byte, d *enforcement.Decision, status int, item bool, request string) []byte {
	switch {
	case status != http.StatusOK:
		b = a.appendDenial(append(b, `{"kind":"denial",`...), d, status)
		b = append(b, `"allowed":`...)
	case item:
		b = append(b, `{"kind":"decision","status":200,"allowed":`...)
	default:
		b = append(b, `{"kind":"decision","allowed":`...)
	}
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"decision_id":"`...)
	b = appendUUID(b, d.ID)
	switch {
	case item:
	case request == "":
		b = append(b, `","request_id":"`...)
		b = appendUUID(b, d.ID)
	default:
		b = append(b, `","request_id":"`...)
		b = append(b, request...) // saneID rejects every character that JSON would escape
	}
	b = append(b, `","tenant":"`...)
	b = append(b, d.Subject.Tenant...)
	if p := d.Subject.Plan; p != nil {
		b = append(b, `","plan":"`...)
		b = append(b, p.Slug...)
		b = append(b, `","plan_version":`...)
		b = strconv.AppendInt(b, int64(p.Version), 10)
		b = append(b, `,"mode":"`...)
	} else {
		b = append(b, `","mode":"`...)
	}
	b = append(b, d.Check.Mode.String()...)
	b = append(b, `","reason":"`...)
	b = append(b, d.Reason...)
	b = append(b, `","retry_after_ms":`...)
	b = appendRetry(b, d.RetryAfter)
	if d.NumbersUntil != 0 {
		b = append(b, `,"numbers_until":"`...)
		b = enforcement.Instant(d.NumbersUntil).AppendFormat(b, enforcement.InstantLayout)
		b = append(b, '"')
	}
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), d.Delay, 10)
	if d.ServeCheap {
		b = append(b, `,"serve":"`+ServeCheap+`"`...)
	}
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, d.Degraded)
	if d.Lease != "" {
		b = appendString(append(b, `,"lease":{"id":`...), d.Lease)
		b = append(strconv.AppendInt(append(b, `,"ttl_ms":`...), d.LeaseTTL, 10), '}')
	}
	if d.Idempotency == enforcement.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	if d.Check.Mode == enforcement.TakeUpTo {
		b = append(b, `,"taken":`...)
		b = strconv.AppendInt(b, d.Taken, 10)
	}
	if d.RefundableUntil != 0 {
		b = append(b, `,"refundable_until":"`...)
		b = enforcement.Instant(d.RefundableUntil).AppendFormat(b, enforcement.InstantLayout)
		b = append(b, '"')
	}
	b = appendNearLimit(b, d.NearLimit())
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLimit(b, &d.Limits[i])
	}
	return append(b, "]}"...)
}

// appendLimit appends the JSON form of one limit of a decision to b.
func appendLimit(b []byte, l *enforcement.LimitState) []byte {
	b = append(b, `{"policy":"`...)
	b = append(b, l.Rule.Policy...)
	b = append(b, `","limit":"`...)
	b = append(b, l.Limit.Name...)
	b = append(b, `","algorithm":"`...)
	b = append(b, l.Limit.Algorithm.String()...)
	b = append(b, `","quota":`...)
	b = strconv.AppendInt(b, l.Quota(), 10)
	if l.RolledOver > 0 {
		b = strconv.AppendInt(append(b, `,"rolled_over":`...), l.RolledOver, 10)
	}
	if l.Limit.Algorithm.Bucket() {
		b = append(b, `,"burst":`...)
		b = strconv.AppendInt(b, l.Limit.Capacity(), 10)
	}
	b = append(b, `,"window_ms":`...)
	b = strconv.AppendInt(b, l.WindowMS(), 10)
	b = append(b, `,"cost":`...)
	b = strconv.AppendInt(b, l.Cost, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, l.Remaining, 10)
	b = append(b, `,"reset_after_ms":`...)
	b = strconv.AppendInt(b, l.ResetAfter, 10)
	b = append(b, `,"retry_after_ms":`...)
	b = appendRetry(b, l.RetryAfter)
	b = append(b, `,"allowed":`...)
	b = strconv.AppendBool(b, l.Allowed)
	if l.Limit.Algorithm == enforcement.LeakyBucket || l.Rule.Mode == enforcement.PolicyDelay {
		b = strconv.AppendInt(append(b, `,"delay_ms":`...), l.Delay, 10)
	}
	b = appendNearLimit(b, l.NearLimit())
	b = append(b, `,"mode":"`...)
	b = append(b, l.Rule.Mode...)
	return append(b, `"}`...)
}

// appendNearLimit appends the member near_limit to b: the highest warning threshold that a limit
// has reached, in percent. If percentage is 0, no threshold is reached, and it appends nothing.
func appendNearLimit(b []byte, percentage int) []byte {
	if percentage == 0 {
		return b
	}
	return strconv.AppendInt(append(b, `,"near_limit":`...), int64(percentage), 10)
}

// appendDenial appends the members of a problem that describe a denial to b. A comma follows each
// of them.
func (a *API) appendDenial(b []byte, d *enforcement.Decision, status int) []byte {
	t := a.types.denial(d.Reason)
	b = append(b, `"type":`...)
	b = appendString(b, t.uri)
	b = append(b, `,"title":`...)
	b = appendString(b, t.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	switch d.Reason {
	case enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota:
		// The names of policies and limits have no characters that JSON escapes.
		b = append(d.Reason.AppendSentence(append(b, '"'), d), `","violated-policies":[`...)
		b = append(d.AppendDenyingNames(b, `"`, ",", false), ']')
	case enforcement.ReasonOverloaded:
		b = appendString(b, errOverloaded.Message)
	default:
		b = appendString(b, d.Reason.Sentence(d))
	}
	return append(b, ',')
}

// appendRetry appends a retry time in milliseconds, or null for enforcement.Never.
func appendRetry(b []byte, ms int64) []byte {
	if ms == enforcement.Never {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, ms, 10)
}

func appendUUID(b []byte, id [16]byte) []byte {
	b = hex.AppendEncode(b, id[:4])
	for _, part := range [][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		b = append(b, '-')
		b = hex.AppendEncode(b, part)
	}
	return b
}

// appendString appends s as a JSON string, with quotes and escapes.
func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			i++
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
		}
	}
	return append(b, '"')
}
