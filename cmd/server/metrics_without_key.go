package main

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxyHeaders are headers that proxies set. If a request has one of them, its client may be on
// another machine.
var proxyHeaders = append([]string{"Via", "X-Forwarded-Host", "X-Forwarded-Proto"}, forwardingHeaders...)

// localMetrics passes a request for /metrics to the handler metrics, which needs no key, if all of
// these conditions hold: metrics-public is auto, the node uses SQLite and listens on a loopback
// address, the request came through no proxy, and its Host header is a loopback name. The last
// condition prevents a page of another site from reading the metrics. localMetrics passes all other
// requests to next.
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
