package plans

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// The editor of drafts: a form, and the same draft as JSON. What is sent comes
// back as it was typed until it is saved; nothing is kept between.

// editDraft is GET /plans/:plan/edit: the saved draft. ?policy= opens one policy.
func (w *pages) editDraft(c echo.Context) error {
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	e := editor{plan: p, form: formOf(p.Draft), revision: p.DraftRevision, open: -1}
	if slug := c.QueryParam("policy"); slug != "" {
		e.open = slices.IndexFunc(e.form.policies, func(f policyForm) bool { return f.slug == slug })
	}
	return w.showEditor(c, http.StatusOK, e)
}

// An editor is the form as it is to be drawn.
type editor struct {
	plan     plans.Plan
	form     draftForm
	revision int64 // of the draft that it began with
	faults   problem.Fields
	unsaved  bool
	next     string // the field that comes next
	open     int    // the policy that is open; -1: none in particular
}

// postDraft is POST /plans/:plan/edit.
func (w *pages) postDraft(c echo.Context) error {
	f, err := web.WideForm(c, func(name string) bool { return name == "revision" || name == "do" || draftField(name) })
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
	e := editor{plan: p, form: readDraft(f), revision: revision, unsaved: true, open: -1}
	switch do := f.Get("do"); do {
	case "save", "":
		r := e.form.judged()
		if e.faults = r.faults; len(e.faults) > 0 {
			return w.showEditor(c, http.StatusUnprocessableEntity, e)
		}
		return w.saveDraft(c, p, r.document, revision)
	case "json":
		r := e.form.read()
		if e.faults = r.faults; len(e.faults) > 0 {
			return w.showEditor(c, http.StatusUnprocessableEntity, e)
		}
		text, err := documentText(r.document)
		if err != nil {
			return err
		}
		return w.showText(c, http.StatusOK, p, revision, text, nil, true)
	default:
		next, open, known := e.form.do(do)
		if !known {
			return problem.New(problem.Malformed, "the form has a button that the page does not")
		}
		e.next, e.open = next, open
		return w.showEditor(c, http.StatusOK, e)
	}
}

// saveDraft saves, or shows both drafts when somebody else was quicker. Who sends
// the same form twice has saved it once.
func (w *pages) saveDraft(c echo.Context, p plans.Plan, d plans.Document, revision int64) error {
	ctx := c.Request().Context()
	_, err := w.cfg.Plans.SaveDraft(ctx, p.ID, d, revision)
	if problem.Is(err, problem.Stale) {
		now, failed := w.cfg.Plans.Plan(ctx, p.ID)
		if failed != nil {
			return failed
		}
		apart, failed := plans.Compare(now.Draft, d)
		if failed != nil {
			return failed
		}
		if !apart.Empty() {
			return w.showConflict(c, now, d, revision)
		}
		err = nil
	}
	if err != nil {
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, planPath(p)+"/diff?done=draft-saved")
}

// showConflict answers a stale save with both drafts.
func (w *pages) showConflict(c echo.Context, p plans.Plan, mine plans.Document, revision int64) error {
	head, err := w.planHead(c, p, "/edit")
	if err != nil {
		return err
	}
	v := views.Conflict{
		PlanHead: head, Revision: strconv.FormatInt(p.DraftRevision, 10), Action: planPath(p) + "/edit/json", EditURL: planPath(p) + "/edit",
		When: views.NewMoment(p.UpdatedAt, w.Now()),
	}
	if v.Mine, err = documentText(mine); err != nil {
		return err
	}
	if v.Apart, err = diffView("apart", p.Draft, mine); err != nil {
		return err
	}
	base, last, err := w.draftsBefore(c.Request().Context(), p, revision)
	if err != nil {
		return err
	}
	if last != nil {
		v.Who, v.When = last.Actor.Name, views.NewMoment(last.At, w.Now())
	}
	if base != nil {
		theirs, err1 := diffView("theirs", *base, p.Draft)
		yours, err2 := diffView("yours", *base, mine)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		v.TheirChanges, v.MyChanges = &theirs, &yours
	}
	return w.Render(c, http.StatusConflict, views.DraftConflictPage(w.planPage(c, p, "Two drafts"), v))
}

// draftsBefore looks the audit log through for the draft of a revision and for
// the line that made the one of now; nil for what it does not tell.
func (w *pages) draftsBefore(ctx context.Context, p plans.Plan, revision int64) (base *plans.Document, last *audit.Entry, err error) {
	const most = 100
	lines, err := w.cfg.Audit.AuditEntries(ctx, audit.Filter{Object: p.ID, Limit: most})
	if err != nil {
		return nil, nil, err
	}
	for i := range lines {
		l := &lines[i]
		draft, is := plans.DraftOf(*l)
		if !is {
			continue
		}
		if l.Revision == p.DraftRevision {
			last = l
		}
		if l.Revision == revision {
			base = &draft
		}
	}
	return base, last, nil
}

func (w *pages) showEditor(c echo.Context, status int, e editor) error {
	head, err := w.planHead(c, e.plan, "/edit")
	if err != nil {
		return err
	}
	v := views.DraftForm{
		PlanHead: head, Action: planPath(e.plan) + "/edit", JSONURL: planPath(e.plan) + "/edit/json", Revision: strconv.FormatInt(e.revision, 10),
		Unsaved: e.unsaved, Algorithms: algorithmChoices(true),
	}
	r := e.form.read()
	m := marker{errors: map[string]string{}, next: e.next}
	for _, f := range e.faults {
		field := r.field(f.Pointer)
		if _, twice := m.errors[field]; !twice {
			m.errors[field] = web.Sentence(f.Message)
		}
		message := web.Sentence(f.Message)
		if whose := e.form.whose(field); whose != "" {
			message = whose + ": " + web.EndSentence(f.Message)
		}
		v.Faults = append(v.Faults, views.Fault{Field: field, Message: message})
	}
	if len(r.faults) == 0 && len(e.faults) == 0 {
		for _, f := range w.cfg.Plans.Inspect(r.document).Warnings {
			message := web.Sentence(f.Message)
			if whose := e.form.whose(r.field(f.Pointer)); whose != "" {
				message = whose + ": " + web.EndSentence(f.Message)
			}
			v.Warnings = append(v.Warnings, views.Fault{Message: message})
		}
	}
	v.Name = m.input("name", "Name", e.form.name)
	v.Description = m.lines("description", "Description", e.form.description)
	fields, read := 4, r.document.Policies()
	for i := range e.form.policies {
		pf := m.policy(&e.form, i, read)
		pf.Open = len(e.form.policies) <= 2 || i == e.open || m.within(pf.ID)
		fields += 24 + 6*len(pf.Limits) + 2*len(pf.Attributes) + len(pf.CountBy) + len(pf.Methods.List) + len(pf.Replaces.List)
		v.Policies = append(v.Policies, pf)
	}
	if fields > web.MaxWideFields {
		v.Policies, v.TooLarge = nil, "This plan is too large for a form."
	}
	return w.Render(c, status, views.DraftFormPage(w.planPage(c, e.plan, "Edit draft"), v))
}

var (
	modeChoices = []views.Option{
		{Value: string(enforcement.PolicyEnforce), Label: "Enforce: refuse what is beyond the limits"},
		{Value: string(enforcement.PolicyShadow), Label: "Shadow: count, and refuse nothing"},
		{Value: string(enforcement.PolicyOff), Label: "Off: do nothing"},
	}
	missingChoices = []views.Option{
		{Value: string(enforcement.MissingShared), Label: "Share one counter among such requests"},
		{Value: string(enforcement.MissingSkip), Label: "Skip: the policy does not apply"},
		{Value: string(enforcement.MissingDeny), Label: "Deny: refuse with 403"},
	}
	failureChoices = []views.Option{
		{Value: string(enforcement.OnFailureLocal), Label: "Local: each node limits by itself, with its share"},
		{Value: string(enforcement.OnFailureOpen), Label: "Open: let requests pass"},
		{Value: string(enforcement.OnFailureClosed), Label: "Closed: refuse with 503"},
	}
	consistencyChoices = []views.Option{
		{Value: string(enforcement.Exact), Label: "Exact: every request is counted where all nodes see it"},
		{Value: string(enforcement.Leased), Label: "Leased: nodes draw quota ahead, and answer without Redis"},
	}
	anchorChoices = []views.Option{
		{Value: enforcement.FirstHit.String(), Label: "At the first request"},
		{Value: enforcement.Clock.String(), Label: "By the clock (UTC)"},
	}
	commonMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)
