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
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Config contains the services and settings of an API. A field without a stated default is
// required by the operations that use it.
type Config struct {
	// Snapshot returns the current snapshot, or nil before the first one is loaded. Pass
	// Watcher.Current.
	Snapshot func() *snapshot.Snapshot
	// Decider decides checks.
	Decider enforcement.Decider
	// Reservations makes and changes reservations. If it is nil, their operations answer 503.
	Reservations *enforcement.Engine
	// Admission bounds how many checks are decided at the same time. If it is nil, the number
	// is unbounded.
	Admission *admission.Gate
	// Slots bounds how many downloads, previews, and operations on whole configurations run at
	// the same time. Default: slots that only this API uses.
	Slots *admission.Slots
	// Bodies bounds the memory for the bodies of requests. Default: a bound that only this API
	// uses.
	Bodies *admission.Bodies
	// Tenants and Plans are the services behind the management operations.
	Tenants *tenants.Service
	Plans   *plans.Service
	// People manages members of tenants and people of the operator. If it is nil, their
	// operations answer 503.
	People *accounts.People
	// Refusals records requests without permission in the audit log. If it is nil, they are not
	// recorded.
	Refusals *accounts.DeniedAccessLog
	// Exceptions manages overrides, list entries, blocks and grants. If it is nil, their operations
	// answer 503.
	Exceptions *exceptions.Service
	// Configuration exports and applies configurations. If it is nil, its operations answer 503.
	Configuration *configuration.Service
	// Preview compares drafts with recorded counts. If it is nil, its operation answers 503.
	Preview *preview.Service
	// Nodes returns the reports of all nodes. If it is nil, its operation answers 503.
	Nodes *nodes.Service
	// Usage returns remaining quotas and resets counters. If it is nil, its operations answer
	// 503.
	Usage *usage.Service
	// Analytics reads the recorded counts of decisions. If it is nil, its operations answer
	// 503.
	Analytics *metrics.Analytics
	// Audit reads the audit log.
	Audit audit.Store
	// Alerts manages alert rules and channels. If it is nil, the operations on alerts answer 503.
	Alerts *alerts.Service
	// Sharing manages shared links. If it is nil, the operations on shared links answer 503.
	Sharing *sharing.Service
	// Once runs a request that has an Idempotency-Key. id identifies the caller, the operation, and
	// the key; body is the hash of the body. On the first call with this id, Once calls answer and
	// stores the result in the transaction of the edit. On a later call, it does not call answer,
	// and returns the stored result with repeated set. Pass Store.Once. If it is nil, the header
	// has no effect.
	Once func(ctx context.Context, id, body [32]byte, answer func(context.Context) ([]byte, error)) (first []byte, repeated bool, err error)
	// Changed is called after every successful write, before the response is sent. It loads the
	// change into this node's snapshot, so that the next check uses it. It may be nil.
	Changed func(ctx context.Context)
	// Simulate runs one scenario and returns its result as JSON. Pass simulation.RunOne. If it
	// is nil, the operation answers 503.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
	// Ready returns the readiness of the node for GET /readyz. By default the node is ready
	// after it loaded the first snapshot.
	Ready func(ctx context.Context) Readiness
	// Metrics serves GET /metrics. If it is nil, the path answers 404.
	Metrics http.Handler
	// MetricsPublic means that GET /metrics needs no key.
	MetricsPublic bool
	// BootstrapKey is the token of an operator key with every scope. It is valid only while the
	// database has no operator key. "" means that there is none.
	BootstrapKey string
	// Headers selects the rate-limit headers of decisions. See ParseHeaders. The zero value selects
	// no headers.
	Headers Headers
	// PublicURL is the base of the URIs of problem types. If it is empty, the URIs are relative
	// references.
	PublicURL string
	// Version is the version of the program. The served openapi.yaml has it as info.version.
	// Default: the version that is written in openapi.yaml.
	Version string
	// Requests limits the rate of requests that are not checks. Default: no limits.
	Requests RequestLimits
	// ClientAddress returns the client's address, which the audit log records. Default: the address
	// of the connection.
	ClientAddress func(*http.Request) string
	// ClientIP returns the client's IP address. If a key has allowed addresses, a request with this
	// key must come from one of them. If the address is unknown, the result is the zero netip.Addr.
	// Default: the address of the connection.
	ClientIP func(*http.Request) netip.Addr
	// TrustedProxy reports whether a request comes from a proxy whose headers describe the
	// original request. If it is nil, no proxy is trusted.
	TrustedProxy func(*http.Request) bool
	// VerifyJWT verifies a JWT of a client and returns its payload, for attributes of /v1/forward-auth. If VerifyJWT is
	// nil, the API uses the claims of every JWT without verification. If it has no keys to verify with, it returns
	// problem.Unavailable.
	VerifyJWT func(ctx context.Context, token string) (payload []byte, _ error)
	// Timeout bounds the time of a management request and of a simulation. The default is 10 s.
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
	// compressed is echo with compressed answers.
	compressed http.Handler
	requests   *requestLimit // nil: no limit
	bootstrap  *[32]byte     // hash of the bootstrap key
	types      problemTypes
	// checkRoute and checkGate are the route and the authorization of POST /v1/check. ServeHTTP
	// calls the handler of this route directly, because the router takes time.
	checkRoute route
	checkGate  *gate
	// lastOverloadLog is the time of the last log line about checks that were denied because of
	// overload, in Unix nanoseconds. It limits the log to one such line a second.
	lastOverloadLog atomic.Int64
}

// New makes an API.
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
	cfg.Slots, cfg.Bodies = cmp.Or(cfg.Slots, new(admission.Slots)), cmp.Or(cfg.Bodies, new(admission.Bodies))
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
			// ServeHTTP serves POST requests on this path directly. The router answers other
			// methods.
			a.checkRoute, a.checkGate = r, newGate(r.action)
			a.echo.Add(r.method, r.path, func(c echo.Context) error { a.serveCheck(c.Response(), c.Request()); return nil })
			continue
		}
		handler := a.serve(r)
		if r.path == forwardAuthPath {
			below := r
			below.decide, below.query, below.anyQuery = a.forwardAuthBelow, nil, true
			// echo's method Any registers a fixed list of methods. RouteNotFound serves every
			// method, because the path has no other route.
			a.echo.RouteNotFound(r.path, handler)
			a.echo.RouteNotFound(r.path+"/*", a.serve(below))
			continue
		}
		a.echo.Add(r.method, r.path, handler)
		if r.method == http.MethodGet {
			a.echo.Add(http.MethodHead, r.path, handler)
		}
	}
	return a
}

// Serves reports whether the API serves a path. The package web serves all other paths.
func Serves(path string) bool {
	switch path {
	case "/v1", "/healthz", "/livez", "/readyz", "/metrics", "/openapi.yaml", "/openapi.json":
		return true
	}
	return strings.HasPrefix(path, "/v1/")
}

// connectionAddress returns the remote address of a request's connection, without the port.
func connectionAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
