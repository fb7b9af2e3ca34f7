package api

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
)

// Readiness is how a node is. It is ready when every check is OK.
type Readiness struct {
	Checks []ReadyCheck
	// Degraded: the shared limiter is away, and failure modes answer.
	Degraded bool
	// Revision of the snapshot in force, and how long ago it was last known to
	// be current.
	Revision int64
	Age      time.Duration
	// Warnings for an operator to look at: Redis may evict, a plan that does not
	// compile.
	Warnings []string
}

// A ReadyCheck is one thing that readiness is made of.
type ReadyCheck struct {
	Name   string
	OK     bool
	Detail string // what is wrong
}

// Ready reports whether traffic should come here.
func (r Readiness) Ready() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// ready is the default of Config.Ready.
func (a *API) ready(context.Context) Readiness {
	if a.cfg.Snapshot != nil {
		if s := a.cfg.Snapshot(); s != nil {
			return Readiness{Checks: []ReadyCheck{{Name: "snapshot", OK: true}}, Revision: s.Revision()}
		}
	}
	return Readiness{Checks: []ReadyCheck{{Name: "snapshot", Detail: "none is loaded yet"}}}
}

// alive is GET /livez and /healthz. It looks at no dependency.
func (a *API) alive(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}

type wireReadiness struct {
	Status   string        `json:"status"`
	Degraded bool          `json:"degraded"`
	Checks   []wireCheck   `json:"checks,omitempty"`
	Snapshot *wireSnapshot `json:"snapshot,omitempty"`
	Warnings *[]string     `json:"warnings,omitempty"`
}

type wireCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
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
		for _, check := range r.Checks {
			out.Checks = append(out.Checks, wireCheck(check))
		}
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
		return problem.New(problem.NotFound, "there is nothing at this address")
	}
	a.cfg.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}
