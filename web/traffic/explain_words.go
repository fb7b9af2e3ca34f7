package traffic

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// roundedUp is an instant in microseconds, to the millisecond: then it has come.
func roundedUp(micros int64) time.Time { return time.UnixMilli((micros + 999) / 1000).UTC() }

// clockWords say an instant, rounded up to the second: with the day if that is
// another one.
func clockWords(micros int64, now time.Time) string {
	t := time.Unix((micros+999_999)/1_000_000, 0).UTC()
	if y, m, d := t.Date(); now.UTC().Year() == y && now.UTC().Month() == m && now.UTC().Day() == d {
		return t.Format("15:04:05 UTC")
	}
	return t.Format("2 January 2006, 15:04:05 UTC")
}

// verdict is the answer in a sentence.
func verdict(x *enforcement.Explanation, status int, now time.Time) string {
	d := &x.Decision
	if d.Allowed {
		return "Would pass: " + passes(d) + "."
	}
	text := fmt.Sprintf("Would be refused with %d: %s", status, refuses(d))
	end := "."
	if d.NumbersUntil != 0 {
		end = fmt.Sprintf(". An override or a block ends at %s.", clockWords(d.NumbersUntil, now))
	}
	if x.PassesAt == enforcement.Never || d.Reason == enforcement.ReasonLimiterUnavailable {
		return text + end
	}
	wait := time.Duration(x.PassesAt-now.UnixMicro()) * time.Microsecond
	if wait < time.Second {
		return text + fmt.Sprintf("; passes at %s (in %s)%s", clockWords(x.PassesAt, now), views.Duration(wait).Text, end)
	}
	return text + fmt.Sprintf("; passes at %s (in %s)%s", clockWords(x.PassesAt, now), waitWords(wait), end)
}

// waitWords say a wait with its seconds as long as they count.
func waitWords(d time.Duration) string {
	if d < 2*time.Minute {
		return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
	}
	return views.Duration(d).Text
}

// passes says why a request passes.
func passes(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonAllowedByList:
		return "the allow list has " + d.List.Attribute + " " + d.List.Value + ", and no limit is charged"
	case enforcement.ReasonNoPolicy:
		if d.Subject.Plan == nil {
			return "the tenant has no plan"
		}
		return "no policy of plan " + d.Subject.Plan.Slug + " applies to it"
	}
	var tight *enforcement.LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode == enforcement.PolicyEnforce && (tight == nil || l.Remaining < tight.Remaining) {
			tight = l
		}
	}
	text := "no limit is enforced for it"
	if tight != nil {
		text = left(tight) + " after it"
	}
	if d.Degraded {
		text += "; the shared limiter is away, and the policies' failure modes answer"
	}
	return text
}

// left says what a limit has when the request is charged: "117 of 120 left in
// policy api".
func left(l *enforcement.LimitState) string {
	return fmt.Sprintf("%s of %s left in policy %s", views.Count(l.Remaining).Exact, views.Count(web.Capacity(l.Limit)).Exact,
		l.Limit.HeaderName)
}

// refuses says why a request is refused.
func refuses(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota:
		return usedUp(d)
	case enforcement.ReasonBlocked:
		return "its key of policy " + d.Policy + " is blocked"
	case enforcement.ReasonDeniedByList:
		return "the deny list has " + d.List.Attribute + " " + d.List.Value
	case enforcement.ReasonNoPolicy:
		if d.Subject.Plan == nil {
			return "the tenant has no plan, and denies what no policy applies to"
		}
		return "no policy of plan " + d.Subject.Plan.Slug + " applies to it, and the tenant denies such requests"
	case enforcement.ReasonMissingAttribute:
		return "policy " + d.Policy + " counts by " + d.Missing + ", which was not sent"
	case enforcement.ReasonTenantSuspended:
		return "the tenant is suspended"
	case enforcement.ReasonLimiterUnavailable:
		return "the shared limiter cannot be reached, and a policy that applies refuses then"
	}
	return string(d.Reason)
}

// usedUp says which limit refuses longest, and how many others do.
func usedUp(d *enforcement.Decision) string {
	var worst *enforcement.LimitState
	others := -1
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Allowed || l.Rule.Mode != enforcement.PolicyEnforce {
			continue
		}
		others++
		if worst == nil || worst.RetryAfter != enforcement.Never && (l.RetryAfter == enforcement.Never || l.RetryAfter > worst.RetryAfter) {
			worst = l
		}
	}
	if worst == nil {
		return "a limit is used up" // not reached: a limit refuses
	}
	most, name, cost := web.Capacity(worst.Limit), worst.Limit.HeaderName, views.Count(worst.Cost).Exact
	var text string
	switch {
	case most == 0:
		text = "policy " + name + " lets nothing pass: its quota is 0"
	case worst.RetryAfter == enforcement.Never:
		text = fmt.Sprintf("policy %s never holds %s: %s at most", name, cost, views.Count(most).Exact)
	case worst.Limit.Algorithm.Bucket():
		text = fmt.Sprintf("policy %s has %s of %s left", name, views.Count(worst.Remaining).Exact, views.Count(most).Exact)
	default:
		text = fmt.Sprintf("policy %s has counted %s of %s", name, views.Count(most-worst.Remaining).Exact, views.Count(most).Exact)
	}
	if worst.Cost != 1 && worst.RetryAfter != enforcement.Never {
		text += ", and this takes " + cost
	}
	switch others {
	case 0:
		return text
	case 1:
		return text + ", and another limit refuses as well"
	}
	return fmt.Sprintf("%s, and %d other limits refuse as well", text, others)
}
