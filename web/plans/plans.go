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

// plansPage is how many plans stand on one page of the list.
const plansPage = 25

// planPath is the address of a plan. One whose slug is the address of another
// page has its id there.
func planPath(p plans.Plan) string {
	if p.Slug == problem.ReservedSlug {
		return "/plans/" + p.ID
	}
	return "/plans/" + p.Slug
}

// planOf finds the plan that the path names.
func (w *pages) planOf(c echo.Context) (plans.Plan, error) {
	ref := c.Param("plan")
	if !problem.ValidSlug(ref) && uuid.Validate(ref) != nil {
		return plans.Plan{}, web.ErrNoPage
	}
	return w.cfg.Plans.Plan(c.Request().Context(), ref)
}

// inForce is the document that tenants of a plan follow; false when nothing is
// published.
func (w *pages) inForce(ctx context.Context, p plans.Plan) (plans.Document, bool, error) {
	if p.Published == 0 {
		return plans.Document{}, false, nil
	}
	v, err := w.cfg.Plans.Version(ctx, p.ID, p.Published)
	return v.Document, err == nil, err
}

// differs reports whether the draft is not what is published.
func (w *pages) differs(ctx context.Context, p plans.Plan) (bool, error) {
	now, published, err := w.inForce(ctx, p)
	if err != nil || !published {
		return false, err
	}
	d, err := plans.Compare(now, p.Draft)
	return !d.Empty(), err
}

func mayEditPlans(c echo.Context) bool {
	return accounts.Authorize(web.VisitorOf(c).Principal(), accounts.PlansWrite) == nil
}

// planHead is what every page of a plan begins with; tab is the path below the
// plan of the page.
func (w *pages) planHead(c echo.Context, p plans.Plan, tab string) (views.PlanHead, error) {
	base := planPath(p)
	h := views.PlanHead{
		Name: p.Draft.Name(), Slug: p.Slug, URL: base, Tenants: planCount(p.Tenants, "tenant", "tenants"), MayWrite: mayEditPlans(c),
		Notice: web.Notice(c),
	}
	var err error
	if h.Differs, err = w.differs(c.Request().Context(), p); err != nil {
		return h, err
	}
	if p.Published > 0 {
		h.Published = versionName(p.Published) + " in force"
	}
	for _, t := range []struct{ text, path string }{
		{"Policies", ""}, {"Edit draft", "/edit"}, {"Changes", "/diff"}, {"Preview", "/preview"}, {"History", "/history"},
	} {
		if t.path != "/edit" || h.MayWrite {
			h.Tabs = append(h.Tabs, views.Tab{Text: t.text, URL: base + t.path, Current: t.path == tab})
		}
	}
	return h, nil
}

func versionName(n int) string { return "version " + strconv.Itoa(n) }

// planPage is the frame of a page of one plan.
func (w *pages) planPage(c echo.Context, p plans.Plan, title string) views.Page {
	page := w.Page(c, title+" · "+p.Draft.Name())
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
	ctx := c.Request().Context()
	query, after := c.QueryParam("q"), c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Plans.Plans(ctx, plans.Filter{Query: strings.TrimSpace(query), After: after, Limit: plansPage + 1})
	if err != nil {
		return err
	}
	v := views.PlanList{
		Query: query, MayWrite: mayEditPlans(c), Notice: web.Notice(c),
		Empty: views.Empty{Title: "There is no plan yet", Text: "A plan says what its tenants may call, and how much."},
	}
	if v.MayWrite {
		v.Empty.Link = views.Link{Text: "Make the first one", URL: "/plans/new"}
	}
	if len(list) > plansPage {
		list = list[:plansPage]
		v.Next = "/plans?" + url.Values{"q": {query}, "after": {list[plansPage-1].ID}}.Encode()
	}
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
		Draft: "nothing but a draft",
	}
	if p.Published == 0 {
		return r, nil
	}
	now, _, err := w.inForce(ctx, p)
	if err != nil {
		return r, err
	}
	d, err := plans.Compare(now, p.Draft)
	if err != nil {
		return r, err
	}
	r.Published, r.Policies, r.Draft, r.Differs = versionName(p.Published), len(now.Policies()), "as published", !d.Empty()
	if r.Differs {
		r.Draft = "differs"
	}
	return r, nil
}

// newPlanView is the empty form. Plans to begin with are the first ones of the
// list; any other can be named by the address, as "Copy" on its page does.
func (w *pages) newPlanView(c echo.Context, from string) (views.NewPlan, error) {
	list, err := w.cfg.Plans.Plans(c.Request().Context(), plans.Filter{Limit: 200})
	v := views.NewPlan{
		Name: views.Input{Name: "name", Label: "Name", Type: "text", Hint: "As people read it."},
		Slug: views.Input{
			Name: "slug", Label: "Slug", Type: "text",
			Hint: "As addresses and the API have it; it stays. Lower-case letters, digits and hyphens.",
		},
		From: views.Select{
			Name: "from", Label: "Begin with", Value: from,
			Options: []views.Option{{Value: "", Label: "One first policy: 120 requests per minute for each ip"}}, Optional: true,
		},
	}
	for _, p := range list {
		v.From.Options = append(v.From.Options, views.Option{Value: p.Slug, Label: "A copy of " + p.Slug + " (its draft)"})
	}
	if problem.ValidSlug(from) && !slices.ContainsFunc(v.From.Options, func(o views.Option) bool { return o.Value == from }) {
		v.From.Options = append(v.From.Options, views.Option{Value: from, Label: "A copy of " + from + " (its draft)"})
	}
	return v, err
}

func (w *pages) newPlanForm(c echo.Context) error {
	v, err := w.newPlanView(c, c.QueryParam("from"))
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

// firstPolicy is what a plan begins with that is not a copy.
func firstPolicy() plans.Policy {
	return plans.Policy{
		Slug: "per-ip", Description: "Keeps one address from taking all.", CountBy: []string{"ip"},
		Limits: []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 120, Window: time.Minute}},
	}
}

func (w *pages) createPlan(c echo.Context) error {
	f, err := web.Form(c, "slug", "name", "from")
	if err != nil {
		return err
	}
	ctx, from := c.Request().Context(), f.Get("from")
	draft := plans.Content{Policies: []plans.Policy{firstPolicy()}}
	var p plans.Plan
	if from != "" {
		var origin plans.Plan
		if origin, err = w.cfg.Plans.Plan(ctx, from); problem.Is(err, problem.NotFound) {
			err = problem.At("/from", "there is no such plan")
		}
		draft = origin.Draft.Content()
	}
	draft.Name = f.Get("name")
	if err == nil {
		p, err = w.cfg.Plans.CreatePlan(ctx, f.Get("slug"), plans.New(draft))
	}
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, planPath(p)+"/edit?done=plan-created")
	}
	v, failed := w.newPlanView(c, from)
	if failed != nil {
		return failed
	}
	v.Slug.Value, v.Name.Value = f.Get("slug"), f.Get("name")
	if told := problemOf(err); told != nil && told.Code == "slug_taken" {
		err = problem.At("/slug", "is taken: another plan has it")
	}
	for _, fault := range faultsOf(err) {
		switch fault.Pointer {
		case "/from":
			v.From.Error = web.Sentence(fault.Message)
			v.Faults = append(v.Faults, views.Fault{Field: "from", Message: "Begin with: " + web.EndSentence(fault.Message)})
		default:
			v.Faults = append(v.Faults, web.Places{Inputs: []*views.Input{&v.Slug, &v.Name}}.ReportAt(strings.TrimPrefix(fault.Pointer, "/"),
				fault.Message))
		}
	}
	if len(v.Faults) == 0 {
		return err
	}
	return w.showNewPlan(c, http.StatusUnprocessableEntity, v)
}

func (w *pages) showPlan(c echo.Context) error {
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	return w.planPageWith(c, http.StatusOK, p, "", nil)
}

// planPageWith shows a plan; typed and faults are those of the form that deletes
// it.
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
	for _, policy := range shown.Policies() {
		v.Shadow = v.Shadow || published && policy.Mode == enforcement.PolicyShadow
	}
	if head.MayWrite && p.Tenants == 0 {
		v.Delete = &views.DeletePlan{
			URL: planPath(p) + "/delete", Revision: strconv.FormatInt(p.Revision, 10), Faults: faults,
			Confirm: views.Input{Name: "confirm", Label: "Type " + p.Slug + " to confirm", Type: "text", Autocomplete: "off", Value: typed},
		}
		if len(faults) > 0 {
			v.Delete.Confirm.Error = "Is not the slug: nothing was deleted."
		}
	}
	return w.Render(c, status, views.PlanReadPage(w.planPage(c, p, "Plan"), v))
}

func (w *pages) deletePlan(c echo.Context) error {
	f, err := web.Form(c, "revision", "confirm")
	if err != nil {
		return err
	}
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	revision, err := formRevision(f.Get("revision"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(f.Get("confirm")) != p.Slug && p.Tenants == 0 {
		return w.planPageWith(c, http.StatusUnprocessableEntity, p, f.Get("confirm"),
			[]views.Fault{{Field: "confirm", Message: "What you typed is not the slug: nothing was deleted."}})
	}
	if err := w.cfg.Plans.DeletePlan(c.Request().Context(), p.ID, revision); err != nil {
		return err
	}
	w.Changed(c.Request().Context())
	return c.Redirect(http.StatusSeeOther, "/plans?done=plan-deleted")
}

// formRevision reads the revision that a form was drawn at.
func formRevision(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, problem.New(problem.Malformed, "the form does not say which revision it changes")
	}
	return n, nil
}

// problemOf gives the problem in an error; nil without one.
func problemOf(err error) *problem.Problem {
	told := (*problem.Problem)(nil)
	if !errors.As(err, &told) {
		return nil
	}
	return told
}

// faultsOf gives the places at fault.
func faultsOf(err error) problem.Fields {
	if told := problemOf(err); told != nil {
		return told.Fields
	}
	return nil
}
