package plans

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// The editor shows a draft as a form or as JSON. The server does not store an unsaved draft:
// each response contains everything that was typed, and the script keeps it in the browser tab.

// An editor has the data of one page with the form of a draft.
type editor struct {
	plan     plans.Plan
	form     draftForm
	revision int64 // revision of the draft when the form was rendered
	faults   problem.Fields
	unsaved  bool
	next     string // the field that gets the focus
	open     int    // the policy to open; -1: none
}

// editDraft is GET /plans/:plan/edit. It shows the saved draft. The parameter policy names a
// policy whose fields are unfolded.
func (w *pages) editDraft(c echo.Context, p plans.Plan) error {
	e := editor{plan: p, form: formOf(p.Draft), revision: p.DraftRevision, open: -1}
	if slug := c.QueryParam("policy"); slug != "" {
		e.open = slices.IndexFunc(e.form.policies, func(f policyForm) bool { return f.fields["slug"] == slug })
	}
	return w.showEditor(c, http.StatusOK, e)
}

// postDraft is POST /plans/:plan/edit.
func (w *pages) postDraft(c echo.Context) error {
	f, err := web.WideForm(c, func(name string) bool {
		return name == "revision" || name == "do" || name == "removed" || draftField(name)
	})
	if err != nil {
		return err
	}
	return w.atRevision(w.changeDraft)(c, f)
}

func (w *pages) changeDraft(c echo.Context, p plans.Plan, f url.Values, revision int64) error {
	e := editor{plan: p, form: readDraft(f), revision: revision, unsaved: true, open: -1}
	var r reading
	var err error
	switch do := f.Get("do"); do {
	case "save", "":
		r = e.form.validated()
	case "json":
		r = e.form.read()
	case "redraw": // the script restores values that were not saved
		return w.showEditor(c, http.StatusOK, e)
	case "new-policy": // the script adds it to the form
		return w.showNewPolicy(c, e)
	default:
		if e.form.removed, err = removedPolicy(f); err != nil {
			return errNoButton
		}
		var known bool
		if e.next, e.open, known = e.form.do(do); !known {
			return errNoButton
		}
		return w.showEditor(c, http.StatusOK, e)
	}
	if e.faults = r.faults; len(e.faults) > 0 {
		return w.showEditor(c, http.StatusUnprocessableEntity, e)
	}
	if f.Get("do") != "json" {
		return w.saveDraft(c, p, r.document, revision)
	}
	text, err := documentText(r.document)
	if err != nil {
		return err
	}
	return w.showText(c, http.StatusOK, p, revision, text, nil, true)
}

// showNewPolicy shows only the fields of a new policy. For this, the request needs to have only
// the slugs of the other policies.
func (w *pages) showNewPolicy(c echo.Context, e editor) error {
	var known bool
	if e.next, e.open, known = e.form.do("add-policy"); !known {
		return errNoButton
	}
	m := marker{next: e.next, literal: firstLiteral(e.form.policies), saved: slugsOf(e.plan.Draft)}
	f := m.policy(&e.form, e.open, e.form.read().document.Policies())
	f.Open = true
	return w.Render(c, http.StatusOK, views.NewPolicyFields(views.DraftForm{Action: planPath(e.plan) + "/edit"}, f))
}

// slugsOf returns the slugs of the policies of a document.
func slugsOf(d plans.Document) map[string]bool {
	slugs := map[string]bool{}
	for _, p := range d.Policies() {
		slugs[p.Slug] = true
	}
	return slugs
}

// removedPolicy returns the form fields of the policy that the pressed button deletes. If the
// button does not delete a policy, it returns the fields of the policy that was deleted last.
func removedPolicy(f url.Values) (url.Values, error) {
	at, deletes := strings.CutSuffix(f.Get("do"), ".delete")
	if !deletes || strings.Count(at, ".") != 1 {
		return url.ParseQuery(f.Get("removed"))
	}
	out := url.Values{}
	for name, values := range f {
		if strings.HasPrefix(name, at+".") {
			out[name] = values
		}
	}
	return out, nil
}

var errNoButton = problem.New(problem.Malformed, "the form has a button that the page does not have")

// saveDraft saves a draft. If another person has saved a draft in the meantime, it shows both
// drafts. If the browser sends the same form twice, the draft is saved once.
func (w *pages) saveDraft(c echo.Context, p plans.Plan, d plans.Document, revision int64) error {
	ctx := c.Request().Context()
	_, err := w.cfg.Plans.SaveDraft(ctx, p.ID, d, revision)
	if problem.Is(err, problem.Stale) {
		now, failed := w.cfg.Plans.Plan(ctx, p.ID)
		if failed != nil {
			return failed
		}
		diff, failed := plans.Compare(now.Draft, d)
		if failed != nil {
			return failed
		}
		if !diff.Empty() {
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

// showConflict shows both drafts after a save failed, because it was based on an old revision of
// the draft.
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
	if v.Apart, err = diffView(p.Draft, mine); err != nil {
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
		theirs, err1 := diffView(*base, p.Draft)
		yours, err2 := diffView(*base, mine)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		v.TheirChanges, v.MyChanges = &theirs, &yours
	}
	return w.Render(c, http.StatusConflict, views.DraftConflictPage(w.planPage(c, p, "Two drafts"), v))
}

// draftsBefore searches the audit log for two things: the draft of the given revision, and the
// entry of the last save. A result is nil if the log does not have it.
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
		Unsaved: e.unsaved, Algorithms: algorithmOptions, Removed: e.form.removed.Encode(),
	}
	if removed := readDraft(e.form.removed); len(removed.policies) > 0 {
		v.RemovedName = cmp.Or(removed.policies[0].fields["slug"], "without a slug")
	}
	r := e.form.read()
	m := marker{
		errors: map[string]string{}, notes: map[string]string{}, next: e.next, literal: firstLiteral(e.form.policies),
		saved: slugsOf(e.plan.Draft),
	}
	for _, f := range e.faults {
		field := r.field(f.Pointer)
		if _, twice := m.errors[field]; !twice {
			m.errors[field] = web.Sentence(f.Message)
		}
		v.Faults = append(v.Faults, views.Fault{Field: field, Message: e.form.message(field, f.Message)})
	}
	if len(r.faults) == 0 && len(e.faults) == 0 {
		v.Warnings = m.warn(&e.form, &r, w.cfg.Plans.Inspect(r.document).Warnings)
	}
	v.Name = m.input("name", "Name", e.form.name, "")
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

// reviewFaults converts faults or warnings of a review to views. Each view has the name of its
// form field.
func (f draftForm) reviewFaults(r *reading, list problem.Fields) []views.Fault {
	var out []views.Fault
	for _, p := range list {
		out = append(out, views.Fault{Message: f.message(r.field(p.Pointer), p.Message)})
	}
	return out
}

// warn stores each warning in the view of its field. It returns the warnings that belong to no
// single field.
func (m *marker) warn(f *draftForm, r *reading, list problem.Fields) []views.Fault {
	var rest problem.Fields
	for _, p := range list {
		if field := r.field(p.Pointer); draftField(field) {
			m.notes[field] = web.Sentence(p.Message)
		} else {
			rest = append(rest, p)
		}
	}
	return f.reviewFaults(r, rest)
}
