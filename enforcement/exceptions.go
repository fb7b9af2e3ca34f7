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
// For a tenant without exceptions, Subject.Exceptions is nil, and checks have no extra
// cost.

// An ExceptionSpec is the input of CompileExceptions: all exceptions of a tenant.
// Package exceptions has validated them. Those that do not fit the plan, for example
// because it lacks their policy, become faults.
type ExceptionSpec struct {
	Deny, Allow []ListEntry
	Blocks      []Block
	Overrides   []Override
	// Changed is, by policy slug, the revision at which an override of the policy last
	// began, changed or ended for this tenant. The next charge converts a counter with
	// an older revision to the numbers in force.
	Changed map[string]int64
}

// A ListEntry is an attribute value on the deny list or the allow list of a tenant.
type ListEntry struct {
	ID        string // UUID
	Attribute string // name
	// Value is an exact value of the attribute. For ip, it is an address or a network
	// in canonical form.
	Value  string
	Reason string
	Until  int64 // the end, in microseconds since the epoch, not included; 0: no end
}

// A Block denies all requests with one key of one policy until a time.
type Block struct {
	ID     string // UUID
	Policy string // slug
	// Key has the values of the policy's count_by attributes. An attribute that is not
	// in Key counts as missing. The value of ip is in canonical form.
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
	// Attribute is in count_by of the policy. Value or Prefix selects its values;
	// exactly one of them is set. If Attribute is "", the override applies to all keys.
	// For ip, Prefix is a network in canonical form.
	Attribute, Value, Prefix string
	// Factor multiplies each quota and burst of the policy, in thousandths. The result
	// is rounded down, but at least 1 unless the number is 0. If Factor is 0, Limits
	// has the new numbers.
	Factor int64
	Limits []OverrideLimit
	// Revision is the control-plane revision at which the override began. Among
	// overrides that match equally well, the one with the highest revision applies.
	Revision    int64
	From, Until int64 // in microseconds since the epoch; Until is not included
	Reason      string
}

// Keep is the value of OverrideLimit.Quota or Burst that leaves the number of the plan
// in force.
const Keep int64 = -1

// An OverrideLimit has the numbers that an override sets for one limit of its policy.
type OverrideLimit struct {
	Name   string        // of the limit
	Quota  int64         // or Keep
	Burst  int64         // only for a bucket: the new burst, or Keep; 0 stands for the quota
	Window time.Duration // 0: the plan's
}

// MaxFactor is the largest Override.Factor. It is in thousandths, so it multiplies by
// 1000.
const MaxFactor = 1_000_000

// An ExceptionFault reports an entry, block or override that does not fit the plan, and
// therefore has no effect. All other exceptions are in force.
type ExceptionFault struct {
	ID  string // ID of the entry, block or override
	Err error
	// Partial is set if only one limit of an override does not fit, and its other
	// limits are in force.
	Partial bool
}

// Exceptions has the compiled exceptions of a tenant for one plan. It is immutable. The
// time for a check does not depend on the number of exceptions. The maps of two
// versions share memory, so the cost of Edit does not depend on that number either.
type Exceptions struct {
	plan         *Plan
	planRevision int64
	changed      map[string]int64
	deny, allow  list
	rules        []*ruleExceptions // by Rule.Index; nil if no rule has exceptions
}

// ruleExceptions has the blocks and overrides of one rule.
type ruleExceptions struct {
	// rev is the revision at which an override of the rule last began, changed or
	// ended, or at which the tenant was assigned its plan. It never decreases.
	rev    int64
	blocks cow.Map[[16]byte, group[Block]] // by partition
	// overrides has the overrides by attribute, in sorted order. Overrides of all keys
	// have the attribute "".
	overrides []*overridesOf
	owner     *cow.Owner
}

// of returns the blocks and overrides of a rule, or nil if there are none.
func (s *Exceptions) of(r *Rule) *ruleExceptions {
	if s == nil || len(s.rules) == 0 {
		return nil
	}
	return s.rules[r.Index]
}

// block returns the block of a key, or nil. If there are several, it returns the one
// that ends last.
func (s *ruleExceptions) block(partition [16]byte) *Block {
	if g, found := s.blocks.Get(partition); found {
		return g.first()
	}
	return nil
}

// CompileExceptions compiles the exceptions of a tenant. planRevision is the revision
// at which the tenant was assigned its plan. plan may be nil; then only list entries
// have an effect. It returns nil if no exception can have an effect.
//
// The faults list the exceptions without effect, so that pages can show them as
// inactive. An exception whose end is in the past is not a fault, because the engine
// compares the end with its clock for each check.
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

// ExceptionRows has the entries, blocks and overrides that Edit adds or removes. The
// caller must not change them after the call.
type ExceptionRows struct {
	Deny, Allow []*ListEntry
	Blocks      []*Block
	Overrides   []*Override
}

// NewExceptions returns an Exceptions without any entries, blocks or overrides.
// planRevision is the revision at which the tenant was assigned the plan. plan may be
// nil.
func NewExceptions(plan *Plan, planRevision int64) *Exceptions {
	return &Exceptions{plan: plan, planRevision: planRevision}
}

// For reports whether s was compiled for this plan and plan revision.
func (s *Exceptions) For(plan *Plan, planRevision int64) bool {
	return s != nil && s.plan == plan && s.planRevision == planRevision
}

// Edit returns a copy of s without the removed rows and with the added rows. It returns
// nil if no row can have an effect. s does not change. The cost depends only on the
// number of rows in the edit.
//
// A removed row is identified by its pointer; Edit ignores a pointer that s does not
// have. changed is the complete ExceptionSpec.Changed after the edit. The caller must
// not change it after the call, and its revisions never decrease. The faults are those
// of added rows.
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

// An exceptionsEdit is the new version of an Exceptions while Edit builds it.
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
}

// fault records the reason why an added row has no effect. It ignores errors of removed
// rows.
func (c *exceptionsEdit) fault(id string, remove bool, err error) {
	if err != nil && !remove {
		c.faults = append(c.faults, ExceptionFault{ID: id, Err: err})
	}
}

// rule returns the compiled rule of a policy. It returns an error if the plan does not
// have the policy.
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

// writable returns the exceptions of a rule in a copy that this edit may change.
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

// revisions updates ruleExceptions.rev of all rules that changed. Edit calls it before
// it adds overrides, because a compiled override depends on the revision.
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

// raise sets the revision of a rule's exceptions to a higher revision, if that has an
// effect.
func (c *exceptionsEdit) raise(r *Rule, revision int64) {
	if of := c.rules[r.Index]; of != nil && of.rev >= revision || of == nil && !c.raises(r, revision) {
		return
	}
	of := c.writable(r)
	of.rev = max(of.rev, revision)
}

// raises reports whether a revision is higher than the revision of some limit of the
// rule.
func (c *exceptionsEdit) raises(r *Rule, revision int64) bool {
	return slices.ContainsFunc(r.Limits, func(l RuleLimit) bool { return max(l.Meter.Rev, c.planRevision) < revision })
}

// prune removes the exceptions of rules without blocks and overrides. It keeps the
// revision of such a rule while some limit of the plan has an older revision.
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

// block adds or removes a block. Blocks are stored by the partition of their key.
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
	change(c.by, &c.sorts, &c.writable(r).blocks, r.PartitionOf(&Check{Attributes: b.Key}), b, remove)
	return nil
}

func (b *Block) is(o *Block) bool { return b == o }

// before sorts blocks by their end, the latest first, because only the first one has an
// effect.
func (b *Block) before(o *Block) int {
	return cmp.Or(cmp.Compare(o.Until, b.Until), strings.Compare(b.ID, o.ID))
}

func (b *Block) effective(rows []*Block) []*Block { return rows[:1] }

// beforePolicies decides a check without any policy, if possible: by the tenant's
// status, the deny list, or the allow list, in this order. It returns the reason, or ""
// if none of them decides. A check in mode Force is never denied. The allow list allows
// such a check without a charge, unless the deny list has an entry for it too.
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

// numbers has the limits of a rule that are in force for one check: those of the plan,
// or those of an override.
type numbers struct {
	limits   []RuleLimit
	override *override
	rev      int64 // the least Charge.Rev
	ended    int64 // by how much the revision of charges is lower than rev; see revision
}

// numbers returns the limits of a rule that are in force for a check, with or without
// an override.
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

// revision returns Charge.Rev for limit k. After an override has ended by the clock,
// the snapshot keeps the revision of the override until its next update. Until then,
// charges use a lower revision than the override did. Then a bucket's fraction of a
// unit is dropped, because its denominator belongs to the rate of the override.
func (n *numbers) revision(k int) int64 {
	return max(max(n.limits[k].Meter.Rev, n.rev)-n.ended, 1)
}
