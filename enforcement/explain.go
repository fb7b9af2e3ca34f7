package enforcement

import (
	"context"
	"slices"
	"strings"
)

// An Explanation is a decision with its reasons: the answer to a check now, and
// for each policy of the plan why it applies or not.
type Explanation struct {
	// Decision is the answer to the check now, in mode Peek.
	Decision Decision
	// PassesAt is the instant at which the same request passes, if no other request
	// comes and the numbers in force do not change: microseconds since the epoch,
	// or Never.
	PassesAt int64
	// Policies has each policy of the tenant's plan, in its order.
	Policies []PolicyExplanation
}

// A Why says why a policy applies or not. Its values are those on the wire.
type Why string

// The values of Why. The first one that is true counts, in this order.
const (
	WhyOff       Why = "off"       // the policy is off
	WhyMethod    Why = "method"    // the method differs
	WhyPath      Why = "path"      // the path differs
	WhyAttribute Why = "attribute" // an attribute of match is missing or has another value
	WhySkipped   Why = "skipped"   // an attribute of count_by is missing, and missing is skip
	WhyDenied    Why = "missing"   // an attribute of count_by is missing, and missing is deny
	WhyReplaced  Why = "replaced"  // another policy that applies replaces this one
	WhyListed    Why = "list"      // a list or the tenant's status decided before any policy
	WhyBlocked   Why = "blocked"   // the policy applies, and the key is blocked
	WhyApplies   Why = "applies"   // the policy applies
)

// A PolicyExplanation is one policy of the plan in an Explanation.
type PolicyExplanation struct {
	Rule *Rule
	// Matches is set if method, path and attributes match, in any mode.
	Matches bool
	// Applies is set if the policy matches and is charged, enforced or in shadow.
	Applies bool
	Why     Why
	// Attribute is the one behind WhyAttribute, WhySkipped and WhyDenied.
	Attribute string
	// ReplacedBy is the slug of the policy behind WhyReplaced.
	ReplacedBy string
	Override   *Override // in force for this request; nil: the plan's numbers
	Block      *Block    // in force for this request's key; nil: none
	// Limits has the current state of each limit of a matching policy. It is empty
	// if the limiter is unavailable.
	Limits []LimitNow
}

// A LimitNow is the current state of a limit for one key.
type LimitNow struct {
	Limit *RuleLimit // with the numbers in force
	// Remaining is in units; ResetAfter is in milliseconds, rounded up.
	Remaining, ResetAfter int64
	// LeasedElsewhere is how many units of a leased policy other nodes may hold at
	// most. The limit may deny that many units early. 0: the limit is exact.
	LeasedElsewhere int64
}

// Explain stores in x what a check would be answered now, and why. It calls the
// limiter once: with the check as a peek, and with a charge of 0 on each limit of
// the matching policies.
func (e *Engine) Explain(ctx context.Context, s *Subject, c *Check, x *Explanation) {
	peek := *c
	peek.Mode = Peek
	w := e.newCall(1)
	it := &w.items[0]
	it.BatchItem = BatchItem{Subject: s, Check: &peek, Decision: &x.Decision}
	e.open(w, it)
	now := w.clock(e)
	x.Policies = explainPolicies(x.Policies[:0], s, &peek, now)
	nodes := e.nodes
	if e.local == nil { // the only node leases nothing
		nodes = 1
	}
	reads := x.addLimits(it.BatchItem, now, nodes)
	if len(reads) > 0 {
		w.request(it, reads, false)
	}
	w.requestEach()
	e.take(ctx, w)
	e.answerEach(ctx, w)
	if len(reads) > 0 {
		x.fillLimits(reads, &w.outcomes[0])
	}
	switch d := &x.Decision; {
	case d.RetryAfter == Never:
		x.PassesAt = Never
	case d.At == 0: // no limiter dated the decision
		x.PassesAt = now + d.RetryAfter*1000
	default:
		x.PassesAt = d.At + d.RetryAfter*1000
	}
	e.release(w)
}

// addLimits adds the limits of the matching policies, and returns a charge of 0 on
// each of them. The outcome of such a charge is the current state of the counter.
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
				Meter: l.Limit.Meter,
				Rev:   n.revision(k),

				Leased: p.Rule.Consistency == Leased,
			})
		}
	}
	return reads
}

// fillLimits fills in the states of the limits, or removes the limits if the
// limiter did not decide.
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
			next++
		}
	}
}

// ExplainPolicies returns for each policy of a tenant's plan why it applies to a
// check or not, with the exceptions in force at now, in microseconds since the
// epoch. It does not call the limiter: Limits are empty.
func ExplainPolicies(s *Subject, c *Check, now int64) []PolicyExplanation {
	return explainPolicies(nil, s, c, now)
}

// explainPolicies is ExplainPolicies that appends to a list.
func explainPolicies(list []PolicyExplanation, s *Subject, c *Check, now int64) []PolicyExplanation {
	if s.Plan == nil {
		return list
	}
	matching := s.Plan.match(c, nil)
	applying, _, _ := s.Plan.apply(matching, c, nil)
	decided, _ := s.beforePolicies(c, now)
	for i, r := range s.Plan.Rules {
		x := PolicyExplanation{Rule: r, Matches: contains(matching, i)}
		switch {
		case r.Mode == PolicyOff:
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

// mismatch returns why a rule does not match a check.
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

// setApplies sets the reason of a policy that applies.
func (x *PolicyExplanation) setApplies(c *Check) {
	x.Applies, x.Why = true, WhyApplies
	if x.Rule.Missing == MissingDeny && c.Mode != Force {
		if name := x.Rule.missing(c); name != "" {
			x.Why, x.Attribute = WhyDenied, name
		}
	}
}

// setNotApplied sets the reason of a policy that matches and does not apply.
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
		if by.Mode != PolicyEnforce || by.missing(c) != "" && by.skips() {
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
	if b := exceptions.block(x.Rule.PartitionOf(c)); b != nil && now < b.Until && x.Rule.Mode == PolicyEnforce {
		x.Block = b
		if x.Why == WhyApplies && c.Mode != Force {
			x.Why = WhyBlocked
		}
	}
}

// Because returns a sentence that says why the policy applies to a request or
// not. d is the decision of the same Explanation, or of the request that was passed
// to ExplainPolicies. The sentence has no full stop. Its instants are in UTC,
// rounded up to the millisecond.
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
	if r.Mode == PolicyShadow {
		text += ", in shadow: it counts the requests that it would deny, and denies none"
	}
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

// decider returns what decided before any policy.
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
