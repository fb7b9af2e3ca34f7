package decisions

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/web/views"
)

// clockWords returns a time as text in the time zone of now, rounded up to the second. If the
// time is not today, the text has the date.
func clockWords(micros int64, now time.Time) string {
	t := time.Unix((micros+999_999)/1_000_000, 0).In(now.Location())
	form := "2 January 2006, 15:04:05 "
	if y, m, d := t.Date(); now.Year() == y && now.Month() == m && now.Day() == d {
		form = "15:04:05 "
	}
	return t.Format(form) + now.Location().String()
}

// verdict returns a sentence about the result: whether the request would pass, and why.
func verdict(x *enforcement.Explanation, status int, now time.Time) string {
	d := &x.Decision
	if d.Allowed {
		if d.Delay > 0 {
			return "Would pass after " + waitWords(time.Duration(d.Delay)*time.Millisecond) + delayCause(d) + ": " + passes(d) + "."
		}
		return "Would pass: " + passes(d) + "."
	}
	text := fmt.Sprintf("Would be denied with %d: %s", status, d.Reason.Sentence(d))
	if x.PassesAt == enforcement.Never || d.Reason == enforcement.ReasonLimiterUnavailable {
		return text + "."
	}
	wait := time.Duration(x.PassesAt-now.UnixMicro()) * time.Microsecond
	return fmt.Sprintf("%s; passes at %s (in %s).", text, clockWords(x.PassesAt, now), waitWords(wait))
}

// delayCause says why an allowed request waits: in the queue of a leaky bucket, or because of a
// policy in mode delay.
func delayCause(d *enforcement.Decision) string {
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Rule.Mode == enforcement.PolicyDelay && !l.Allowed && l.Delay == d.Delay {
			return ", over the limit of policy " + l.Limit.HeaderName
		}
	}
	return " in a queue"
}

// waitWords returns a waiting time as text. A time shorter than two minutes is in seconds.
func waitWords(d time.Duration) string {
	if d >= time.Second && d < 2*time.Minute {
		return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
	}
	return views.Duration(d).Text
}

// passes returns the reason why a request would pass, as part of a sentence.
func passes(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonAllowedByList:
		return "the allow list has " + d.List.Attribute + " " + d.List.Value + ", and no limit is charged"
	case enforcement.ReasonNoPolicy:
		if d.Subject.Plan == nil {
			return "the tenant has no plan"
		}
		return "no policy of plan " + d.Subject.Plan.Slug + " applies"
	}
	var least *enforcement.LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode.InForce() && (least == nil || l.Remaining < least.Remaining) {
			least = l
		}
	}
	text := "no limit is enforced for it"
	if least != nil {
		text = fmt.Sprintf("%s of %s left in policy %s after it", views.Count(least.Remaining).Exact, views.Count(least.Capacity()).Exact,
			least.Limit.HeaderName)
	}
	if d.ServeCheap {
		text += "; it gets the cheap answer"
	}
	if d.Degraded {
		text += "; the shared limiter is unavailable, and failure modes decide"
	}
	return text
}
