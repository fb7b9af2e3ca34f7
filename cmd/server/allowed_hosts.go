package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// allowedHosts returns the allowed values of the Host header, in lower case: the values of the
// setting allowed-hosts, and the host of the public URL. If the setting is empty, the result is
// nil, and all hosts are allowed.
func (s *serveSettings) allowedHosts() map[string]bool {
	hosts := map[string]bool{}
	for part := range strings.SplitSeq(s.AllowedHosts, ",") {
		if part = strings.ToLower(strings.TrimSpace(part)); part != "" {
			hosts[strings.Trim(part, "[]")] = true
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	if u, err := url.Parse(s.PublicURL); err == nil && u.Hostname() != "" {
		hosts[strings.ToLower(u.Hostname())] = true
	}
	return hosts
}

func validHosts(text string) error {
	for host := range (&serveSettings{AllowedHosts: text}).allowedHosts() {
		if u, err := url.Parse("//" + host); net.ParseIP(host) == nil && (err != nil || u.Host != host || u.Port() != "") {
			return fmt.Errorf("%q is not a host like limits.example.com or 192.0.2.1", host)
		}
	}
	return nil
}

// checkHost responds with 421 if the Host header is not allowed. This prevents DNS rebinding: a
// page of another site could point its own host name to the address of this node, and then read the
// node's responses.
func checkHost(hosts map[string]bool, next http.Handler) http.Handler {
	if len(hosts) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if hosts[strings.ToLower(strings.Trim(host, "[]"))] || vital(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.Error(w, "this host is not served here", http.StatusMisdirectedRequest)
	})
}
