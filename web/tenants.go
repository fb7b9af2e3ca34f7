package web

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
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// tenantsOnPage is how many tenants stand on one page of the list.
const tenantsOnPage = 50

// plansInForm is how many plans a form offers to choose from.
const plansInForm = 500

func (w *Web) tenantsRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	rows := []row{
		{get, "/tenants", accounts.TenantsList, w.listTenants, bounded},
		{post, "/tenants", accounts.TenantWrite, w.createTenant, bounded},
		{get, "/tenants/new", accounts.TenantWrite, w.newTenantForm, bounded},
	}
	rows = append(rows, w.settingsRoutes()...)
	rows = append(rows, w.tenantKeysRoutes()...)
	rows = append(rows, w.exceptionRoutes()...)
	return append(rows, w.tenantRoutes()...)
}

// listTenants is GET /tenants.
func (w *Web) listTenants(c echo.Context) error {
	ctx := c.Request().Context()
	query, after := c.QueryParam("q"), c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: strings.TrimSpace(query), After: after, Limit: tenantsOnPage + 1})
	if err != nil {
		return err
	}
	v := views.Tenants{Query: query, Notice: tenantDone(c), Empty: views.Empty{
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
	if may(c, accounts.TenantWrite) {
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
	return w.render(c, http.StatusOK, views.TenantsPage(w.page(c, "Tenants"), v))
}

// lastDay gives what was counted of some tenants in the last 24 hours, by their
// numbers, in one reading.
func (w *Web) lastDay(ctx context.Context, list []tenants.Tenant) (map[uint32]metrics.Counts, error) {
	if len(list) == 0 {
		return nil, nil
	}
	now := w.cfg.Now()
	q := metrics.SumQuery{From: now.Add(-day), To: now, Kind: metrics.KindTotal}
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

func (w *Web) listed(t tenants.Tenant, counts metrics.Counts) views.ListedTenant {
	return views.ListedTenant{
		Name: t.Name, Slug: t.Slug, URL: below(t, ""), Plan: t.Plan, PlanURL: w.planURL(t.Plan),
		Suspended: t.Status == tenants.Suspended, Created: views.NewMoment(t.CreatedAt, w.cfg.Now()),
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

// planURL is the page of a plan; "" when there is none at its slug.
func (w *Web) planURL(slug string) string {
	if _, there := w.readable["/plans/:plan"]; !there || slug == "" || slug == problem.ReservedSlug {
		return ""
	}
	return "/plans/" + slug
}

// planSelect offers the published plans, and what is chosen already.
func (w *Web) planSelect(ctx context.Context, name, chosen string) (views.Select, error) {
	s := views.Select{Name: name, Label: "Plan", Value: chosen, Optional: true, Options: []views.Option{{Value: "", Label: "No plan: nothing is counted"}}}
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
	return views.Choice{Name: "no_policy", Label: "A request that matches no policy", Value: string(cmp.Or(chosen, tenants.Allow)), Options: []views.Option{
		{Value: string(tenants.Allow), Label: "passes", Hint: "Nothing of it is counted against a limit."},
		{Value: string(tenants.Deny), Label: "is refused", Hint: "Answered 403: only what the plan names may be called."},
	}}
}

// tenantForm is the empty form of a new tenant.
func (w *Web) tenantForm(ctx context.Context) (views.TenantForm, error) {
	plan, err := w.planSelect(ctx, "plan", "")
	return views.TenantForm{
		Name:     views.Input{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Hint: "As people know it."},
		Slug:     views.Input{Name: "slug", Label: "Slug", Type: "text", Autocomplete: "off", Hint: "In addresses and in the API, and never changed: lower-case letters, digits and hyphens."},
		Plan:     plan,
		NoPolicy: noPolicyChoice(""),
	}, err
}

func (w *Web) newTenantForm(c echo.Context) error {
	v, err := w.tenantForm(c.Request().Context())
	if err != nil {
		return err
	}
	v.Name.Value, v.Slug.Value, v.Plan.Value = c.QueryParam("name"), c.QueryParam("slug"), c.QueryParam("plan")
	return w.showTenantForm(c, http.StatusOK, v)
}

func (w *Web) showTenantForm(c echo.Context, status int, v views.TenantForm) error {
	p := w.page(c, "New tenant")
	p.Crumbs = []views.Link{{Text: "Tenants", URL: "/tenants"}, {Text: "New tenant"}}
	return w.render(c, status, views.NewTenantPage(p, v))
}

// createTenant is POST /tenants.
func (w *Web) createTenant(c echo.Context) error {
	f, err := form(c, "name", "slug", "plan", "no_policy")
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	d := tenants.Document{Name: strings.TrimSpace(f.Get("name")), Plan: f.Get("plan"), NoPolicy: tenants.NoPolicy(f.Get("no_policy"))}
	slug := strings.TrimSpace(f.Get("slug"))
	made, err := w.cfg.Tenants.CreateTenant(ctx, slug, d)
	if err == nil {
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, inTenant(tenantPath, made.Slug)+"?done=tenant-created")
	}
	v, failed := w.tenantForm(ctx)
	if failed != nil {
		return failed
	}
	v.Name.Value, v.Slug.Value, v.Plan.Value, v.NoPolicy.Value = f.Get("name"), f.Get("slug"), f.Get("plan"), f.Get("no_policy")
	list, status, err := places{inputs: []*views.Input{&v.Name, &v.Slug}, selects: []*views.Select{&v.Plan}, choice: &v.NoPolicy}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showTenantForm(c, status, v)
}

// tenantNotices are what pages of tenants may say was done.
var tenantNotices = map[string]string{
	"tenant-created":   "The tenant is there. Make an API key next, and send its checks.",
	"tenant-saved":     "The settings are saved.",
	"tenant-plan":      "The plan is changed. Checks are decided by it from now on.",
	"tenant-suspended": "The tenant is suspended: its checks are answered 403.",
	"tenant-resumed":   "The tenant is resumed.",
	"tenant-deleted":   "The tenant is deleted.",
	"key-revoked":      "The key is revoked: requests with it are answered 401.",
	"override-created": "The override is in force.",
	"override-deleted": "The override is ended.",
	"entry-created":    "It is on the list.",
	"entry-deleted":    "It is off the list.",
	"block-created":    "The key is blocked.",
	"block-deleted":    "The block is ended.",
	"key-reset":        "The counters of this key are as new.",
}

func tenantDone(c echo.Context) string { return tenantNotices[c.QueryParam("done")] }

// tenantHead is above the pages of the tenant that the path names.
func (w *Web) tenantHead(c echo.Context, current string) views.TenantHead {
	return views.TenantHead{Tabs: w.tenantTabs(c, current), Suspended: tenantOf(c).Status == tenants.Suspended}
}

// pathID is an id in the path; NotFound for what is none.
func pathID(c echo.Context, name string) (string, error) {
	id := c.Param(name)
	if uuid.Validate(id) != nil {
		return "", errNoPage
	}
	return id, nil
}

// chooses sets the field of a choice if it is one of its options.
func chooses(k *views.Choice, value string) {
	for _, o := range k.Options {
		if o.Value == value {
			k.Value = value
		}
	}
}
