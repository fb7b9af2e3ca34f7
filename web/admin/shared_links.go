package admin

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

const (
	sharedLinksPath  = "/settings/links"
	sharedLinksTitle = "Shared links"
)

// sharedLinkRoutes returns the routes of the pages that list shared links: those of the
// operator, or those of a tenant.
func (w *pages) sharedLinkRoutes(base string, ofTenant bool) []web.Route {
	read, write := share.Actions(ofTenant)
	return []web.Route{
		web.Get(base, read, w.listSharedLinks),
		web.Get(base+"/:link/revoke", write, w.confirmSharedLink),
		web.PostForm(base+"/:link/revoke", write, w.revokeSharedLink),
	}
}

// sharedLinkHead returns the tabs of the pages about shared links.
func (w *pages) sharedLinkHead(c echo.Context) views.TenantHead {
	if web.TenantOf(c).ID == "" {
		return views.TenantHead{Tabs: w.settingsTabs(c, sharedLinksPath), Settings: true}
	}
	return w.TenantHead(c, "/links")
}

func (w *pages) sharedLinkPage(c echo.Context, title string, above ...views.Link) views.Page {
	if web.TenantOf(c).ID == "" {
		return w.settingsPage(c, title, above...)
	}
	return w.TenantPage(c, title, above...)
}

var (
	sharedKindNames = map[sharing.Kind]string{sharing.Display: "live display", sharing.Snapshot: "snapshot"}
	sharedPageNames = map[sharing.Page]string{sharing.Overview: "Overview", sharing.Traffic: "Usage", sharing.Denials: "Denials"}
)

func (w *pages) listSharedLinks(c echo.Context) error {
	t := web.TenantOf(c)
	rows, err := w.cfg.Sharing.Links(c.Request().Context(), t.ID, sharing.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	_, write := share.Actions(t.ID != "")
	seen := w.tenantView(c)
	for i := range rows {
		if seen == nil || rows[i].CreatedBy.Kind == "system" {
			continue
		}
		own, err := seen.Owns(c.Request().Context(), rows[i].CreatedBy)
		if err != nil {
			return err
		}
		if !own {
			rows[i].CreatedBy.Name = "operator"
		}
	}
	v := views.SharedLinks{
		Lead: "Whoever has a shared link sees one page without signing in. Headgate does not keep the links themselves, only their hashes.",
	}
	v.List = web.NewList(c, rows, func(l sharing.Link) string { return l.ID }, "", w.sharedLinkRow(t))
	v.Head, v.MayRevoke = w.sharedLinkHead(c), web.MayInTenant(c, write)
	page := views.Link{Text: "Overview", URL: "/overview"}
	if t.ID != "" {
		page = views.Link{Text: "Usage", URL: web.TenantURL(t, "")}
	}
	v.Empty = views.Empty{
		Title: "No shared links",
		Text:  "“Share” on the overview, on the first page of a tenant, and on the denials creates a link: a live display, or a snapshot.",
		Link:  page,
	}
	return w.Render(c, http.StatusOK, views.SharedLinksPage(w.sharedLinkPage(c, sharedLinksTitle), v))
}

func (w *pages) sharedLinkRow(t tenants.Tenant) func(sharing.Link) views.SharedLink {
	return func(l sharing.Link) views.SharedLink {
		now := w.Now()
		r := views.SharedLink{
			ID: l.ID, Name: l.Name, Kind: sharedKindNames[l.Kind], Page: sharedPageNames[l.Page], CreatedBy: l.CreatedBy.Name,
			Created: views.NewMoment(l.CreatedAt, now), Used: views.NewMoment(l.LastUsedAt, now), Expires: views.NewMoment(l.ExpiresAt, now),
			RevokeURL: share.ListURL(t) + "/" + l.ID + "/revoke",
		}
		if q, err := url.QueryUnescape(l.Query); err == nil {
			r.Detail = q
		}
		return r
	}
}

// sharedLink returns the link in the path.
func (w *pages) sharedLink(c echo.Context) (sharing.Link, error) {
	id, err := web.PathID(c, "link")
	if err != nil {
		return sharing.Link{}, err
	}
	return w.cfg.Sharing.Link(c.Request().Context(), web.TenantOf(c).ID, id)
}

func (w *pages) confirmSharedLink(c echo.Context) error {
	l, err := w.sharedLink(c)
	if err != nil {
		return err
	}
	list := share.ListURL(web.TenantOf(c))
	v := views.Confirm{
		Head: w.sharedLinkHead(c), Title: "Revoke the link " + l.Name + "?", Button: "Revoke the link", Bad: true,
		Action: list + "/" + l.ID + "/revoke", Back: list,
		Text: []string{"It then opens nothing. Displays that are open end within seconds. A new link is another one."},
	}
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.sharedLinkPage(c, "Revoke", views.Link{Text: sharedLinksTitle, URL: list}), v))
}

func (w *pages) revokeSharedLink(c echo.Context, _ url.Values) error {
	l, err := w.sharedLink(c)
	if err != nil {
		return err
	}
	if err := w.cfg.Sharing.Revoke(c.Request().Context(), web.TenantOf(c).ID, l.ID); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, share.ListURL(web.TenantOf(c))+"?done=link-revoked")
}
