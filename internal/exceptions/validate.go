package exceptions

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// attributeIP is the only attribute whose values can be written in several forms.
const attributeIP = "ip"

// A NewOverride is the input for a new override.
type NewOverride struct {
	Policy                   string // slug
	Attribute, Value, Prefix string
	Factor                   int64 // in thousandths; if it is 0, Limits contains the limits with other numbers
	Limits                   []enforcement.OverrideLimit
	Reason                   string    // 1 to MaxReason characters
	ExpiresAt                time.Time // if it is zero, the override ends after DefaultLife
}

// validate returns the override that n describes, and adds a fault to f for each invalid field.
func (n NewOverride) validate(f *problem.Fields, t tenantWithPlan, now time.Time) Override {
	o := Override{
		Policy: n.Policy, Attribute: n.Attribute, Value: n.Value, Prefix: n.Prefix,
		Factor: n.Factor, Limits: n.Limits, Reason: n.Reason,
	}
	p, known := t.policy(f, n.Policy)
	if known && len(p.Limits) == 0 {
		f.Add("/policy", "the policy has no limits, so there are no numbers to replace")
	}
	if known {
		scopeFaults(f, p, n.Attribute)
	}
	o.Value, o.Prefix = n.scope(f, known && slices.Contains(p.CountBy, enforcement.IPNetwork))
	n.numberFaults(f, p, known)
	f.Line("/reason", n.Reason, 1, MaxReason)
	o.ExpiresAt = end(f, n.ExpiresAt, now)
	return o
}

// A NewEntry is the input for a new list entry.
type NewEntry struct {
	List      List
	Attribute string // name
	Value     string // if Attribute is ip, an address or a network
	Reason    string // up to MaxReason characters
	ExpiresAt time.Time
}

func (n NewEntry) validate(f *problem.Fields, now time.Time) Entry {
	made := Entry{List: n.List, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason}
	if n.List != Deny && n.List != Allow {
		f.Add("/list", "must be deny or allow")
	}
	if fault := enforcement.AttributeNameFault(n.Attribute); fault != "" {
		f.Add("/attribute", "%s", fault)
	} else if n.Attribute == enforcement.IPNetwork {
		f.Add("/attribute", "must be ip: a whole network is a value of it")
	}
	made.Value = canonicalAt(f, "/value", n.Attribute, n.Value, true)
	f.Line("/reason", n.Reason, 0, MaxReason)
	if !n.ExpiresAt.IsZero() {
		made.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
		switch {
		case !made.ExpiresAt.After(now):
			f.Add("/expires_at", "must be in the future")
		case made.ExpiresAt.Year() > 9999:
			f.Add("/expires_at", "must be before the year 10000")
		}
	}
	return made
}

// A NewBlock is the input for a new block.
type NewBlock struct {
	Policy    string // slug
	Key       map[string]string
	Reason    string    // 1 to MaxReason characters
	ExpiresAt time.Time // if it is zero, the block ends after DefaultLife
}

func (n NewBlock) validate(f *problem.Fields, t tenantWithPlan, now time.Time) Block {
	b := Block{Policy: n.Policy, Reason: n.Reason}
	b.Key = t.key(f, n.Policy, n.Key)
	f.Line("/reason", n.Reason, 1, MaxReason)
	b.ExpiresAt = end(f, n.ExpiresAt, now)
	return b
}

// policy returns the policy with this slug from the tenant's published plan. If there is none,
// it adds a fault to f and returns false.
func (t tenantWithPlan) policy(f *problem.Fields, slug string) (plans.Policy, bool) {
	if t.PlanID == "" {
		f.Add("/policy", "the tenant has no plan, and so no policies")
		return plans.Policy{}, false
	}
	i := slices.IndexFunc(t.policies, func(p plans.Policy) bool { return p.Slug == slug })
	if i < 0 {
		f.Add("/policy", "the tenant's plan has no policy with this slug")
		return plans.Policy{}, false
	}
	return t.policies[i], true
}

// key validates a key of a policy and returns it in canonical form. It adds a fault to f for each
// invalid value. key need not contain all attributes of count_by. The result then stands for
// requests without the missing attributes.
func (t tenantWithPlan) key(f *problem.Fields, policy string, key map[string]string) map[string]string {
	p, known := t.policy(f, policy)
	names := attributes(p)
	canonical := make(map[string]string, len(key))
	for _, name := range slices.Sorted(maps.Keys(key)) {
		at, value := "/key/"+problem.Escape(name), key[name]
		switch {
		case known && len(names) == 0:
			f.Add(at, "the policy counts the whole tenant: its one key has no values")
		case known && !slices.Contains(names, name):
			f.Add(at, "the policy does not count by this; it counts by %s", strings.Join(names, ", "))
		default:
			if name == attributeIP {
				value = within(p, value)
			}
			value = canonicalAt(f, at, name, value, false)
		}
		canonical[name] = value
	}
	return canonical
}

// within returns value, except in one case. If value is an IPv6 /64 network and the policy counts
// by such networks, within returns an address in this network. Rankings of keys show such networks,
// and people copy values from rankings.
func within(p plans.Policy, value string) string {
	if slices.Contains(p.CountBy, enforcement.IPNetwork) {
		if n, err := netip.ParsePrefix(value); err == nil && n.Addr().Is6() && !n.Addr().Is4In6() && n.Bits() == 64 && n == n.Masked() {
			return n.Addr().String()
		}
	}
	return value
}

// attributes returns the names of the attributes by which a policy counts.
func attributes(p plans.Policy) []string {
	var names []string
	for _, entry := range p.CountBy {
		names = append(names, enforcement.CountedAttribute(entry))
	}
	return names
}

// scopeFaults adds a fault to f if the policy does not count by the attribute. With such an
// override, requests with different values would share a counter, but would have different
// limits.
func scopeFaults(f *problem.Fields, p plans.Policy, attribute string) {
	names := attributes(p)
	switch {
	case attribute == "" || slices.Contains(names, attribute):
	case len(names) == 0:
		f.Add("/attribute", "the policy counts the whole tenant: leave attribute out")
	default:
		f.Add("/attribute", "must be one that the policy counts by: %s", strings.Join(names, ", "))
	}
}

// scope validates the value and the prefix of n and returns them in canonical form. by64 says that
// the policy counts IPv6 addresses by their /64 network. If by64 is set, a single IPv6 address or a
// network smaller than /64 is invalid, because it shares its counter with other addresses.
func (n NewOverride) scope(f *problem.Fields, by64 bool) (value, prefix string) {
	value, prefix = n.Value, n.Prefix
	switch {
	case n.Attribute == "":
		const alone = "goes with attribute"
		if value != "" {
			f.Add("/value", alone)
		}
		if prefix != "" {
			f.Add("/prefix", alone)
		}
	case (value == "") == (prefix == ""):
		f.Add("/value", "give either value or prefix")
	case value != "":
		value = canonicalAt(f, "/value", n.Attribute, value, false)
		if by64 && n.Attribute == attributeIP && strings.Contains(value, ":") {
			f.Add("/value", "the policy counts IPv6 addresses by their /64: give the network as prefix")
		}
	default:
		prefix = canonicalAt(f, "/prefix", n.Attribute, prefix, true)
		if p, _, err := enforcement.ParseNetwork(prefix); err == nil && by64 && n.Attribute == attributeIP && p.Addr().Is6() && p.Bits() > 64 {
			f.Add("/prefix", "the policy counts IPv6 addresses by their /64: the network must not be smaller")
		}
	}
	return value, prefix
}

// numberFaults adds a fault to f for each invalid factor or limit of the override. known is
// false if the plan has no such policy. numberFaults then checks only the bounds that hold for
// every policy.
func (n NewOverride) numberFaults(f *problem.Fields, p plans.Policy, known bool) {
	switch {
	case n.Factor == 0 && len(n.Limits) == 0:
		f.Add("/factor", "give either factor or limits")
	case n.Factor != 0 && len(n.Limits) != 0:
		f.Add("/factor", "give either factor or limits, not both")
	case n.Factor != 0:
		factorFaults(f, n.Factor, p)
	case len(n.Limits) > plans.MaxLimits:
		f.Add("/limits", "must be at most %d limits", plans.MaxLimits)
	default:
		for i, l := range n.Limits {
			at := "/limits/" + strconv.Itoa(i)
			if slices.IndexFunc(n.Limits, func(o enforcement.OverrideLimit) bool { return o.Name == l.Name }) < i {
				f.Add(at+"/name", "is named twice")
			}
			limitFaults(f, at, l, p, known)
		}
	}
}

// factorFaults adds a fault to f if the factor is out of range, or if it makes a limit of the
// policy invalid.
func factorFaults(f *problem.Fields, factor int64, p plans.Policy) {
	if factor < 1 || factor > enforcement.MaxFactor {
		f.Add("/factor", "%v", errFactor)
		return
	}
	for _, l := range p.Limits {
		// The products are at most MaxQuota × MaxFactor = 10^18, so they do not overflow.
		l.Quota, l.Burst = l.Quota*factor/1000, l.Burst*factor/1000
		for _, fault := range l.Validate() {
			f.Add("/factor", "is too large for limit %s, whose %s %s", l.Name, fault.Pointer[1:], fault.Message)
		}
	}
}

func limitFaults(f *problem.Fields, at string, l enforcement.OverrideLimit, p plans.Policy, known bool) {
	i := slices.IndexFunc(p.Limits, func(o enforcement.Limit) bool { return o.Name == l.Name })
	var planned enforcement.Limit // the zero Limit if the policy has no such limit
	if i >= 0 {
		planned = p.Limits[i]
	} else if known && len(p.Limits) > 0 {
		f.Add(at+"/name", "the policy has no limit with this name; it has %s", limitNames(p))
	}
	if l.Quota == enforcement.Keep && l.Burst == enforcement.Keep && l.Window == 0 {
		f.Add(at, "must give at least one of quota, burst and window")
	}
	f.AddAll(at, l.Validate(planned))
}

func limitNames(p plans.Policy) string {
	names := make([]string, len(p.Limits))
	for i, l := range p.Limits {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}

// end returns the end of an override or a block. at is the requested end; if it is zero, the end is
// DefaultLife after now. end adds a fault to f if the end is in the past, or later than MaxLife
// after now.
func end(f *problem.Fields, at, now time.Time) time.Time {
	if at.IsZero() {
		return now.Add(DefaultLife)
	}
	at = at.UTC().Truncate(time.Millisecond)
	if latest := now.Add(MaxLife); !at.After(now) || at.After(latest) {
		f.Add("/expires_at", "must be in the future and not after %s", latest.Format(time.RFC3339Nano))
	}
	return at
}

// CanonicalValue validates an attribute value and returns its canonical form, like
// enforcement.CanonicalValue. If networks is true, the value of ip may also be a network. fault
// says what is wrong with the value; "" if it is valid.
func CanonicalValue(attribute, value string, networks bool) (canonical, fault string) {
	if attribute != attributeIP || !networks {
		return enforcement.CanonicalValue(attribute, value)
	}
	_, canonical, err := enforcement.ParseNetwork(value)
	if err != nil {
		return value, err.Error()
	}
	return canonical, ""
}

// canonicalAt returns the canonical form of a value. If the value is invalid, canonicalAt adds
// a fault at pointer to f.
func canonicalAt(f *problem.Fields, pointer, attribute, value string, networks bool) string {
	out, fault := CanonicalValue(attribute, value, networks)
	if fault != "" {
		f.Add(pointer, "%s", fault)
	}
	return out
}
