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

// forwardingHeaders are the headers in which proxies send the address of the client.
var forwardingHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}

// unknownAddress is the address of a client whose address a trusted proxy did not send. All such
// clients count as one address. They do not count as the address of the proxy, because limits and
// logs would then mix them with the proxy's own requests.
const unknownAddress = "unknown"

// clientAddress returns a function that returns the client's address of a request as text, or
// unknownAddress. ip is the result of clientIP.
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

// clientIP returns a function that returns the client's address of a request. If the connection
// comes from a trusted network, the function reads the header X-Forwarded-For from its end, and
// returns the first address outside the trusted networks. If it meets an element that is not an
// address before that, it returns the zero netip.Addr.
//
// If the connection does not come from a trusted network, the function ignores the header, returns
// the address of the connection, and logs a warning once. The sender may be a proxy that should be
// trusted: otherwise all clients of this proxy have the same address.
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

// cutLast returns the last element of a comma-separated list, and the list before this element.
// more is false if there was only one element. cutLast allocates no memory, because it is called
// for each check.
func cutLast(list string) (before, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	return list[:max(i, 0)], strings.TrimSpace(list[i+1:]), i >= 0
}

// trustedNetworks returns a function that reports whether an address is in one of the networks of
// the setting trusted-proxies.
func trustedNetworks(trusted string) func(netip.Addr) bool {
	networks, _ := parseNetworks(trusted) // validate has checked the setting
	return func(ip netip.Addr) bool {
		text := ip.As16()
		return slices.ContainsFunc(networks, func(n *net.IPNet) bool { return n.Contains(text[:]) })
	}
}

// trustedProxy returns a function that reports whether the connection of a request comes from a
// trusted proxy.
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
		// The text has no port, so SplitHostPort is not called. It would return an error, and
		// allocate memory for the error.
	} else if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	} else if inner, ok := strings.CutPrefix(text, "["); ok {
		text, _ = strings.CutSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err == nil
}
