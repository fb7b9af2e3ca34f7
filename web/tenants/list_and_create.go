package tenants

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// plansInForm is the maximum number of plans that a form offers.
const plansInForm = 500

// listTenants is GET /tenants.
func (w *pages) listTenants(c echo.Context) error {
	ctx, query := c.Request().Context(), c.QueryParam("q")
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: strings.TrimSpace(query), After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	counts, err := w.lastDay(ctx, list)
	if err != nil {
		return err
	}
	v, newURL := views.Tenants{Query: query}, ""
	if web.May(c, accounts.TenantWrite) {
		newURL = "/tenants/new"
	}
	v.List = web.NewList(c, list, func(t tenants.Tenant) string { return t.ID }, newURL, func(t tenants.Tenant) views.ListedTenant {
		return w.listed(t, counts[t.Number])
	})
	if web.After(c) != "" {
		v.FirstURL = web.AddressAfter(c, "")
	}
	v.Empty = views.Empty{
		Title: "No tenants", Text: "A tenant is one of your customers. Create a tenant, create an API key for it, and send its checks.",
	}
	if newURL != "" {
		v.Empty.Link = views.Link{Text: "New tenant", URL: newURL}
	}
	return w.Render(c, http.StatusOK, views.TenantsPage(w.Page(c, "Tenants"), v))
}

// lastDay returns the counts of the given tenants in the last 24 hours by tenant number, with a
// single query.
func (w *pages) lastDay(ctx context.Context, list []tenants.Tenant) (map[uint32]metrics.Counts, error) {
	if len(list) == 0 {
		return nil, nil
	}
	now := w.Now()
	q := metrics.SumQuery{From: now.Add(-web.Day), To: now, Kind: metrics.KindTotal}
	for _, t := range list {
		q.Tenants = append(q.Tenants, t.Number)
	}
	rows, _, err := w.cfg.Analytics.Sums(ctx, q)
	counts := make(map[uint32]metrics.Counts, len(rows))
	for _, r := range rows {
		counts[r.Tenant] = r.Counts
	}
	return counts, err
}

func (w *pages) listed(t tenants.Tenant, counts metrics.Counts) views.ListedTenant {
	return views.ListedTenant{
		Name: t.Name, Slug: t.Slug, URL: web.TenantURL(t, ""), Plan: t.Plan, PlanURL: web.PlanURL(t.Plan),
		Suspended: t.Status == tenants.Suspended, Created: views.NewMoment(t.CreatedAt, w.Now()),
		Requests: views.Count(counts.Requests), Unmatched: views.Count(counts.Unmatched),
		Rate: views.Percent(counts.Limited(), counts.Requests), Tone: rateTone(counts),
	}
}

// rateTone returns the tone for a tenant's rate of 429 answers: "bad" from 20%, "warn" from 2
// %.
func rateTone(c metrics.Counts) string {
	switch limited := c.Limited(); {
	case limited*5 >= c.Requests && limited > 0:
		return "bad"
	case limited*50 >= c.Requests && limited > 0:
		return "warn"
	}
	return ""
}

// planSelect returns a choice of all published plans, with one of them selected.
func (w *pages) planSelect(ctx context.Context, name, chosen string) (views.Select, error) {
	s := views.Select{
		Name: name, Label: "Plan", Value: chosen, Optional: true,
		Options: []views.Option{{Value: "", Label: "No plan: Headgate counts nothing"}},
	}
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Limit: plansInForm})
	for _, p := range list {
		if p.Published > 0 || p.Slug == chosen {
			s.Options = append(s.Options, views.Option{Value: p.Slug, Label: planLabel(p)})
		}
	}
	return s, err
}

func planLabel(p plans.Plan) string {
	name := cmp.Or(p.Draft.Name(), p.Slug)
	if strings.EqualFold(name, p.Slug) {
		return name
	}
	return name + " (" + p.Slug + ")"
}

func noPolicyChoice(chosen tenants.NoPolicy) views.Choice {
	return views.Choice{
		Name: "no_policy", Label: "Requests that match no policy", Value: string(cmp.Or(chosen, tenants.Allow)),
		Options: []views.Option{
			{Value: string(tenants.Allow), Label: "Allow", Hint: "They are charged to no limit."},
			{Value: string(tenants.Deny), Label: "Deny", Hint: "They are denied with 403: only requests that a policy matches are allowed."},
		},
	}
}

// tenantForm returns the form of a new tenant.
func (w *pages) tenantForm(ctx context.Context, q url.Values) (views.TenantForm, error) {
	plan, err := w.planSelect(ctx, "plan", "")
	plan.Value = q.Get("plan")
	v := views.TenantForm{
		Name: views.TextInput("name", "Name", q.Get("name"), "The name on the pages."), Plan: plan, NoPolicy: noPolicyChoice(""),
		Slug: views.TextInput("slug", "Slug", q.Get("slug"),
			"The name in addresses and in the API. It cannot be changed. Lowercase letters, digits, and hyphens."),
	}
	v.NoPolicy.Choose(q.Get("no_policy"))
	return v, err
}

func (w *pages) newTenantForm(c echo.Context) error {
	v, err := w.tenantForm(c.Request().Context(), c.QueryParams())
	if err != nil {
		return err
	}
	return w.showTenantForm(c, http.StatusOK, v)
}

func (w *pages) showTenantForm(c echo.Context, status int, v views.TenantForm) error {
	p := w.Page(c, "New tenant")
	p.Crumbs = []views.Link{{Text: "Tenants", URL: "/tenants"}, {Text: "New tenant"}}
	return w.Render(c, status, views.NewTenantPage(p, v))
}

// createTenant is POST /tenants.
func (w *pages) createTenant(c echo.Context, f url.Values) error {
	ctx := c.Request().Context()
	d := tenants.Document{Name: strings.TrimSpace(f.Get("name")), Plan: f.Get("plan"), NoPolicy: tenants.NoPolicy(f.Get("no_policy"))}
	t, err := w.cfg.Tenants.CreateTenant(ctx, strings.TrimSpace(f.Get("slug")), d)
	if err == nil {
		return w.done(c, web.RouteForTenant(web.TenantPath, t.Slug), "tenant-created")
	}
	v, failed := w.tenantForm(ctx, f)
	if failed != nil {
		return failed
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showTenantForm(c, status, v) })
}
