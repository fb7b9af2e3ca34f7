package web

import (
	"bytes"
	"embed"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/problem"
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
	// PublicURL is the address in the examples, without a slash at the end;
	// default: the address by which the page was asked for.
	PublicURL string
	// Logger hears of pages that failed. Default slog.Default.
	Logger *slog.Logger
}

// Web holds the pages, parsed once.
type Web struct {
	cfg       Config
	reference views.Reference
	assets    *assets
}

// New reads the specification; an error means that the embedded file is broken.
func New(cfg Config) (*Web, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	reference, err := parseReference(cfg.Spec)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	a, err := newAssets(static)
	if err != nil {
		return nil, err
	}
	return &Web{cfg: cfg, reference: reference, assets: a}, nil
}

// Register adds the whole route table of the package, and answers what it has no
// route for: e is its alone.
func (w *Web) Register(e *echo.Echo) {
	e.HTTPErrorHandler = w.fail
	for _, route := range []struct {
		path    string
		handler echo.HandlerFunc
	}{
		{"/", w.home},
		{"/docs", w.docs},
		{"/docs/problems", w.problems},
		{"/docs/problems/:type", w.problemType},
		{"/static/:file", w.assets.serve},
	} {
		e.GET(route.path, route.handler, recovered, pageHeaders)
		e.HEAD(route.path, route.handler, recovered, pageHeaders)
	}
}

// home leads to the reference until there is a dashboard to sign in to.
func (w *Web) home(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/docs") }

func (w *Web) docs(c echo.Context) error {
	return w.render(c, http.StatusOK, views.ReferencePage(w.page(c, w.reference.Title), w.reference.At(w.origin(c))))
}

func (w *Web) problems(c echo.Context) error {
	return w.render(c, http.StatusOK, views.ProblemsPage(w.page(c, "Problem types"), problem.Catalogue))
}

func (w *Web) problemType(c echo.Context) error {
	t, ok := problem.TypeByName(c.Param("type"))
	if !ok {
		return w.render(c, http.StatusNotFound, views.NotFoundPage(w.page(c, "Not found")))
	}
	return w.render(c, http.StatusOK, views.ProblemPage(w.page(c, t.Title), t))
}

func (w *Web) page(c echo.Context, title string) views.Page {
	return views.Page{Title: title, Version: w.cfg.Version, Stylesheet: w.assets.url("headgate.css"), Icon: w.assets.url("icon.svg"), Path: c.Request().URL.Path}
}

// origin is the address that examples name.
func (w *Web) origin(c echo.Context) string {
	if w.cfg.PublicURL != "" {
		return strings.TrimSuffix(w.cfg.PublicURL, "/")
	}
	scheme := "http"
	if c.Request().TLS != nil {
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

// pageHeaders sets what every page answers with.
func pageHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		setPageHeaders(c.Response().Header())
		return next(c)
	}
}

func setPageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}
