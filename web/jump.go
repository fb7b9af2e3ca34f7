package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
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

// jumpFragment is GET /jump/found: the results for the palette of the script, without pages.
func (w *Shell) jumpFragment(c echo.Context) error {
	q := strings.TrimSpace(c.QueryParam("q"))
	groups, err := w.named(c.Request().Context(), VisitorOf(c), q)
	if err != nil {
		return err
	}
	if q != "" && len(groups) == 0 && w.pagesNamed(VisitorOf(c), q) == nil {
		return w.Render(c, http.StatusOK, views.JumpNothing(q))
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

// A NamedPolicy is a policy of a plan in force.
type NamedPolicy struct{ Plan, Policy string }

// settingsPages are the pages of settings that the palette finds by these words.
var settingsPages = []struct{ text, words, path string }{
	{"Your account", "account name password session sign-in profile", "/account"},
	{"Operator keys", "settings operator api keys scopes", "/settings/keys"},
	{"Retention", "settings retention how long data counts denials are kept", "/settings/retention"},
	{"Roles", "settings roles permissions owner editor viewer", "/settings/roles"},
	{"About", "settings about version license", "/settings/about"},
}

// named returns what a visitor may see and what has q in its name: a decision by its ID, a key as
// name=value, tenants, plans, policies, people, and settings.
func (w *Shell) named(ctx context.Context, v Visitor, q string) ([]views.JumpGroup, error) {
	var groups []views.JumpGroup
	if q == "" {
		return nil, nil
	}
	lower := strings.ToLower(q) // the values of keys differ in case; names do not
	for _, find := range []struct {
		named func(context.Context, Visitor, string) (views.JumpGroup, error)
		q     string
	}{
		{w.decisionNamed, lower},
		{w.keyNamed, q},
		{w.tenantsNamed, lower},
		{w.plansNamed, lower},
		{w.policiesNamed, lower},
		{w.peopleNamed, lower},
		{w.settingsNamed, lower},
	} {
		g, err := find.named(ctx, v, find.q)
		if err != nil {
			return nil, err
		}
		if len(g.Links) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// trafficPath returns the page of all tenants, or that of the visitor's own tenant.
func trafficPath(v Visitor, page string) string {
	if v.User.TenantID != "" {
		return RouteForTenant(TenantPath+page, v.own.Slug)
	}
	return page
}

func (w *Shell) decisionNamed(_ context.Context, v Visitor, q string) (views.JumpGroup, error) {
	id, _ := uuid.Parse(q)
	if id == uuid.Nil { // q is no ID
		return views.JumpGroup{}, nil
	}
	return views.JumpGroup{Title: "Decisions", Icon: "shield-x", Links: []views.Link{
		{Text: "The denial " + id.String(), URL: trafficPath(v, "/denials") + "/" + id.String()},
	}}, nil
}

func (w *Shell) keyNamed(_ context.Context, v Visitor, q string) (views.JumpGroup, error) {
	name, value, both := strings.Cut(q, "=")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !both || name == "" || value == "" {
		return views.JumpGroup{}, nil
	}
	key := url.Values{KeyFieldPrefix + name: {value}}
	return views.JumpGroup{Title: "Keys", Icon: "chart-line", Links: []views.Link{
		{Text: "Denials with " + name + "=" + value, URL: AppendQuery(trafficPath(v, "/denials"), key)},
		{Text: "Explain a request with " + name + "=" + value, URL: AppendQuery(trafficPath(v, "/explain"), key)},
	}}, nil
}

func (w *Shell) tenantsNamed(ctx context.Context, v Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Tenants", Icon: "building-2"}
	if !w.opens(v, "/tenants") {
		return g, nil
	}
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: q, Limit: jumpFound})
	for _, t := range list {
		g.Links = append(g.Links, views.Link{Text: t.Name + " (" + t.Slug + ")", URL: TenantURL(t, "")})
	}
	return g, err
}

func (w *Shell) plansNamed(ctx context.Context, v Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Plans", Icon: "layers"}
	if !w.opens(v, "/plans") {
		return g, nil
	}
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Query: q, Limit: jumpFound})
	for _, p := range list {
		g.Links = append(g.Links, views.Link{Text: p.Draft.Name() + " (" + p.Slug + ")", URL: "/plans/" + p.Slug})
	}
	return g, err
}

func (w *Shell) policiesNamed(_ context.Context, v Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Policies", Icon: "sliders-horizontal"}
	if !w.opens(v, "/overview") || w.cfg.PoliciesNamed == nil {
		return g, nil
	}
	for _, p := range w.cfg.PoliciesNamed(q, jumpFound) {
		g.Links = append(g.Links, views.Link{
			Text: p.Policy + " of " + p.Plan, URL: AppendQuery("/overview", url.Values{"policy": {p.Policy}}),
		})
	}
	return g, nil
}

func (w *Shell) peopleNamed(ctx context.Context, v Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "People", Icon: "users"}
	base, action := "/people", "/people"
	if v.User.TenantID != "" {
		base, action = trafficPath(v, "/members"), TenantPath+"/members"
	}
	if !w.opens(v, action) {
		return g, nil
	}
	list, err := w.cfg.People.Users(ctx, v.Principal(), v.User.TenantID, accounts.UserFilter{Query: q, Limit: jumpFound})
	for _, u := range list {
		g.Links = append(g.Links, views.Link{Text: u.Name + " (" + u.Email + ")", URL: base + "/" + u.ID})
	}
	return g, err
}

func (w *Shell) settingsNamed(_ context.Context, v Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Settings", Icon: "settings"}
	for _, p := range settingsPages {
		if w.opens(v, p.path) && strings.Contains(p.words, strings.ToLower(q)) {
			g.Links = append(g.Links, views.Link{Text: p.text, URL: p.path})
		}
	}
	return g, nil
}
