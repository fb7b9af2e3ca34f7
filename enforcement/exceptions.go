package enforcement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cow"
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
// A tenant that has none of them pays nothing: Subject.Exceptions is nil.

// A ExceptionSpec is what people set, in their words. It must have been
// validated (exceptions.Service); CompileExceptions reports what it cannot use.
type ExceptionSpec struct {
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

// A ExceptionFault is a part of a ExceptionSpec that cannot be used with a plan:
// it has no effect, and everything else goes on.
type ExceptionFault struct {
	ID  string // of the entry, block or override
	Err error
	// Partial: the rest of the override is in force.
	Partial bool
}

// A Exceptions is what was set for a tenant, compiled for one plan. It is
// immutable, and costs a check the same however much was set: what is kept by
// value is kept in maps whose versions share memory, so that Edit costs the same,
// too.
type Exceptions struct {
	plan         *Plan
	planRevision int64
	changed      map[string]int64
	deny, allow  list
	rules        []*ruleExceptions // by Rule.Index; nil when no rule has exceptions
}

// ruleExceptions is what was set of one rule.
type ruleExceptions struct {
	// rev is the revision at which an override of the rule last began, changed or
	// ended, or the tenant was put on its plan. It never goes back.
	rev    int64
	blocks cow.Map[[16]byte, group[Block]] // by partition
	// overrides by their attribute, in the order of the names; those of all keys
	// have none.
	overrides []*overridesOf
	owner     *cow.Owner
}

// of gives what was set of a rule, or nil.
func (s *Exceptions) of(r *Rule) *ruleExceptions {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	return s.rules[r.Index]
}

// block returns the block of a key that holds longest, or nil.
func (s *ruleExceptions) block(partition [16]byte) *Block {
	if g, found := s.blocks.Get(partition); found {
		return g.first()
	}
	return nil
}

// CompileExceptions makes a ExceptionSpec quick to ask for a tenant that was put on
// a plan at a revision. It is nil when nothing is left that could have an
// effect. plan may be nil: then only lists are.
//
// The faults say what has no effect, so that it can be listed as inactive. An
// instant in the past is none: what has ended is told by the clock.
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

// ExceptionRows are rows that are added to a Exceptions, or removed from it. The
// rows must not be written afterwards.
type ExceptionRows struct {
	Deny, Allow []*ListEntry
	Blocks      []*Block
	Overrides   []*Override
}

// NewExceptions returns a Exceptions without rows, for a tenant that was put on a
// plan at a revision. plan may be nil.
func NewExceptions(plan *Plan, planRevision int64) *Exceptions {
	return &Exceptions{plan: plan, planRevision: planRevision}
}

// For reports whether s is for a plan that the tenant was put on at a revision.
func (s *Exceptions) For(plan *Plan, planRevision int64) bool {
	return s != nil && s.plan == plan && s.planRevision == planRevision
}

// Edit returns the Exceptions after rows were removed and others added. It is nil
// when nothing is left that could have an effect. s does not change. The cost is
// that of the rows of the edit, however many s has.
//
// removed holds the very pointers that were added; one that s does not have is
// passed over. changed is ExceptionSpec.Changed after the edit, whole, and must
// not be written afterwards; its revisions never go back. The faults are those of
// added rows.
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
	for _, settle := range c.settle {
		settle()
	}
	c.prune()
	if next.rules == nil && next.deny == nil && next.allow == nil {
		return nil, c.faults
	}
	return &next, c.faults
}

// exceptionsEdit is a Exceptions that is being written.
type exceptionsEdit struct {
	*Exceptions
	by     *cow.Owner
	settle []func() // to be called when all rows are in
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

// fault notes why an added row has no effect. One that is removed had none.
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

// own returns what was set of a rule, for writing.
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
		if r, err := c.rule(policy); err == nil { // else of a policy that the plan has no longer
			c.raise(r, revision)
		}
	}
	for _, o := range overrides {
		if r, err := c.rule(o.Policy); err == nil {
			c.raise(r, o.Revision)
		}
	}
}

// raise raises the revision of a rule, unless that is without effect.
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

// prune drops what has no rows left. A revision alone is left only while some
// limit of the plan is older.
func (c *exceptionsEdit) prune() {
	c.deny, c.allow = c.deny.prune(), c.allow.prune()
	left := false
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
		left = left || of != nil
	}
	if !left {
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
		return fmt.Errorf("policy %q refuses nothing: its mode is %s", b.Policy, r.Mode)
	}
	for _, part := range b.Key {
		if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == part.Name }) {
			return fmt.Errorf("policy %q does not count by %q", b.Policy, part.Name)
		}
	}
	change(c.by, &c.settle, &c.own(r).blocks, r.PartitionOf(&Check{Attributes: b.Key}), b, remove)
	return nil
}

func (b *Block) is(o *Block) bool { return b == o }

// before orders blocks: the one that holds longest comes first, and is the only
// one that counts.
func (b *Block) before(o *Block) int {
	return cmp.Or(cmp.Compare(o.Until, b.Until), strings.Compare(b.ID, o.ID))
}

func (b *Block) useful(rows []*Block) []*Block { return rows[:1] }

// before gives the answer to a check that comes before any policy: that of the
// tenant's status, of its deny list, or of its allow list, in this order; ""
// when none speaks. A forced check is stopped by none, but passes by the allow
// list uncharged.
func (s *Subject) before(c *Check, now int64) (why Reason, entry *ListEntry) {
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

// numbers are the limits of a rule as they hold for one check: the plan's, or
// those of an override.
type numbers struct {
	limits   []RuleLimit
	override *override
	rev      int64 // the least revision of their charges
	ended    int64 // how far below it they go
}

// numbers gives the numbers of a rule for a check.
func (s *Subject) numbers(r *Rule, c *Check, now int64) numbers {
	n := numbers{limits: r.Limits, rev: s.PlanRevision}
	if of := s.Exceptions.of(r); of != nil {
		n.apply(of, c, now)
	}
	return n
}

func (n *numbers) apply(of *ruleExceptions, c *Check, now int64) {
	n.rev = max(n.rev, of.rev)
	if n.override, n.ended = of.choose(c, now); n.override != nil {
		n.limits = n.override.limits
	}
}

// revision is that of a charge on the kth limit. While an override has ended by
// the clock and nobody has raised the revision for it, the numbers that follow
// go below its revision: they read its states without their fraction of a unit,
// which was counted in the override's rate, and cannot take it for theirs.
func (n *numbers) revision(k int) int64 {
	return max(max(n.limits[k].Meter.Rev, n.rev)-n.ended, 1)
}
