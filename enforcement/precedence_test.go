package enforcement_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

var (
	somePrefixes  = []string{"a", "an", "ann", "anna", "b", "\xff"}
	someValues    = []string{"", "a", "an", "ann", "anna", "annabel", "b", "\xff\xff", "Ann"}
	someAddresses = []string{
		"", "192.0.2.9", "192.0.2.200", "::ffff:192.0.2.9", "10.0.0.1", "0.0.0.0",
		"2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::", "::", "::c000:209",
	}
	someNetworks = []string{
		"0.0.0.0/0", "192.0.0.0/16", "192.0.2.0/24", "192.0.2.128/25", "192.0.2.9/32", "::ffff:192.0.2.0/120",
		"::/0", "2001:db8::/32", "2001:db8::/48", "2001:db8::/64", "2001:db8:0:1::/64",
	}
)

// drawHolder draws the keys to which an override applies: all, those with a value, or those
// with a prefix.
func drawHolder(t *rapid.T) (o enforcement.Override) {
	switch rapid.IntRange(0, 4).Draw(t, "for") {
	case 1:
		o.Attribute, o.Value = "user", rapid.SampledFrom(someValues[1:]).Draw(t, "value")
	case 2:
		o.Attribute, o.Prefix = "user", rapid.SampledFrom(somePrefixes).Draw(t, "prefix")
	case 3:
		o.Attribute, o.Value = "ip", rapid.SampledFrom([]string{"192.0.2.9", "::ffff:192.0.2.200", "10.0.0.1/32"}).Draw(t, "address")
	case 4:
		o.Attribute, o.Prefix = "ip", rapid.SampledFrom(someNetworks).Draw(t, "network")
	}
	return o
}

// rank returns how specific an override is for a check: -1 if it does not match, 0 if it
// applies to all keys, otherwise the number of matching bits. An exact value has the highest
// rank.
func rank(o *enforcement.Override, user, ip string) int {
	const exact = 1 << 30
	switch {
	case o.Attribute == "":
		return 0
	case o.Attribute == "user" && user == "":
		return -1
	case o.Attribute == "user" && o.Value != "":
		if o.Value == user {
			return exact
		}
		return -1
	case o.Attribute == "user":
		if strings.HasPrefix(user, o.Prefix) {
			return 1 + 8*len(o.Prefix)
		}
		return -1
	case ip == "":
		return -1
	}
	addr := netip.MustParseAddr(ip).Unmap()
	if o.Value != "" {
		if netip.MustParseAddr(strings.TrimSuffix(o.Value, "/32")).Unmap() == addr {
			return exact
		}
		return -1
	}
	network := netip.MustParsePrefix(strings.Replace(o.Prefix, "::ffff:192.0.2.0/120", "192.0.2.0/24", 1))
	if network.Contains(addr) {
		return 1 + network.Bits()
	}
	return -1
}

// The override that applies is the same that a search through all overrides finds: at every
// time, for every order of creation, and for every end.
func TestOverrideInForce(t *testing.T) {
	t.Parallel()
	plain := subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user", "ip/64"}, Limits: []enforcement.RuleLimit{window(1, 1000)}})
	rapid.Check(t, func(t *rapid.T) {
		var spec enforcement.ExceptionSpec
		for i, revision := range rapid.Permutation([]int64{2, 3, 4, 5, 6, 7, 8, 9}).Draw(t, "revisions") {
			o := drawHolder(t)
			o.ID, o.Policy, o.Revision = fmt.Sprint(i), "p", revision
			o.From, o.Until = start, start+rapid.Int64Range(-1, 4).Draw(t, "until")
			o.Factor = 1000 + revision
			spec.Overrides = append(spec.Overrides, o)
		}
		s := *plain
		var faults []enforcement.ExceptionFault
		if s.Exceptions, faults = enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision); len(faults) > 0 {
			t.Fatal(faults)
		}
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
		for range 10 {
			l.now = start + rapid.Int64Range(-1, 4).Draw(t, "now")
			user, ip := rapid.SampledFrom(someValues).Draw(t, "user"), rapid.SampledFrom(someAddresses).Draw(t, "ip")
			best, want, quota := -1, "", int64(1000)
			newest := int64(0)
			for i := range spec.Overrides {
				o := &spec.Overrides[i]
				if r := rank(o, user, ip); l.now < o.Until && r >= 0 && (r > best || r == best && o.Revision > newest) {
					best, want, newest, quota = r, o.ID, o.Revision, 1000+o.Revision
				}
			}
			check := enforcement.Check{Attributes: attributes("user", user)}
			if ip != "" {
				addr, text, err := enforcement.CanonicalIP(ip)
				if err != nil {
					t.Fatal(err)
				}
				check.IP, check.Attributes = addr, append(check.Attributes, enforcement.Attribute{Name: "ip", Value: text})
			}
			limit, got := decide(e, &s, check).Limits[0], ""
			if limit.Override != nil {
				got = limit.Override.ID
			}
			if got != want || limit.Limit.Quota != quota {
				t.Fatalf("user %q, ip %q: override %q of %d, want %q of %d", user, ip, got, limit.Limit.Quota, want, quota)
			}
		}
	})
}
