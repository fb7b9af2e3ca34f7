package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Config of an API. An operation needs the fields without a default that it uses.
type Config struct {
	// Snapshot returns the snapshot in force, or nil before the first one: Watcher.Current.
	Snapshot func() *snapshot.Snapshot
	// Decider decides checks.
	Decider enforcement.Decider
	// Admission bounds concurrent checks. Default: no bound.
	Admission *admission.Gate
	// Tenants and Plans are the services behind management.
	Tenants *tenants.Service
	Plans   *plans.Service
	// People is the service behind members and people. Without it, the answer is 503.
	People *accounts.People
	// Refusals records denied accesses in the audit log. Default: no records.
	Refusals *accounts.DeniedAccessLog
	// Exceptions is the service behind overrides, lists and blocks. Without it, the
	// answer is 503.
	Exceptions *exceptions.Service
	// Usage returns remaining quotas and resets counters. Without it, the answer is 503.
	Usage *usage.Service
	// Analytics reads counts. Without it, the answer is 503.
	Analytics *metrics.Analytics
	// Audit reads the audit log.
	Audit audit.Store
	// Changed is called after every successful write, before its answer, so that the
	// next check on this node uses it. Default: nothing.
	Changed func(ctx context.Context)
	// Simulate runs one scenario: simulation.RunOne. Without it, the answer is 503.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
	// Ready returns the state of the node. Default: ready after the first snapshot.
	Ready func(ctx context.Context) Readiness
	// Metrics serves GET /metrics. Without it, the answer is 404.
	Metrics http.Handler
	// MetricsPublic is set if GET /metrics needs no key.
	MetricsPublic bool
	// BootstrapKey is an operator key with every scope. It is valid while no operator key
	// exists. Default: none.
	BootstrapKey string
	// Headers are the header dialects of decisions: see ParseHeaders. The zero value is
	// none.
	Headers Headers
	// PublicURL is the base of the URIs of problem types. Without it, they are relative
	// references.
	PublicURL string
	// ClientAddress returns the address of a client, for the audit log. Default: the
	// address of the connection.
	ClientAddress func(*http.Request) string
	// Timeout bounds management and simulation. Default: 10s.
	Timeout time.Duration
	// Logger logs internal errors. Default: no log.
	Logger *slog.Logger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// An API serves the paths of openapi.yaml except /docs, which web serves.
type API struct {
	cfg       Config
	echo      *echo.Echo
	bootstrap *[32]byte // hash of the bootstrap key
	types     problemTypes
	spec      document
	// checkRoute and checkGate belong to POST /v1/check, which bypasses the router.
	checkRoute route
	checkGate  *gate
	turned     atomic.Int64 // when the log last had a tenant whose check was overloaded, in ns since the epoch
}

// New makes an API.
func New(cfg Config) *API {
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context) {}
	}
	if cfg.ClientAddress == nil {
		cfg.ClientAddress = connectionAddress
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &API{cfg: cfg, echo: echo.New(), types: newProblemTypes(cfg.PublicURL), spec: newDocument()}
	if cfg.Ready == nil {
		a.cfg.Ready = a.ready
	}
	if cfg.BootstrapKey != "" {
		hash := tenants.HashToken(cfg.BootstrapKey)
		a.bootstrap = &hash
	}
	a.echo.HTTPErrorHandler = a.fail
	for _, r := range a.routes() {
		if r.path == CheckPath {
			// ServeHTTP serves this path. The router serves other methods on it.
			a.checkRoute, a.checkGate = r, newGate(r.action)
			a.echo.Add(r.method, r.path, func(c echo.Context) error { a.serveCheck(c.Response(), c.Request()); return nil })
			continue
		}
		handler := a.serve(r)
		a.echo.Add(r.method, r.path, handler)
		if r.method == http.MethodGet {
			a.echo.Add(http.MethodHead, r.path, handler)
		}
	}
	return a
}

// Serves reports whether the API serves a path. web serves the others.
func Serves(path string) bool {
	switch path {
	case "/v1", "/healthz", "/livez", "/readyz", "/metrics", "/openapi.yaml":
		return true
	}
	return strings.HasPrefix(path, "/v1/")
}

// connectionAddress returns the address of the client of a connection.
func connectionAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
