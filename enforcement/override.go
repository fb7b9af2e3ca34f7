package enforcement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An override compiled: the limits of its rule with its numbers.
type override struct {
	Override
	limits []RuleLimit // in the order of the rule's
	shares shares
}

// overridesOf are a rule's overrides of one attribute.
type overridesOf struct {
	attribute string // "": of all keys
	all       []*override
	exact     map[string][]*override
	prefixes  map[string][]*override
	lengths   []int // of the prefixes in bytes, longest first
	networks  networks[[]*override]
}

// override sorts an override in. Its limits that the policy does not have are
// faults of their own.
func (c *steeringCompiler) override(o *Override) error {
	r, of, err := c.rule(o.Policy)
	if err != nil {
		return err
	}
	limits, err := c.overrideLimits(r, of.rev, o)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(of.overrides, func(x overridesOf) bool { return x.attribute == o.Attribute })
	if at < 0 {
		x := overridesOf{attribute: o.Attribute}
		if err := x.add(r, &override{Override: *o, limits: limits}); err != nil {
			return err
		}
		of.overrides = append(of.overrides, x)
		return nil
	}
	return of.overrides[at].add(r, &override{Override: *o, limits: limits})
}

// add sorts an override in by what it says of the attribute.
func (x *overridesOf) add(r *Rule, o *override) error {
	if x.attribute == "" {
		x.all = append(x.all, o)
		return nil
	}
	at := slices.IndexFunc(r.slots, func(s slot) bool { return s.name == x.attribute })
	if at < 0 {
		return fmt.Errorf("policy %q does not count by %q", r.Policy, x.attribute)
	}
	if x.attribute == ipAttribute {
		// One that counts by the address itself tells addresses of a /64 apart.
		whole := slices.Contains(r.slots, slot{name: ipAttribute})
		return x.addIP(o, whole)
	}
	switch {
	case o.Value != "":
		put(&x.exact, o.Value, o)
	case o.Prefix != "":
		put(&x.prefixes, o.Prefix, o)
		if at, found := slices.BinarySearchFunc(x.lengths, len(o.Prefix), func(a, b int) int { return b - a }); !found {
			x.lengths = slices.Insert(x.lengths, at, len(o.Prefix))
		}
	default:
		return fmt.Errorf("it has neither a value nor a prefix of %q", x.attribute)
	}
	return nil
}

// addIP sorts in an override of an address or a network. Unless whole addresses
// are counted, IPv6 goes by its /64: half of a counter cannot have other numbers.
func (x *overridesOf) addIP(o *override, whole bool) error {
	network, canonical, err := ParseNetwork(cmp.Or(o.Value, o.Prefix))
	if err != nil {
		return err
	}
	if network.Addr().Is6() && network.Bits() > 64 && !whole {
		return fmt.Errorf("%s is within one /64, and the policy counts by ip/64", canonical)
	}
	if o.Value != "" {
		if !network.IsSingleIP() {
			return fmt.Errorf("%s is a network: it can be a prefix", canonical)
		}
		put(&x.exact, canonical, o)
		return nil
	}
	x.networks.put(network, append(x.networks.get(network), o))
	return nil
}

func put(m *map[string][]*override, key string, o *override) {
	if *m == nil {
		*m = make(map[string][]*override)
	}
	(*m)[key] = append((*m)[key], o)
}

// useful drops what is never in force: while a newer override for the very same
// values lasts as long, no check has an older one's numbers. A check looks
// through what is left, which is one of those that all last equally long.
func (x *overridesOf) useful() {
	x.all = useful(x.all)
	for value, list := range x.exact {
		x.exact[value] = useful(list)
	}
	for prefix, list := range x.prefixes {
		x.prefixes[prefix] = useful(list)
	}
	for network, list := range x.networks.by {
		x.networks.by[network] = useful(list)
	}
}

func useful(list []*override) []*override {
	slices.SortStableFunc(list, func(a, b *override) int { return cmp.Compare(b.Revision, a.Revision) })
	last := int64(math.MinInt64)
	return slices.DeleteFunc(list, func(o *override) bool {
		if o.Until <= last {
			return true
		}
		last = o.Until
		return false
	})
}

// overrideLimits are the limits of a rule with an override's numbers.
func (c *steeringCompiler) overrideLimits(r *Rule, rev int64, o *Override) ([]RuleLimit, error) {
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
			c.faults = append(c.faults, SteeringFault{ID: o.ID, Err: fmt.Errorf("policy %q has no limit %q", r.Policy, n.Name), Partial: true})
			continue
		}
		used = true
		limits[at].set(n)
	}
	if !used {
		c.faults = slices.DeleteFunc(c.faults, func(f SteeringFault) bool { return f.ID == o.ID })
		return nil, fmt.Errorf("policy %q has no limit %q", r.Policy, o.Limits[0].Name)
	}
	for i := range limits {
		l := &limits[i]
		l.Meter = c.overrideMeter(l, rev, o)
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("limit %q: %w", l.Name, err)
		}
		if l.Algorithm == SlidingWindowLog && l.Quota > MaxLog {
			return nil, fmt.Errorf("limit %q: a log holds at most %d", l.Name, MaxLog)
		}
	}
	return limits, nil
}

// scale multiplies quota and burst by thousandths, rounded down; what is at
// least 1 stays so, and what cannot be counted is cut. 0 changes nothing.
func (l *RuleLimit) scale(factor int64) {
	if factor == 0 {
		return
	}
	bound := int64(MaxQuota)
	if l.Algorithm == SlidingWindowLog {
		bound = MaxLog
	}
	l.Quota = scaled(l.Quota, factor, bound)
	l.Burst = scaled(l.Burst, factor, MaxQuota)
}

// scaled does not overflow: MaxQuota * MaxFactor is 10^18.
func scaled(n, factor, bound int64) int64 {
	if n == 0 {
		return 0
	}
	return min(max(n*factor/1000, 1), bound)
}

// set takes over the numbers that are given.
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

// overrideMeter compiles a limit with an override's numbers at the revision at
// which the rule's numbers last changed. If that was by this override, what
// older numbers wrote flows at their rate until the override began.
func (c *steeringCompiler) overrideMeter(l *RuleLimit, rev int64, o *Override) *Meter {
	plan := l.Meter
	rev = max(rev, plan.Rev)
	m := l.Compile(rev)
	if o.Revision != rev {
		return m
	}
	if plan.Rev >= c.planRevision {
		m.Formers = slices.Clone(plan.Formers)
	}
	m.Formers = append(m.Formers, Former{Numbers: plan.Numbers, Rev: max(plan.Rev, c.planRevision), Until: o.From})
	return m
}

// The rank of an override among those that a check meets: all keys, then a
// prefix by its bits, then an exact value.
const (
	rankAll   = 0
	rankExact = 1 << 20
)

// candidates calls yield with every override that a check meets, ended or not.
func (s *steered) candidates(c *Check, yield func(o *override, rank int)) {
	for i := range s.overrides {
		x := &s.overrides[i]
		for _, o := range x.all {
			yield(o, rankAll)
		}
		value, ok := c.attribute(x.attribute)
		if !ok {
			continue
		}
		for _, o := range x.exact[value] {
			yield(o, rankExact)
		}
		for _, n := range x.lengths {
			if n <= len(value) {
				for _, o := range x.prefixes[value[:n]] {
					yield(o, 1+8*n)
				}
			}
		}
		for _, bits := range x.networks.lengths {
			for _, o := range x.networks.at(c.IP, bits) {
				yield(o, 1+bits)
			}
		}
	}
}

// choose gives the override in force for a check, or nil: an exact value goes
// before prefixes, a longer prefix before a shorter, and both before all keys;
// the newest of equals. ended is how many would go before it if they had not
// ended: as long as they are here, nobody has raised the revision for their end.
func (s *steered) choose(c *Check, now int64) (best *override, ended int64) {
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
