package web

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// tenantPath is the route of a tenant's first page; its other pages are below it.
const tenantPath = "/tenants/:tenant"

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

// tenantOf is the tenant that the path names: serve found it.
func tenantOf(c echo.Context) tenants.Tenant {
	t, _ := c.Get(tenantKey).(tenants.Tenant)
	return t
}

// may reports whether the visitor's role may do an action.
func may(c echo.Context, a accounts.Action) bool {
	return accounts.Authorize(who(c).principal(), a) == nil
}

// mayInTenant reports whether the visitor may do a write of the path's tenant:
// the people of one that is suspended only read.
func mayInTenant(c echo.Context, a accounts.Action) bool {
	return may(c, a) && (who(c).user.TenantID == "" || tenantOf(c).Status != tenants.Suspended)
}

// tenantTabs are the pages of the tenant that the path names, those that the
// visitor may see. current is what the open one's path has behind the tenant:
// "" is the first page, "/keys" that of the keys.
func (w *Web) tenantTabs(c echo.Context, current string) []views.Tab {
	var list []views.Tab
	for _, page := range tenantPages {
		action, there := w.readable[tenantPath+page.below]
		if !there || !may(c, action) {
			continue
		}
		list = append(list, views.Tab{Text: page.text, URL: below(tenantOf(c), page.below), Current: page.below == current})
	}
	return list
}

// tenantCrumbs lead from the list of tenants, for those who may see it, and the
// tenant to a page of it; above are what lies between the tenant and the page.
func (w *Web) tenantCrumbs(c echo.Context, title string, above ...views.Link) []views.Link {
	var list []views.Link
	if action, there := w.readable["/tenants"]; there && may(c, action) {
		list = append(list, views.Link{Text: "Tenants", URL: "/tenants"})
	}
	t := tenantOf(c)
	own := views.Link{Text: t.Name}
	if _, there := w.readable[tenantPath]; there && title != "" {
		own.URL = below(t, "")
	}
	list = append(append(list, own), above...)
	if title != "" {
		list = append(list, views.Link{Text: title})
	}
	return list
}

// tenantPage is a page of the tenant that the path names, with its crumbs.
func (w *Web) tenantPage(c echo.Context, title string, above ...views.Link) views.Page {
	p := w.page(c, title+" · "+tenantOf(c).Name)
	p.Crumbs = w.tenantCrumbs(c, title, above...)
	return p
}
