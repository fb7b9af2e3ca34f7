package admin

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/export"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/views"
)

const (
	// changesInList is the maximum number of changed fields that a list shows for one entry.
	// changesInEntry is the maximum on the page of an entry.
	changesInList, changesInEntry = 12, 500
	// verifyTimeout is the maximum time for verifying the hash chain.
	verifyTimeout = 2 * time.Minute
)

func (w *pages) showAudit(c echo.Context) error {
	return w.renderAudit(c, http.StatusOK)
}

func (w *pages) renderAudit(c echo.Context, status int) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	v, err := r.view(c.Request().Context())
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	p := w.Page(c, "Audit")
	if web.TenantOf(c).ID != "" {
		p = w.TenantPage(c, "Audit")
	}
	return w.Render(c, status, views.AuditPage(p, v))
}

func (r *auditReading) view(ctx context.Context) (views.Audit, error) {
	v := views.Audit{
		Title: "Audit", Lead: "Every change, with its author and its origin. Entries are never changed or deleted.",
		Tenants: true, Chain: r.masked == nil,
		CSVURL: r.address(r.base+".csv", nil), CSVLimit: views.Count(int64(r.w.cfg.AuditLines)).Exact, Columns: auditColumns(),
		Ranges: r.ranges(), VerifyURL: "/audit/verify", Verdict: r.w.chain.view(r.w.Now()),
		Empty: views.Empty{Title: "No entry matches", Text: "Remove a filter, or choose a longer time."},
	}
	if len(r.values) == 0 {
		v.Empty = views.Empty{Title: "No changes yet", Text: "The first change writes the first entry."}
	}
	if web.TenantOf(r.c).ID != "" {
		v.Tabs, v.Tenants, v.VerifyURL, v.Verdict = r.w.TenantTabs(r.c, "/audit"), false, "", nil
		v.Lead = "Every change of this tenant, with its author. Entries are never changed or deleted."
	}
	if r.filter.After != "" {
		v.FirstURL = r.address(r.base, nil)
	}
	filter := r.filter
	filter.Limit = web.PageRows + 1
	lines, err := r.w.cfg.Audit.AuditEntries(ctx, filter)
	if err != nil {
		return v, err
	}
	if len(lines) > web.PageRows {
		lines = lines[:web.PageRows]
		v.NextURL = r.address(r.base, map[string]string{"after": lines[web.PageRows-1].ID})
	}
	for i := range lines {
		line, err := r.row(ctx, lines[i], changesInList)
		if err != nil {
			return v, err
		}
		v.Rows = append(v.Rows, line)
	}
	if v.Filters, err = r.filters(ctx); err != nil {
		return v, err
	}
	v.Notice = web.Notice(r.c)
	v.Filters.Saved, err = r.w.saved.Bar(r.c, saved.Audit)
	return v, err
}

func auditColumns() []views.AuditFact {
	facts := make([]views.AuditFact, len(export.AuditColumns))
	for i, c := range export.AuditColumns {
		facts[i] = views.AuditFact{Name: c.Name, Text: c.Text}
	}
	return facts
}

// row returns an entry as the current reader may see it. most is the maximum number of changed
// fields.
func (r *auditReading) row(ctx context.Context, e audit.Entry, most int) (views.AuditRow, error) {
	e, err := r.masked.Show(ctx, e)
	if err != nil {
		return views.AuditRow{}, err
	}
	kind := actorKindOf(e.Actor.Kind)
	v := views.AuditRow{
		URL: r.base + "/" + e.ID, When: views.NewMoment(e.At, r.w.Now()), Icon: kind.icon, Kind: kind.label, Who: e.Actor.Name,
		Address: e.Origin.Address, RequestID: e.Origin.RequestID, Action: e.Action, Words: actionWords(e.Action),
		Object: cmp.Or(e.ObjectName, e.Object),
	}
	if e.Seq > 0 {
		v.Seq = strconv.FormatInt(e.Seq, 10)
	}
	if e.TenantID != "" && web.TenantOf(r.c).ID == "" {
		if v.Tenant, err = r.tenantName(ctx, e.TenantID); err != nil {
			return v, err
		}
		if v.TenantURL = web.RouteForTenant(web.TenantPath, e.TenantID); v.Tenant == "" {
			v.Tenant, v.TenantURL = "deleted", ""
		}
	}
	v.ObjectURL = r.objectURL(e)
	v.Changes = fieldChanges(e.Before, e.After)
	if len(v.Changes) > most {
		v.More, v.Changes = len(v.Changes)-most, v.Changes[:most]
	}
	return v, nil
}

// tenantName returns the name of the tenant that has this ID, or "" if the tenant is
// deleted.
func (r *auditReading) tenantName(ctx context.Context, id string) (string, error) {
	if name, known := r.tenants[id]; known {
		return name, nil
	}
	t, err := r.w.cfg.Tenants.Tenant(ctx, id)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return "", err
	}
	r.tenants[id] = t.Name
	return t.Name, nil
}

// objectPages maps the part of an action before the dot to the route of the page about the
// action's object. Routes below web.TenantPath belong to the tenant of the entry.
var objectPages = map[string]string{
	"plan": "/plans", "tenant": web.TenantPath, "key": web.TenantPath + "/keys", "override": web.TenantPath + "/overrides",
	"list_entry": web.TenantPath + "/lists", "block": web.TenantPath + "/blocks",
	"grant": web.TenantPath + "/grants", "reservation": web.TenantPath + "/reservations",
	"user": web.TenantPath + "/members", "session": web.TenantPath + "/members", "operator_key": operatorKeysPath,
}

// objectURL returns the address of the page about the object of an entry. It returns "" if
// there is no such page, or if the reader may not open it.
func (r *auditReading) objectURL(e audit.Entry) string {
	group, verb, _ := strings.Cut(e.Action, ".")
	if verb == "delete" || verb == "remove" {
		return ""
	}
	route, end := objectPages[group], ""
	switch group {
	case "plan":
		end = "/" + e.ObjectName
	case "user", "session":
		if end = "/" + e.Object; e.TenantID == "" {
			route = "/people"
		}
	}
	if !r.w.CanOpen(r.c, route) || end == "/" {
		return ""
	}
	if strings.HasPrefix(route, web.TenantPath) {
		ref := e.TenantID
		if t := web.TenantOf(r.c); t.ID != "" && ref != "" {
			ref = t.Slug
		} else if r.tenants[ref] == "" {
			return "" // the tenant is deleted
		}
		route = web.RouteForTenant(route, ref)
	}
	return route + end
}

// showAuditLine shows one entry of the audit log. On the page of a tenant, an entry of
// another tenant gets NotFound.
func (w *pages) showAuditLine(c echo.Context) error {
	id, err := web.PathID(c, "line")
	if err != nil {
		return err
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
	if v.Row, err = r.row(ctx, lines[0], changesInEntry); err != nil {
		return err
	}
	e, err := r.masked.Show(ctx, lines[0])
	if err != nil {
		return err
	}
	v.Facts, v.Before, v.After = auditFacts(e, v.Row), indented(e.Before), indented(e.After)
	switch {
	case v.Before == "" && v.After == "":
		v.Nothing = "This entry has no documents."
	case len(v.Row.Changes) == 0:
		v.Nothing = "No field changed."
	}
	p := w.Page(c, "Audit entry")
	p.Crumbs = []views.Link{{Text: "Audit", URL: "/audit"}, {Text: "Entry " + cmp.Or(v.Row.Seq, id)}}
	if web.TenantOf(c).ID != "" {
		v.Tabs = w.TenantTabs(c, "/audit")
		p.Crumbs = w.TenantCrumbs(c, "Entry", views.Link{Text: "Audit", URL: r.base})
	}
	return w.Render(c, http.StatusOK, views.AuditLinePage(p, v))
}

// auditFacts returns the properties of an entry, without those that have no value.
func auditFacts(e audit.Entry, v views.AuditRow) []views.AuditFact {
	var list views.AuditFacts
	list.Add("Who", v.Kind)
	list.Add("ID of the actor", e.Actor.ID)
	list.Add("From", e.Origin.Address)
	list.Add("Request", e.Origin.RequestID)
	list.Add("Action", e.Action)
	list.Add("ID of the object", e.Object)
	list.Add("Tenant", v.Tenant)
	if e.Revision > 0 {
		list.Add("Revision", strconv.FormatInt(e.Revision, 10))
	}
	list.Add("Place in the chain", v.Seq)
	if e.Seq > 0 {
		list.Add("Hash", e.Hash.String())
	}
	return list
}
