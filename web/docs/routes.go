// Package docs serves the documentation: the API reference, the problem types, and the guides.
package docs

import (
	"fmt"
	"io/fs"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// Config of the pages.
type Config struct {
	// Spec is the content of openapi.yaml.
	Spec []byte
	// Guides has the guides as Markdown files, and the JSON Schemas of files, in the folder docs.
	Guides fs.FS
}

type pages struct {
	*web.Shell
	reference views.Reference
	list      []views.Link // the guides in order
	guides    map[string]views.Guide
}

// Routes returns the rows of the route table for these pages. It fails if the specification or a
// guide cannot be read.
func Routes(shell *web.Shell, cfg Config) ([]web.Route, error) {
	const public = accounts.Public
	reference, err := parseReference(cfg.Spec)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	w := &pages{Shell: shell, reference: reference}
	if w.list, w.guides, err = parseGuides(cfg.Guides); err != nil {
		return nil, err
	}
	schemas, err := fs.Glob(cfg.Guides, "docs/*.schema.json")
	if err != nil {
		return nil, err
	}
	var routes []web.Route
	for _, file := range schemas {
		text, err := fs.ReadFile(cfg.Guides, file)
		if err != nil {
			return nil, err
		}
		routes = append(routes, web.Get("/"+file, public, func(c echo.Context) error {
			return c.Blob(http.StatusOK, "application/schema+json", text)
		}).As(web.Open))
	}
	return append(routes,
		web.Get("/docs", public, w.apiReference).As(web.Open),
		web.Get("/docs/problems", public, w.problems).As(web.Open),
		web.Get("/docs/problems/:type", public, w.problemType).As(web.Open),
		web.Get(guidesURL, public, w.index).As(web.Open),
		web.Get(guidesURL+"/:guide", public, w.guide).As(web.Open),
	), nil
}

func (w *pages) apiReference(c echo.Context) error {
	return w.Render(c, http.StatusOK, views.ReferencePage(w.Page(c, w.reference.Title), w.reference.At(w.Origin(c))))
}

func (w *pages) problems(c echo.Context) error {
	return w.Render(c, http.StatusOK, views.ProblemsPage(w.Page(c, "Problem types"), problem.Catalog))
}

func (w *pages) problemType(c echo.Context) error {
	t, ok := problem.TypeByName(c.Param("type"))
	if !ok {
		return w.Render(c, http.StatusNotFound, views.NotFoundPage(w.Page(c, "Page not found")))
	}
	return w.Render(c, http.StatusOK, views.ProblemPage(w.Page(c, t.Title), t))
}

func (w *pages) index(c echo.Context) error {
	return w.Render(c, http.StatusOK, views.GuidesPage(w.Page(c, "Guides"), w.list))
}

func (w *pages) guide(c echo.Context) error {
	g, ok := w.guides[c.Param("guide")]
	if !ok {
		return w.Render(c, http.StatusNotFound, views.NotFoundPage(w.Page(c, "Page not found")))
	}
	return w.Render(c, http.StatusOK, views.GuidePage(w.Page(c, g.Title), g, w.list))
}
