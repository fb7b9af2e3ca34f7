package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// forwardingHeaders are the headers in which proxies send the client's address.
var forwardingHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}

// unknownAddress is the address of a client that a trusted proxy does not name. All of them count as one address. They
// do not count as the proxy, because its own requests would then be limited, and logged, with theirs.
const unknownAddress = "unknown"

// clientAddress returns the function of clientIP as text: the address, or unknownAddress.
func clientAddress(ip func(*http.Request) netip.Addr) func(*http.Request) string {
	return func(r *http.Request) string {
		if at := ip(r); at.IsValid() {
			return at.String()
		}
		if _, ok := forwardedAddress(r.RemoteAddr); !ok {
			return r.RemoteAddr
		}
		return unknownAddress
	}
}

// clientIP returns a function that finds the address of a request's client: the last
// address in X-Forwarded-For outside the trusted networks. The address is not valid if another
// entry follows it. If the connection comes from another
// network, it ignores the header and logs that once, because all clients of an untrusted proxy
// share its address.
func clientIP(trusted string, log *slog.Logger) func(*http.Request) netip.Addr {
	trusts := trustedNetworks(trusted)
	var warned sync.Once
	return func(r *http.Request) netip.Addr {
		at, ok := forwardedAddress(r.RemoteAddr)
		if !ok {
			return netip.Addr{}
		}
		if !trusts(at) {
			for _, name := range forwardingHeaders {
				if r.Header.Get(name) != "" {
					warned.Do(func() {
						log.Warn("a header names the client, and the address that sent it is not trusted: "+
							"if it is a proxy, all its clients count as one address",
							"header", name, "address", at.String(), "setting", settingName("trusted-proxies"))
					})
				}
			}
			return at
		}
		for _, hops := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
			for more := true; more; {
				var hop string
				if hops, hop, more = cutLast(hops); hop == "" { // RFC 9110 section 5.6.1: recipients ignore empty elements
					continue
				}
				before, ok := forwardedAddress(hop)
				if !ok {
					return netip.Addr{}
				}
				if at = before; !trusts(at) {
					return at
				}
			}
		}
		return at
	}
}

// cutLast cuts the last element off a list with commas. It allocates no memory, as it is called for checks.
func cutLast(list string) (before, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.TrimSpace(list[i+1:]), i >= 0
}

// trustedNetworks returns a function that reports whether an address is in the networks of the setting
// trusted-proxies.
func trustedNetworks(trusted string) func(netip.Addr) bool {
	networks, _ := parseNetworks(trusted) // validate has checked the setting
	return func(ip netip.Addr) bool {
		text := ip.As16()
		return slices.ContainsFunc(networks, func(n *net.IPNet) bool { return n.Contains(text[:]) })
	}
}

// trustedProxy returns a function that reports whether a request comes directly from a trusted proxy.
func trustedProxy(trusted string) func(*http.Request) bool {
	trusts := trustedNetworks(trusted)
	return func(r *http.Request) bool {
		at, ok := forwardedAddress(r.RemoteAddr)
		return ok && trusts(at)
	}
}

// forwardedAddress parses an IP address with an optional port. An IPv6 address may be in
// brackets.
func forwardedAddress(text string) (netip.Addr, bool) {
	if strings.Count(text, ":") != 1 && !strings.HasPrefix(text, "[") {
		// There is no port. The error of SplitHostPort would allocate memory.
	} else if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	} else if inner, ok := strings.CutPrefix(text, "["); ok {
		text, _ = strings.CutSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err == nil
}
