package enforcement

import (
	"context"
	"slices"
	"strings"
	"time"
)

// An Explanation is the decision that a check would get now, without a charge. It also has the reason
// why each policy of the plan applies or not.
type Explanation struct {
	// Decision is the decision that the check would have now. Its mode is Peek.
	Decision Decision
	// PassesAt is the time at which the same request will be allowed, if no other request comes and
	// no limit changes. It is in microseconds since the epoch, or Never.
	PassesAt int64
	// Policies lists all policies of the tenant's plan, in the order of the plan.
	Policies []PolicyExplanation
}

// A Why is the reason why a policy applies to a check or not. The API uses the same
// values.
type Why string

// The values of Why. If several are true, the first one in this order is reported.
const (
	WhyOff       Why = "off"       // the policy is off
	WhyMethod    Why = "method"    // the method differs
	WhyPath      Why = "path"      // the path differs
	WhyAttribute Why = "attribute" // an attribute of match is missing or has another value
	WhySkipped   Why = "skipped"   // an attribute of count_by is missing, and missing is skip
	WhyDenied    Why = "missing"   // an attribute of count_by is missing, and missing is deny
	WhyReplaced  Why = "replaced"  // another policy that applies replaces this one
	WhyListed    Why = "list"      // a list or the tenant's status decided the check before any policy
	WhyBlocked   Why = "blocked"   // the policy applies, and the key is blocked
	WhyApplies   Why = "applies"   // the policy applies
)

// A PolicyExplanation is the part of an Explanation for one policy of the plan.
type PolicyExplanation struct {
	Rule *Rule
	// Matches says that the check matches the method, path and attributes of the policy. It does
	// not depend on the mode of the policy.
	Matches bool
	// Applies says that the policy matches and that the check would be charged to it, in any mode
	// but off.
	Applies bool
	Why     Why
	// Attribute is the name of an attribute that did not match or is missing. It is set if Why is
	// WhyAttribute, WhySkipped or WhyDenied.
	Attribute string
	// ReplacedBy is the slug of the policy that replaces this one. It is set if Why is WhyReplaced.
	ReplacedBy string
	Override   *Override // the override in force for this request; nil: the numbers of the plan apply
	Block      *Block    // the block in force for the key of this request; nil: none
	// Limits has the current state of each limit, if the policy matches. It is empty if the limiter is
	// unavailable.
	Limits []LimitNow
}

// A LimitNow is the current state of a limit for one key.
type LimitNow struct {
	Limit *RuleLimit // with the quota, burst and window in force
	// Remaining is in units. ResetAfter is in milliseconds, rounded up.
	Remaining, ResetAfter int64
	// RolledOver is as in LimitState.
	RolledOver int64
	// WindowMS is the length of the current window in milliseconds.
	WindowMS int64
	// LeasedElsewhere is the maximum number of units that other nodes may hold on lease. The limit may
	// deny requests although up to this many units are unused. If it is 0, the limit is exact.
	LeasedElsewhere int64
	// Grants has the grants of the limit for this key that have not ended, in the order in which they are
	// spent. Remaining includes the units that they have left.
	Grants []GrantState

	grants []*grant
}

// Explain stores in x the decision that a check would get now, and for each policy the reason why it
// applies or not. It calls the limiter once, with two requests: a peek for the check, and a charge of
// 0 for each limit of the policies that match, which reads the state of the limit.
func (e *Engine) Explain(ctx context.Context, s *Subject, c *Check, x *Explanation) {
	peek := *c
	peek.Mode = Peek
	w := e.newCall(1)
	it := &w.items[0]
	it.BatchItem = BatchItem{Subject: s, Check: &peek, Decision: &x.Decision}
	e.open(w, it)
	now := w.clock(e)
	x.Policies = explainPolicies(x.Policies[:0], s, &peek, now)
	nodes := e.nodeCount()
	if e.local == nil { // a single node leases no quota
		nodes = 1
	}
	reads := x.addLimits(it.BatchItem, now, nodes)
	if len(reads) > 0 {
		w.request(e, w.items, reads, false)
	}
	w.requestEach(e)
	e.take(ctx, w)
	e.answerEach(ctx, w)
	if len(reads) > 0 {
		x.fillLimits(reads, &w.outcomes[0])
	}
	switch d := &x.Decision; {
	case d.RetryAfter == Never:
		x.PassesAt = Never
	case d.At == 0: // no limiter was called, so this node's clock counts
		x.PassesAt = now + d.RetryAfter*1000
	default:
		x.PassesAt = d.At + d.RetryAfter*1000
	}
	e.release(w)
}

// addLimits adds the limits of the policies that match. It returns a charge of 0 for
// each of them; the result of such a charge is the current state of the counter.
func (x *Explanation) addLimits(item BatchItem, now int64, nodes int) (reads []Charge) {
	for i := range x.Policies {
		p := &x.Policies[i]
		if !p.Matches {
			continue
		}
		n := item.Subject.numbers(p.Rule, item.Check, now)
		partition := p.Rule.PartitionOf(item.Check)
		for k := range n.limits {
			l := LimitNow{Limit: &n.limits[k]}
			if p.Rule.Consistency == Leased && nodes > 1 {
				l.LeasedElsewhere = int64(nodes-1) * l.Limit.Meter.LeaseBatch(nodes)
			}
			p.Limits = append(p.Limits, l)
			reads = append(reads, Charge{
				Key:   Key{Tenant: item.Subject.Number, Cell: l.Limit.Cell, Partition: partition},
				Meter: l.Limit.Meter.In(item.Subject.Calendar, now),
				Rev:   n.revision(k),

				Leased: p.Rule.Consistency == Leased,
			})
			if p.Rule.Mode == PolicyEnforce && l.Limit.Quota > 0 {
				grants := item.Subject.Exceptions.of(p.Rule).grantsOf(k, partition, now, nil)
				p.Limits[k].grants, reads = grants, appendGrants(reads, item.Subject, grants)
			}
		}
	}
	return reads
}

// fillLimits sets the states of the limits from the outcome o. If the limiter did not decide, it
// removes the limits.
func (x *Explanation) fillLimits(reads []Charge, o *Outcome) {
	next := 0
	for i := range x.Policies {
		p := &x.Policies[i]
		if !o.Verdict.Decided() {
			p.Limits = nil
			continue
		}
		for k := range p.Limits {
			m, state := reads[next].Meter, o.Charges[next].State
			p.Limits[k].Remaining = m.Remaining(state, o.At)
			p.Limits[k].ResetAfter = Milliseconds(m.ResetAfter(state, o.At))
			p.Limits[k].WindowMS = m.WindowAt(&state, o.At) / 1000
			p.Limits[k].RolledOver = m.RolledOver(&state)
			next++
			p.Limits[k].Grants = grantStates(p.Limits[k].grants, o.Charges[next:], o.At)
			if m.Quota > 0 {
				for _, g := range p.Limits[k].Grants {
					p.Limits[k].Remaining += g.Left
				}
			}
			next += len(p.Limits[k].grants)
		}
	}
}

// ExplainPolicies returns, for each policy of a tenant's plan, whether it applies to a check, and
// why. It uses the exceptions that are in force at now, in microseconds since the epoch. It does
// not call the limiter, so the results have no Limits.
func ExplainPolicies(s *Subject, c *Check, now int64) []PolicyExplanation {
	return explainPolicies(nil, s, c, now)
}

// explainPolicies appends what ExplainPolicies returns to list.
func explainPolicies(list []PolicyExplanation, s *Subject, c *Check, now int64) []PolicyExplanation {
	if s.Plan == nil {
		return list
	}
	matching := s.Plan.match(c, nil)
	applying, _ := s.Plan.apply(matching, c, nil)
	decided, _ := s.beforePolicies(c, now)
	for i, r := range s.Plan.Rules {
		x := PolicyExplanation{Rule: r, Matches: contains(matching, i)}
		switch {
		case !r.Mode.Counts():
			x.Why = WhyOff
		case !x.Matches:
			x.Why, x.Attribute = mismatch(r, c)
		case decided != "":
			x.Why = WhyListed
		case contains(applying, i):
			x.setApplies(c)
		default:
			x.setNotApplied(s.Plan, matching, c)
		}
		if x.Matches {
			x.addExceptions(s, c, now)
		}
		list = append(list, x)
	}
	return list
}

// mismatch returns why a rule does not match a check. attribute is set only if why is WhyAttribute.
func mismatch(r *Rule, c *Check) (why Why, attribute string) {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, c.Method) {
		return WhyMethod, ""
	}
	if !r.pattern.Match(c.Path) {
		return WhyPath, ""
	}
	for _, want := range r.attributes {
		if value, ok := c.attribute(want.Name); !ok || value != want.Value {
			return WhyAttribute, want.Name
		}
	}
	return WhyAttribute, "" // unreachable: the rule matches
}

// setApplies sets Applies and Why of a policy that applies to the check.
func (x *PolicyExplanation) setApplies(c *Check) {
	x.Applies, x.Why = true, WhyApplies
	if x.Rule.Missing == MissingDeny && c.Mode != Force {
		if name := x.Rule.missing(c); name != "" {
			x.Why, x.Attribute = WhyDenied, name
		}
	}
}

// setNotApplied sets Why of a policy that matches the check but does not apply.
func (x *PolicyExplanation) setNotApplied(p *Plan, matching []uint16, c *Check) {
	name := x.Rule.missing(c)
	if name != "" && x.Rule.skips() {
		x.Why, x.Attribute = WhySkipped, name
		if x.Rule.Missing == MissingDeny {
			x.Why = WhyDenied
		}
		return
	}
	x.Why = WhyReplaced
	for _, i := range matching {
		by := p.Rules[i]
		if !by.Mode.InForce() || by.missing(c) != "" && by.skips() {
			continue
		}
		if contains(by.replaces, x.Rule.Index) {
			x.ReplacedBy = by.Policy
			return
		}
	}
}

// addExceptions sets the override and the block in force for the check's key.
func (x *PolicyExplanation) addExceptions(s *Subject, c *Check, now int64) {
	exceptions := s.Exceptions.of(x.Rule)
	if exceptions == nil {
		return
	}
	if o, _ := exceptions.choose(c, now); o != nil {
		x.Override = o.Override
	}
	if b := exceptions.block(x.Rule.PartitionOf(c)); b != nil && now < b.Until && x.Rule.Mode.InForce() {
		x.Block = b
		if x.Why == WhyApplies && c.Mode != Force {
			x.Why = WhyBlocked
		}
	}
}

// Because returns Why as a sentence for people, without a full stop. d is the decision
// of the same Explanation, or of the request that was passed to ExplainPolicies. Times
// in the sentence are in UTC, rounded up to the millisecond.
func (x *PolicyExplanation) Because(d *Decision) string {
	r := x.Rule
	switch x.Why {
	case WhyOff:
		return "the policy is off"
	case WhyMethod:
		return "the policy is for " + strings.Join(r.Methods, ", ") + ", and the request " + has("method", d.Check.Method)
	case WhyPath:
		return "the policy is for " + r.Path + ", and the request " + has("path", d.Check.Path)
	case WhyAttribute:
		return "the policy is for requests with one value of the attribute " + x.Attribute + ", and this one has another or none"
	case WhySkipped:
		return "the policy counts by the attribute " + x.Attribute + ", which was not sent, and skips such requests"
	case WhyDenied:
		return "the policy counts by the attribute " + x.Attribute + ", which was not sent, and denies such requests"
	case WhyReplaced:
		return "the policy " + x.ReplacedBy + " applies, and replaces this one"
	case WhyListed:
		return decider(d.Reason) + " decided before any policy"
	case WhyBlocked:
		return "the policy applies, and its key is blocked until " + formatInstant(x.Block.Until)
	}
	text := "the policy applies"
	switch r.Mode {
	case PolicyShadow:
		text += ", in shadow: it counts the requests that it would deny, and denies none"
	case PolicyDegrade:
		text += ": over its limits, requests get the cheap answer, and none is denied"
	case PolicyDelay:
		text += ": over its limits, requests wait"
		if r.delay > 0 { // the rule of a stored decision has no delay
			text += " " + FormatWindow(time.Duration(r.delay)*time.Millisecond)
		}
		text += ", and none is denied"
	}
	text += r.costSentence(d.Check)
	if o := x.Override; o != nil {
		text += ", with other numbers until " + formatInstant(o.Until)
	}
	return text
}

func has(what, value string) string {
	if value == "" {
		return "has no " + what
	}
	return "has the " + what + " " + value
}

// decider returns the words for what decided a check before its policies, for example a list.
func decider(r Reason) string {
	switch r {
	case ReasonDeniedByList:
		return "the deny list"
	case ReasonAllowedByList:
		return "the allow list"
	}
	return "the tenant's status"
}

func formatInstant(micros int64) string { return Instant(micros).Format(InstantLayout) }
