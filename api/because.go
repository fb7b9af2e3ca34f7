package api

import (
	"strings"

	"github.com/headgate/headgate/enforcement"
)

// because says in a sentence why a policy applies to a request or does not.
func because(p *enforcement.PolicyExplanation, d *enforcement.Decision) string {
	r := p.Rule
	switch p.Why {
	case enforcement.WhyOff:
		return "the policy is off"
	case enforcement.WhyMethod:
		return "the policy is for " + strings.Join(r.Methods, ", ") + ", and the request " + sent("method", d.Check.Method)
	case enforcement.WhyPath:
		return "the policy is for " + r.Path + ", and the request " + sent("path", d.Check.Path)
	case enforcement.WhyAttribute:
		return "the policy is for requests with one value of the attribute " + p.Attribute + ", and this one has another or none"
	case enforcement.WhySkipped:
		return "the policy counts by the attribute " + p.Attribute + ", which was not sent, and skips such requests"
	case enforcement.WhyDenied:
		return "the policy counts by the attribute " + p.Attribute + ", which was not sent, and denies such requests"
	case enforcement.WhyReplaced:
		return "the policy " + p.ReplacedBy + " applies, and replaces this one"
	case enforcement.WhyListed:
		return answerer(d.Reason) + " answered before any policy"
	case enforcement.WhyBlocked:
		return "the policy applies, and its key is blocked until " + instantOf(p.Block.Until).Format(millisecondForm)
	}
	text := "the policy applies"
	if r.Mode == enforcement.PolicyShadow {
		text += ", in shadow: it counts what it would refuse, and refuses nothing"
	}
	if o := p.Override; o != nil {
		text += ", with other numbers until " + instantOf(o.Until).Format(millisecondForm)
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
func answerer(r enforcement.Reason) string {
	switch r {
	case enforcement.ReasonDeniedByList:
		return "the deny list"
	case enforcement.ReasonAllowedByList:
		return "the allow list"
	}
	return "the tenant's status"
}
