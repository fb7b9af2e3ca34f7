package exceptions

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// An Idle says why an exception has no effect. The zero value means that the exception has an
// effect.
type Idle struct {
	Code  string // value of inactive_because in the API
	Words string // for pages
}

var (
	idleEnded       = Idle{"ended", "ended"}
	idleNoPolicy    = Idle{"no_policy", "no effect: the plan does not have this policy"}
	idleOff         = Idle{"not_possible", "no effect: the policy is off"}
	idleNotEnforced = Idle{"not_possible", "no effect: the policy is not enforced"}
	idleNoLimit     = Idle{"no_limit", "no effect with the current plan"}
	idleNotPossible = Idle{"not_possible", "no effect with the current plan"}
)

// idle checks the reasons for which an exception of any kind has no effect: it has expired, the
// tenant has no plan, or the plan does not contain the policy. If none of these reasons applies,
// idle returns the rule of the policy, and otherwise nil.
func idle(s *enforcement.Subject, policy string, ends, now time.Time) (Idle, *enforcement.Rule) {
	if !now.Before(ends) {
		return idleEnded, nil
	}
	if s == nil || s.Plan == nil {
		return idleNoPolicy, nil
	}
	r, known := s.Plan.Rule(policy)
	if !known {
		return idleNoPolicy, nil
	}
	return Idle{}, r
}

// compiles reports whether at least some of the exceptions in spec have an effect under the current
// plan of the tenant s.
func compiles(s *enforcement.Subject, spec enforcement.ExceptionSpec) bool {
	_, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return !f.Partial })
}

func countsBy(r *enforcement.Rule, attribute string) bool {
	return slices.ContainsFunc(r.CountBy, func(entry string) bool { return enforcement.CountedAttribute(entry) == attribute })
}

// Idle returns the reason why the override has no effect. s is the compiled tenant; nil if the
// snapshot does not contain it.
func (o Override) Idle(s *enforcement.Subject, now time.Time) Idle {
	why, r := idle(s, o.Policy, o.ExpiresAt, now)
	switch {
	case r == nil:
		return why
	case o.Attribute != "" && !countsBy(r, o.Attribute):
		return Idle{"no_attribute", "no effect: the policy does not count by " + o.Attribute}
	case len(o.Limits) > 0 && !slices.ContainsFunc(o.Limits, func(l enforcement.OverrideLimit) bool {
		return slices.ContainsFunc(r.Limits, func(of enforcement.RuleLimit) bool { return of.Name == l.Name })
	}):
		return idleNoLimit // an override that names at least one existing limit has an effect on that limit
	case !r.Mode.Counts():
		return idleOff
	case !compiles(s, enforcement.ExceptionSpec{Overrides: []enforcement.Override{o.Spec()}}):
		return idleNotPossible
	}
	return Idle{}
}

// Spec returns the override in the form that package enforcement compiles.
func (o Override) Spec() enforcement.Override {
	return enforcement.Override{
		ID: o.ID, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: o.Factor, Limits: o.Limits,
		Revision: o.Revision, Reason: o.Reason, From: o.CreatedAt.UnixMicro(), Until: o.ExpiresAt.UnixMicro(),
	}
}

// Idle returns the reason why the block has no effect. s is the compiled tenant; nil if the
// snapshot does not contain it.
func (b Block) Idle(s *enforcement.Subject, now time.Time) Idle {
	why, r := idle(s, b.Policy, b.ExpiresAt, now)
	if r == nil {
		return why
	}
	spec := enforcement.Block{ID: b.ID, Policy: b.Policy, Until: b.ExpiresAt.UnixMicro()}
	for _, name := range slices.Sorted(maps.Keys(b.Key)) {
		if !countsBy(r, name) {
			return Idle{"no_attribute", "no effect: the policy does not count by " + name}
		}
		spec.Key = append(spec.Key, enforcement.Attribute{Name: name, Value: b.Key[name]})
	}
	switch {
	case !r.Mode.InForce():
		return idleNotEnforced
	case !compiles(s, enforcement.ExceptionSpec{Blocks: []enforcement.Block{spec}}):
		return idleNotPossible
	}
	return Idle{}
}

// Idle returns the reason why the grant has no effect. s is the compiled tenant; nil if the
// snapshot does not contain it.
func (g Grant) Idle(s *enforcement.Subject, now time.Time) Idle {
	why, r := idle(s, g.Policy, g.ExpiresAt, now)
	switch {
	case r == nil:
		return why
	case !slices.ContainsFunc(r.Limits, func(l enforcement.RuleLimit) bool { return l.Name == g.Limit }):
		return idleNoLimit
	case r.Mode != enforcement.PolicyEnforce:
		return idleNotEnforced
	}
	for name := range g.Key {
		if !countsBy(r, name) {
			return Idle{"no_attribute", "no effect: the policy does not count by " + name}
		}
	}
	if !compiles(s, enforcement.ExceptionSpec{Grants: []enforcement.Grant{g.Spec()}}) {
		return idleNotPossible
	}
	return Idle{}
}

// Spec returns the grant in the form that package enforcement compiles.
func (g Grant) Spec() enforcement.Grant {
	spec := enforcement.Grant{
		ID: g.ID, Policy: g.Policy, Limit: g.Limit, Units: g.Units, Revision: g.Revision, Reason: g.Reason,
		From: g.CreatedAt.UnixMicro(), Until: g.ExpiresAt.UnixMicro(),
	}
	for _, name := range slices.Sorted(maps.Keys(g.Key)) {
		spec.Key = append(spec.Key, enforcement.Attribute{Name: name, Value: g.Key[name]})
	}
	return spec
}

// Idle returns the reason why the list entry has no effect: it can only have expired.
func (n Entry) Idle(now time.Time) Idle {
	if !n.ExpiresAt.IsZero() && !now.Before(n.ExpiresAt) {
		return idleEnded
	}
	return Idle{}
}
