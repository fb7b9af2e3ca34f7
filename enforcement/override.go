package enforcement

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cow"
	"github.com/headgate/headgate/internal/problem"
)

// An override is a compiled Override. limits are the limits of its rule with the numbers of the
// override.
type override struct {
	*Override
	limits []RuleLimit // in the order of the rule's limits
	shares shares
}

// An overridesOf has the overrides of a rule for one attribute.
type overridesOf struct {
	attribute string // "" for overrides of all keys; exact has them under the value ""
	exact     cow.Map[string, group[override]]
	prefixes  prefixes[string, override]
	networks  prefixes[netip.Prefix, override]
	owner     *cow.Owner
}

func (x *overridesOf) empty() bool { return x.exact.Len()+x.prefixes.by.Len()+x.networks.by.Len() == 0 }

// overridesOf returns the overrides of an attribute, in a copy that this edit may change.
func (s *ruleExceptions) overridesOf(by *cow.Owner, attribute string) *overridesOf {
	at, found := slices.BinarySearchFunc(s.overrides, attribute, func(x *overridesOf, name string) int {
		return strings.Compare(x.attribute, name)
	})
	if !found {
		s.overrides = slices.Insert(slices.Clip(s.overrides), at, &overridesOf{attribute: attribute, owner: by})
	}
	if x := s.overrides[at]; x.owner != by {
		own := *x
		own.owner = by
		s.overrides = slices.Clone(s.overrides)
		s.overrides[at] = &own
	}
	return s.overrides[at]
}

// override adds an override, or removes it. If the override sets a limit that the policy does
// not have, only this part of the override becomes a fault.
func (c *exceptionsEdit) override(o *Override, remove bool) error {
	r, err := c.rule(o.Policy)
	if err != nil {
		return err
	}
	made := &override{Override: o}
	if !remove {
		if made.limits, err = c.overrideLimits(r, o); err != nil {
			return err
		}
	}
	if o.Attribute == "" {
		change(c.by, &c.sorts, &c.writable(r).overridesOf(c.by, "").exact, "", made, remove)
		return nil
	}
	if !slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == o.Attribute }) {
		return fmt.Errorf("policy %q does not count by %q", r.Policy, o.Attribute)
	}
	if o.Attribute == ipAttribute {
		return c.overrideIP(r, made, remove)
	}
	switch {
	case o.Value != "":
		change(c.by, &c.sorts, &c.writable(r).overridesOf(c.by, o.Attribute).exact, o.Value, made, remove)
	case o.Prefix != "":
		changePrefix(c.by, &c.sorts, &c.writable(r).overridesOf(c.by, o.Attribute).prefixes, o.Prefix, len(o.Prefix), made, remove)
	default:
		return fmt.Errorf("it has neither a value nor a prefix of %q", o.Attribute)
	}
	return nil
}

// overrideIP adds or removes an override of an address or a network. If the policy counts by
// ip/64, all addresses of a /64 share one counter. An IPv6 network must then be a /64 or
// larger, so that each counter has only one quota.
func (c *exceptionsEdit) overrideIP(r *Rule, o *override, remove bool) error {
	network, canonical, err := ParseNetwork(cmp.Or(o.Value, o.Prefix))
	if err != nil {
		return err
	}
	// A policy that counts by ip has one counter for each address, even within a /64.
	whole := slices.Contains(r.slots, slot{name: ipAttribute})
	if network.Addr().Is6() && network.Bits() > 64 && !whole {
		return fmt.Errorf("%s is within one /64, and the policy counts by ip/64", canonical)
	}
	if o.Value != "" && !network.IsSingleIP() {
		return fmt.Errorf("%s is a network: it can be a prefix", canonical)
	}
	x := c.writable(r).overridesOf(c.by, ipAttribute)
	if o.Value != "" {
		change(c.by, &c.sorts, &x.exact, canonical, o, remove)
	} else {
		changePrefix(c.by, &c.sorts, &x.networks, network, network.Bits(), o, remove)
	}
	return nil
}

// is reports whether o and p were compiled from the same Override.
func (o *override) is(p *override) bool { return o.Override == p.Override }

// before sorts overrides by revision, the newest first.
func (o *override) before(p *override) int {
	return cmp.Or(cmp.Compare(p.Revision, o.Revision), strings.Compare(o.ID, p.ID))
}

// effective removes overrides that are never in force, because a newer override of the
// same keys ends at the same time or later. rows is sorted, the newest first.
func (o *override) effective(rows []*override) []*override {
	last, list := int64(math.MinInt64), []*override(nil)
	for _, o := range rows {
		if o.Until > last {
			last, list = o.Until, append(list, o)
		}
	}
	return list
}

// overrideLimits returns the limits of a rule with the numbers of an override.
func (c *exceptionsEdit) overrideLimits(r *Rule, o *Override) ([]RuleLimit, error) {
	if o.Factor < 0 || o.Factor > MaxFactor || o.Factor > 0 == (len(o.Limits) > 0) {
		return nil, fmt.Errorf("it has neither a factor from 1 to %d thousandths nor limits", MaxFactor)
	}
	limits, used := slices.Clone(r.Limits), o.Factor > 0
	for i := range limits {
		limits[i].scale(o.Factor)
	}
	for _, n := range o.Limits {
		at := slices.IndexFunc(limits, func(l RuleLimit) bool { return l.Name == n.Name })
		if at < 0 {
			c.faults = append(c.faults, ExceptionFault{ID: o.ID, Err: fmt.Errorf("policy %q has no limit %q", r.Policy, n.Name), Partial: true})
			continue
		}
		used = true
		limits[at].set(n)
	}
	if !used {
		c.faults = slices.DeleteFunc(c.faults, func(f ExceptionFault) bool { return f.ID == o.ID })
		return nil, fmt.Errorf("policy %q has no limit %q", r.Policy, o.Limits[0].Name)
	}
	for i := range limits {
		l := &limits[i]
		l.Meter = c.overrideMeter(l, o)
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("limit %q: %w", l.Name, err)
		}
	}
	return limits, nil
}

// scale multiplies the quota and the burst by a factor in thousandths. The results are
// rounded down, but are at least 1 and at most the bound of a valid limit. A number of
// 0 stays 0. A factor of 0 changes nothing.
func (l *RuleLimit) scale(factor int64) {
	if factor == 0 {
		return
	}
	bound := int64(MaxQuota)
	switch l.Algorithm {
	case SlidingWindowLog:
		bound = MaxLog
	case Concurrency:
		bound = MaxLeases
	}
	l.Quota = scaled(l.Quota, factor, bound)
	l.Burst = scaled(l.Burst, factor, MaxQuota)
}

// Overridden returns the limit with the numbers that an override sets. It returns false if the
// override sets none for this limit.
func (l Limit) Overridden(factor int64, limits []OverrideLimit) (Limit, bool) {
	r := RuleLimit{Limit: l}
	r.scale(factor)
	at := slices.IndexFunc(limits, func(n OverrideLimit) bool { return n.Name == l.Name })
	if at >= 0 {
		r.set(limits[at])
	}
	return r.Limit, factor != 0 || at >= 0
}

// scaled multiplies n by a factor in thousandths. The result is at most bound, and at least 1
// unless n is 0. The product cannot overflow: MaxQuota * MaxFactor is 10^18.
func scaled(n, factor, bound int64) int64 {
	if n == 0 {
		return 0
	}
	return min(max(n*factor/1000, 1), bound)
}

// Validate returns the errors in the numbers that n sets for a limit. planned is the limit in
// the plan. If this limit is not known, planned is the zero Limit, and Validate skips the
// checks that depend on the algorithm. The JSON pointers in the errors are relative to n, for
// example "/quota".
func (n OverrideLimit) Validate(planned Limit) problem.Fields {
	l := RuleLimit{Limit: planned}
	l.set(n)
	if n.Burst != Keep {
		l.Burst = n.Burst // even for a limit without a burst, so that Validate reports an error
	}
	given := map[string]bool{"/quota": n.Quota != Keep, "/burst": n.Burst != Keep, "/window": n.Window != 0}
	return slices.DeleteFunc(l.Limit.Validate(), func(f problem.Field) bool { return !given[f.Pointer] })
}

// set replaces the numbers of a limit with those numbers that n sets.
func (l *RuleLimit) set(n OverrideLimit) {
	if n.Quota != Keep {
		l.Quota = n.Quota
	}
	if n.Burst != Keep && l.Algorithm.Bucket() {
		l.Burst = n.Burst
	}
	if n.Window != 0 {
		l.Window = n.Window
	}
}

// overrideMeter compiles a limit with the numbers of an override. The revision of the meter is
// the revision at which these numbers came into force for the tenant. That is the latest of
// three revisions: that of the override, that of the plan's numbers, and that of the assignment
// of the plan to the tenant.
//
// If the override is the latest of these, the numbers of the plan become former numbers: a
// bucket that was stored with them refills at their rate until the override began. If another
// override of the policy begins or ends later, charges have a later revision than the meter,
// and the former numbers have no effect.
func (c *exceptionsEdit) overrideMeter(l *RuleLimit, o *Override) *Meter {
	plan := l.Meter
	from := max(plan.Rev, c.planRevision)
	m := l.Compile(max(from, o.Revision))
	if o.Revision < from {
		return m
	}
	if plan.Rev >= c.planRevision {
		m.Formers = slices.Clone(plan.Formers)
	}
	m.Formers = append(m.Formers, Former{Numbers: plan.Numbers, Rev: from, Until: o.From})
	return m
}

// Ranks of overrides that match a check; the highest rank applies. Overrides of all
// keys have rankAll. Prefixes are between the two constants, by their length in bits.
// Exact values have rankExact.
const (
	rankAll   = 0
	rankExact = 1 << 20
)

// candidates calls yield with every override that matches a check, including those that
// have ended.
func (s *ruleExceptions) candidates(c *Check, yield func(o *override, rank int)) {
	for _, x := range s.overrides {
		value, ok, rank := "", true, rankAll
		if x.attribute != "" {
			rank = rankExact
			value, ok = c.attribute(x.attribute)
		}
		if !ok {
			continue
		}
		if g, found := x.exact.Get(value); found {
			g.each(func(o *override) { yield(o, rank) })
		}
		for _, n := range x.prefixes.lengths {
			if n.length <= len(value) {
				if g, found := x.prefixes.by.Get(value[:n.length]); found {
					g.each(func(o *override) { yield(o, 1+8*n.length) })
				}
			}
		}
		for _, bits := range x.networks.lengths {
			if g, found := networkAt(&x.networks, c.IP, bits.length); found {
				g.each(func(o *override) { yield(o, 1+bits.length) })
			}
		}
	}
}

// OverridesOf returns the overrides of a rule that apply to a key, in any order. The result
// includes overrides that have ended. It excludes an override if a newer override for the same
// values ends at the same time or later.
func (s *Exceptions) OverridesOf(r *Rule, key []Attribute) []*Override {
	var list []*Override
	if of := s.of(r); of != nil {
		of.candidates(r.checkOf(key), func(o *override, _ int) { list = append(list, o.Override) })
	}
	return list
}

// choose returns the override in force for a check, or nil. An exact value has precedence over
// prefixes, a longer prefix over a shorter one, and a prefix over an override of all keys.
// Among equals, the newest has precedence. ended counts the overrides with precedence over best
// that have ended by the clock, but are still in the snapshot.
func (s *ruleExceptions) choose(c *Check, now int64) (best *override, ended int64) {
	rank, over := -1, false
	before := func(o *override, r int) bool {
		return r > rank || r == rank && o.Revision > best.Revision
	}
	s.candidates(c, func(o *override, r int) {
		if now >= o.Until {
			over = true
		} else if before(o, r) {
			best, rank = o, r
		}
	})
	if over {
		s.candidates(c, func(o *override, r int) {
			if now >= o.Until && before(o, r) {
				ended++
			}
		})
	}
	return best, ended
}
