package enforcement

import (
	"fmt"
	"net/netip"
)

// CanonicalIP reads the value of the ip attribute: an address without port or
// zone. It gives the address and its one canonical spelling, by which it is
// counted and matched; an IPv4-mapped IPv6 address becomes IPv4. The error says
// what is wrong with the value.
func CanonicalIP(value string) (netip.Addr, string, error) {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return netip.Addr{}, "", fmt.Errorf("%.64q is not an IP address (an IPv4 or IPv6 address without port, brackets or prefix length)", value)
	}
	if addr.Zone() != "" {
		return netip.Addr{}, "", fmt.Errorf("%.64q has a zone, which only its own host understands", value)
	}
	addr = addr.Unmap()
	var room [64]byte
	if text := addr.AppendTo(room[:0]); string(text) != value {
		value = string(text)
	}
	return addr, value, nil
}

// addPrefix adds what ip/64 counts an address by: the /64 of an IPv6 address,
// and IPv4 whole.
func (p *Partition) addPrefix(addr netip.Addr) {
	var room [64]byte
	text := addr.AppendTo(room[:0])
	if addr.Is6() {
		prefix, _ := addr.Prefix(64) // an error only when longer than the address
		text = prefix.AppendTo(room[:0])
	}
	p.Add(string(text))
}
