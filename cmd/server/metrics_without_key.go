package main

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxyHeaders are headers that proxies set. A request with one of them may come from another
// machine.
var proxyHeaders = append([]string{"Via", "X-Forwarded-Host", "X-Forwarded-Proto"}, forwardingHeaders...)

// localMetrics passes a request for /metrics to metrics, which needs no key, if metrics-public is
// auto and the request comes from this machine. That is the case if the node listens on a loopback
// address, uses SQLite, and the request came through no proxy. The Host header must have a loopback
// name too, so that a page of another site cannot read the metrics. All other requests are passed
// to next.
func (s *serveCommand) localMetrics(metrics, next http.Handler) http.Handler {
	if s.MetricsPublic != metricsAuto || s.MetricsAddr != "" || s.production() || s.listensAt == nil || !isLoopback(s.listensAt.String()) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied := slices.ContainsFunc(proxyHeaders, func(name string) bool { return len(r.Header[name]) > 0 })
		if r.URL.Path != "/metrics" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "" || proxied || !isLoopback(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		metrics.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a host is localhost or a loopback address. The host may have a port.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.IsLoopback() || strings.EqualFold(host, "localhost")
}
