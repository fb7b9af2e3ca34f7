package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/admin"
	alertpages "github.com/headgate/headgate/web/alerts"
	decisionpages "github.com/headgate/headgate/web/decisions"
	"github.com/headgate/headgate/web/docs"
	"github.com/headgate/headgate/web/palette"
	planpages "github.com/headgate/headgate/web/plans"
	"github.com/headgate/headgate/web/playground"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/signin"
	tenantpages "github.com/headgate/headgate/web/tenants"
	trafficpages "github.com/headgate/headgate/web/traffic"
)

// newHandler returns the handler that serves the API and the dashboard on one address.
func (n *node) newHandler(ctx context.Context, s *serveCommand, g *gate, log *slog.Logger) (http.Handler, error) {
	headers, err := api.ParseHeaders(s.Headers)
	if err != nil {
		return nil, err
	}
	ip := clientIP(s.TrustedProxies, log)
	cfg := api.Config{
		Snapshot: n.watcher.Current, Decider: n.engine, Reservations: n.engine, Admission: n.admission, Slots: new(admission.Slots),
		Tenants: n.tenants, Plans: n.plans, Audit: n.store, Alerts: n.alerts, Sharing: n.sharing, Once: n.store.Once,
		Changed: n.refresh(log), Simulate: simulateOne, Ready: n.readiness(g),
		Exceptions: n.exceptions, Configuration: n.documents, Preview: n.preview, Nodes: n.fleet,
		Usage: n.usage, Analytics: n.analytics, People: n.people, Refusals: n.refusals,
		Version: version, BootstrapKey: s.BootstrapKey, Headers: headers, PublicURL: s.PublicURL,
		ClientAddress: clientAddress(ip), ClientIP: ip, TrustedProxy: trustedProxy(s.TrustedProxies), Logger: log,
	}
	cfg.Requests = n.requestLimits(s)
	if cfg.VerifyJWT, err = s.verifyJWT(); err != nil {
		return nil, err
	}
	if s.MetricsAddr == "" {
		cfg.Metrics, cfg.MetricsPublic = n.recorder.Handler(), s.MetricsPublic == "true"
	}
	rest := api.New(cfg)
	n.wires.open(rest)
	provider, err := s.provider()
	if err != nil {
		return nil, err
	}
	demoData, err := n.demo.Present(ctx)
	if err != nil {
		return nil, err
	}
	shell, err := web.New(web.Config{
		Version: version, PublicURL: s.PublicURL, People: n.people, Tenants: n.tenants, Plans: n.plans,
		Refusals: n.refusals, Demo: demoData.Present, ClientAddress: cfg.ClientAddress, Changed: n.refresh(log), Slots: cfg.Slots,
		Stopping: ctx, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	documentation, err := docs.Routes(shell, docs.Config{Spec: headgate.SpecOf(version), Guides: headgate.Guides})
	if err != nil {
		return nil, err
	}
	e := newRouter()
	shell.Register(e, documentation,
		signin.Routes(shell, signin.Config{People: n.people, Tenants: n.tenants, Provider: provider, ProviderName: s.OIDCName}),
		trafficpages.Routes(shell, trafficpages.Config{
			Tenants: n.tenants, Exceptions: n.exceptions, Sharing: n.sharing, Filters: n.filters, Analytics: n.analytics, Usage: n.usage,
			Events: n.store, Alerts: n.alerts, Nodes: n.fleet, Snapshot: n.watcher.Current, Embedded: n.limiterKind == nodes.LimiterInProcess,
		}),
		decisionpages.Routes(shell, decisionpages.Config{
			Tenants: n.tenants, Sharing: n.sharing, Filters: n.filters, Analytics: n.analytics,
			Snapshot: n.watcher.Current, Decider: n.engine, Answer: rest.Answer,
		}),
		planpages.Routes(shell, planpages.Config{Plans: n.plans, Preview: n.preview, Nodes: n.fleet, Audit: n.store}),
		playground.Routes(shell, playground.Config{Simulate: simulateOne}),
		palette.Routes(shell, palette.Config{
			People: n.people, Tenants: n.tenants, Plans: n.plans, Filters: n.filters, Sharing: n.sharing, Usage: n.usage,
			Snapshot: n.watcher.Current,
		}),
		tenantpages.Routes(shell, tenantpages.Config{
			Tenants: n.tenants, Plans: n.plans, Filters: n.filters, Exceptions: n.exceptions,
			Analytics: n.analytics, Usage: n.usage, Snapshot: n.watcher.Current,
		}),
		saved.New(shell, n.filters).Routes(),
		alertpages.Routes(shell, alertpages.Config{Alerts: n.alerts}),
		admin.Routes(shell, admin.Config{
			People: n.people, Tenants: n.tenants, Audit: n.store, Sharing: n.sharing, Filters: n.filters,
			Snapshot: n.watcher.Current, Nodes: n.fleet, Analytics: n.analytics, Mail: s.SMTPAddr != "", Process: n.process(s),
		}))
	both := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Serves(r.URL.Path) {
			rest.ServeHTTP(w, r)
			return
		}
		e.ServeHTTP(w, r)
	})
	local := s.localMetrics(n.recorder.Handler(), both)
	return n.tracer.Handler(checkHost(s.allowedHosts(), local), func(r *http.Request) string { return r.Pattern }), nil
}

// newRouter returns a router that sets the pattern of a request to the path of its route, for traces.
func newRouter() *echo.Echo {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Request().Pattern = c.Path()
			return next(c)
		}
	})
	return e
}

// maxRequestCounters is the maximum number of counters for requestLimits. They take about 8 MB.
const maxRequestCounters = 100_000

// requestLimits returns the limits for requests to the API that are not checks. Their counters are
// in this process, so they work without Redis.
func (n *node) requestLimits(s *serveCommand) api.RequestLimits {
	return api.RequestLimits{
		Limiter: inprocess.New(inprocess.Config{MaxCells: maxRequestCounters, TenantCells: maxRequestCounters}),
		PerKey:  int64(s.APIRate), PerAddress: int64(s.APIRatePerAddress), Denied: &n.deniedRequests,
	}
}

// refresh returns a function that loads the latest changes into this node's snapshot. It is called
// after an edit on this node. If it fails, it only logs the error, because the edit is stored and
// the watcher loads it later.
func (n *node) refresh(log *slog.Logger) func(context.Context) {
	return func(ctx context.Context) {
		if err := n.watcher.Refresh(ctx); err != nil {
			log.Warn("the snapshot could not be refreshed after an edit", "error", err)
		}
	}
}

// lossTold is how long GET /readyz shows a warning after Redis has lost counters.
const lossTold = time.Hour

// readiness returns the function that GET /readyz calls. A node without Redis is degraded but still
// ready. If such a node were not ready, one fault of Redis would make the load balancer remove all
// nodes.
func (n *node) readiness(g *gate) func(context.Context) api.Readiness {
	return func(context.Context) api.Readiness {
		status := n.watcher.Status()
		r := api.Readiness{
			Checks: []api.ReadyCheck{
				{Name: "snapshot", OK: status.Loaded},
				{Name: "migrations", OK: true}, // this handler is in use only after wire has migrated the database
				{Name: "draining", OK: !g.draining.Load()},
			},
			Revision: status.Revision,
			Age:      time.Since(status.ConfirmedAt),
		}
		if g.draining.Load() {
			r.Checks[2].Detail = "the node is stopping"
		}
		if status.Err != nil {
			r.Warnings = append(r.Warnings, "the database is away: edits are refused and the last snapshot stays in force")
		}
		if status.Held != nil {
			r.Warnings = append(r.Warnings, "a newer snapshot is held for an operator: "+status.Held.Error())
		}
		if status.Problems > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%d rows cannot be used as stored: plans and tenants keep their last good version, "+
				"anything else is left out; the log names them", status.Problems))
		}
		n.warnOfDatabase(&r)
		n.warnOfRedis(&r)
		n.warnOfDurable(&r)
		return r
	}
}

// warnOfDatabase adds a warning if the database rejects writes, and another one if counts wait too
// long to be written to the database.
func (n *node) warnOfDatabase(r *api.Readiness) {
	if f := n.store.WriteRefusal(); !f.Since.IsZero() {
		r.Warnings = append(r.Warnings,
			"the database has refused writes since "+instant(f.Since)+" ("+f.Answer+"): edits are refused and counts wait")
	}
	if s := n.flusher.Status(); !s.FailingSince.IsZero() {
		r.Warnings = append(r.Warnings, fmt.Sprintf("counts have not been written since %s: %d rows wait, the oldest for %s",
			instant(s.FailingSince), s.WaitingRows, s.Waiting.Truncate(time.Second)))
	}
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (n *node) warnOfRedis(r *api.Readiness) {
	if n.shared == nil {
		return
	}
	status := n.shared.Status()
	if !status.Reachable {
		r.Degraded = true
		text := "Redis has been away since " + instant(status.Since) + ": the policies' on_failure answers"
		if status.Err != nil {
			text += " (" + brief(status.Err) + ")"
		}
		r.Warnings = append(r.Warnings, text)
	}
	if f := status.Refusal; !f.Since.IsZero() {
		r.Degraded = true
		r.Warnings = append(r.Warnings, "Redis has refused writes since "+instant(f.Since)+" ("+f.Answer+"): the policies' on_failure answers")
	}
	if at := status.Loss.At; !at.IsZero() && time.Since(at) < lossTold {
		r.Warnings = append(r.Warnings, "Redis lost counts, noticed at "+instant(at)+": "+status.Loss.String()+
			"; quota of limits that are not durable was handed out again")
	}
	if used, most := status.UsedMemory, status.MaxMemory; most > 0 && used >= most*8/10 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("Redis uses %d%% of its maxmemory: when it is full, it refuses writes", used*100/most))
	}
	for _, k := range n.keys(mostKeysShown) {
		if k.Full || k.Live >= k.Max*8/10 {
			r.Warnings = append(r.Warnings, fmt.Sprintf(
				"tenant %s has about %d of the %d counters in Redis that it may have; above them, new keys share one counter for each limit",
				k.Tenant, k.Live, k.Max))
		}
	}
	if status.Evicts() {
		r.Warnings = append(r.Warnings,
			"Redis may evict counters (maxmemory-policy "+status.MaxMemoryPolicy+"): quota can be forgotten; set noeviction")
	}
	if status.Mismatches > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d decisions of the script differed from the reference: please report this",
			status.Mismatches))
	}
}

// simulateOne plays a scenario for POST /v1/simulate, on the in-process limiter.
func simulateOne(ctx context.Context, scenario []byte) ([]byte, error) {
	return simulation.RunOne(ctx, scenario, simulation.Config{NewLimiter: inProcessLimiter})
}
