package tenants

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// tenantsOnPage is how many tenants stand on one page of the list.
const tenantsOnPage = 50

// plansInForm is how many plans a form offers to choose from.
const plansInForm = 500

// listTenants is GET /tenants.
func (w *pages) listTenants(c echo.Context) error {
	ctx := c.Request().Context()
	query, after := c.QueryParam("q"), c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: strings.TrimSpace(query), After: after, Limit: tenantsOnPage + 1})
	if err != nil {
		return err
	}
	v := views.Tenants{Query: query, Notice: web.Notice(c), Empty: views.Empty{
		Title: "There are no tenants yet", Text: "A tenant is one of your customers. Make the first one, give it a key, and send its checks.",
	}}
	address := func(after string) string {
		q := url.Values{}
		if query != "" {
			q.Set("q", query)
		}
		if after != "" {
			q.Set("after", after)
		}
		if len(q) == 0 {
			return "/tenants"
		}
		return "/tenants?" + q.Encode()
	}
	if web.May(c, accounts.TenantWrite) {
		v.NewURL = "/tenants/new"
		v.Empty.Link = views.Link{Text: "New tenant", URL: "/tenants/new"}
	}
	if len(list) > tenantsOnPage {
		list = list[:tenantsOnPage]
		v.NextURL = address(list[tenantsOnPage-1].ID)
	}
	if after != "" {
		v.FirstURL = address("")
	}
	counts, err := w.lastDay(ctx, list)
	if err != nil {
		return err
	}
	for _, t := range list {
		v.Rows = append(v.Rows, w.listed(t, counts[t.Number]))
	}
	return w.Render(c, http.StatusOK, views.TenantsPage(w.Page(c, "Tenants"), v))
}

// lastDay gives what was counted of some tenants in the last 24 hours, by their
// numbers, in one reading.
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
		Requests: views.Count(counts.Requests), Rate: views.Percent(counts.Limited(), counts.Requests), Tone: rateTone(counts),
	}
}

// rateTone tells whether a rate of 429 is worth a look.
func rateTone(c metrics.Counts) string {
	switch limited := c.Limited(); {
	case limited*5 >= c.Requests && limited > 0:
		return "bad"
	case limited*50 >= c.Requests && limited > 0:
		return "warn"
	}
	return ""
}

// planSelect offers the published plans, and what is chosen already.
func (w *pages) planSelect(ctx context.Context, name, chosen string) (views.Select, error) {
	s := views.Select{
		Name: name, Label: "Plan", Value: chosen, Optional: true,
		Options: []views.Option{{Value: "", Label: "No plan: nothing is counted"}},
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
		Name: "no_policy", Label: "A request that matches no policy", Value: string(cmp.Or(chosen, tenants.Allow)),
		Options: []views.Option{
			{Value: string(tenants.Allow), Label: "passes", Hint: "Nothing of it is counted against a limit."},
			{Value: string(tenants.Deny), Label: "is refused", Hint: "Answered 403: only what the plan names may be called."},
		},
	}
}

// tenantForm is the empty form of a new tenant.
func (w *pages) tenantForm(ctx context.Context) (views.TenantForm, error) {
	plan, err := w.planSelect(ctx, "plan", "")
	return views.TenantForm{
		Name: views.Input{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Hint: "As people know it."},
		Slug: views.Input{
			Name: "slug", Label: "Slug", Type: "text", Autocomplete: "off",
			Hint: "In addresses and in the API, and never changed: lower-case letters, digits and hyphens.",
		},
		Plan:     plan,
		NoPolicy: noPolicyChoice(""),
	}, err
}

func (w *pages) newTenantForm(c echo.Context) error {
	v, err := w.tenantForm(c.Request().Context())
	if err != nil {
		return err
	}
	v.Name.Value, v.Slug.Value, v.Plan.Value = c.QueryParam("name"), c.QueryParam("slug"), c.QueryParam("plan")
	return w.showTenantForm(c, http.StatusOK, v)
}

func (w *pages) showTenantForm(c echo.Context, status int, v views.TenantForm) error {
	p := w.Page(c, "New tenant")
	p.Crumbs = []views.Link{{Text: "Tenants", URL: "/tenants"}, {Text: "New tenant"}}
	return w.Render(c, status, views.NewTenantPage(p, v))
}

// createTenant is POST /tenants.
func (w *pages) createTenant(c echo.Context) error {
	f, err := web.Form(c, "name", "slug", "plan", "no_policy")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	d := tenants.Document{Name: strings.TrimSpace(f.Get("name")), Plan: f.Get("plan"), NoPolicy: tenants.NoPolicy(f.Get("no_policy"))}
	slug := strings.TrimSpace(f.Get("slug"))
	made, err := w.cfg.Tenants.CreateTenant(ctx, slug, d)
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, web.RouteForTenant(web.TenantPath, made.Slug)+"?done=tenant-created")
	}
	v, failed := w.tenantForm(ctx)
	if failed != nil {
		return failed
	}
	v.Name.Value, v.Slug.Value, v.Plan.Value, v.NoPolicy.Value = f.Get("name"), f.Get("slug"), f.Get("plan"), f.Get("no_policy")
	list, status, err := web.Places{
		Inputs: []*views.Input{&v.Name, &v.Slug}, Selects: []*views.Select{&v.Plan},
		Choice: &v.NoPolicy,
	}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showTenantForm(c, status, v)
}

// chooses sets the field of a choice if it is one of its options.
func chooses(k *views.Choice, value string) {
	for _, o := range k.Options {
		if o.Value == value {
			k.Value = value
		}
	}
}
