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

// Config of an API. What has no default must be set for the operations that
// need it; those of the others work without.
type Config struct {
	// Snapshot gives the world in force, nil before the first one: Watcher.Current.
	Snapshot func() *snapshot.Snapshot
	// Decider answers checks.
	Decider enforcement.Decider
	// Admission bounds the checks in service. Default: no bound.
	Admission *admission.Gate
	// Tenants and Plans are the services behind management.
	Tenants *tenants.Service
	Plans   *plans.Service
	// People is the service behind members and people. Default: none, and 503.
	People *accounts.People
	// Refusals notes what keys were refused, for the audit log. Default: nobody does.
	Refusals *accounts.Refusals
	// Exceptions is the service behind overrides, lists and blocks. Default: none, and
	// 503.
	Exceptions *exceptions.Service
	// Usage tells what is left, and resets. Default: none, and 503.
	Usage *usage.Service
	// Analytics answers what was counted. Default: none, and 503.
	Analytics *metrics.Analytics
	// Audit is where the log is read.
	Audit audit.Store
	// Changed is called after every write that succeeded, before it is answered,
	// so that this node's next check knows of it. Default: nothing.
	Changed func(ctx context.Context)
	// Simulate answers one scenario: simulation.RunOne. Default: none, and 503.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
	// Ready tells how the node is. Default: ready once there is a snapshot.
	Ready func(ctx context.Context) Readiness
	// Metrics serves GET /metrics. Default: none, and 404.
	Metrics http.Handler
	// BootstrapKey is an operator key with every scope while no other operator
	// key is valid. Default: none.
	BootstrapKey string
	// Headers are the dialects of decisions: see ParseHeaders. The zero value
	// writes none, so set Draft11 for the default.
	Headers Headers
	// PublicURL is put before the paths of problem types. Default: none, and
	// types are relative references.
	PublicURL string
	// ClientAddress tells where a request comes from, for the audit log.
	// Default: the address of the connection.
	ClientAddress func(*http.Request) string
	// Timeout of management and simulation. Default 10s.
	Timeout time.Duration
	// Logger hears of internal errors. Default: none.
	Logger *slog.Logger
	// Now tells the time. Default time.Now.
	Now func() time.Time
}

// An API answers the paths of openapi.yaml, but /docs, which web serves.
type API struct {
	cfg       Config
	echo      *echo.Echo
	bootstrap *[32]byte // hash of the bootstrap key
	types     problemTypes
	spec      document
	// checkRoute and checkGate are those of POST /v1/check, which is answered
	// without the router.
	checkRoute route
	checkGate  *gate
	turned     atomic.Int64 // when the log last named a tenant whose check was turned away, in ns since the epoch
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
			// ServeHTTP answers this path; the router has it for the other methods on it.
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

// Serves reports whether a path is the API's; the others are web's.
func Serves(path string) bool {
	switch path {
	case "/v1", "/healthz", "/livez", "/readyz", "/metrics", "/openapi.yaml":
		return true
	}
	return strings.HasPrefix(path, "/v1/")
}

// connectionAddress is the host of the connection's other end.
func connectionAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
