package main

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxyHeaders are set by proxies. A request with one of them may come from another machine.
var proxyHeaders = append([]string{"Via", "X-Forwarded-Host", "X-Forwarded-Proto"}, forwardingHeaders...)

// localMetrics answers /metrics without a key if metrics-public is auto and the request comes
// from this machine: the node listens on a loopback address, its database is SQLite, no proxy
// sent the request, and the Host header has a loopback name, so that a page of another site
// cannot read the metrics. Otherwise next answers.
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

// isLoopback reports whether a host, with or without a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.IsLoopback() || strings.EqualFold(host, "localhost")
}
