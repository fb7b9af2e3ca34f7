package api

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Config contains the services and settings of an API. An operation that uses a field without a
// stated default requires it.
type Config struct {
	// Snapshot returns the current snapshot, or nil before the first one is loaded. Pass
	// Watcher.Current.
	Snapshot func() *snapshot.Snapshot
	// Decider decides checks.
	Decider enforcement.Decider
	// Admission bounds how many checks are decided at the same time. If it is nil, there is no
	// bound.
	Admission *admission.Gate
	// Slots bound how many downloads, previews, and operations on whole configurations run at the
	// same time. The dashboard should use the same Slots. Default: new ones, which only the API
	// uses.
	Slots *admission.Slots
	// Tenants and Plans are the services behind the management operations.
	Tenants *tenants.Service
	Plans   *plans.Service
	// People manages the members of tenants and the people of the operator. If it is nil, these
	// operations respond with 503.
	People *accounts.People
	// Refusals records denied accesses for the audit log. If it is nil, they are not recorded.
	Refusals *accounts.DeniedAccessLog
	// Exceptions manages overrides, list entries and blocks. If it is nil, these operations respond
	// with 503.
	Exceptions *exceptions.Service
	// Configuration exports and applies configurations. If it is nil, these operations respond with
	// 503.
	Configuration *configuration.Service
	// Preview returns how many requests a draft would have denied. If it is nil, this operation
	// responds with 503.
	Preview *preview.Service
	// Nodes returns the reports of all nodes. If it is nil, this operation responds with 503.
	Nodes *nodes.Service
	// Usage returns remaining quotas and resets counters. If it is nil, these operations respond
	// with 503.
	Usage *usage.Service
	// Analytics returns the recorded counts of decisions. If it is nil, these operations respond
	// with 503.
	Analytics *metrics.Analytics
	// Audit reads the audit log.
	Audit audit.Store
	// Alerts manages alert rules and channels. If it is nil, these operations respond with 503.
	Alerts *alerts.Service
	// Once returns the stored response to a request with an Idempotency-Key. If there is none, it
	// calls answer and stores the result together with the edit of the request. The server passes
	// Store.Once. If it is nil, the header has no effect.
	Once func(ctx context.Context, id, body [32]byte, answer func(context.Context) ([]byte, error)) (first []byte, repeated bool, err error)
	// Changed is called after each successful write, before the response. It loads the change into
	// this node's snapshot, so that the next check uses it. It may be nil.
	Changed func(ctx context.Context)
	// Simulate plays one scenario and returns the result as JSON. The server passes
	// simulation.RunOne. If it is nil, this operation responds with 503.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
	// Ready returns the readiness of the node, for GET /readyz. By default, the node is ready when
	// it has loaded the first snapshot.
	Ready func(ctx context.Context) Readiness
	// Metrics serves GET /metrics. If it is nil, the response is 404.
	Metrics http.Handler
	// MetricsPublic says that GET /metrics needs no key.
	MetricsPublic bool
	// BootstrapKey is the token of a key of the operator with every scope. It is accepted only
	// while the database has no valid operator key. "" means that there is no such token.
	BootstrapKey string
	// Headers says which rate-limit headers responses to checks have. See ParseHeaders. The zero
	// value stands for none.
	Headers Headers
	// PublicURL is the part of the URIs of problem types before the path. If it is empty, the URIs
	// are relative references.
	PublicURL string
	// Version is the version of the program. It replaces info.version in the served openapi.yaml.
	// By default, that stays unchanged.
	Version string
	// Requests limits the number of requests that are not checks. Default: no limits.
	Requests RequestLimits
	// ClientAddress returns the address of the client of a request, for the audit log. By default,
	// it is the address of the connection.
	ClientAddress func(*http.Request) string
	// ClientIP returns the address of the client of a request, which must be in the networks of its
	// API key. It is not valid if the address is unknown. By default, it is the address of the
	// connection.
	ClientIP func(*http.Request) netip.Addr
	// TrustedProxy reports whether a request comes from a proxy whose headers describe the original
	// request. If it is nil, no proxy is trusted.
	TrustedProxy func(*http.Request) bool
	// Timeout is the maximum time of a management request and of a simulation. Default: 10 s.
	Timeout time.Duration
	// Logger logs internal errors. Default: no log.
	Logger *slog.Logger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// An API is the HTTP handler of all paths of openapi.yaml except /docs, which the package web
// serves.
type API struct {
	cfg  Config
	echo *echo.Echo
	// compressed passes requests to echo and compresses the responses.
	compressed http.Handler
	requests   *requestLimit // nil: no limit
	bootstrap  *[32]byte     // hash of the bootstrap key
	types      problemTypes
	// checkRoute and checkGate are the route of POST /v1/check and its authorization. To save time,
	// ServeHTTP calls its handler without the router of echo.
	checkRoute route
	checkGate  *gate
	// lastOverloadLog is the time of the last log line about overload, in Unix nanoseconds. It
	// limits these log lines to one per second.
	lastOverloadLog atomic.Int64
}

// New returns an API.
func New(cfg Config) *API {
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context) {}
	}
	if cfg.ClientAddress == nil {
		cfg.ClientAddress = connectionAddress
	}
	if cfg.ClientIP == nil {
		cfg.ClientIP = connectionIP
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	cfg.Slots = cmp.Or(cfg.Slots, new(admission.Slots))
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &API{cfg: cfg, echo: echo.New(), types: newProblemTypes(cfg.PublicURL)}
	a.compressed, a.requests = compressing(a.echo), newRequestLimit(cfg.Requests)
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
			// ServeHTTP itself serves POST requests for this path. The router only gets requests
			// with other methods.
			a.checkRoute, a.checkGate = r, newGate(r.action)
			a.echo.Add(r.method, r.path, func(c echo.Context) error { a.serveCheck(c.Response(), c.Request()); return nil })
			continue
		}
		handler := a.serve(r)
		if r.path == forwardAuthPath {
			below := r
			below.decide, below.query, below.anyQuery = a.forwardAuthBelow, nil, true
			a.echo.Any(r.path, handler)
			a.echo.Any(r.path+"/*", a.serve(below))
			continue
		}
		a.echo.Add(r.method, r.path, handler)
		if r.method == http.MethodGet {
			a.echo.Add(http.MethodHead, r.path, handler)
		}
	}
	return a
}

// Serves reports whether the API serves a path. Package web serves all other paths.
func Serves(path string) bool {
	switch path {
	case "/v1", "/healthz", "/livez", "/readyz", "/metrics", "/openapi.yaml", "/openapi.json":
		return true
	}
	return strings.HasPrefix(path, "/v1/")
}

// connectionAddress returns the address of the peer of the connection, without the port.
func connectionAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
