package api

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
)

// Readiness is the state of a node that GET /readyz returns. The node is ready if every check in it
// is OK.
type Readiness struct {
	Checks []ReadyCheck
	// Degraded is set if Redis does not answer, so that the failure modes of the policies decide.
	Degraded bool
	// Revision is the revision of the current snapshot. Age is the time since the database last
	// confirmed that no newer revision exists.
	Revision int64
	Age      time.Duration
	// Warnings are problems that the operator should fix, such as a Redis that may evict keys.
	Warnings []string
}

// A ReadyCheck is one condition of readiness. Detail describes the fault if OK is false.
type ReadyCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Ready reports whether the load balancer should send traffic to the node.
func (r Readiness) Ready() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// ready is the default of Config.Ready: the node is ready if it has loaded a snapshot.
func (a *API) ready(context.Context) Readiness {
	if a.cfg.Snapshot != nil {
		if s := a.cfg.Snapshot(); s != nil {
			return Readiness{Checks: []ReadyCheck{{Name: "snapshot", OK: true}}, Revision: s.Revision()}
		}
	}
	return Readiness{Checks: []ReadyCheck{{Name: "snapshot", Detail: "no snapshot is loaded yet"}}}
}

// alive serves GET /livez and /healthz. The response is 200 while the process runs, whatever the
// state of Redis and the database.
func (a *API) alive(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}

type wireReadiness struct {
	Status   string        `json:"status"`
	Degraded bool          `json:"degraded"`
	Checks   []ReadyCheck  `json:"checks,omitempty"`
	Snapshot *wireSnapshot `json:"snapshot,omitempty"`
	Warnings *[]string     `json:"warnings,omitempty"`
}

type wireSnapshot struct {
	Revision int64 `json:"revision"`
	AgeMS    int64 `json:"age_ms"`
}

// readyz is GET /readyz.
func (a *API) readyz(c echo.Context) error {
	query := c.Request().URL.Query()
	verbose := query.Has("verbose")
	switch query.Get("verbose") {
	case "", "1", "true":
	default:
		return malformedAt("verbose", "must be empty, 1 or true")
	}
	r := a.cfg.Ready(c.Request().Context())
	out, status := wireReadiness{Status: "ready", Degraded: r.Degraded}, http.StatusOK
	if !r.Ready() {
		out.Status, status = "not_ready", http.StatusServiceUnavailable
	}
	if verbose {
		out.Checks = r.Checks
		warnings := append([]string{}, r.Warnings...)
		out.Snapshot, out.Warnings = &wireSnapshot{r.Revision, r.Age.Milliseconds()}, &warnings
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	c.Response().Header().Set("Content-Type", "application/json")
	return c.JSON(status, out)
}

// metrics is GET /metrics.
func (a *API) metrics(c echo.Context) error {
	if a.cfg.Metrics == nil {
		return problem.New(problem.NotFound, "this address does not exist")
	}
	a.cfg.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}
