package plans

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// plansPage is the number of plans on one page of the list.
const plansPage = 25

// planPath returns the path of a plan's page. If the slug of the plan is reserved for another
// page, the path has the ID of the plan instead.
func planPath(p plans.Plan) string {
	if p.Slug == problem.ReservedSlug {
		return "/plans/" + p.ID
	}
	return "/plans/" + p.Slug
}

// planOf returns the plan that the path names.
func (w *pages) planOf(c echo.Context) (plans.Plan, error) {
	ref := c.Param("plan")
	if !problem.ValidSlug(ref) && uuid.Validate(ref) != nil {
		return plans.Plan{}, web.ErrNoPage
	}
	return w.cfg.Plans.Plan(c.Request().Context(), ref)
}

// inForce returns the published document of a plan. It returns false if no version of the plan
// is published.
func (w *pages) inForce(ctx context.Context, p plans.Plan) (plans.Document, bool, error) {
	if p.Published == 0 {
		return plans.Document{}, false, nil
	}
	v, err := w.cfg.Plans.Version(ctx, p.ID, p.Published)
	return v.Document, err == nil, err
}

func mayEditPlans(c echo.Context) bool { return web.May(c, accounts.PlansWrite) }

func tenantsWords(n int) string { return views.Quantity(int64(n), "tenant", "tenants") }

// planTabs are the pages of a plan.
var planTabs = []struct{ text, path string }{
	{"Policies", ""}, {"Edit draft", "/edit"}, {"Changes", "/diff"}, {"Preview", "/preview"}, {"History", "/history"},
}

// planHead returns the data that all pages of a plan show at the top. tab is the end of the
// open page's path: the part after the path of the plan.
func (w *pages) planHead(c echo.Context, p plans.Plan, tab string) (views.PlanHead, error) {
	base := planPath(p)
	h := views.PlanHead{
		Name: p.Draft.Name(), Slug: p.Slug, URL: base, Tenants: tenantsWords(p.Tenants), MayWrite: mayEditPlans(c), Notice: web.Notice(c),
	}
	for _, t := range planTabs {
		if t.path != "/edit" || h.MayWrite {
			h.Tabs = append(h.Tabs, views.Tab{Text: t.text, URL: base + t.path, Current: t.path == tab})
		}
	}
	now, published, err := w.inForce(c.Request().Context(), p)
	if err != nil || !published {
		return h, err
	}
	d, err := plans.Compare(now, p.Draft)
	h.Published, h.Differs = versionName(p.Published)+" in force", !d.Empty()
	return h, err
}

func versionName(n int) string { return "version " + strconv.Itoa(n) }

// planPage returns the frame of a page of one plan.
func (w *pages) planPage(c echo.Context, p plans.Plan, title string) views.Page {
	page := w.Page(c, title+" · "+p.Draft.Name())
	page.Draft = true
	page.Crumbs = []views.Link{{Text: "Plans", URL: "/plans"}, {Text: p.Draft.Name(), URL: planPath(p)}}
	if title == "Plan" {
		page.Title = p.Draft.Name()
		page.Crumbs[1].URL = ""
	} else {
		page.Crumbs = append(page.Crumbs, views.Link{Text: title})
	}
	return page
}

func (w *pages) listPlans(c echo.Context) error {
	ctx, query := c.Request().Context(), c.QueryParam("q")
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Query: strings.TrimSpace(query), After: web.After(c), Limit: plansPage + 1})
	if err != nil {
		return err
	}
	v := views.PlanList{Query: query, MayWrite: mayEditPlans(c)}
	v.Notice, v.Empty = web.Notice(c), views.Empty{Title: "No plans", Text: "A plan sets what its tenants may call, and how often."}
	if v.MayWrite {
		v.Empty.Link = views.Link{Text: "Create a plan", URL: "/plans/new"}
	}
	list, v.Next = web.Cut(c, list, plansPage, func(p plans.Plan) string { return p.ID })
	for _, p := range list {
		row, err := w.planRow(ctx, p)
		if err != nil {
			return err
		}
		v.Rows = append(v.Rows, row)
	}
	return w.Render(c, http.StatusOK, views.PlansPage(w.Page(c, "Plans"), v))
}

func (w *pages) planRow(ctx context.Context, p plans.Plan) (views.PlanRow, error) {
	r := views.PlanRow{
		Name: p.Draft.Name(), Slug: p.Slug, URL: planPath(p), Policies: len(p.Draft.Policies()), Tenants: views.Count(int64(p.Tenants)),
		Draft: "only a draft",
	}
	now, published, err := w.inForce(ctx, p)
	if err != nil || !published {
		return r, err
	}
	d, err := plans.Compare(now, p.Draft)
	r.Published, r.Policies, r.Draft, r.Differs = versionName(p.Published), len(now.Policies()), "as published", !d.Empty()
	if r.Differs {
		r.Draft = "differs"
	}
	return r, err
}

// newPlanView returns the form for a new plan. In it, the visitor can choose a plan to copy.
// The form offers the first plans of the list, and the plan that the parameter from names.
func (w *pages) newPlanView(c echo.Context, q url.Values) (views.NewPlan, error) {
	list, err := w.cfg.Plans.Plans(c.Request().Context(), plans.Filter{Limit: 200})
	from := q.Get("from")
	v := views.NewPlan{
		Name: views.TextInput("name", "Name", q.Get("name"), "The name on the pages."),
		Slug: views.TextInput("slug", "Slug", q.Get("slug"),
			"The name in addresses and in the API. It cannot be changed. Lowercase letters, digits, and hyphens."),
		From: views.Select{
			Name: "from", Label: "Start with", Value: from, Optional: true,
			Options: []views.Option{{Value: "", Label: "One policy: 120 requests per minute for each ip"}},
		},
	}
	var slugs []string
	for _, p := range list {
		slugs = append(slugs, p.Slug)
	}
	if problem.ValidSlug(from) && !slices.Contains(slugs, from) {
		slugs = append(slugs, from)
	}
	for _, slug := range slugs {
		v.From.Options = append(v.From.Options, views.Option{Value: slug, Label: "A copy of the draft of " + slug})
	}
	return v, err
}

func (w *pages) newPlanForm(c echo.Context) error {
	v, err := w.newPlanView(c, url.Values{"from": {c.QueryParam("from")}})
	if err != nil {
		return err
	}
	return w.showNewPlan(c, http.StatusOK, v)
}

func (w *pages) showNewPlan(c echo.Context, status int, v views.NewPlan) error {
	page := w.Page(c, "New plan")
	page.Crumbs = []views.Link{{Text: "Plans", URL: "/plans"}, {Text: "New plan"}}
	return w.Render(c, status, views.NewPlanPage(page, v))
}

// firstPolicy returns the policy that a new plan gets if it is not a copy of another plan.
func firstPolicy() plans.Policy {
	return plans.Policy{
		Slug: "per-ip", Description: "Limits the requests of each address.", CountBy: []string{"ip"},
		Limits: []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 120, Window: time.Minute}},
	}
}

func (w *pages) createPlan(c echo.Context, f url.Values) error {
	ctx, draft := c.Request().Context(), plans.Content{Policies: []plans.Policy{firstPolicy()}}
	var err error
	if from := f.Get("from"); from != "" {
		var origin plans.Plan
		if origin, err = w.cfg.Plans.Plan(ctx, from); problem.Is(err, problem.NotFound) {
			err = problem.At("/from", "names a plan that does not exist")
		}
		draft = origin.Draft.Content()
	}
	draft.Name = f.Get("name")
	var p plans.Plan
	if err == nil {
		p, err = w.cfg.Plans.CreatePlan(ctx, f.Get("slug"), plans.New(draft))
	}
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, planPath(p)+"/edit?done=plan-created")
	}
	v, failed := w.newPlanView(c, f)
	if failed != nil {
		return failed
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showNewPlan(c, status, v) })
}

func (w *pages) showPlan(c echo.Context, p plans.Plan) error {
	return w.planPageWith(c, http.StatusOK, p, "", nil)
}

// planPageWith shows a plan. typed and faults are the text and the faults of the form that
// deletes the plan.
func (w *pages) planPageWith(c echo.Context, status int, p plans.Plan, typed string, faults []views.Fault) error {
	head, err := w.planHead(c, p, "")
	if err != nil {
		return err
	}
	shown, published, err := w.inForce(c.Request().Context(), p)
	if err != nil {
		return err
	}
	if !published {
		shown = p.Draft
	}
	v := views.PlanPage{PlanHead: head, Description: shown.Description(), Unpublished: !published, PreviewURL: planPath(p) + "/preview"}
	edit := ""
	if head.MayWrite {
		edit = planPath(p) + "/edit"
	}
	v.Policies = policyCards(shown, edit)
	v.Shadow = published && slices.ContainsFunc(shown.Policies(), func(p plans.Policy) bool { return p.Mode == enforcement.PolicyShadow })
	if head.MayWrite && p.Tenants == 0 {
		v.Delete = &views.DeletePlan{
			URL: planPath(p) + "/delete", Revision: strconv.FormatInt(p.Revision, 10), Faults: faults,
			Confirm: views.TextInput("confirm", "Type "+p.Slug+" to confirm", typed, ""),
		}
		if len(faults) > 0 {
			v.Delete.Confirm.Error = faults[0].Message
		}
	}
	return w.Render(c, status, views.PlanReadPage(w.planPage(c, p, "Plan"), v))
}

func (w *pages) deletePlan(c echo.Context, p plans.Plan, f url.Values, revision int64) error {
	if strings.TrimSpace(f.Get("confirm")) != p.Slug && p.Tenants == 0 {
		return w.planPageWith(c, http.StatusUnprocessableEntity, p, f.Get("confirm"),
			[]views.Fault{{Field: "confirm", Message: "This is not the slug: nothing was deleted."}})
	}
	if err := w.cfg.Plans.DeletePlan(c.Request().Context(), p.ID, revision); err != nil {
		return err
	}
	w.Changed(c.Request().Context())
	return c.Redirect(http.StatusSeeOther, "/plans?done=plan-deleted")
}

// formRevision parses the revision in a form. It is the revision that the visitor saw when the
// form was opened.
func formRevision(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, problem.New(problem.Malformed, "the form does not say which revision it changes")
	}
	return n, nil
}

// faultsOf returns the fields of a problem.
func faultsOf(err error) problem.Fields {
	if p := (*problem.Problem)(nil); errors.As(err, &p) {
		return p.Fields
	}
	return nil
}
