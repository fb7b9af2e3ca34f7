package tenants

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/problem"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"203.0.113.7", "203.0.113.7"},
		{"203.0.113.7/32", "203.0.113.7"},
		{"203.0.113.7/24", "203.0.113.0/24"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"2001:DB8:0::1", "2001:db8::1"},
		{"2001:db8::1/32", "2001:db8::/32"},
		{"::/0", "::/0"},
		{"::ffff:203.0.113.7", "203.0.113.7"},
		{"::ffff:203.0.113.7/120", "203.0.113.0/24"},
		{"::ffff:203.0.113.7/96", "0.0.0.0/0"},
		{"::ffff:203.0.113.7/95", ""},
		{"fe80::1%eth0", ""},
		{"fe80::%eth0/64", ""},
		{"203.0.113.7/33", ""},
		{"203.0.113.7/024", ""},
		{"203.0.113.007", ""},
		{"203.0.113.7:80", ""},
		{"[2001:db8::1]", ""},
		{" 203.0.113.7", ""},
		{"example.com", ""},
		{"", ""},
	} {
		got, err := ParseNetworks([]string{c.text})
		if c.want == "" {
			if problem.Of(err) != problem.Invalid {
				t.Errorf("%q: %v, %v", c.text, got, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Texts(), []string{c.want}) {
			t.Errorf("%q: %v, %v, want %s", c.text, got.Texts(), err, c.want)
		}
	}
}

// Each wrong entry is named by its index.
func TestWrongNetworks(t *testing.T) {
	t.Parallel()
	pointers := func(texts ...string) (list []string) {
		err := NewKey{Name: "k", Scopes: []Scope{ScopeCheck}, AllowedIPs: texts}.Validate(time.Time{})
		if p := (*problem.Problem)(nil); errors.As(err, &p) {
			for _, f := range p.Fields {
				list = append(list, f.Pointer)
			}
		}
		return list
	}
	for _, c := range []struct{ texts, want []string }{
		{nil, nil},
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.300", "10.0.0.4", "x"}, []string{"/allowed_ips/2", "/allowed_ips/4"}},
		{[]string{"10.0.0.1/8", "2001:db8::", "::ffff:10.9.9.9/104"}, []string{"/allowed_ips/2"}},
		{slices.Repeat([]string{"10.0.0.1"}, MaxAllowedIPs+1), []string{"/allowed_ips"}},
	} {
		if got := pointers(c.texts...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.texts, got, c.want)
		}
	}
	if _, err := ParseNetworks([]string{strings.Repeat("x", 1000)}); len(err.Error()) > 300 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

// A range contains the addresses whose leading bits are its own, and no other. An address is the same as its
// IPv4-mapped form, and with a zone. The text of ranges reads as the same ranges.
func TestNetworksContain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		address := func(label string) netip.Addr {
			if rapid.Bool().Draw(t, label+" is IPv4") {
				return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.ByteMax(3), 4, 4).Draw(t, label)))
			}
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.ByteMax(3), 16, 16).Draw(t, label)))
		}
		base, ip := address("base"), address("ip")
		bits := rapid.IntRange(0, base.BitLen()).Draw(t, "bits")
		networks, err := ParseNetworks([]string{netip.PrefixFrom(base, bits).String()})
		if err != nil {
			t.Fatal(err)
		}
		want := base.BitLen() == ip.BitLen()
		for i := range bits {
			want = want && bit(base, i) == bit(ip, i)
		}
		for _, same := range []netip.Addr{ip, netip.AddrFrom16(ip.As16())} {
			if got := networks.Contains(same); got != want {
				t.Fatalf("%v contains %v: %v", networks.Texts(), same, got)
			}
		}
		if ip.Is6() && networks.Contains(ip.WithZone("eth0")) != want {
			t.Fatalf("%v and %v with a zone", networks.Texts(), ip)
		}
		again, err := ParseNetworks(networks.Texts())
		if err != nil || !slices.Equal(again, networks) {
			t.Fatalf("%v read again: %v, %v", networks.Texts(), again.Texts(), err)
		}
		wide := Networks{netip.PrefixFrom(base, max(bits-1, 0)).Masked()}
		if !networks.Within(wide) || !networks.Within(networks) || !networks.Within(nil) || Networks(nil).Within(wide) || bits > 0 && wide.Within(networks) {
			t.Fatalf("%v is within %v", networks.Texts(), wide.Texts())
		}
	})
}

func bit(ip netip.Addr, i int) byte { return ip.AsSlice()[i/8] >> (7 - i%8) & 1 }

// Addresses that are unknown, and entries that cannot be read, match nothing.
func TestNetworksOfNothing(t *testing.T) {
	t.Parallel()
	all, err := ParseNetworks([]string{"0.0.0.0/0", "::/0"})
	if err != nil || all.Contains(netip.Addr{}) {
		t.Errorf("an unknown address: %v", err)
	}
	broken := Networks{netip.Prefix{}}
	if broken.Contains(netip.MustParseAddr("10.0.0.1")) || broken.Contains(netip.Addr{}) {
		t.Error("a broken entry contains an address")
	}
}
