package tenants

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// plansInForm is the maximum number of plans that a form offers.
const plansInForm = 500

// rateTone returns the color for the share of a tenant's requests with a 429 response: "bad"
// from 20 %, "warn" from 2 %.
func rateTone(c metrics.Counts) string {
	switch limited := c.Limited(); {
	case limited*5 >= c.Requests && limited > 0:
		return "bad"
	case limited*50 >= c.Requests && limited > 0:
		return "warn"
	}
	return ""
}

// planSelect returns a select field with all published plans. The plan with the slug chosen is
// selected.
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
