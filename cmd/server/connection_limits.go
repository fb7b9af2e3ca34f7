package main

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/web"
)

const (
	// metricsConnections is the maximum number of connections to the separate listener for
	// /metrics.
	metricsConnections = 32
	// leastFiles is the minimum number of file descriptors that are reserved for databases, the log
	// and metrics. Connections of clients may not use them.
	leastFiles = 64
)

// connectionLimits returns the maximum numbers of client connections of each port. files is the
// maximum number of files that the process may open, or 0 if it is unknown. Each port gets an equal
// part of the files.
func (s *serveSettings) connectionLimits(files int) connlimit.Limits {
	total, ports := s.MaxConnections, 1
	for _, addr := range []string{s.RESPAddr, s.EnvoyAddr} {
		if addr != "" {
			ports++
		}
	}
	if files > 0 {
		total = min(total, max((files-max(leastFiles, files/4))/ports, 16))
	}
	limits := connlimit.Limits{Total: total, Reserve: min(max(total/16, 4), 64), PerAddress: s.MaxPerAddress}
	limits.PerAddress = cmp.Or(limits.PerAddress, total/2)
	return limits
}

// limitConnections returns a listener that accepts the connections of l within connectionLimits.
func (s *serveSettings) limitConnections(l net.Listener, log *slog.Logger) *connlimit.Listener {
	files := openFiles()
	limits := s.connectionLimits(files)
	if limits.Total < s.MaxConnections {
		log.Warn("the process may open too few files for "+settingName("max-connections"), "files", files, "connections", limits.Total)
	}
	return connlimit.Wrap(l, limits, func(status connlimit.Status) {
		log.Warn("the connections are at their limit: idle ones are closed, and further ones are refused",
			"open", status.Open, "limit", status.Limit, "closed", status.Evicted, "refused", status.Refused)
	})
}

// server returns the HTTP server of the API and the dashboard.
func (s *serveSettings) server(l *connlimit.Listener, g *gate, log *slog.Logger) *http1.Server {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		unavailable(w, "the node has as many connections as it may have")
	})
	server := api.Server("", l.Handler(g, refuse, vital), log)
	server.ConnState, server.ConnContext = l.ConnState, l.ConnContext
	if s.H2C {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	return &http1.Server{HTTP: server, Path: api.CheckPath, MaxBody: func(r *http.Request) int64 {
		if api.Serves(r.URL.Path) {
			return api.MaxBody
		}
		return web.MaxPlanForm
	}}
}

// vital reports whether a request may use a reserved connection. Only requests for health and
// metrics may. A connection is from the reserve if all other connections are in use.
func vital(r *http.Request) bool {
	switch r.URL.Path {
	case "/livez", "/healthz", "/readyz", "/metrics":
		return true
	}
	return false
}
