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

// TenantPath is the route of a tenant's first page; its other pages are below it.
const TenantPath = "/tenants/:tenant"

// MaxCountedExceptions bounds how many overrides, list entries and blocks a page
// counts. A tenant may have 100,000 of each.
const MaxCountedExceptions = 500

// CountedExceptions reads one row more than a page counts.
var CountedExceptions = exceptions.Filter{Limit: MaxCountedExceptions + 1}

// tenantPages are the pages of one tenant, as its tabs have them. Those that are
// not in the route table yet, or that are not for the visitor, are left out.
var tenantPages = []struct{ text, below string }{
	{"Usage", ""},
	{"Denials", "/denials"},
	{"Explain", "/explain"},
	{"API keys", "/keys"},
	{"Overrides", "/overrides"},
	{"Lists", "/lists"},
	{"Blocks", "/blocks"},
	{"Members", "/members"},
	{"Audit", "/audit"},
	{"Settings", "/settings"},
}

// TenantOf is the tenant that the path names: serve found it.
func TenantOf(c echo.Context) tenants.Tenant {
	t, _ := c.Get(TenantKey).(tenants.Tenant)
	return t
}

// May reports whether the visitor's role may do an action.
func May(c echo.Context, a accounts.Action) bool {
	return accounts.Authorize(VisitorOf(c).Principal(), a) == nil
}

// MayInTenant reports whether the visitor may do a write of the path's tenant:
// the people of one that is suspended only read.
func MayInTenant(c echo.Context, a accounts.Action) bool {
	return May(c, a) && (VisitorOf(c).User.TenantID == "" || TenantOf(c).Status != tenants.Suspended)
}

// TenantTabs are the pages of the tenant that the path names, those that the
// visitor may see. current is what the open one's path has behind the tenant:
// "" is the first page, "/keys" that of the keys.
func (w *Shell) TenantTabs(c echo.Context, current string) []views.Tab {
	var list []views.Tab
	for _, page := range tenantPages {
		if w.CanOpen(c, TenantPath+page.below) {
			list = append(list, views.Tab{Text: page.text, URL: TenantURL(TenantOf(c), page.below), Current: page.below == current})
		}
	}
	return list
}

// TenantCrumbs lead from the list of tenants, for those who may see it, and the
// tenant to a page of it; above are what lies between the tenant and the page.
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

// TenantPage is a page of the tenant that the path names, with its crumbs.
func (w *Shell) TenantPage(c echo.Context, title string, above ...views.Link) views.Page {
	p := w.Page(c, title+" · "+TenantOf(c).Name)
	p.Crumbs = w.TenantCrumbs(c, title, above...)
	return p
}

func APIKeysURL(t tenants.Tenant) string { return RouteForTenant(TenantPath+"/keys", t.Slug) }

// ShowConfirm shows a page that asks once more; list is the name of the page
// that it goes back to.
func (w *Shell) ShowConfirm(c echo.Context, status int, title, list string, v views.Confirm) error {
	return w.Render(c, status, views.ConfirmPage(w.TenantPage(c, title, views.Link{Text: list, URL: v.Back}), v))
}

func SettingsURL(t tenants.Tenant) string { return RouteForTenant(TenantPath+"/settings", t.Slug) }

// PublishedDocument is what a plan's tenants follow; the zero one without a plan.
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

// TenantURL is a page of a tenant.
// below is the address of a page of a tenant. The first page of one whose slug
// is the address of another page, as old ones may have, has its id there.
func TenantURL(t tenants.Tenant, path string) string {
	if path == "" && t.Slug == problem.ReservedSlug {
		return RouteForTenant(TenantPath, t.ID)
	}
	return RouteForTenant(TenantPath+path, t.Slug)
}

// PlanURL is the page of a plan; "" when there is none at its slug.
func PlanURL(slug string) string {
	if slug == "" || slug == problem.ReservedSlug {
		return ""
	}
	return "/plans/" + slug
}

// TenantHead is above the pages of the tenant that the path names.
func (w *Shell) TenantHead(c echo.Context, current string) views.TenantHead {
	return views.TenantHead{Tabs: w.TenantTabs(c, current), Suspended: TenantOf(c).Status == tenants.Suspended}
}

// PathID is an id in the path; NotFound for what is none.
func PathID(c echo.Context, name string) (string, error) {
	id := c.Param(name)
	if uuid.Validate(id) != nil {
		return "", ErrNoPage
	}
	return id, nil
}
