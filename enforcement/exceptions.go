package enforcement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cow"
)

// Exceptions change what the plan decides for one tenant. An operator adds them:
// entries of the deny list and the allow list, blocks, and overrides. They apply in
// this order; the first match wins:
//
//	deny list       denies with 403 denied_by_list
//	allow list      allows; nothing is charged, and the limiter is not called
//	block           denies one key of one policy with 429 blocked
//	override        replaces quota, burst or window of a policy: an override of an
//	                exact value is first, then that of the longest prefix, then that of
//	                all keys; among equals, the newest applies
//	plan            decides all other checks
//
// Grants add units to a limit, with the quota of the plan or of an override.
//
// For a tenant without exceptions, Subject.Exceptions is nil, and checks have no extra
// cost.

// An ExceptionSpec is the input of CompileExceptions: all exceptions of a tenant. Package
// exceptions has validated them. An exception that does not fit the plan, for example because the
// plan does not have its policy, becomes a fault.
type ExceptionSpec struct {
	Deny, Allow []ListEntry
	Blocks      []Block
	Overrides   []Override
	Grants      []Grant
	// Changed has, for each policy slug, the revision at which an override of the policy last
	// began, changed or ended for this tenant. If a counter has an older revision, its next charge
	// converts it to the limit in force.
	Changed map[string]int64
}

// A ListEntry is an entry of the deny list or the allow list of a tenant: one attribute value, or a
// network.
type ListEntry struct {
	ID        string // UUID
	Attribute string // name
	// Value is a value of the attribute. For ip, it is an address or a network in canonical form.
	Value  string
	Reason string
	Until  int64 // the end, in microseconds since the epoch, not included; 0: no end
}

// A Block denies all requests with one key of one policy until a time.
type Block struct {
	ID     string // UUID
	Policy string // slug
	// Key has values for the policy's count_by. If an attribute is not in Key, the block applies to
	// requests without it. The value of ip is in canonical form.
	Key    []Attribute
	Reason string
	Until  int64 // the end, in microseconds since the epoch, not included
}

// An Override replaces the quota, burst or window of one policy of a tenant. It applies
// to all keys, to the keys with one value of an attribute, or to the keys whose value
// has a prefix.
type Override struct {
	ID     string // UUID
	Policy string // slug
	// Attribute is an attribute in the policy's count_by, or "". If it is "", the override applies
	// to all keys. Otherwise exactly one of Value and Prefix is set, and the override applies to
	// the keys with this value or prefix. For ip, Prefix is a network in canonical form.
	Attribute, Value, Prefix string
	// Factor multiplies each quota and burst of the policy, in thousandths. The product is rounded
	// down, but is at least 1 unless the value in the plan is 0. If Factor is 0, Limits has the
	// replaced limits.
	Factor int64
	Limits []OverrideLimit
	// Revision is the control-plane revision at which the override began. If two overrides match a
	// check equally well, the one with the higher revision applies.
	Revision    int64
	From, Until int64 // in microseconds since the epoch; Until is not included
	Reason      string
}

// Keep in OverrideLimit.Quota or Burst means that the value of the plan stays in force.
const Keep int64 = -1

// An OverrideLimit has the quota, window and burst that an override sets for one limit of its
// policy.
type OverrideLimit struct {
	Name   string        // of the limit
	Quota  int64         // or Keep
	Burst  int64         // only for a bucket: the new burst, or Keep; 0 stands for the quota
	Window time.Duration // 0: the plan's
}

// MaxFactor is the maximum of Override.Factor. It stands for a factor of 1000.
const MaxFactor = 1_000_000

// An ExceptionFault says why an exception has no effect: it does not fit the plan. All other
// exceptions are in force.
type ExceptionFault struct {
	ID  string // ID of the entry, block or override
	Err error
	// Partial says that only one limit of an override does not fit the plan. Its other limits are
	// in force.
	Partial bool
}

// An Exceptions has the exceptions of a tenant, compiled for one plan. It is immutable. Neither a
// check nor an Edit takes more time if there are more exceptions: the maps of two versions share
// memory.
type Exceptions struct {
	plan         *Plan
	planRevision int64
	changed      map[string]int64
	deny, allow  list
	rules        []*ruleExceptions // by Rule.Index; nil if no rule has exceptions
}

// ruleExceptions has the blocks, overrides and grants of one rule.
type ruleExceptions struct {
	// rev is the latest of several revisions: those at which an override of the rule began, changed or
	// ended, and the one at which the tenant was assigned its plan. rev never decreases.
	rev    int64
	blocks cow.Map[[16]byte, group[Block]] // by partition
	// overrides has the overrides by attribute, sorted. The attribute "" stands for overrides of
	// all keys.
	overrides []*overridesOf
	grants    ruleGrants
	owner     *cow.Owner
}

// of returns the blocks and overrides of a rule. If there are none, it returns nil.
func (s *Exceptions) of(r *Rule) *ruleExceptions {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	return s.rules[r.Index]
}

// block returns the block of a key. If the key has several blocks, it returns the block that ends
// last. If the key has none, it returns nil.
func (s *ruleExceptions) block(partition [16]byte) *Block {
	if g, found := s.blocks.Get(partition); found {
		return g.first()
	}
	return nil
}

// CompileExceptions compiles the exceptions of a tenant. planRevision is the revision at which the
// tenant was assigned its plan. If plan is nil, only list entries have an effect. If no exception
// can have an effect, CompileExceptions returns nil.
//
// The faults are the exceptions without an effect; pages show them as inactive. An exception that
// has ended is not among them, because the engine compares the end with its clock for each check.
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
	for i := range spec.Grants {
		rows.Grants = append(rows.Grants, &spec.Grants[i])
	}
	return NewExceptions(plan, planRevision).Edit(ExceptionRows{}, rows, spec.Changed)
}

// An ExceptionRows has the list entries, blocks, overrides and grants that an Edit adds or removes. The
// caller must not change them after the call of Edit.
type ExceptionRows struct {
	Deny, Allow []*ListEntry
	Blocks      []*Block
	Overrides   []*Override
	Grants      []*Grant
}

// NewExceptions returns an Exceptions without any entries, blocks or overrides.
// planRevision is the revision at which the tenant was assigned the plan. plan may be
// nil.
func NewExceptions(plan *Plan, planRevision int64) *Exceptions {
	return &Exceptions{plan: plan, planRevision: planRevision}
}

// For reports whether s was compiled for this plan and this plan revision.
func (s *Exceptions) For(plan *Plan, planRevision int64) bool {
	return s != nil && s.plan == plan && s.planRevision == planRevision
}

// Edit returns a copy of s with the added rows and without the removed rows. If no row of the copy can
// have an effect, it returns nil. s does not change. The time that Edit takes depends only on the
// number of added and removed rows.
//
// Edit finds a row in removed by its pointer, and ignores rows that s does not have. changed is
// ExceptionSpec.Changed as it is after the edit. Its revisions must never decrease, and the caller must
// not change it after the call. The faults are about added rows only.
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

// An exceptionsEdit is the new version of an Exceptions, which Edit builds.
type exceptionsEdit struct {
	*Exceptions
	by     *cow.Owner
	sorts  []func() // each function sorts a row group that changed; Edit calls them after it has added all rows
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
	for _, g := range rows.Grants {
		c.fault(g.ID, remove, c.grant(g, remove))
	}
}

// fault records err as the reason why an added row has no effect. If remove is true, the row is one
// that Edit removes, and fault ignores err.
func (c *exceptionsEdit) fault(id string, remove bool, err error) {
	if err != nil && !remove {
		c.faults = append(c.faults, ExceptionFault{ID: id, Err: err})
	}
}

// rule returns the compiled rule of a policy. If the plan does not have the policy, it returns an
// error.
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

// writable returns the exceptions of a rule for a change by this edit. It copies them, unless this
// edit has already done so.
func (c *exceptionsEdit) writable(r *Rule) *ruleExceptions {
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

// revisions raises ruleExceptions.rev of all rules of which an override has changed. Edit calls it
// before it adds overrides, because the compiled form of an override depends on rev.
func (c *exceptionsEdit) revisions(overrides []*Override) {
	for policy, revision := range c.changed {
		if r, err := c.rule(policy); err == nil { // an error means that the plan no longer has the policy
			c.raise(r, revision)
		}
	}
	for _, o := range overrides {
		if r, err := c.rule(o.Policy); err == nil {
			c.raise(r, o.Revision)
		}
	}
}

// raise sets the revision of a rule's exceptions. It does so only if the revision is higher than the
// one that is set, or, if the rule has no exceptions, higher than the revision of one of its limits.
func (c *exceptionsEdit) raise(r *Rule, revision int64) {
	if of := c.rules[r.Index]; of != nil && of.rev >= revision || of == nil && !c.raises(r, revision) {
		return
	}
	of := c.writable(r)
	of.rev = max(of.rev, revision)
}

// raises reports whether a revision is higher than the revision of at least one limit of the
// rule.
func (c *exceptionsEdit) raises(r *Rule, revision int64) bool {
	return slices.ContainsFunc(r.Limits, func(l RuleLimit) bool { return max(l.Meter.Rev, c.planRevision) < revision })
}

// prune removes the exceptions of rules that have no blocks, overrides or grants left. It keeps them if
// their revision is higher than the revision of a limit in the plan, because counters may still have to
// be converted.
func (c *exceptionsEdit) prune() {
	c.deny, c.allow = c.deny.prune(), c.allow.prune()
	remaining := false
	for i, of := range c.rules {
		if of != nil && of.owner == c.by {
			of.overrides = slices.DeleteFunc(slices.Clone(of.overrides), (*overridesOf).empty)
			if len(of.overrides) == 0 {
				of.overrides = nil
			}
			if of.overrides == nil && of.blocks.Len() == 0 && of.grants.Len() == 0 && !c.raises(c.plan.Rules[i], of.rev) {
				of, c.rules[i] = nil, nil
			}
		}
		remaining = remaining || of != nil
	}
	if !remaining {
		c.rules = nil
	}
}

// block adds or removes a block. Blocks are stored by the partition of their key.
func (c *exceptionsEdit) block(b *Block, remove bool) error {
	r, err := c.rule(b.Policy)
	if err != nil {
		return err
	}
	if !r.Mode.InForce() {
		return fmt.Errorf("policy %q denies nothing: its mode is %s", b.Policy, r.Mode)
	}
	for _, part := range b.Key {
		if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == part.Name }) {
			return fmt.Errorf("policy %q does not count by %q", b.Policy, part.Name)
		}
	}
	change(c.by, &c.sorts, &c.writable(r).blocks, r.PartitionOf(&Check{Attributes: b.Key}), b, remove)
	return nil
}

func (b *Block) is(o *Block) bool { return b == o }

// before sorts blocks by their end. The block that ends last comes first, and only this block has an
// effect.
func (b *Block) before(o *Block) int {
	return cmp.Or(cmp.Compare(o.Until, b.Until), strings.Compare(b.ID, o.ID))
}

func (b *Block) effective(rows []*Block) []*Block { return rows[:1] }

// beforePolicies decides a check by the status of the tenant, by the deny list, and by the allow list,
// in this order. It returns the reason, or "" if policies decide. It never denies a check in mode
// Force: if the deny list has an entry for such a check, policies decide and charge it. If only the
// allow list has an entry for a check, the check is allowed without a charge.
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

// numbers has the limits of a rule that are in force for one check: the limits of the plan, or
// those of an override.
type numbers struct {
	limits   []RuleLimit
	override *override
	rev      int64 // the least Charge.Rev
	ended    int64 // what revision subtracts from the revision of charges
}

// numbers returns the limits of a rule that are in force for a check: those of an override, or
// those of the plan.
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

// revision returns Charge.Rev for limit k. When an override ends by the clock, the snapshot keeps the
// revision of the override until its next update. Until then, charges use a lower revision than the
// override did. The limiter then drops a bucket's fraction of a unit, because its denominator belongs
// to the rate of the override.
func (n *numbers) revision(k int) int64 {
	return max(max(n.limits[k].Meter.Rev, n.rev)-n.ended, 1)
}
