package enforcement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cow"
)

// Exceptions are what an operator sets for one tenant beside its plan: list entries,
// blocks and overrides. Checks run in this order; the first match wins:
//
//	deny list       403 denied_by_list
//	allow list      allowed; no charge, no limiter
//	block           429 blocked; for one key of one policy
//	override        other numbers for a policy: first an exact value, then the
//	                longest prefix, then all keys; the newest of equals
//	plan
//
// For a tenant without exceptions, Subject.Exceptions is nil, and a check costs
// nothing more.

// An ExceptionSpec is the source form of a tenant's exceptions. The caller has
// validated it (exceptions.Service). CompileExceptions returns the parts that do
// not fit the plan as faults.
type ExceptionSpec struct {
	Deny, Allow []ListEntry
	Blocks      []Block
	Overrides   []Override
	// Changed has, by policy slug, the revision at which an override of the policy
	// last began, changed or ended for this tenant. Counters with an older revision
	// are converted once.
	Changed map[string]int64
}

// A ListEntry is one value of a deny or an allow list.
type ListEntry struct {
	ID        string // UUID
	Attribute string // name
	// Value is an exact value. For ip, it is an address or a network in canonical form.
	Value  string
	Reason string
	Until  int64 // microseconds since the epoch, excluded; 0: no end
}

// A Block denies one key of one policy until an instant.
type Block struct {
	ID     string // UUID
	Policy string // slug
	// Key has the values of the policy's count_by by attribute name. An attribute that
	// is not in Key counts as missing. The value of ip is canonical.
	Key    []Attribute
	Reason string
	Until  int64 // microseconds since the epoch, excluded
}

// An Override sets other numbers for one policy: for all keys of the tenant, for
// the keys with one value of an attribute, or for the keys with one prefix of it.
type Override struct {
	ID     string // UUID
	Policy string // slug
	// Attribute is one of the policy's count_by, and either Value or Prefix is set.
	// "" selects all keys. For ip, Prefix is a network in canonical form.
	Attribute, Value, Prefix string
	// Factor multiplies each quota and burst. It is in thousandths. The product is
	// rounded down, but a number above 0 stays at least 1. 0 means that Limits has
	// the numbers.
	Factor int64
	Limits []OverrideLimit
	// Revision is the control-plane revision at which the override came into force.
	// The override with the higher revision is newer.
	Revision    int64
	From, Until int64 // microseconds since the epoch; Until is excluded
	Reason      string
}

// Keep as a number of an OverrideLimit keeps the number of the plan.
const Keep int64 = -1

// An OverrideLimit sets other numbers for one limit of the policy.
type OverrideLimit struct {
	Name   string        // of the limit
	Quota  int64         // or Keep
	Burst  int64         // of a bucket; or Keep; 0: the quota
	Window time.Duration // 0: the plan's
}

// MaxFactor is the largest Override.Factor: 1000, in thousandths.
const MaxFactor = 1_000_000

// An ExceptionFault is a part of an ExceptionSpec that does not fit the plan. It has
// no effect. The other parts are in force.
type ExceptionFault struct {
	ID  string // of the entry, block or override
	Err error
	// Partial is set if the other limits of the override are in force.
	Partial bool
}

// Exceptions are the exceptions of a tenant, compiled for one plan. The value is
// immutable. The cost of a check does not depend on the number of exceptions. Rows
// are in maps whose versions share memory, so the cost of Edit does not depend on
// it either.
type Exceptions struct {
	plan         *Plan
	planRevision int64
	changed      map[string]int64
	deny, allow  list
	rules        []*ruleExceptions // by Rule.Index; nil when no rule has exceptions
}

// ruleExceptions are the blocks and overrides of one rule.
type ruleExceptions struct {
	// rev is the revision at which an override of the rule last began, changed or
	// ended, or at which the tenant got its plan. It never decreases.
	rev    int64
	blocks cow.Map[[16]byte, group[Block]] // by partition
	// overrides are sorted by attribute. Overrides of all keys have the attribute "".
	overrides []*overridesOf
	owner     *cow.Owner
}

// of returns the exceptions of a rule, or nil.
func (s *Exceptions) of(r *Rule) *ruleExceptions {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	return s.rules[r.Index]
}

// block returns the block of a key that ends last, or nil.
func (s *ruleExceptions) block(partition [16]byte) *Block {
	if g, found := s.blocks.Get(partition); found {
		return g.first()
	}
	return nil
}

// CompileExceptions compiles the exceptions of a tenant that got a plan at a
// revision. It returns nil if nothing can have an effect. plan may be nil; then only
// lists have an effect.
//
// The faults are the parts without effect, so that they can be displayed as
// inactive. An end in the past is not a fault: the engine compares it with the clock.
func CompileExceptions(spec ExceptionSpec, plan *Plan, planRevision int64) (*Exceptions, []ExceptionFault) {
	var rows ExceptionRows
	for i := range spec.Deny {
		rows.Deny = append(rows.Deny, &spec.Deny[i])
	}
	for i := range spec.Allow {
		rows.Allow = append(rows.Allow, &spec.Allow[i])
	}
	for i := range spec.Blocks {
		rows.Blocks = append(rows.Blocks, &spec.Blocks[i])
	}
	for i := range spec.Overrides {
		rows.Overrides = append(rows.Overrides, &spec.Overrides[i])
	}
	return NewExceptions(plan, planRevision).Edit(ExceptionRows{}, rows, spec.Changed)
}

// ExceptionRows are rows that Edit adds or removes. The caller must not write to the
// rows afterwards.
type ExceptionRows struct {
	Deny, Allow []*ListEntry
	Blocks      []*Block
	Overrides   []*Override
}

// NewExceptions returns an Exceptions without rows, for a tenant that got a plan at a
// revision. plan may be nil.
func NewExceptions(plan *Plan, planRevision int64) *Exceptions {
	return &Exceptions{plan: plan, planRevision: planRevision}
}

// For reports whether s was compiled for a plan that the tenant got at a revision.
func (s *Exceptions) For(plan *Plan, planRevision int64) bool {
	return s != nil && s.plan == plan && s.planRevision == planRevision
}

// Edit returns s without the removed rows and with the added rows. It returns nil if
// nothing can have an effect. s does not change. The cost depends only on the number
// of rows in the edit.
//
// removed has the same pointers that were added; Edit ignores a pointer that s does
// not have. changed is the complete ExceptionSpec.Changed after the edit; the caller
// must not write to it afterwards, and its revisions never decrease. The faults are
// those of added rows.
func (s *Exceptions) Edit(removed, added ExceptionRows, changed map[string]int64) (*Exceptions, []ExceptionFault) {
	next := *s
	next.changed, next.rules = changed, slices.Clone(s.rules)
	c := exceptionsEdit{Exceptions: &next, by: new(cow.Owner)}
	if next.plan != nil && next.rules == nil {
		next.rules = make([]*ruleExceptions, len(next.plan.Rules))
	}
	c.revisions(added.Overrides)
	c.rows(removed, true)
	c.rows(added, false)
	for _, sort := range c.sorts {
		sort()
	}
	c.prune()
	if next.rules == nil && next.deny == nil && next.allow == nil {
		return nil, c.faults
	}
	return &next, c.faults
}

// An exceptionsEdit is an Exceptions during Edit.
type exceptionsEdit struct {
	*Exceptions
	by     *cow.Owner
	sorts  []func() // sort the row groups that changed; called after all rows are added
	faults []ExceptionFault
}

func (c *exceptionsEdit) rows(rows ExceptionRows, remove bool) {
	for _, e := range rows.Deny {
		c.fault(e.ID, remove, c.list(&c.deny, e, remove))
	}
	for _, e := range rows.Allow {
		c.fault(e.ID, remove, c.list(&c.allow, e, remove))
	}
	for _, b := range rows.Blocks {
		c.fault(b.ID, remove, c.block(b, remove))
	}
	for _, o := range rows.Overrides {
		c.fault(o.ID, remove, c.override(o, remove))
	}
}

// fault records why an added row has no effect. Removed rows have no faults.
func (c *exceptionsEdit) fault(id string, remove bool, err error) {
	if err != nil && !remove {
		c.faults = append(c.faults, ExceptionFault{ID: id, Err: err})
	}
}

// rule returns the rule of a policy.
func (c *exceptionsEdit) rule(policy string) (*Rule, error) {
	if c.plan == nil {
		return nil, fmt.Errorf("the tenant has no plan")
	}
	r, ok := c.plan.Rule(policy)
	if !ok {
		return nil, fmt.Errorf("plan %s has no policy %q", c.plan.Slug, policy)
	}
	return r, nil
}

// own returns the exceptions of a rule, copied for writing.
func (c *exceptionsEdit) own(r *Rule) *ruleExceptions {
	of := c.rules[r.Index]
	switch {
	case of == nil:
		of = &ruleExceptions{rev: max(c.planRevision, c.changed[r.Policy])}
	case of.owner != c.by:
		own := *of
		of = &own
	}
	of.owner = c.by
	c.rules[r.Index] = of
	return of
}

// revisions raises the revisions of rules before overrides of them are added.
func (c *exceptionsEdit) revisions(overrides []*Override) {
	for policy, revision := range c.changed {
		if r, err := c.rule(policy); err == nil { // else the plan no longer has the policy
			c.raise(r, revision)
		}
	}
	for _, o := range overrides {
		if r, err := c.rule(o.Policy); err == nil {
			c.raise(r, o.Revision)
		}
	}
}

// raise raises the revision of a rule, unless that has no effect.
func (c *exceptionsEdit) raise(r *Rule, revision int64) {
	if of := c.rules[r.Index]; of != nil && of.rev >= revision || of == nil && !c.raises(r, revision) {
		return
	}
	of := c.own(r)
	of.rev = max(of.rev, revision)
}

// raises reports whether some limit of a rule is older than a revision.
func (c *exceptionsEdit) raises(r *Rule, revision int64) bool {
	return slices.ContainsFunc(r.Limits, func(l RuleLimit) bool { return max(l.Meter.Rev, c.planRevision) < revision })
}

// prune removes the exceptions of rules that have no rows left. A revision without
// rows is kept while some limit of the plan is older.
func (c *exceptionsEdit) prune() {
	c.deny, c.allow = c.deny.prune(), c.allow.prune()
	remaining := false
	for i, of := range c.rules {
		if of != nil && of.owner == c.by {
			of.overrides = slices.DeleteFunc(slices.Clone(of.overrides), (*overridesOf).empty)
			if len(of.overrides) == 0 {
				of.overrides = nil
			}
			if of.overrides == nil && of.blocks.Len() == 0 && !c.raises(c.plan.Rules[i], of.rev) {
				of, c.rules[i] = nil, nil
			}
		}
		remaining = remaining || of != nil
	}
	if !remaining {
		c.rules = nil
	}
}

// block adds or removes a block by the partition of its key.
func (c *exceptionsEdit) block(b *Block, remove bool) error {
	r, err := c.rule(b.Policy)
	if err != nil {
		return err
	}
	if r.Mode != PolicyEnforce {
		return fmt.Errorf("policy %q denies nothing: its mode is %s", b.Policy, r.Mode)
	}
	for _, part := range b.Key {
		if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == part.Name }) {
			return fmt.Errorf("policy %q does not count by %q", b.Policy, part.Name)
		}
	}
	change(c.by, &c.sorts, &c.own(r).blocks, r.PartitionOf(&Check{Attributes: b.Key}), b, remove)
	return nil
}

func (b *Block) is(o *Block) bool { return b == o }

// before sorts blocks: the one that ends last comes first. Only the first one counts.
func (b *Block) before(o *Block) int {
	return cmp.Or(cmp.Compare(o.Until, b.Until), strings.Compare(b.ID, o.ID))
}

func (b *Block) useful(rows []*Block) []*Block { return rows[:1] }

// beforePolicies returns the reason of a check that is decided before any policy:
// by the tenant's status, its deny list, or its allow list, in this order. It
// returns "" if none of them decides. None of them denies a check in mode Force.
// The allow list allows such a check without a charge, unless the deny list has an
// entry for it too.
func (s *Subject) beforePolicies(c *Check, now int64) (reason Reason, entry *ListEntry) {
	forced := c.Mode == Force
	if s.Suspended && !forced {
		return ReasonTenantSuspended, nil
	}
	if s.Exceptions == nil {
		return "", nil
	}
	if entry := s.Exceptions.deny.find(c, now); entry != nil {
		if forced {
			return "", nil
		}
		return ReasonDeniedByList, entry
	}
	if entry := s.Exceptions.allow.find(c, now); entry != nil {
		return ReasonAllowedByList, entry
	}
	return "", nil
}

// numbers are the limits of a rule that are in force for one check: those of the
// plan or of an override.
type numbers struct {
	limits   []RuleLimit
	override *override
	rev      int64 // the least Charge.Rev
	ended    int64 // how much less than rev the charges use; see revision
}

// numbers returns the limits of a rule that are in force for a check.
func (s *Subject) numbers(r *Rule, c *Check, now int64) numbers {
	n := numbers{limits: r.Limits, rev: s.PlanRevision}
	if exceptions := s.Exceptions.of(r); exceptions != nil {
		n.rev = max(n.rev, exceptions.rev)
		if n.override, n.ended = exceptions.choose(c, now); n.override != nil {
			n.limits = n.override.limits
		}
	}
	return n
}

// revision returns Charge.Rev for the limit at position k. When an override has
// ended by the clock and no snapshot has raised the revision yet, the numbers after
// it use a lower revision than the override did. They then read a state without its
// fraction of a unit, which has the denominator of the override's rate.
func (n *numbers) revision(k int) int64 {
	return max(max(n.limits[k].Meter.Rev, n.rev)-n.ended, 1)
}
