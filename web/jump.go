package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

const jumpFound = 8 // maximum number of results of each kind

// jump is GET /jump. It redirects to the only match, or shows all matches.
func (w *Shell) jump(c echo.Context) error {
	q := strings.TrimSpace(c.QueryParam("q"))
	groups := w.pagesNamed(VisitorOf(c), q)
	found, err := w.named(c.Request().Context(), VisitorOf(c), q)
	if err != nil {
		return err
	}
	groups = append(groups, found...)
	if len(groups) == 1 && len(groups[0].Links) == 1 {
		return c.Redirect(http.StatusSeeOther, groups[0].Links[0].URL)
	}
	return w.Render(c, http.StatusOK, views.JumpPage(w.Page(c, "Jump to"), q, groups))
}

// jumpFragment is GET /jump/found: tenants and plans for the palette of the script.
func (w *Shell) jumpFragment(c echo.Context) error {
	groups, err := w.named(c.Request().Context(), VisitorOf(c), strings.TrimSpace(c.QueryParam("q")))
	if err != nil {
		return err
	}
	return w.Render(c, http.StatusOK, views.JumpFound(groups))
}

// pagesNamed returns the pages of a visitor's navigation with q in their names.
func (w *Shell) pagesNamed(v Visitor, q string) []views.JumpGroup {
	group := views.JumpGroup{Title: "Pages", Icon: "arrow-right"}
	for _, g := range w.Person(v).Nav {
		for _, l := range g.Links {
			if strings.Contains(strings.ToLower(l.Text), strings.ToLower(q)) {
				group.Links = append(group.Links, views.Link{Text: l.Text, URL: l.URL})
			}
		}
	}
	if len(group.Links) == 0 {
		return nil
	}
	return []views.JumpGroup{group}
}

// named returns the tenants and plans that a visitor may see and that have q in their names.
func (w *Shell) named(ctx context.Context, v Visitor, q string) ([]views.JumpGroup, error) {
	var groups []views.JumpGroup
	if q == "" {
		return nil, nil
	}
	add := func(g views.JumpGroup) {
		if len(g.Links) > 0 {
			groups = append(groups, g)
		}
	}
	if w.opens(v, "/tenants") {
		list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: q, Limit: jumpFound})
		if err != nil {
			return nil, err
		}
		g := views.JumpGroup{Title: "Tenants", Icon: "building-2"}
		for _, t := range list {
			g.Links = append(g.Links, views.Link{Text: t.Name + " (" + t.Slug + ")", URL: "/tenants/" + t.Slug})
		}
		add(g)
	}
	if w.opens(v, "/plans") {
		list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Query: q, Limit: jumpFound})
		if err != nil {
			return nil, err
		}
		g := views.JumpGroup{Title: "Plans", Icon: "layers"}
		for _, p := range list {
			g.Links = append(g.Links, views.Link{Text: p.Draft.Name() + " (" + p.Slug + ")", URL: "/plans/" + p.Slug})
		}
		add(g)
	}
	return groups, nil
}
