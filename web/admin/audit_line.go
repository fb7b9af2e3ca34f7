package admin

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// objectURL is the page of what a line is about; "": it has none, or not for
// this reader.
func (r *auditReading) objectURL(e audit.Entry) string {
	group, verb, _ := strings.Cut(e.Action, ".")
	if verb == "delete" || verb == "remove" {
		return ""
	}
	route, end := "", ""
	switch group {
	case "plan":
		route, end = "/plans", "/"+e.ObjectName
	case "tenant":
		route = web.TenantPath
	case "key":
		route = web.TenantPath + "/keys"
	case "override":
		route = web.TenantPath + "/overrides"
	case "list_entry":
		route = web.TenantPath + "/lists"
	case "block":
		route = web.TenantPath + "/blocks"
	case "user", "session":
		if route, end = web.TenantPath+"/members", "/"+e.Object; e.TenantID == "" {
			route = "/people"
		}
	case "operator_key":
		route = "/settings/keys"
	}
	if !r.w.CanOpen(r.c, route) || end == "/" {
		return ""
	}
	if strings.HasPrefix(route, web.TenantPath) {
		if e.TenantID == "" {
			return ""
		}
		ref := e.TenantID
		if t := web.TenantOf(r.c); t.ID != "" {
			ref = t.Slug
		} else if name := r.tenants[ref]; name == "" {
			return "" // the tenant is gone
		}
		route = web.RouteForTenant(route, ref)
	}
	return route + end
}

// showAuditLine is one line, whole. A line of another tenant is not there.
func (w *pages) showAuditLine(c echo.Context) error {
	id := c.Param("line")
	if uuid.Validate(id) != nil {
		return web.ErrNoPage
	}
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	lines, err := w.cfg.Audit.AuditEntries(ctx, audit.Filter{ID: id, TenantID: web.TenantOf(c).ID, Limit: 1})
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return web.ErrNoPage
	}
	v := views.AuditLine{Back: r.base}
	if v.Row, err = r.row(ctx, lines[0], changesOnLine); err != nil {
		return err
	}
	e, err := r.shown(ctx, lines[0])
	if err != nil {
		return err
	}
	v.Facts, v.Before, v.After = auditFacts(e, v.Row), indented(e.Before), indented(e.After)
	switch {
	case v.Before == "" && v.After == "":
		v.Nothing = "This line has no documents: its words say all."
	case len(v.Row.Changes) == 0:
		v.Nothing = "No field differs."
	}
	p := w.Page(c, "Line of the audit log")
	p.Crumbs = []views.Link{{Text: "Audit", URL: "/audit"}, {Text: "Line " + orID(v.Row.Seq, id)}}
	if web.TenantOf(c).ID != "" {
		v.Tabs = w.TenantTabs(c, "/audit")
		p.Crumbs = w.TenantCrumbs(c, "Line", views.Link{Text: "Audit", URL: r.base})
	}
	return w.Render(c, http.StatusOK, views.AuditLinePage(p, v))
}

func orID(seq, id string) string {
	if seq == "" {
		return id
	}
	return seq
}

// auditFacts are what a line says beside its words; what is empty is left out.
func auditFacts(e audit.Entry, v views.AuditRow) []views.AuditFact {
	var list []views.AuditFact
	add := func(name, value string) {
		if value != "" {
			list = append(list, views.AuditFact{Name: name, Text: value})
		}
	}
	add("Who", v.Kind)
	add("Id of who", e.Actor.ID)
	add("From", e.Origin.Address)
	add("Request", e.Origin.RequestID)
	add("Action", e.Action)
	add("Id of what", e.Object)
	add("Tenant", v.Tenant)
	if e.Revision > 0 {
		add("Revision", strconv.FormatInt(e.Revision, 10))
	}
	add("Place in the chain", v.Seq)
	if e.Seq > 0 {
		add("Hash", e.Hash.String())
	}
	return list
}
