package tenants

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// MaxAllowedIPs is the maximum number of elements of Key.AllowedIPs.
const MaxAllowedIPs = 50

// Networks are ranges of IP addresses. In each range, the bits after the prefix are 0. A range of
// IPv4 addresses is never stored in its IPv6 form. An invalid range contains no address.
type Networks []netip.Prefix

// ParseNetworks parses a list of IP addresses and CIDR ranges. If some elements are invalid, the
// error is problem.Invalid and names each of them by its index, like /2. An empty list stands for
// all addresses, because some generated clients send an empty list for a member that is not set.
func ParseNetworks(texts []string) (Networks, error) {
	var f problem.Fields
	var list Networks
	if len(texts) > MaxAllowedIPs {
		f.Add("", "must have at most %d entries", MaxAllowedIPs)
		return nil, f.Err()
	}
	for i, text := range texts {
		pointer := "/" + strconv.Itoa(i)
		network, err := parseNetwork(text)
		switch {
		case err != nil:
			f.Add(pointer, "%v", err)
		case slices.Contains(list, network):
			f.Add(pointer, "names %s twice", textOf(network))
		}
		list = append(list, network)
	}
	return list, f.Err()
}

// parseNetwork parses an IP address or a CIDR range. For an address, it returns the range that
// contains only this address.
func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "%") { // rejects zones; ParseAddr would read the end of %eth0/64 as a part of the zone
		return netip.Prefix{}, errors.New("must not have a zone")
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%.64q is not an IP address or a CIDR range, such as 203.0.113.7 or 203.0.113.0/24", text)
		}
		prefix = netip.PrefixFrom(ip, ip.BitLen())
	}
	ip, bits := prefix.Addr(), prefix.Bits()
	switch {
	case ip.Is4In6() && bits < 96:
		return netip.Prefix{}, errors.New("covers more than the IPv4 addresses: write an IPv4 range")
	case ip.Is4In6():
		ip, bits = ip.Unmap(), bits-96
	}
	return netip.PrefixFrom(ip, bits).Masked(), nil
}

// Contains reports whether an address is in one of the ranges. It allocates no memory.
func (n Networks) Contains(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, network := range n {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// Within reports whether wide contains every address that n contains. An empty list stands for all
// addresses. Within compares single ranges: if a range of n is covered only by several ranges of
// wide together, it returns false.
func (n Networks) Within(wide Networks) bool {
	if len(wide) == 0 {
		return true
	}
	covered := func(network netip.Prefix) bool {
		return slices.ContainsFunc(wide, func(w netip.Prefix) bool { return w.Bits() <= network.Bits() && w.Contains(network.Addr()) })
	}
	return len(n) > 0 && !slices.ContainsFunc(n, func(network netip.Prefix) bool { return !covered(network) })
}

// Texts returns the ranges as text. A range with only one address becomes this address.
func (n Networks) Texts() []string {
	if len(n) == 0 {
		return nil
	}
	texts := make([]string, len(n))
	for i, network := range n {
		texts[i] = textOf(network)
	}
	return texts
}

func textOf(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}
