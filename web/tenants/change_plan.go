package tenants

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// comparePlans is GET /tenants/{tenant}/settings/plan?to=….
func (w *pages) comparePlans(c echo.Context) error {
	if to := c.QueryParam("to"); to == web.TenantOf(c).Plan {
		return c.Redirect(http.StatusSeeOther, web.SettingsURL(web.TenantOf(c)))
	}
	return w.showPlanChange(c, http.StatusOK, c.QueryParam("to"), nil)
}

func (w *pages) showPlanChange(c echo.Context, status int, to string, list []views.Fault) error {
	ctx, t := c.Request().Context(), web.TenantOf(c)
	before, err := w.PublishedDocument(ctx, t.Plan)
	if err != nil {
		return err
	}
	after, err := w.PublishedDocument(ctx, to)
	if err != nil {
		return err
	}
	v := views.PlanChange{
		Head: w.TenantHead(c, "/settings"), Action: web.SettingsURL(t) + "/plan", Back: web.SettingsURL(t), From: t.Plan, To: to,
		FromName: before.Name(), ToName: after.Name(), Revision: strconv.FormatInt(t.Revision, 10), Faults: list,
	}
	if v.Rows, err = planRows(before, after); err != nil {
		return err
	}
	v.Notes = append(v.Notes, "The new plan decides checks on every node within seconds.",
		"A counter keeps its value if both plans have its policy and limit and count in the same way. All other counters start at zero.")
	left, err := w.exceptionsLeft(ctx, t, before, after)
	if err != nil {
		return err
	}
	if left != "" {
		v.Notes = append(v.Notes, left)
	}
	page := w.TenantPage(c, "Change plan", views.Link{Text: "Tenant settings", URL: web.SettingsURL(t)})
	return w.Render(c, status, views.PlanChangePage(page, v))
}

// planRows returns a row for each policy that at least one of two documents has. A row has
// both versions of the policy.
func planRows(before, after plans.Document) ([]views.PlanChangeRow, error) {
	diff, err := plans.Compare(before, after)
	if err != nil {
		return nil, err
	}
	what := map[string]string{}
	for _, p := range diff.Added {
		what[p.Slug] = "added"
	}
	for _, p := range diff.Changed {
		what[p.Slug] = "changed"
	}
	rows := []views.PlanChangeRow{}
	old := map[string]plans.Policy{}
	for _, p := range before.Policies() {
		old[p.Slug] = p
	}
	for _, p := range after.Policies() {
		r := views.PlanChangeRow{Policy: p.Slug, What: what[p.Slug], After: policyLines(p)}
		r.What = cmp.Or(r.What, "same")
		if r.What != "added" {
			r.Before = policyLines(old[p.Slug])
		}
		rows = append(rows, r)
	}
	for _, p := range diff.Removed {
		rows = append(rows, views.PlanChangeRow{Policy: p.Slug, What: "removed", Before: policyLines(p)})
	}
	return rows, nil
}

// policyLines describes a policy in words, one line for each property.
func policyLines(p plans.Policy) []string {
	lines := []string{web.MatchWords(p.Match), "counted for " + web.CountByWords(p.CountBy)}
	for _, l := range p.Limits {
		lines = append(lines, plans.Describe(l))
	}
	if !p.Mode.Denies() && p.Mode != "" {
		lines = append(lines, "mode "+string(p.Mode))
	}
	return lines
}

// exceptionsLeft returns a sentence about overrides and blocks whose policies the new plan
// does not have. It returns "" if there are none.
func (w *pages) exceptionsLeft(ctx context.Context, t tenants.Tenant, before, after plans.Document) (string, error) {
	gone := map[string]bool{}
	for _, p := range before.Policies() {
		gone[p.Slug] = true
	}
	for _, p := range after.Policies() {
		delete(gone, p.Slug)
	}
	o, b, begin := 0, 0, ""
	for _, policy := range slices.Sorted(maps.Keys(gone)) {
		of := exceptions.Filter{Policy: policy, Limit: web.MaxCountedExceptions}
		overrides, err := w.cfg.Exceptions.Overrides(ctx, t.ID, of)
		if err != nil {
			return "", err
		}
		blocks, err := w.cfg.Exceptions.Blocks(ctx, t.ID, of)
		if err != nil {
			return "", err
		}
		if o, b = o+len(overrides), b+len(blocks); max(o, b) >= web.MaxCountedExceptions {
			begin = "At least "
			break
		}
	}
	if o+b == 0 {
		return "", nil
	}
	return begin + numberOf(o, "override") + " and " + numberOf(b, "block") +
		" lose their effect, because the new plan does not have their policies.", nil
}

// numberOf returns a number with its noun: "1 override", "3 overrides".
func numberOf(n int, thing string) string { return views.Quantity(int64(n), thing, thing+"s") }

// changePlan is POST /tenants/{tenant}/settings/plan.
func (w *pages) changePlan(c echo.Context, f url.Values) error {
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	if !f.Has("plan") {
		return problem.New(problem.Malformed, "the form does not say which plan")
	}
	t := web.TenantOf(c)
	d := t.Document
	d.Plan = f.Get("plan")
	_, err = w.cfg.Tenants.UpdateTenant(c.Request().Context(), t.ID, d, revision)
	switch {
	case err == nil:
		return w.done(c, web.SettingsURL(t), "tenant-plan")
	case problem.Is(err, problem.Stale):
		return w.showPlanChange(c, http.StatusConflict, d.Plan, []views.Fault{{
			Message: "Another person changed the tenant after you opened this page. Check the change again: it starts from the current plan now.",
		}})
	}
	return w.retrySettings(c, err, map[string]string{"plan": "to"}, func(v *views.TenantSettings) *[]views.Fault { return &v.Faults })
}
