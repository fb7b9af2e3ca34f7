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

// unknownAddress stands for the address of a client if a trusted proxy does not send it. All such
// clients count as one address. The address of the proxy is not used for them, because then limits
// and logs would mix them with requests of the proxy itself.
const unknownAddress = "unknown"

// clientAddress returns a function that returns the address of the client of a request as text, or
// unknownAddress.
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

// clientIP returns a function that returns the address of the client of a request. If the
// connection comes from a trusted network, that is the last address in X-Forwarded-For that is not
// in a trusted network. If the header has something else than an address before it is found, the
// result is not valid.
//
// If the connection does not come from a trusted network, the function ignores the header and logs
// that once. Such a log line points to a proxy that should be trusted, because all clients of an
// untrusted proxy have the same address.
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

// cutLast returns the last element of a list with commas, and the list before it. It allocates no
// memory, because it is called for each check.
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
		// The text has no port. SplitHostPort is not called for it, because its error would
		// allocate memory.
	} else if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	} else if inner, ok := strings.CutPrefix(text, "["); ok {
		text, _ = strings.CutSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err == nil
}
