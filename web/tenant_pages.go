package web

import (
	"context"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// TenantPath is the route of a tenant's first page. The routes of its other pages begin with it.
const TenantPath = "/tenants/:tenant"

// MaxCountedExceptions is the largest number of overrides, list entries or blocks that a page counts
// exactly. A tenant may have 100,000 of each.
const MaxCountedExceptions = 500

// CountedExceptions is the filter for reading the exceptions that a page counts. It reads one row
// more than MaxCountedExceptions, to detect that there are more.
var CountedExceptions = exceptions.Filter{Limit: MaxCountedExceptions + 1}

// TenantPages are the tabs of a tenant's pages. A visitor sees only the tabs that the role
// permits.
var TenantPages = []struct {
	Text  string
	Below string // the end of the path: the part after the path of the tenant
}{
	{"Usage", ""},
	{"Denials", "/denials"},
	{"Alerts", "/alerts"},
	{"Explain", "/explain"},
	{"API keys", "/keys"},
	{"Overrides", "/overrides"},
	{"Lists", "/lists"},
	{"Blocks", "/blocks"},
	{"Grants", "/grants"},
	{"Reservations", "/reservations"},
	{"Members", "/members"},
	{"Audit", "/audit"},
	{"Shared links", "/links"},
	{"Tenant settings", "/settings"},
}

// TenantOf returns the tenant of the path.
func TenantOf(c echo.Context) tenants.Tenant {
	t, _ := c.Get(TenantKey).(tenants.Tenant)
	return t
}

// May reports whether the visitor's role may do an action.
func May(c echo.Context, a accounts.Action) bool {
	return accounts.Authorize(VisitorOf(c).Principal(), a) == nil
}

// MayInTenant reports whether the visitor may perform a write in the tenant of the path. In a
// suspended tenant, members may only read.
func MayInTenant(c echo.Context, a accounts.Action) bool {
	return May(c, a) && (VisitorOf(c).User.TenantID == "" || TenantOf(c).Status != tenants.Suspended)
}

// TenantTabs returns the tabs of the tenant in the path that the visitor may open. It returns none
// for a member of the tenant, because the member's navigation has these pages. current is the end of
// the open page's path: the part after the path of the tenant, such as "/keys"; "" is the first
// page.
func (w *Shell) TenantTabs(c echo.Context, current string) []views.Tab {
	var list []views.Tab
	if VisitorOf(c).User.TenantID != "" {
		return nil
	}
	for _, page := range TenantPages {
		if w.CanOpen(c, TenantPath+page.Below) {
			list = append(list, views.Tab{Text: page.Text, URL: TenantURL(TenantOf(c), page.Below), Current: page.Below == current})
		}
	}
	return list
}

// TenantCrumbs returns the breadcrumb links for a page of the tenant in the path. above are the
// pages between the tenant's first page and this page.
func (w *Shell) TenantCrumbs(c echo.Context, title string, above ...views.Link) []views.Link {
	var list []views.Link
	if w.CanOpen(c, "/tenants") {
		list = append(list, views.Link{Text: "Tenants", URL: "/tenants"})
	}
	t := TenantOf(c)
	own := views.Link{Text: t.Name}
	if title != "" {
		own.URL = TenantURL(t, "")
	}
	list = append(append(list, own), above...)
	if title != "" {
		list = append(list, views.Link{Text: title})
	}
	return list
}

// TenantPage returns the frame of a page of the tenant in the path: its title, navigation and
// breadcrumbs.
func (w *Shell) TenantPage(c echo.Context, title string, above ...views.Link) views.Page {
	p := w.Page(c, title+" · "+TenantOf(c).Name)
	p.Crumbs = w.TenantCrumbs(c, title, above...)
	return p
}

func APIKeysURL(t tenants.Tenant) string { return RouteForTenant(TenantPath+"/keys", t.Slug) }

func SettingsURL(t tenants.Tenant) string { return RouteForTenant(TenantPath+"/settings", t.Slug) }

// PublishedDocument returns the published document of a plan. It returns the zero document if the
// plan has none.
func (w *Shell) PublishedDocument(ctx context.Context, slug string) (plans.Document, error) {
	if slug == "" {
		return plans.Document{}, nil
	}
	p, err := w.cfg.Plans.Plan(ctx, slug)
	if err != nil || p.Published == 0 {
		return plans.Document{}, err
	}
	v, err := w.cfg.Plans.Version(ctx, p.ID, p.Published)
	return v.Document, err
}

// TenantURL returns the address of a page of a tenant, such as /tenants/acme/keys. If the slug of
// the tenant is "new", the address has the tenant's ID instead, because /tenants/new is the form for
// a new tenant.
func TenantURL(t tenants.Tenant, path string) string {
	if path == "" && t.Slug == problem.ReservedSlug {
		return RouteForTenant(TenantPath, t.ID)
	}
	return RouteForTenant(TenantPath+path, t.Slug)
}

// PlanURL returns the address of the page of a plan. If there is no plan, or no address with its
// slug, it returns "".
func PlanURL(slug string) string {
	if slug == "" || slug == problem.ReservedSlug {
		return ""
	}
	return "/plans/" + slug
}

// TenantHead returns the tabs and the state that all pages of the tenant in the path show at
// the top.
func (w *Shell) TenantHead(c echo.Context, current string) views.TenantHead {
	return views.TenantHead{Tabs: w.TenantTabs(c, current), Suspended: TenantOf(c).Status == tenants.Suspended}
}

// PathID returns the ID in a parameter of the path. If the parameter is not an ID, the error is
// NotFound.
func PathID(c echo.Context, name string) (string, error) {
	id := c.Param(name)
	if uuid.Validate(id) != nil {
		return "", ErrNoPage
	}
	return id, nil
}
