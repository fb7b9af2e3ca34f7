package web

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

//go:embed static
var static embed.FS

// Config configures the shell. Each page group has its own Config.
type Config struct {
	// Version is the version of the binary, which each page shows at the bottom.
	Version string
	// PublicURL is the base URL in examples and links, without a slash at the end.
	// The default is the URL of the request.
	PublicURL string
	// People manages users and sessions. If it is nil, the shell serves only public pages: the
	// API reference and the problem types.
	People *accounts.People
	// Tenants finds the tenant that a path names. Plans finds the plan of a tenant. Both are
	// required if People is set.
	Tenants *tenants.Service
	Plans   *plans.Service
	// Refusals records requests for pages that a visitor's role did not permit. If it is nil,
	// such requests are not recorded.
	Refusals *accounts.DeniedAccessLog
	// ClientAddress returns the address of the client of a request. The default is the remote
	// address of the connection.
	ClientAddress func(*http.Request) string
	// Changed loads edits into this node's snapshot. The default does nothing.
	Changed func(context.Context)
	// Demo is set if the database was made by headgate demo. The pages then show a banner.
	Demo bool
	// Timeout bounds the time for handling a page, except downloads and live streams. The default
	// is 2 s.
	Timeout time.Duration
	// Slots bound how many expensive pages are rendered at the same time. The API should have the
	// same Slots. Default: new ones, which only the pages use.
	Slots *admission.Slots
	// Stopping ends when the node stops. The live streams then end too. The default never ends.
	Stopping context.Context
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
	// Logger logs pages that failed. The default is slog.Default.
	Logger *slog.Logger
}

// A Shell registers the page groups and runs their handlers with authentication and
// authorization.
type Shell struct {
	cfg         Config
	assets      *assets
	crossOrigin *http.CrossOriginProtection
	rows        []Route
	readable    map[string]accounts.Action // the action of each path with a GET row
	streams     streams
}

// New returns a shell. It fails if PublicURL is not a URL.
func New(cfg Config) (*Shell, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context) {}
	}
	cfg.Slots = cmp.Or(cfg.Slots, new(admission.Slots))
	cfg.Timeout = cmp.Or(cfg.Timeout, 2*time.Second)
	if cfg.Stopping == nil {
		cfg.Stopping = context.Background()
	}
	a, err := newAssets(static)
	if err != nil {
		return nil, err
	}
	guard, err := newCrossOrigin(cfg.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public address: %w", err)
	}
	return &Shell{cfg: cfg, assets: a, crossOrigin: guard}, nil
}

// Register builds the route table from the shell's own rows and the rows of the page groups,
// and adds it to e. It also sets e's error handler.
func (w *Shell) Register(e *echo.Echo, groups ...[]Route) {
	w.rows = slices.Concat(append(groups, w.ownRoutes())...)
	w.readable = make(map[string]accounts.Action, len(w.rows))
	e.HTTPErrorHandler = w.fail
	e.Use(compressed())
	for _, r := range w.rows {
		serve := w.serve(r)
		e.Add(r.Method, r.Path, serve)
		if r.Method == http.MethodGet {
			w.readable[r.Path] = r.Action
			e.HEAD(r.Path, serve)
		}
	}
}

// Opens reports whether there is a page at the path and the visitor may open it.
func (w *Shell) Opens(v Visitor, path string) bool {
	action, exists := w.readable[path]
	return exists && accounts.Authorize(v.Principal(), action) == nil
}

// CanOpen reports whether the visitor may open the page of a route.
func (w *Shell) CanOpen(c echo.Context, path string) bool { return w.Opens(VisitorOf(c), path) }

// Now returns the current time.
func (w *Shell) Now() time.Time { return w.cfg.Now() }

// Changed loads edits into this node's snapshot, so that the next check uses them.
func (w *Shell) Changed(ctx context.Context) { w.cfg.Changed(ctx) }

// Log returns the logger of the pages.
func (w *Shell) Log() *slog.Logger { return w.cfg.Logger }

// Version returns the version of the binary.
func (w *Shell) Version() string { return w.cfg.Version }

// AssetURL returns the URL of a static file.
func (w *Shell) AssetURL(name string) string { return w.assets.url(name) }

func (w *Shell) Page(c echo.Context, title string) views.Page {
	p := views.Page{
		Title: title, Version: w.cfg.Version, Path: c.Request().URL.Path, Self: c.Request().URL.RequestURI(), Person: w.Person(VisitorOf(c)),
		Theme: theme(c.Request()), Zone: zoneChoice(c, VisitorOf(c)),
		Assets: views.Assets{
			Stylesheet: w.assets.url("headgate.css"), Icon: w.assets.url("icon.svg"), Font: w.assets.url("inter-latin-5.3.0.woff2"),
			Htmx: w.assets.url("htmx-2.0.11.min.js"), SSE: w.assets.url("htmx-ext-sse-2.2.4.min.js"),
			UPlot: w.assets.url("uplot-1.6.32.iife.min.js"), Script: w.assets.url("headgate.js"), Chart: w.assets.url("chart.js"),
			Draft: w.assets.url("draft.js"), Passkey: w.assets.url("passkey.js"),
		},
	}
	if w.cfg.People != nil {
		p.AccountURL = "/account"
	}
	if v := VisitorOf(c); v.SignedIn() && v.User.TenantID == "" {
		p.Demo = w.cfg.Demo
	}
	return p
}

// Origin returns the base URL for the examples on a page.
func (w *Shell) Origin(c echo.Context) string {
	if w.cfg.PublicURL != "" {
		return strings.TrimSuffix(w.cfg.PublicURL, "/")
	}
	scheme := "http"
	if w.HTTPS(c.Request()) {
		scheme = "https"
	}
	return scheme + "://" + c.Request().Host
}

// Render renders a page into a buffer before it writes the status. If a component fails, the
// visitor gets an error page, and not the first part of the page with status 200.
func (w *Shell) Render(c echo.Context, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(c.Request().Context(), &b); err != nil {
		return fmt.Errorf("render %s: %w", c.Path(), err)
	}
	return c.HTMLBlob(status, showDirections(b.Bytes()))
}
