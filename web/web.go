package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

//go:embed static
var static embed.FS

// Config of the pages.
type Config struct {
	// Spec is openapi.yaml.
	Spec []byte
	// Version of the binary, shown in the foot of each page.
	Version string
	// PublicURL is the address in the examples and in links, without a slash at
	// the end; default: the address by which the page was asked for.
	PublicURL string
	// People who sign in. Default nil: there are only the pages for everybody.
	People *accounts.People
	// Tenants has the names of tenants; needed with People.
	Tenants *tenants.Service
	// Refusals notes what signed-in people were refused; default: nobody does.
	Refusals *accounts.Refusals
	// Provider signs in by OpenID Connect, under the name ProviderName; its answer
	// comes to /sign-in/oidc/callback. Default nil: with passwords only.
	Provider     Provider
	ProviderName string
	// ClientAddress tells where a request comes from; default: the connection's
	// other end.
	ClientAddress func(*http.Request) string
	// Plans and Exceptions are what pages show and edit; Audit is the log. All are
	// needed with People.
	Plans      *plans.Service
	Exceptions *exceptions.Service
	Audit      audit.Store
	// Analytics has what was counted; Snapshot what is in force on this node, and
	// Decider explains by it.
	Analytics *metrics.Analytics
	Snapshot  func() *snapshot.Snapshot
	Decider   enforcement.Decider
	// Answer is the status and the headers with which the API answers a decision;
	// needed with People.
	Answer func(*enforcement.Decision) (status int, header http.Header)
	// Usage tells what tenants and their keys have left, and resets; needed with
	// People.
	Usage *usage.Service
	// Preview holds drafts against what was counted; Fleet tells what is in force
	// on which node. Needed with People.
	Preview *preview.Service
	Fleet   *nodes.Service
	// Simulate plays one scenario.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
	// Changed makes an edit count on this node at once; default: nothing.
	Changed func(context.Context)
	// Demo is set if the database is one of headgate demo; the pages show a banner.
	Demo bool
	// Process is what there is to know of the process that serves the pages.
	Process Process
	// AuditLines is how many lines a file of the audit log has at most; default
	// 100,000.
	AuditLines int
	// Timeout is how long a page may wait for its answers; default 2 s. Then it is
	// answered "not available". Live streams and downloads have more.
	Timeout time.Duration
	// Stopping ends the live streams when it is done; default: never.
	Stopping context.Context
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Logger hears of pages that failed. Default slog.Default.
	Logger *slog.Logger
}

// Web holds the pages, parsed once.
type Web struct {
	cfg         Config
	reference   views.Reference
	assets      *assets
	crossOrigin *http.CrossOriginProtection
	rows        []row
	readable    map[string]accounts.Action // of each path that can be read
	streams     streams
	turns       turns
	questions   questions
	chain       chain
}

// New reads the specification; an error means that the embedded file is broken,
// or that the public address is none.
func New(cfg Config) (*Web, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context) {}
	}
	if cfg.AuditLines == 0 {
		cfg.AuditLines = 100_000
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	if cfg.Stopping == nil {
		cfg.Stopping = context.Background()
	}
	reference, err := parseReference(cfg.Spec)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	a, err := newAssets(static)
	if err != nil {
		return nil, err
	}
	guard, err := newCrossOrigin(cfg.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public address: %w", err)
	}
	w := &Web{cfg: cfg, reference: reference, assets: a, crossOrigin: guard}
	w.rows = w.routes()
	w.readable = make(map[string]accounts.Action, len(w.rows))
	for _, r := range w.rows {
		if r.method == http.MethodGet {
			w.readable[r.path] = r.action
		}
	}
	return w, nil
}

// Register adds the whole route table of the package, and answers what it has no
// route for: e is its alone.
func (w *Web) Register(e *echo.Echo) {
	e.HTTPErrorHandler = w.fail
	e.Use(compressed())
	for _, r := range w.rows {
		if w.cfg.People == nil && r.kind != open {
			continue
		}
		serve := w.serve(r)
		e.Add(r.method, r.path, serve)
		if r.method == http.MethodGet {
			e.HEAD(r.path, serve)
		}
	}
}

func (w *Web) docs(c echo.Context) error {
	return w.render(c, http.StatusOK, views.ReferencePage(w.page(c, w.reference.Title), w.reference.At(w.origin(c))))
}

func (w *Web) problems(c echo.Context) error {
	return w.render(c, http.StatusOK, views.ProblemsPage(w.page(c, "Problem types"), problem.Catalogue))
}

func (w *Web) problemType(c echo.Context) error {
	t, ok := problem.TypeByName(c.Param("type"))
	if !ok {
		return w.render(c, http.StatusNotFound, views.NotFoundPage(w.page(c, "There is no such page")))
	}
	return w.render(c, http.StatusOK, views.ProblemPage(w.page(c, t.Title), t))
}

func (w *Web) page(c echo.Context, title string) views.Page {
	p := views.Page{
		Title: title, Version: w.cfg.Version, Path: c.Request().URL.Path, Self: c.Request().URL.RequestURI(), Person: w.person(who(c)), Theme: theme(c.Request()),
		Assets: views.Assets{
			Stylesheet: w.assets.url("headgate.css"), Icon: w.assets.url("icon.svg"), Font: w.assets.url("inter-latin-5.3.0.woff2"),
			Htmx: w.assets.url("htmx-2.0.11.min.js"), SSE: w.assets.url("htmx-ext-sse-2.2.4.min.js"),
			UPlot: w.assets.url("uplot-1.6.32.iife.min.js"), Script: w.assets.url("headgate.js"), Chart: w.assets.url("chart.js"),
		},
	}
	if w.cfg.People != nil {
		p.AccountURL = "/account"
	}
	if v := who(c); v.signedIn() && v.user.TenantID == "" {
		p.Demo = w.cfg.Demo
	}
	return p
}

// origin is the address that examples name.
func (w *Web) origin(c echo.Context) string {
	if w.cfg.PublicURL != "" {
		return strings.TrimSuffix(w.cfg.PublicURL, "/")
	}
	scheme := "http"
	if w.https(c.Request()) {
		scheme = "https"
	}
	return scheme + "://" + c.Request().Host
}

// render draws into a buffer first, so that a failing component cannot leave
// half a page behind a 200.
func (w *Web) render(c echo.Context, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(c.Request().Context(), &b); err != nil {
		return fmt.Errorf("render %s: %w", c.Path(), err)
	}
	return c.HTMLBlob(status, b.Bytes())
}
