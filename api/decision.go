package api

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
)

// reasonType is a refusal's problem type in problem.Catalogue; "" is the
// registered quota-exceeded. Its status is the catalogue's, or 429.
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

// reasonWords are the reasons of denials that are recorded.
func reasonWords() []string {
	words := make([]string, 0, len(reasonType))
	for r := range reasonType {
		if r != enforcement.ReasonOverloaded {
			words = append(words, string(r))
		}
	}
	slices.Sort(words)
	return words
}

// refusalType gives the type of a refusal.
func (t problemTypes) refusal(r enforcement.Reason) problemType {
	if name := reasonType[r]; name != "" {
		return t.byName[name]
	}
	return problemType{quotaExceeded, "Quota exceeded", http.StatusTooManyRequests}
}

// decisionStatus is the status of a decision. deny, if not 0, stands for the
// 403 and 429 of refusals.
func (a *API) decisionStatus(d *enforcement.Decision, deny int) int {
	if d.Allowed {
		return http.StatusOK
	}
	status := a.types.refusal(d.Reason).status
	if deny != 0 && status != http.StatusServiceUnavailable {
		return deny
	}
	return status
}

// appendDecision writes a decision's body. With a problem's members it is a
// refusal; an item of a batch that has none still tells its status.
func (a *API) appendDecision(b []byte, d *enforcement.Decision, status int, item bool) []byte {
	b = append(b, '{')
	switch {
	case status != http.StatusOK:
		b = a.appendRefusal(b, d, status)
	case item:
		b = append(b, `"status":200,`...)
	}
	b = append(b, `"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"decision_id":"`...)
	b = appendUUID(b, d.ID)
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
		b = instantOf(d.NumbersUntil).AppendFormat(b, millisecondForm)
		b = append(b, '"')
	}
	b = append(b, `,"delay_ms":0,"degraded":`...)
	b = strconv.AppendBool(b, d.Degraded)
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendLimit(b, &d.Limits[i])
	}
	return append(b, "]}"...)
}

func appendLimit(b []byte, l *enforcement.LimitState) []byte {
	b = append(b, `{"policy":"`...)
	b = append(b, l.Rule.Policy...)
	b = append(b, `","limit":"`...)
	b = append(b, l.Limit.Name...)
	b = append(b, `","algorithm":"`...)
	b = append(b, l.Limit.Algorithm.String()...)
	b = append(b, `","quota":`...)
	b = strconv.AppendInt(b, l.Limit.Quota, 10)
	if l.Limit.Algorithm.Bucket() {
		b = append(b, `,"burst":`...)
		b = strconv.AppendInt(b, capacity(l.Limit), 10)
	}
	b = append(b, `,"window_ms":`...)
	b = strconv.AppendInt(b, l.Limit.Window.Milliseconds(), 10)
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
	b = append(b, `,"mode":"`...)
	b = append(b, l.Rule.Mode...)
	return append(b, `"}`...)
}

// capacity of a bucket: by default its quota.
func capacity(l *enforcement.RuleLimit) int64 {
	if l.Burst == 0 {
		return l.Quota
	}
	return l.Burst
}

// appendRefusal writes the members of a problem, each with a comma behind it.
func (a *API) appendRefusal(b []byte, d *enforcement.Decision, status int) []byte {
	t := a.types.refusal(d.Reason)
	b = append(b, `"type":`...)
	b = appendString(b, t.uri)
	b = append(b, `,"title":`...)
	b = appendString(b, t.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	b = appendDetail(b, d)
	if d.Reason == enforcement.ReasonOverLimit || d.Reason == enforcement.ReasonCostExceedsQuota {
		b = append(b, `,"violated-policies":[`...)
		b = appendNames(b, d, `"`, ",", false)
		b = append(b, ']')
	}
	return append(b, ',')
}

// appendNames lists the names, as in the headers, of the limits that refuse, or
// only of those that would refuse for ever.
func appendNames(b []byte, d *enforcement.Decision, quote, comma string, forever bool) []byte {
	from := len(b)
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Allowed || l.Rule.Mode != enforcement.PolicyEnforce || forever && l.RetryAfter != enforcement.Never {
			continue
		}
		if len(b) > from {
			b = append(b, comma...)
		}
		b = append(b, quote...)
		b = append(b, l.Limit.HeaderName...)
		b = append(b, quote...)
	}
	return b
}

// appendDetail writes a refusal in a sentence, as a JSON string. Names of limits
// have nothing to escape.
func appendDetail(b []byte, d *enforcement.Decision) []byte {
	switch d.Reason {
	case enforcement.ReasonOverLimit:
		b = append(b, `"over the limit of policy `...)
		return append(appendNumbersUntil(appendNames(b, d, "", ", ", false), d), '"')
	case enforcement.ReasonCostExceedsQuota:
		b = append(b, `"policy `...)
		b = append(appendNames(b, d, "", ", ", true), ` can never hold this cost`...)
		return append(appendNumbersUntil(b, d), '"')
	}
	return appendString(b, detail(d))
}

// appendNumbersUntil writes when the numbers of a denial end, if that is before
// its wait.
func appendNumbersUntil(b []byte, d *enforcement.Decision) []byte {
	if d.NumbersUntil == 0 {
		return b
	}
	b = append(b, `; other numbers are in force from `...)
	return instantOf(d.NumbersUntil).AppendFormat(b, millisecondForm)
}

// detail says a refusal by something else than a limit.
func detail(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonBlocked:
		return "the key of policy " + d.Policy + " is blocked until " + instantOf(d.Block.Until).Format(millisecondForm)
	case enforcement.ReasonDeniedByList:
		return "the attribute " + d.List.Attribute + " has a value that is on the tenant's deny list"
	case enforcement.ReasonNoPolicy:
		return "no policy of the tenant's plan matches, and the tenant denies what matches none"
	case enforcement.ReasonMissingAttribute:
		return "policy " + d.Policy + " counts by the attribute " + d.Missing + ", which was not sent"
	case enforcement.ReasonTenantSuspended:
		return "tenant " + d.Subject.Tenant + " is suspended"
	case enforcement.ReasonBatchRefused:
		return "another check of this atomic batch was refused, and nothing was charged"
	case enforcement.ReasonLimiterUnavailable:
		return "the limiter cannot be reached, and a policy that applies refuses in that case"
	case enforcement.ReasonOverloaded:
		return errOverloaded.Message
	}
	return "refused"
}

// millisecondForm is RFC 3339 with milliseconds.
const millisecondForm = "2006-01-02T15:04:05.000Z07:00"

// instantOf gives an instant in microseconds since the epoch in UTC, rounded up
// to the millisecond: at what is shown it has come.
func instantOf(micros int64) time.Time { return time.UnixMilli((micros + 999) / 1000).UTC() }

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

// appendString writes a JSON string.
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
