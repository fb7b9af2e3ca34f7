package enforcement

import (
	"fmt"
	"net/netip"
	"strings"
)

// CanonicalIP parses the value of the ip attribute: an address without port and
// zone. It returns the address and its canonical spelling, by which the address is
// counted and matched. An IPv4-mapped IPv6 address becomes IPv4. The error says
// what is wrong with the value.
func CanonicalIP(value string) (netip.Addr, string, error) {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return netip.Addr{}, "", fmt.Errorf("%.64q is not an IP address (an IPv4 or IPv6 address without port, brackets or prefix length)", value)
	}
	if addr.Zone() != "" {
		return netip.Addr{}, "", fmt.Errorf("%.64q has a zone, which has a meaning only on its own host", value)
	}
	addr = addr.Unmap()
	var room [64]byte
	if text := addr.AppendTo(room[:0]); string(text) != value {
		value = string(text)
	}
	return addr, value, nil
}

// addPrefix adds the value of ip/64 for an address: the /64 network of an IPv6
// address, or an IPv4 address itself.
func (p *Partition) addPrefix(addr netip.Addr) {
	var room [64]byte
	text := addr.AppendTo(room[:0])
	if addr.Is6() {
		prefix, _ := addr.Prefix(64) // an error only when longer than the address
		text = prefix.AppendTo(room[:0])
	}
	p.Add(string(text))
}

// ParseNetwork parses a network of the ip attribute: a CIDR, or an address, which
// is a network of one address. It returns the network and its canonical spelling. A
// single address is spelled without a prefix length, and an IPv4-mapped IPv6
// network becomes IPv4. A network with bits set beyond its prefix length is an
// error, because the intended one of the two is unclear. The error says what is
// wrong.
func ParseNetwork(text string) (netip.Prefix, string, error) {
	if !strings.Contains(text, "/") {
		addr, canonical, err := CanonicalIP(text)
		if err != nil {
			return netip.Prefix{}, "", err
		}
		return netip.PrefixFrom(addr, addr.BitLen()), canonical, nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, "", fmt.Errorf("%.64q is not a network (an IPv4 or IPv6 address, / and a prefix length)", text)
	}
	if network.Addr().Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, "", fmt.Errorf("%.64q contains more than the IPv4 addresses: write it as IPv4", text)
		}
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	if masked := network.Masked(); masked != network {
		return netip.Prefix{}, "", fmt.Errorf("%.64q has bits set beyond its prefix length: write %s, or the address alone", text, spell(masked))
	}
	return network, spell(network), nil
}

// spell returns the canonical spelling of a network.
func spell(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}
