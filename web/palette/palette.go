// Package palette serves the command palette: it finds pages, tenants, plans,
// policies, people, settings, saved filters, shared links, decisions and keys by name, and counted keys by their values.
package palette

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

const jumpFound = 8 // maximum number of results of each kind

// Config has what the palette needs. Every field is required.
type Config struct {
	People  *accounts.People
	Tenants *tenants.Service
	Plans   *plans.Service
	Filters *savedfilters.Service // the saved filters
	Sharing *sharing.Service      // the shared links
	Usage   *usage.Service        // the counted keys
	// Snapshot returns the compiled plans and tenants that this node uses. The palette searches
	// its policies.
	Snapshot func() *snapshot.Snapshot
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the routes of the palette, for the router.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	w := &pages{Shell: shell, cfg: cfg}
	return []web.Route{
		web.Get("/jump", accounts.Self, w.jump),
		web.Get("/jump/found", accounts.Self, w.jumpFragment),
	}
}

// jump is GET /jump. It redirects to the only match, or shows all matches.
func (w *pages) jump(c echo.Context) error {
	q := strings.TrimSpace(c.QueryParam("q"))
	groups := w.pagesNamed(web.VisitorOf(c), q)
	found, err := w.named(c.Request().Context(), web.VisitorOf(c), q)
	if err != nil {
		return err
	}
	groups = append(groups, found...)
	if len(groups) == 1 && len(groups[0].Links) == 1 {
		return c.Redirect(http.StatusSeeOther, groups[0].Links[0].URL)
	}
	return w.Render(c, http.StatusOK, views.JumpPage(w.Page(c, "Jump to"), q, groups))
}

// jumpFragment is GET /jump/found. It returns search results as HTML for the command palette that the script opens. The
// results do not include pages.
func (w *pages) jumpFragment(c echo.Context) error {
	q := strings.TrimSpace(c.QueryParam("q"))
	groups, err := w.named(c.Request().Context(), web.VisitorOf(c), q)
	if err != nil {
		return err
	}
	if q != "" && len(groups) == 0 && w.pagesNamed(web.VisitorOf(c), q) == nil {
		return w.Render(c, http.StatusOK, views.JumpNothing(q))
	}
	return w.Render(c, http.StatusOK, views.JumpFound(groups))
}

// pagesNamed returns the pages of a visitor's navigation whose names contain q.
func (w *pages) pagesNamed(v web.Visitor, q string) []views.JumpGroup {
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

// settingsPages are the settings pages that the command palette can find. A search looks for
// its text in the field words.
var settingsPages = []struct{ text, words, path string }{
	{"Your account", "account name password session sign-in profile two-factor passkey", "/account"},
	{"Operator keys", "settings operator api keys scopes", "/settings/keys"},
	{"Shared links", "settings shared links displays snapshots", "/settings/links"},
	{"Retention", "settings retention how long data counts denials are kept", "/settings/retention"},
	{"Roles", "settings roles permissions owner editor viewer", "/settings/roles"},
	{"About", "settings about version license", "/settings/about"},
}

// named searches among what a visitor may see. It finds a decision by its ID, a key by name=value, and tenants, plans,
// policies, people and settings whose names contain q.
func (w *pages) named(ctx context.Context, v web.Visitor, q string) ([]views.JumpGroup, error) {
	var groups []views.JumpGroup
	if q == "" {
		return nil, nil
	}
	lower := strings.ToLower(q) // names ignore case, but the values of keys do not
	for _, find := range []struct {
		named func(context.Context, web.Visitor, string) (views.JumpGroup, error)
		q     string
	}{
		{w.decisionNamed, lower},
		{w.keyNamed, q},
		{w.countedKeys, q},
		{w.tenantsNamed, lower},
		{w.tenantPagesNamed, lower},
		{w.plansNamed, lower},
		{w.policiesNamed, lower},
		{w.peopleNamed, lower},
		{w.settingsNamed, lower},
		{w.filtersNamed, lower},
		{w.linksNamed, lower},
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

// filtersNamed returns the saved filters that the visitor sees and whose names contain q.
func (w *pages) filtersNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	group := views.JumpGroup{Title: "Saved filters", Icon: "bookmark"}
	list, err := w.cfg.Filters.All(ctx, v.User.TenantID, v.User.ID)
	if err != nil {
		return group, err
	}
	for _, f := range list {
		if !strings.Contains(strings.ToLower(f.Name), q) || len(group.Links) == jumpFound {
			continue
		}
		link := views.Link{Text: f.Name + " · " + f.Page, URL: "/" + f.Page}
		if f.TenantID != "" {
			t := v.Own
			if t.ID == "" {
				if t, err = w.cfg.Tenants.Tenant(ctx, f.TenantID); err != nil {
					return group, err
				}
				link.Text += " of " + t.Name
			}
			link.URL = web.TenantURL(t, link.URL)
		}
		if f.Query != "" {
			link.URL += "?" + f.Query
		}
		group.Links = append(group.Links, link)
	}
	return group, nil
}

// linksNamed returns shared links whose names contain q: those of the operator, or those of the visitor's own tenant. A
// result leads to the row of the link in the list, because no page can show the address of a shared link again.
func (w *pages) linksNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	group := views.JumpGroup{Title: "Shared links", Icon: "share-2"}
	route := share.ListURL(tenants.Tenant{})
	if v.User.TenantID != "" {
		route = web.TenantPath + "/links"
	}
	if !w.Opens(v, route) {
		return group, nil
	}
	list, err := w.cfg.Sharing.Links(ctx, v.User.TenantID, sharing.Filter{Limit: sharing.MaxLinks})
	for i := range list {
		if l := &list[i]; strings.Contains(strings.ToLower(l.Name), q) && len(group.Links) < jumpFound {
			link := views.Link{Text: l.Name + " · " + string(l.Kind), URL: share.ListURL(v.Own) + "#" + views.SharedLinkRow + l.ID}
			group.Links = append(group.Links, link)
		}
	}
	return group, err
}

// trafficPath returns the path of a page about traffic: for all tenants, or for the visitor's own
// tenant.
func trafficPath(v web.Visitor, page string) string {
	if v.User.TenantID != "" {
		return web.RouteForTenant(web.TenantPath+page, v.Own.Slug)
	}
	return page
}

func (w *pages) decisionNamed(_ context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	id, _ := uuid.Parse(q)
	if id == uuid.Nil { // q is no ID
		return views.JumpGroup{}, nil
	}
	return views.JumpGroup{Title: "Decisions", Icon: "shield-x", Links: []views.Link{
		{Text: "The decision " + id.String(), URL: trafficPath(v, "/denials") + "/" + id.String()},
	}}, nil
}

func (w *pages) keyNamed(_ context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	name, value, both := strings.Cut(q, "=")
	if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !both || name == "" || value == "" {
		return views.JumpGroup{}, nil
	}
	key := url.Values{web.KeyFieldPrefix + name: {value}}
	return views.JumpGroup{Title: "Keys", Icon: "chart-line", Links: []views.Link{
		{Text: "Denials with " + name + "=" + value, URL: web.AppendQuery(trafficPath(v, "/denials"), key)},
		{Text: "Explain a request with " + name + "=" + value, URL: web.AppendQuery(trafficPath(v, "/explain"), key)},
	}}, nil
}

// countedKeys returns the pages of counted keys whose values contain q: for all tenants, or for the visitor's own
// tenant.
func (w *pages) countedKeys(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Counted keys", Icon: "chart-line"}
	if len(q) < minKeyText || !w.Opens(v, web.TenantPath+"/usage/:policy") {
		return g, nil
	}
	list, err := w.cfg.Usage.FindKeys(ctx, v.User.TenantID, q, jumpFound)
	for _, k := range list {
		text, page := "", url.Values{}
		for _, part := range k.Key {
			if part.Missing {
				page.Add("missing", part.Name)
				text += "no " + part.Name + ", "
				continue
			}
			text += part.Name + " " + part.Value + ", "
			page.Set(web.KeyFieldPrefix+enforcement.CountedAttribute(part.Name), part.Value)
		}
		text = strings.TrimSuffix(text, ", ") + " · " + k.Policy
		if v.User.TenantID == "" {
			text += " of " + k.Tenant
		}
		g.Links = append(g.Links, views.Link{
			Text: text, URL: web.AppendQuery(web.RouteForTenant(web.TenantPath+"/usage/", k.Tenant)+url.PathEscape(k.Policy), page),
		})
	}
	return g, err
}

// minKeyText is the minimum length in bytes of a text for which countedKeys searches.
const minKeyText = 2

func (w *pages) tenantsNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Tenants", Icon: "building-2"}
	if !w.Opens(v, "/tenants") {
		return g, nil
	}
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: q, Limit: jumpFound})
	for _, t := range list {
		g.Links = append(g.Links, views.Link{Text: t.Name + " (" + t.Slug + ")", URL: web.TenantURL(t, "")})
	}
	return g, err
}

// minPageWord is the minimum number of bytes of a word by which tenantPagesNamed finds a page.
const minPageWord = 3

// tenantPagesNamed finds a page of a tenant by a text such as "acme reservations" or "grants acme". The last or the
// first word of q begins the name of the page. The rest of q is the search text for tenants.
func (w *pages) tenantPagesNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Pages of tenants", Icon: "building-2"}
	words := strings.Fields(q)
	if len(words) < 2 || !w.Opens(v, "/tenants") {
		return g, nil
	}
	for _, ask := range [][2]string{
		{words[len(words)-1], strings.Join(words[:len(words)-1], " ")}, {words[0], strings.Join(words[1:], " ")},
	} {
		if len(g.Links) > 0 {
			break
		}
		for _, page := range web.TenantPages {
			named := len(ask[0]) >= minPageWord && strings.HasPrefix(strings.ToLower(page.Text), ask[0])
			if !named || !w.Opens(v, web.TenantPath+page.Below) {
				continue
			}
			list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: ask[1], Limit: jumpFound})
			if err != nil {
				return g, err
			}
			for _, t := range list {
				g.Links = append(g.Links, views.Link{Text: page.Text + " of " + t.Name + " (" + t.Slug + ")", URL: web.TenantURL(t, page.Below)})
			}
		}
	}
	return g, nil
}

func (w *pages) plansNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Plans", Icon: "layers"}
	if !w.Opens(v, "/plans") {
		return g, nil
	}
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Query: q, Limit: jumpFound})
	for _, p := range list {
		g.Links = append(g.Links, views.Link{Text: p.Draft.Name() + " (" + p.Slug + ")", URL: "/plans/" + p.Slug})
	}
	return g, err
}

func (w *pages) policiesNamed(_ context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Policies", Icon: "sliders-horizontal"}
	if !w.Opens(v, "/overview") {
		return g, nil
	}
	s := w.cfg.Snapshot()
	if s == nil {
		return g, nil
	}
	for plan := range s.Plans() {
		for _, r := range plan.Rules {
			if strings.Contains(r.Policy, q) {
				g.Links = append(g.Links, views.Link{
					Text: r.Policy + " of " + plan.Slug, URL: web.AppendQuery("/overview", url.Values{"policy": {r.Policy}}),
				})
			}
		}
	}
	slices.SortFunc(g.Links, func(a, b views.Link) int { return strings.Compare(a.Text, b.Text) })
	g.Links = g.Links[:min(jumpFound, len(g.Links))]
	return g, nil
}

func (w *pages) peopleNamed(ctx context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "People", Icon: "users"}
	base, action := "/people", "/people"
	if v.User.TenantID != "" {
		base, action = trafficPath(v, "/members"), web.TenantPath+"/members"
	}
	if !w.Opens(v, action) {
		return g, nil
	}
	list, err := w.cfg.People.Users(ctx, v.Principal(), v.User.TenantID, accounts.UserFilter{Query: q, Limit: jumpFound})
	for _, u := range list {
		g.Links = append(g.Links, views.Link{Text: u.Name + " (" + u.Email + ")", URL: base + "/" + u.ID})
	}
	return g, err
}

func (w *pages) settingsNamed(_ context.Context, v web.Visitor, q string) (views.JumpGroup, error) {
	g := views.JumpGroup{Title: "Settings", Icon: "settings"}
	for _, p := range settingsPages {
		if w.Opens(v, p.path) && strings.Contains(p.words, strings.ToLower(q)) {
			g.Links = append(g.Links, views.Link{Text: p.text, URL: p.path})
		}
	}
	return g, nil
}
