package web

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// home redirects a visitor to the first page of the navigation, or to the sign-in page.
func (w *Shell) home(c echo.Context) error {
	return c.Redirect(http.StatusSeeOther, w.firstPage(VisitorOf(c)))
}

// firstPage returns the first page in a visitor's navigation.
func (w *Shell) firstPage(v Visitor) string {
	if !v.SignedIn() {
		return "/sign-in"
	}
	for _, g := range w.Person(v).Nav {
		for _, l := range g.Links {
			return l.URL
		}
	}
	return "/account"
}

// A menuLink is an entry of the navigation. A visitor sees it only if the route exists and the
// visitor's role may open it.
type menuLink struct{ text, path, icon string }

type menuGroup struct {
	title string
	links []menuLink
}

var operatorMenu = []menuGroup{
	{"", []menuLink{
		{"Overview", "/overview", "gauge"},
		{"Denials", "/denials", "shield-x"},
		{"Alerts", "/alerts", "bell"},
		{"Explain", "/explain", "search-code"},
	}},
	{"Configure", []menuLink{
		{"Tenants", "/tenants", "building-2"},
		{"Plans", "/plans", "layers"},
		{"Playground", "/playground", "flask-conical"},
	}},
	{"Run", []menuLink{
		{"System", "/system", "server"},
		{"Audit", "/audit", "scroll-text"},
		{"People", "/people", "users"},
		{"Settings", "/settings", "settings"},
	}},
	{"Help", []menuLink{{"Guides", "/docs/guides", "library"}, {"API reference", "/docs", "book-open"}}},
}

var tenantMenu = []menuGroup{
	{"", []menuLink{
		{"Usage", "/tenants/:tenant", "gauge"},
		{"Denials", "/tenants/:tenant/denials", "shield-x"},
		{"Alerts", "/tenants/:tenant/alerts", "bell"},
		{"Explain", "/tenants/:tenant/explain", "search-code"},
	}},
	{"Your tenant", []menuLink{
		{"API keys", "/tenants/:tenant/keys", "key-round"},
		{"Overrides", "/tenants/:tenant/overrides", "sliders-horizontal"},
		{"Lists", "/tenants/:tenant/lists", "list-checks"},
		{"Blocks", "/tenants/:tenant/blocks", "ban"},
		{"Grants", "/tenants/:tenant/grants", "plus"},
		{"Reservations", "/tenants/:tenant/reservations", "clock"},
		{"Members", "/tenants/:tenant/members", "users"},
		{"Audit", "/tenants/:tenant/audit", "scroll-text"},
		{"Shared links", "/tenants/:tenant/links", "share-2"},
		{"Playground", "/playground", "flask-conical"},
	}},
	{"Help", []menuLink{{"Guides", "/docs/guides", "library"}, {"API reference", "/docs", "book-open"}}},
}

// Person returns the view of the signed-in visitor with the navigation. It returns nil if the
// visitor is not signed in.
func (w *Shell) Person(v Visitor) *views.Person {
	if !v.SignedIn() {
		return nil
	}
	p := &views.Person{ID: v.User.ID, Name: v.User.Name, Email: v.User.Email, Role: RoleName(v.User.Role), Tenant: v.Own.Name}
	menu := operatorMenu
	if v.User.TenantID != "" {
		menu = tenantMenu
	}
	for _, g := range menu {
		group := views.NavGroup{Title: g.title}
		for _, l := range g.links {
			if !w.Opens(v, l.path) {
				continue
			}
			group.Links = append(group.Links, views.NavLink{Text: l.text, URL: RouteForTenant(l.path, v.Own.Slug), Icon: l.icon})
		}
		if len(group.Links) > 0 {
			p.Nav = append(p.Nav, group)
		}
	}
	return p
}

// RouteForTenant replaces the parameter in a route with a tenant's slug.
func RouteForTenant(path, slug string) string {
	const prefix = "/tenants/:tenant"
	if len(path) >= len(prefix) && path[:len(prefix)] == prefix {
		return "/tenants/" + slug + path[len(prefix):]
	}
	return path
}

const themeCookie = "headgate-theme"

// theme returns the theme from the visitor's cookie: "light", "dark", or "" for the theme of
// the system.
func theme(r *http.Request) string {
	cookie, err := r.Cookie(themeCookie)
	if err != nil || cookie.Value != "light" && cookie.Value != "dark" {
		return ""
	}
	return cookie.Value
}

// chooseTheme is POST /preferences/theme. It stores the theme in a cookie for a year.
func (w *Shell) chooseTheme(c echo.Context, f url.Values) error {
	chosen := f.Get("theme")
	cookie := &http.Cookie{
		Name: themeCookie, Value: chosen, Path: "/", MaxAge: 365 * 24 * 60 * 60,
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteLaxMode,
	}
	switch chosen {
	case "light", "dark":
	case "":
		cookie.MaxAge = -1
	default:
		return problem.At("theme", "must be light, dark, or empty for the theme of the system")
	}
	c.SetCookie(cookie)
	return c.Redirect(http.StatusSeeOther, w.Back(f.Get("back")))
}

// Here returns the address of the request without the parameter done, which selects a notice.
func Here(c echo.Context) string {
	q := maps.Clone(c.QueryParams())
	q.Del("done")
	return AppendQuery(c.Request().URL.Path, q)
}

// Back returns raw if raw is an address of Headgate. Otherwise it returns the first page of the
// visitor.
func (w *Shell) Back(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || w.SafeNext(u.Path) == "" || u.Host != "" || u.Scheme != "" {
		return "/"
	}
	u.Fragment = ""
	return u.RequestURI()
}
