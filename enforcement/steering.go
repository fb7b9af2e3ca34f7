package enforcement

import (
	"fmt"
	"slices"
	"time"
)

// What was set for one tenant beside its plan: lists, blocks and overrides.
// Each is asked in this order, and the first that speaks is heard:
//
//	deny list       403 denied_by_list
//	allow list      passes, charges nothing, asks no limiter
//	block           429 blocked, of one key of one policy
//	override        other numbers for a policy: an exact value (the newest of
//	                several), then the longest prefix, then all keys
//	plan
//
// A tenant that has none of them pays nothing: Subject.Steering is nil.

// A SteeringSpec is what people set, in their words. It must have been
// validated (steering.Service); CompileSteering reports what it cannot use.
type SteeringSpec struct {
	Deny, Allow []ListEntry
	Blocks      []Block
	Overrides   []Override
	// Changed says of a policy's slug at which revision an override of it last
	// began, changed or ended for this tenant: counters written before are
	// converted once.
	Changed map[string]int64
}

// A ListEntry is one value of a deny or an allow list.
type ListEntry struct {
	ID        string // UUID
	Attribute string // name
	// Value is exact, or for ip an address or a network in canonical form.
	Value  string
	Reason string
	Until  int64 // microseconds since the epoch, excluded; 0: without an end
}

// A Block refuses one key of one policy until an instant.
type Block struct {
	ID     string // UUID
	Policy string // slug
	// Key has the values of the policy's count_by; one that is not there is the
	// place of a missing value. An ip is canonical.
	Key    []Attribute
	Reason string
	Until  int64 // microseconds since the epoch, excluded
}

// An Override gives one policy other numbers, for all keys of the tenant or for
// those with one value, or with values that begin alike.
type Override struct {
	ID     string // UUID
	Policy string // slug
	// Attribute is one of the policy's count_by; "": all keys. Otherwise either
	// Value or Prefix is set. A Prefix of ip is a network in canonical form.
	Attribute, Value, Prefix string
	// Factor multiplies every quota and burst, in thousandths, rounded down, but
	// a quota above 0 stays at least 1; 0: Limits say.
	Factor int64
	Limits []OverrideLimit
	// Revision at which it came into force; the higher one is the newer.
	Revision    int64
	From, Until int64 // microseconds since the epoch; Until is excluded
	Reason      string
}

// Keep in a number of an OverrideLimit leaves the plan's.
const Keep int64 = -1

// An OverrideLimit is other numbers for one limit; its other limits stay.
type OverrideLimit struct {
	Name   string        // of the limit
	Quota  int64         // or Keep
	Burst  int64         // buckets: or Keep; 0: as the quota
	Window time.Duration // 0: the plan's
}

// MaxFactor bounds Override.Factor: a thousandfold, in thousandths.
const MaxFactor = 1_000_000

// A SteeringFault is a part of a SteeringSpec that cannot be used with a plan:
// it has no effect, and everything else goes on.
type SteeringFault struct {
	ID  string // of the entry, block or override
	Err error
	// Partial: the rest of the override is in force.
	Partial bool
}

// A Steering is a SteeringSpec compiled for one plan. It is immutable, and costs
// a check the same however much was set.
type Steering struct {
	deny, allow list
	rules       []*steered // by Rule.Index; empty when no rule is steered
}

// steered is what was set of one rule.
type steered struct {
	// rev is the revision at which an override of the rule last began, changed or
	// ended, or the tenant was put on its plan.
	rev    int64
	blocks map[[16]byte]*Block // by partition
	// overrides by their attribute; those of all keys have none.
	overrides []overridesOf
}

// of gives what was set of a rule, or nil.
func (s *Steering) of(r *Rule) *steered {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	return s.rules[r.Index]
}

// CompileSteering makes a SteeringSpec quick to ask for a tenant that was put on
// a plan at a revision. It is nil when nothing is left that could have an
// effect. plan may be nil: then only lists are.
//
// The faults say what has no effect, so that it can be listed as inactive. An
// instant in the past is none: what has ended is told by the clock.
func CompileSteering(spec SteeringSpec, plan *Plan, planRevision int64) (*Steering, []SteeringFault) {
	c := steeringCompiler{plan: plan, planRevision: planRevision, changed: spec.Changed}
	if plan != nil {
		c.rules = make([]*steered, len(plan.Rules))
	}
	s := new(Steering)
	s.deny = c.list(spec.Deny)
	s.allow = c.list(spec.Allow)
	for i := range spec.Blocks {
		c.fault(spec.Blocks[i].ID, c.block(&spec.Blocks[i]))
	}
	c.revisions(spec.Overrides)
	for i := range spec.Overrides {
		c.fault(spec.Overrides[i].ID, c.override(&spec.Overrides[i]))
	}
	if c.prune() {
		s.rules = c.rules
	}
	if s.rules == nil && s.deny == nil && s.allow == nil {
		return nil, c.faults
	}
	return s, c.faults
}

// steeringCompiler is a Steering on its way.
type steeringCompiler struct {
	plan         *Plan
	planRevision int64
	changed      map[string]int64
	rules        []*steered
	faults       []SteeringFault
}

func (c *steeringCompiler) fault(id string, err error) {
	if err != nil {
		c.faults = append(c.faults, SteeringFault{ID: id, Err: err})
	}
}

// rule gives the rule of a policy with what was set of it.
func (c *steeringCompiler) rule(policy string) (*Rule, *steered, error) {
	if c.plan == nil {
		return nil, nil, fmt.Errorf("the tenant has no plan")
	}
	r, ok := c.plan.Rule(policy)
	if !ok {
		return nil, nil, fmt.Errorf("plan %s has no policy %q", c.plan.Slug, policy)
	}
	if c.rules[r.Index] == nil {
		c.rules[r.Index] = &steered{rev: max(c.planRevision, c.changed[policy])}
	}
	return r, c.rules[r.Index], nil
}

// revisions raises the revisions of rules before an override is compiled with them.
func (c *steeringCompiler) revisions(overrides []Override) {
	for policy := range c.changed {
		_, _, _ = c.rule(policy) // of a policy that the plan has no longer: nothing to raise
	}
	for i := range overrides {
		if _, of, err := c.rule(overrides[i].Policy); err == nil {
			of.rev = max(of.rev, overrides[i].Revision)
		}
	}
}

// prune drops what is steered in no way or never in force, and reports whether
// anything is left. A revision alone is left only while some limit of the plan
// is older.
func (c *steeringCompiler) prune() (left bool) {
	for i, of := range c.rules {
		if of == nil {
			continue
		}
		raises := func(l RuleLimit) bool { return max(l.Meter.Rev, c.planRevision) < of.rev }
		for k := range of.overrides {
			of.overrides[k].useful()
		}
		if len(of.blocks) == 0 && len(of.overrides) == 0 && !slices.ContainsFunc(c.plan.Rules[i].Limits, raises) {
			c.rules[i] = nil
			continue
		}
		left = true
	}
	return left
}

// block sorts a block in by the partition of its key.
func (c *steeringCompiler) block(b *Block) error {
	r, ok := (*Rule)(nil), false
	if c.plan != nil {
		r, ok = c.plan.Rule(b.Policy)
	}
	if ok && r.Mode != PolicyEnforce {
		return fmt.Errorf("policy %q refuses nothing: its mode is %s", b.Policy, r.Mode)
	}
	r, of, err := c.rule(b.Policy)
	if err != nil {
		return err
	}
	for _, part := range b.Key {
		if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == part.Name }) {
			return fmt.Errorf("policy %q does not count by %q", b.Policy, part.Name)
		}
	}
	if of.blocks == nil {
		of.blocks = make(map[[16]byte]*Block)
	}
	partition := r.PartitionOf(&Check{Attributes: b.Key})
	if other := of.blocks[partition]; other == nil || other.Until < b.Until {
		of.blocks[partition] = b
	}
	return nil
}
