package preview

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
)

// maxOverrides is the maximum number of overrides of one policy and tenant that are read.
const maxOverrides = 100

// overridesOf contains the overrides of one policy of a tenant, each for some of its keys.
type overridesOf struct {
	tenant uint32 // its number
	list   []exceptions.Override
}

// overrides returns the overrides of a policy of a tenant. every is true if there may be an
// override for every key.
func (s *Service) overrides(ctx context.Context, t *tenants.Tenant, policy string) (o overridesOf, every bool, err error) {
	o.tenant = t.Number
	if s.c.Subject != nil {
		if subject, found := s.c.Subject(t.Number); found && subject.Exceptions == nil {
			return o, false, nil
		}
	}
	o.list, err = s.c.Exceptions.Overrides(ctx, t.ID, exceptions.Filter{Policy: policy, Limit: maxOverrides})
	every = len(o.list) == maxOverrides || slices.ContainsFunc(o.list, func(o exceptions.Override) bool { return o.Attribute == "" })
	return o, every, err
}

// The attribute ip, and the entry of count_by that counts IPv6 addresses by their network.
const (
	ipAttribute = "ip"
	ipNetwork   = "ip/64"
)

// apply reports whether one of the overrides may apply to the key k.
func (o overridesOf) apply(k *metrics.TopKey) bool {
	return slices.ContainsFunc(o.list, func(one exceptions.Override) bool { return o.applies(&one, k) })
}

func (o overridesOf) applies(one *exceptions.Override, k *metrics.TopKey) bool {
	at := slices.Index(k.Names, one.Attribute)
	if at < 0 && one.Attribute == ipAttribute {
		at = slices.Index(k.Names, ipNetwork)
	}
	switch {
	case at < 0 || k.Missing[at]:
		return false
	case k.Redacted:
		return one.Value == "" || k.Names[at] == ipNetwork || k.Values[at] == metrics.RedactedValue(o.tenant, one.Policy, one.Value)
	case one.Attribute == ipAttribute:
		a, known := networkOf(k.Values[at])
		b, valid := networkOf(cmp.Or(one.Value, one.Prefix))
		return !known || !valid || a.Overlaps(b)
	case one.Prefix != "":
		return strings.HasPrefix(k.Values[at], one.Prefix)
	}
	return one.Value == k.Values[at]
}

// networkOf returns an address or a network as a network.
func networkOf(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// mostRefused returns an upper bound of the requests that the overridden limits may deny of keys
// that are in no ranking. absent has the requests that such a key can have. lines are the keys of
// the rankings, and unnamed is the number of requests of all other keys.
func (o overridesOf) mostRefused(limits []enforcement.Limit, absent series, lines []*keyLine, unnamed int64) (most int64) {
	for i := range o.list {
		one := &o.list[i]
		own := make([]enforcement.Limit, len(limits))
		for k, l := range limits {
			own[k], _ = l.Overridden(one.Factor, one.Limits)
		}
		n := canRefuse(own, absent)
		switch single := one.Value != "" && len(lines) > 0 && len(lines[0].key.Names) == 1 && lines[0].key.Names[0] == one.Attribute; {
		case n == 0:
		case !single:
			return unnamed // several keys may have this override
		case !slices.ContainsFunc(lines, func(l *keyLine) bool { return o.applies(one, &l.key) }):
			most += n
		}
	}
	return most
}
