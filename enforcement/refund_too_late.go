package enforcement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// refundTooLate returns the error for a refund that cannot return anything, because everything that the check charged
// has ended or can no longer be changed. record and data belong to the check. request is the refund. at is the time by
// the limiter's clock at which the refund was tried.
func (s *Subject) refundTooLate(decision [16]byte, record *Record, data *reservationData, request *Request, at int64) error {
	var why []string
	add := func(text string) {
		if !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	if end := min(openUntil(request.Charges, record.At), record.Until); ended(request.Charges) {
		add("the windows that it charged ended at " + Instant(end).Format(InstantLayout))
	}
	limit := 0 // index of the latest charge on a limit; the charges on its grants follow it
	for i := range data.Charges {
		c := &data.Charges[i]
		switch {
		case c.Policy == "" || !data.charged(record, i):
		case c.grant():
			if record.Applied[i] > 0 {
				add(s.grantEnded(&data.Charges[limit], c, record.Applied[i], record.Charged[i].State, at))
			}
		default:
			if limit = i; c.Cost+record.Applied[i] > 0 {
				if text := s.keeps(c); text != "" {
					add(text)
				}
			}
		}
	}
	if len(why) == 0 {
		add("it charged nothing that can be given back")
	}
	return problem.WithCode(problem.Conflict, "refund_too_late", "check %s cannot be refunded: %s; nothing was given back",
		uuidText(decision), strings.Join(why, ", and "))
}

// ended reports whether a refund that came too late has charges on windows. The end of these windows is then one of
// the reasons for the error.
func ended(charges []Charge) bool {
	return slices.ContainsFunc(charges, func(c Charge) bool { return c.returns() && !c.Grant })
}

// keeps returns the reason why charge c cannot be returned to its limit even if its window is still open. It returns ""
// if there is no such reason.
func (s *Subject) keeps(c *reservedCharge) string {
	r, k := s.rule(c.Policy), -1
	if r != nil {
		k = slices.IndexFunc(r.Limits, func(l RuleLimit) bool { return l.Cell == c.Cell })
	}
	name := fmt.Sprintf("policy %s, limit %s", c.Policy, c.Limit)
	switch {
	case k < 0:
		return name + " is no longer in the plan of the tenant as it was charged"
	case r.leasedBucket(r.Limits[k].Meter):
		return name + " is a leased bucket, which keeps what it was charged"
	case r.Limits[k].Algorithm == Concurrency:
		return name + " frees its places with their lease"
	}
	return ""
}

// rule returns the rule of a policy, or nil if the plan of the tenant does not have it.
func (s *Subject) rule(policy string) *Rule {
	if s.Plan == nil {
		return nil
	}
	r, _ := s.Plan.Rule(policy)
	return r
}

// grantEnded returns why units cannot be returned to the grant that charge c took them from. limit is the charge of the
// limit to which the grant belongs. state is the state of the grant's counter after charge c.
func (s *Subject) grantEnded(limit, c *reservedCharge, units int64, state State, at int64) string {
	text := fmt.Sprintf("grant %s, which it charged %d %s, ", uuidText([16]byte(c.Partition)), units, plural(units, "unit"))
	fits := func(l RuleLimit) bool { return l.Cell == limit.Cell && l.Grantable() }
	switch r, end := s.rule(limit.Policy), state.T+state.B; {
	case at >= end:
		return text + "ended at " + Instant(end).Format(InstantLayout)
	case r == nil || r.Mode != PolicyEnforce || !slices.ContainsFunc(r.Limits, fits):
		return text + "has no effect with the plan that is in force now"
	}
	return text + "was voided"
}

func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
