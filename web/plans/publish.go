package plans

import (
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// reviewFaults converts faults or warnings of a review to views. Each view has the name of its
// policy and field.
func reviewFaults(d plans.Document, list problem.Fields) []views.Fault {
	f := formOf(d)
	r := f.read()
	return f.reviewFaults(&r, list)
}

// newWarnings returns those warnings in list that a publication of the document to would bring.
// These are the warnings about changed policies, and the warnings that the published document
// now does not have.
func (w *pages) newWarnings(now, to plans.Document, list problem.Fields) []views.Fault {
	type warning struct{ policy, field, message string }
	named := func(d []plans.Policy, f problem.Field) (warning, int) {
		rest, found := strings.CutPrefix(f.Pointer, "/policies/")
		number, field, _ := strings.Cut(rest, "/")
		at, err := strconv.Atoi(number)
		if !found || err != nil || at >= len(d) {
			return warning{field: f.Pointer, message: f.Message}, -1
		}
		return warning{d[at].Slug, field, f.Message}, at
	}
	before, after := now.Policies(), to.Policies()
	known := make(map[warning]bool)
	for _, f := range w.cfg.Plans.Inspect(now).Warnings {
		one, _ := named(before, f)
		known[one] = true
	}
	var out problem.Fields
	for _, f := range list {
		one, at := named(after, f)
		changed := at >= 0 && !slices.ContainsFunc(before, func(p plans.Policy) bool { return reflect.DeepEqual(p, after[at]) })
		if changed || !known[one] {
			out = append(out, f)
		}
	}
	return reviewFaults(to, out)
}

// diffPlan is GET /plans/:plan/diff.
func (w *pages) diffPlan(c echo.Context, p plans.Plan) error {
	head, err := w.planHead(c, p, "/diff")
	if err != nil {
		return err
	}
	now, published, err := w.inForce(c.Request().Context(), p)
	if err != nil {
		return err
	}
	review := w.cfg.Plans.Inspect(p.Draft)
	v := views.DiffPage{
		PlanHead: head, From: "nothing", To: "the draft", Faults: reviewFaults(p.Draft, review.Faults),
		Warnings: w.newWarnings(now, p.Draft, review.Warnings),
	}
	if published {
		v.From = versionName(p.Published)
	}
	if v.Diff, err = diffView(now, p.Draft); err != nil {
		return err
	}
	if v.Diff.Empty {
		v.Warnings = nil
	}
	return w.Render(c, http.StatusOK, views.PlanDiffPage(w.planPage(c, p, "Changes"), v))
}

// publishForm is GET /plans/:plan/publish.
func (w *pages) publishForm(c echo.Context, p plans.Plan) error {
	return w.showPublish(c, http.StatusOK, p, p.Draft, 0, "", nil)
}

// showPublish shows the page that asks for confirmation before a document is published. to is
// the document. number is 0 for the draft. For an earlier version, it is the number of the
// version.
func (w *pages) showPublish(c echo.Context, status int, p plans.Plan, to plans.Document, number int, note string,
	list []views.Fault,
) error {
	head, err := w.planHead(c, p, "/diff")
	if err != nil {
		return err
	}
	now, _, err := w.inForce(c.Request().Context(), p)
	if err != nil {
		return err
	}
	v := views.PublishPage{
		PlanHead: head, Title: "Publish the draft as " + versionName(p.Latest+1), Button: "Publish for " + head.Tenants,
		Action: planPath(p) + "/publish", BackURL: planPath(p) + "/diff",
		Lead:   "It applies to " + head.Tenants + ". Each node loads it, usually within a second.",
		Hidden: []views.Hidden{{Name: "revision", Value: strconv.FormatInt(p.DraftRevision, 10)}}, Faults: list,
		Note: views.Text{
			Name: "note", Label: "Why (optional)", Value: note, Rows: 2, Optional: true,
			Hint: "The history and the audit log show it.",
		},
	}
	if v.Draft = number == 0; !v.Draft {
		v.Title, v.Button = "Roll back to "+versionName(number), "Publish "+versionName(number)+" for "+head.Tenants
		v.Action, v.BackURL = versionPath(p, number)+"/publish", versionPath(p, number)
		v.Hidden = []views.Hidden{{Name: "in_force", Value: strconv.Itoa(p.Published)}}
		if number > p.Published {
			v.Title = "Publish " + versionName(number) + " again"
		}
	}
	for _, f := range list {
		if f.Field == "note" {
			v.Note.Error = f.Message
		}
	}
	if v.Diff, err = diffView(now, to); err != nil {
		return err
	}
	review := w.cfg.Plans.Inspect(to)
	if number == 0 {
		v.Faults = append(v.Faults, reviewFaults(to, review.Faults)...)
		v.Blocked = len(review.Faults) > 0
	}
	v.Warnings = w.newWarnings(now, to, review.Warnings)
	return w.Render(c, status, views.PlanPublishPage(w.planPage(c, p, "Publish"), v))
}

// publishPlan is POST /plans/:plan/publish.
func (w *pages) publishPlan(c echo.Context, p plans.Plan, f url.Values, revision int64) error {
	after, _, err := w.cfg.Plans.Publish(c.Request().Context(), p.ID, plans.Publish{IfRevision: revision, Note: f.Get("note")})
	return w.published(c, p, p.Draft, 0, f.Get("note"), after, err)
}

// published handles the result of a publication. If it succeeded, published redirects to the
// page that shows which nodes use the version. After an error, it shows the form again.
func (w *pages) published(c echo.Context, p plans.Plan, to plans.Document, number int, note string, after plans.Plan, err error) error {
	switch {
	case err == nil:
		w.Changed(c.Request().Context())
		q := url.Values{"version": {strconv.Itoa(after.Published)}, "revision": {strconv.FormatInt(after.Revision, 10)}}
		return c.Redirect(http.StatusSeeOther, planPath(p)+"/rollout?"+q.Encode())
	case problem.Is(err, problem.Stale):
		now, failed := w.cfg.Plans.Plan(c.Request().Context(), p.ID)
		if failed != nil {
			return failed
		}
		if number == 0 {
			to = now.Draft
		}
		return w.showPublish(c, http.StatusConflict, now, to, number, note, []views.Fault{{
			Message: "Another person changed the plan after you opened this page. Nothing was published. Check the current changes first.",
		}})
	case problem.Is(err, problem.Invalid):
		var list []views.Fault
		for _, fault := range faultsOf(err) {
			if fault.Pointer == "/note" {
				list = append(list, views.Fault{Field: "note", Message: web.Sentence("the note " + fault.Message)})
			}
		}
		return w.showPublish(c, http.StatusUnprocessableEntity, p, to, number, note, list)
	}
	return err
}

// pollFor is the time for which the page about the rollout of an edit reloads itself. The page
// then stops, because each reload keeps the visitor's session alive.
const pollFor = 10 * time.Minute

// rollout is GET /plans/:plan/rollout. It shows which nodes have loaded the revision in the
// address.
func (w *pages) rollout(c echo.Context, p plans.Plan) error {
	revision, err := strconv.ParseInt(c.QueryParam("revision"), 10, 64)
	if err != nil || revision <= 0 || revision > p.Revision {
		revision = p.Revision
	}
	number, err := strconv.Atoi(c.QueryParam("version"))
	if err != nil || number <= 0 || number > p.Latest {
		number = p.Published
	}
	head, err := w.planHead(c, p, "")
	if err != nil {
		return err
	}
	o, err := w.cfg.Nodes.Overview(c.Request().Context())
	if err != nil {
		return err
	}
	v := drawRollout(o, revision, p.UpdatedAt)
	v.Poll = !v.Done && w.Now().Sub(p.UpdatedAt) < pollFor
	v.PlanHead, v.Version = head, "Version "+strconv.Itoa(number)+" is published"
	if number == 0 {
		v.Version = "Nothing is published"
	}
	v.URL = planPath(p) + "/rollout?" + url.Values{"version": {strconv.Itoa(number)}, "revision": {strconv.FormatInt(revision, 10)}}.Encode()
	return w.Render(c, http.StatusOK, views.PlanRolloutPage(w.planPage(c, p, "In force"), v))
}

// reportsWithin is the time within which a healthy node sends its next report.
const reportsWithin = 5 * time.Second

// drawRollout returns the view that shows which nodes have loaded a revision. since is the time
// at which the revision was saved. The view includes silent nodes, but the rollout can be
// complete without them. A node causes no warning before it has sent a report after that time.
func drawRollout(o nodes.Overview, revision int64, since time.Time) views.Rollout {
	var v views.Rollout
	late := false
	have, all, silent := 0, 0, 0
	for i := range o.Nodes {
		n := &o.Nodes[i]
		row := views.RolloutNode{Name: n.Name, State: "not yet", Tone: "warn", Seen: views.NewMoment(n.SeenAt, o.At)}
		switch {
		case n.Silent:
			row.State, row.Tone = "silent", "bad"
			silent++
		case n.Snapshot.Revision >= revision:
			row.State, row.Tone = "in force", "good"
			have++
			all++
		case n.Snapshot.Held != "":
			row.State, late = "held: "+n.Snapshot.Held, true
			all++
		case n.SeenAt.Before(since.Add(reportsWithin)):
			row.State, row.Tone = "waiting for its report", ""
			all++
		default:
			late = true
			all++
		}
		v.Nodes = append(v.Nodes, row)
	}
	v.Done = all > 0 && have == all
	v.Late = late || all == 0 && !o.At.Before(since.Add(reportsWithin))
	switch {
	case all == 0:
		v.Summary = "No node has reported yet. Nodes report every few seconds."
	case v.Done:
		v.Summary = "In force on " + views.Quantity(int64(all), "node: the only one", "nodes: all of them") + "."
	default:
		v.Summary = "In force on " + strconv.Itoa(have) + " of " + views.Quantity(int64(all), "node", "nodes") +
			". Reports of nodes are up to five seconds old."
	}
	if silent > 0 {
		v.Silent = views.Quantity(int64(silent), "node is", "nodes are") + " silent. This page does not wait for them."
	}
	return v
}

// planHistory is GET /plans/:plan/history.
func (w *pages) planHistory(c echo.Context, p plans.Plan) error {
	head, err := w.planHead(c, p, "/history")
	if err != nil {
		return err
	}
	after := web.After(c)
	filter := audit.Filter{Object: p.ID, Action: "plan.publish", After: after, Limit: web.PageRows + 1}
	lines, err := w.cfg.Audit.AuditEntries(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	v := views.History{PlanHead: head}
	lines, v.Next = web.Cut(c, lines, web.PageRows, func(e audit.Entry) string { return e.ID })
	highest := 0
	for i, l := range slices.Backward(lines) { // oldest first
		pub, is := plans.PublicationOf(l)
		if !is {
			continue
		}
		v.Rows = append(v.Rows, views.Publication{
			Version: "Version " + strconv.Itoa(pub.Version), URL: versionPath(p, pub.Version), By: pub.By.Name, Note: pub.Note,
			At: views.NewMoment(pub.At, w.Now()), Current: i == 0 && after == "", Back: pub.Version <= highest,
		})
		highest = max(highest, pub.Version)
	}
	slices.Reverse(v.Rows)
	return w.Render(c, http.StatusOK, views.PlanHistoryPage(w.planPage(c, p, "History"), v))
}

func versionPath(p plans.Plan, number int) string {
	return planPath(p) + "/versions/" + strconv.Itoa(number)
}

// versionOf returns the version that the path names.
func (w *pages) versionOf(c echo.Context) (plans.Plan, plans.Version, error) {
	p, err := w.planOf(c)
	if err != nil {
		return p, plans.Version{}, err
	}
	text := c.Param("version")
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > p.Latest || strconv.Itoa(number) != text {
		return p, plans.Version{}, web.ErrNoPage
	}
	v, err := w.cfg.Plans.Version(c.Request().Context(), p.ID, number)
	return p, v, err
}

// planVersion is GET /plans/:plan/versions/:version.
func (w *pages) planVersion(c echo.Context, p plans.Plan, of plans.Version) error {
	head, err := w.planHead(c, p, "/history")
	if err != nil {
		return err
	}
	v := views.VersionPage{
		PlanHead: head, Version: "Version " + strconv.Itoa(of.Number), Current: of.Number == p.Published, By: of.PublishedBy.Name,
		At: views.NewMoment(of.PublishedAt, w.Now()), Policies: policyCards(of.Document, ""), Revision: strconv.FormatInt(p.DraftRevision, 10),
	}
	if v.Draft, err = diffView(of.Document, p.Draft); err != nil {
		return err
	}
	if of.Number > 1 {
		before, err1 := w.cfg.Plans.Version(c.Request().Context(), p.ID, of.Number-1)
		diff, err2 := diffView(before.Document, of.Document)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		v.Before, v.BeforeNo, v.Older = &diff, versionName(of.Number-1), versionPath(p, of.Number-1)
	}
	if of.Number < p.Latest {
		v.Newer = versionPath(p, of.Number+1)
	}
	if head.MayWrite && !v.Current {
		v.Rollback = versionPath(p, of.Number) + "/publish"
	}
	if head.MayWrite && !v.Draft.Empty {
		v.CopyURL = versionPath(p, of.Number) + "/copy"
	}
	return w.Render(c, http.StatusOK, views.PlanVersionPage(w.planPage(c, p, v.Version), v))
}

// rollbackForm is GET /plans/:plan/versions/:version/publish.
func (w *pages) rollbackForm(c echo.Context, p plans.Plan, of plans.Version) error {
	return w.showPublish(c, http.StatusOK, p, of.Document, of.Number, "", nil)
}

// rollBack is POST /plans/:plan/versions/:version/publish. The form contains the number of the
// version that was published when the page showed the differences.
func (w *pages) rollBack(c echo.Context, f url.Values) error {
	p, of, err := w.versionOf(c)
	if err != nil {
		return err
	}
	shown, err := formRevision(f.Get("in_force"))
	if err != nil {
		return err
	}
	how := plans.PublishVersion{Number: of.Number, IfPublished: int(shown), Note: f.Get("note")}
	after, _, err := w.cfg.Plans.PublishVersion(c.Request().Context(), p.ID, how)
	return w.published(c, p, of.Document, of.Number, f.Get("note"), after, err)
}

// copyVersion is POST /plans/:plan/versions/:version/copy.
func (w *pages) copyVersion(c echo.Context, f url.Values) error {
	p, of, err := w.versionOf(c)
	if err != nil {
		return err
	}
	revision, err := formRevision(f.Get("revision"))
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	switch _, err = w.cfg.Plans.SaveDraft(ctx, p.ID, of.Document, revision); {
	case problem.Is(err, problem.Stale):
		return w.showConflict(c, p, of.Document, revision)
	case err != nil:
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, planPath(p)+"/edit?done=draft-copied")
}
