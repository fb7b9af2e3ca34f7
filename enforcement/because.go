package enforcement

import (
	"strings"
	"time"
)

// Because says in a sentence why the policy applies to the request of a decision
// or does not: d is that of the same Explanation, or of a request for which
// ExplainPolicies was asked. The sentence has no full stop, and names instants in
// UTC to the millisecond, rounded up.
func (x *PolicyExplanation) Because(d *Decision) string {
	r := x.Rule
	switch x.Why {
	case WhyOff:
		return "the policy is off"
	case WhyMethod:
		return "the policy is for " + strings.Join(r.Methods, ", ") + ", and the request " + sent("method", d.Check.Method)
	case WhyPath:
		return "the policy is for " + r.Path + ", and the request " + sent("path", d.Check.Path)
	case WhyAttribute:
		return "the policy is for requests with one value of the attribute " + x.Attribute + ", and this one has another or none"
	case WhySkipped:
		return "the policy counts by the attribute " + x.Attribute + ", which was not sent, and skips such requests"
	case WhyDenied:
		return "the policy counts by the attribute " + x.Attribute + ", which was not sent, and denies such requests"
	case WhyReplaced:
		return "the policy " + x.ReplacedBy + " applies, and replaces this one"
	case WhyListed:
		return answerer(d.Reason) + " answered before any policy"
	case WhyBlocked:
		return "the policy applies, and its key is blocked until " + instant(x.Block.Until)
	}
	text := "the policy applies"
	if r.Mode == PolicyShadow {
		text += ", in shadow: it counts what it would refuse, and refuses nothing"
	}
	if o := x.Override; o != nil {
		text += ", with other numbers until " + instant(o.Until)
	}
	return text
}

func sent(what, value string) string {
	if value == "" {
		return "has no " + what
	}
	return "has the " + what + " " + value
}

// answerer names what answers before any policy is asked.
func answerer(r Reason) string {
	switch r {
	case ReasonDeniedByList:
		return "the deny list"
	case ReasonAllowedByList:
		return "the allow list"
	}
	return "the tenant's status"
}

// instant writes microseconds since the epoch as RFC 3339 with milliseconds.
func instant(micros int64) string {
	return time.UnixMilli(milliseconds(micros)).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
