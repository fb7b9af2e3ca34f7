package enforcement

import (
	"fmt"
	"net/netip"
	"strings"
)

// CanonicalIP parses a value of the ip attribute: an IP address without port and zone.
// It returns the address and its canonical text. Limits and lists compare the canonical
// text. An IPv4-mapped IPv6 address becomes an IPv4 address.
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

// addPrefix adds the value of the count_by entry ip/64 to a partition. For an IPv6 address, that is
// its /64 network. For an IPv4 address, it is the address itself.
func (p *Partition) addPrefix(addr netip.Addr) {
	var room [64]byte
	text := addr.AppendTo(room[:0])
	if addr.Is6() {
		prefix, _ := addr.Prefix(64) // fails only if the prefix is longer than the address
		text = prefix.AppendTo(room[:0])
	}
	p.Add(string(text))
}

// ParseNetwork parses a network: a CIDR, or an address, which stands for the network with only this
// address. It returns the network and its canonical text. The canonical text of a single address
// has no prefix length. An IPv4-mapped IPv6 network becomes an IPv4 network. If bits after the
// prefix are set, ParseNetwork returns an error, because it is unclear whether the address or the
// network is meant.
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

// spell returns the canonical text of a network.
func spell(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}
