package web

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

func (w *Web) settingsRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const write = accounts.TenantWrite
	const base = tenantPath + "/settings"
	return []row{
		{get, base, write, w.tenantSettings, bounded},
		{post, base, write, w.saveTenant, bounded},
		{get, base + "/plan", write, w.comparePlans, bounded},
		{post, base + "/plan", write, w.changePlan, bounded},
		{get, base + "/suspend", write, w.suspendForm, bounded},
		{post, base + "/suspend", write, w.suspendTenant, bounded},
		{post, base + "/resume", write, w.resumeTenant, bounded},
		{post, base + "/delete", write, w.deleteTenant, bounded},
	}
}

func settingsOf(t tenants.Tenant) string { return inTenant(tenantPath+"/settings", t.Slug) }

// redactChoice is whether values are kept.
func redactChoice(redact bool) views.Choice {
	return views.Choice{Name: "redact_values", Label: "Values of attributes", Value: map[bool]string{true: "hash", false: "keep"}[redact], Options: []views.Option{
		{Value: "keep", Label: "are kept", Hint: "Rankings and refusals show users, addresses and what else is sent."},
		{Value: "hash", Label: "are not kept", Hint: "People see hashes in rankings and nothing in refusals. What was kept before stays until it is removed by age."},
	}}
}

func (w *Web) settingsView(c echo.Context) (views.TenantSettings, error) {
	t, now := tenantOf(c), w.cfg.Now()
	plan, err := w.planSelect(c.Request().Context(), "to", t.Plan)
	return views.TenantSettings{
		Head: w.tenantHead(c, "/settings"), Base: settingsOf(t), Notice: tenantDone(c), Slug: t.Slug, ID: t.ID,
		Created: views.NewMoment(t.CreatedAt, now), Updated: views.NewMoment(t.UpdatedAt, now), Revision: strconv.FormatInt(t.Revision, 10),
		Name:     views.Input{Name: "name", Label: "Name", Type: "text", Value: t.Name, Autocomplete: "off"},
		NoPolicy: noPolicyChoice(t.NoPolicy), Redact: redactChoice(t.RedactValues),
		Plan: t.Plan, PlanURL: w.planURL(t.Plan), PlanForm: plan, Suspended: t.Status == tenants.Suspended,
		Confirm: views.Input{Name: "confirm", Label: "Type the slug " + t.Slug + " to confirm", Type: "text", Autocomplete: "off"},
	}, err
}

func (w *Web) tenantSettings(c echo.Context) error {
	v, err := w.settingsView(c)
	if err != nil {
		return err
	}
	return w.showSettings(c, http.StatusOK, v)
}

func (w *Web) showSettings(c echo.Context, status int, v views.TenantSettings) error {
	return w.render(c, status, views.TenantSettingsPage(w.tenantPage(c, "Settings"), v))
}

// revisionOf reads the revision that a form was made at.
func revisionOf(f url.Values) (int64, error) {
	n, err := strconv.ParseInt(f.Get("version"), 10, 64)
	if err != nil {
		return 0, problem.New(problem.Malformed, "the form does not say which version it changes")
	}
	return n, nil
}

// saveTenant is POST /tenants/{tenant}/settings.
func (w *Web) saveTenant(c echo.Context) error {
	f, err := form(c, "name", "no_policy", "redact_values", "version")
	if err != nil {
		return err
	}
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	d := t.Document
	d.Name, d.NoPolicy, d.RedactValues = strings.TrimSpace(f.Get("name")), tenants.NoPolicy(f.Get("no_policy")), f.Get("redact_values") == "hash"
	_, err = w.cfg.Tenants.UpdateTenant(ctx, t.ID, d, revision)
	switch {
	case err == nil:
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, settingsOf(t)+"?done=tenant-saved")
	case problem.Is(err, problem.Stale):
		return w.staleSettings(c, d)
	}
	v, failed := w.settingsView(c)
	if failed != nil {
		return failed
	}
	v.Name.Value, v.Revision = f.Get("name"), f.Get("version")
	chooses(&v.NoPolicy, f.Get("no_policy"))
	chooses(&v.Redact, f.Get("redact_values"))
	list, status, err := places{inputs: []*views.Input{&v.Name}, choices: []*views.Choice{&v.NoPolicy, &v.Redact}}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showSettings(c, status, v)
}

// staleSettings shows an edit beside what somebody else stored meanwhile.
func (w *Web) staleSettings(c echo.Context, yours tenants.Document) error {
	stored, err := w.cfg.Tenants.Tenant(c.Request().Context(), tenantOf(c).ID)
	if err != nil {
		return err
	}
	v := views.Stale{
		Head: w.tenantHead(c, "/settings"), Action: settingsOf(stored), Back: settingsOf(stored),
		Revision: strconv.FormatInt(stored.Revision, 10), Updated: views.NewMoment(stored.UpdatedAt, w.cfg.Now()),
	}
	for _, field := range []struct{ name, label, yours, stored string }{
		{"name", "Name", yours.Name, stored.Name},
		{"no_policy", "A request that matches no policy", string(yours.NoPolicy), string(stored.NoPolicy)},
		{"redact_values", "Values of attributes", redactChoice(yours.RedactValues).Value, redactChoice(stored.RedactValues).Value},
	} {
		if field.yours == field.stored {
			v.Same = append(v.Same, views.Hidden{Name: field.name, Value: field.stored})
			continue
		}
		v.Fields = append(v.Fields, views.StaleField{
			Name: field.name, Label: field.label, YoursRaw: field.yours, StoredRaw: field.stored,
			Yours: optionWords(field.name, field.yours), Stored: optionWords(field.name, field.stored),
		})
	}
	return w.render(c, http.StatusConflict, views.StalePage(w.tenantPage(c, "Settings"), v))
}

// optionWords are what a value of a field reads as.
func optionWords(field, value string) string {
	for _, k := range []views.Choice{noPolicyChoice(""), redactChoice(false)} {
		if i := slices.IndexFunc(k.Options, func(o views.Option) bool { return o.Value == value }); k.Name == field && i >= 0 {
			return k.Options[i].Label
		}
	}
	return value
}

// publishedDocument is what a plan's tenants follow; the zero one without a plan.
func (w *Web) publishedDocument(ctx context.Context, slug string) (plans.Document, error) {
	if slug == "" {
		return plans.Document{}, nil
	}
	p, err := w.cfg.Plans.Plan(ctx, slug)
	if err != nil || p.Published == 0 {
		return plans.Document{}, err
	}
	v, err := w.cfg.Plans.Version(ctx, p.ID, p.Published)
	return v.Document, err
}

// comparePlans is GET /tenants/{tenant}/settings/plan?to=….
func (w *Web) comparePlans(c echo.Context) error {
	if to := c.QueryParam("to"); to == tenantOf(c).Plan {
		return c.Redirect(http.StatusSeeOther, settingsOf(tenantOf(c)))
	}
	return w.showPlanChange(c, http.StatusOK, c.QueryParam("to"), nil)
}

func (w *Web) showPlanChange(c echo.Context, status int, to string, list []views.Fault) error {
	ctx, t := c.Request().Context(), tenantOf(c)
	before, err := w.publishedDocument(ctx, t.Plan)
	if err != nil {
		return err
	}
	after, err := w.publishedDocument(ctx, to)
	if err != nil {
		return err
	}
	v := views.PlanChange{
		Head: w.tenantHead(c, "/settings"), Action: settingsOf(t) + "/plan", Back: settingsOf(t), From: t.Plan, To: to,
		FromName: before.Name(), ToName: after.Name(), Revision: strconv.FormatInt(t.Revision, 10), Faults: list,
	}
	if v.Rows, err = planRows(before, after); err != nil {
		return err
	}
	v.Notes = append(v.Notes, "Checks are decided by the new plan at once, on every node within seconds.",
		"Where a policy and a limit of the same name count in the same way in both plans, what was used stays used. Everything else begins anew.")
	left, err := w.exceptionsLeft(ctx, t, before, after)
	if err != nil {
		return err
	}
	if left != "" {
		v.Notes = append(v.Notes, left)
	}
	return w.render(c, status, views.PlanChangePage(w.tenantPage(c, "Change of plan", views.Link{Text: "Settings", URL: settingsOf(t)}), v))
}

// planRows puts two documents side by side, policy by policy.
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
		if r.What == "" {
			r.What = "same"
		}
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

// policyLines say a policy in a few lines.
func policyLines(p plans.Policy) []string {
	lines := []string{matchWords(p.Match.Methods, p.Match.Path, len(p.Match.Attributes)), "counted " + countedWords(p.CountBy)}
	for _, l := range p.Limits {
		lines = append(lines, plans.Describe(l))
	}
	if p.Mode != enforcement.PolicyEnforce && p.Mode != "" {
		lines = append(lines, "mode "+string(p.Mode))
	}
	return lines
}

// matchWords say what a policy applies to.
func matchWords(methods []string, path string, attributes int) string {
	words := strings.Join(methods, ", ")
	if words == "" {
		words = "any method"
	}
	if path == "" || path == "*" {
		words += " on any path"
	} else {
		words += " " + path
	}
	if attributes > 0 {
		words += " with certain attributes"
	}
	if len(methods) == 0 && (path == "" || path == "*") && attributes == 0 {
		return "every request"
	}
	return words
}

// countedWords say by what a policy counts.
func countedWords(by []string) string {
	if i := slices.Index(by, prefixAttribute); i >= 0 {
		by = slices.Clone(by)
		by[i] = "ip (IPv6 by its /64)"
	}
	switch len(by) {
	case 0:
		return "for the whole tenant together"
	case 1:
		return "for each " + by[0]
	}
	return "for each " + strings.Join(by[:len(by)-1], ", ") + " and " + by[len(by)-1]
}

// exceptionsLeft says which overrides and blocks lose their policy; "" for none.
func (w *Web) exceptionsLeft(ctx context.Context, t tenants.Tenant, before, after plans.Document) (string, error) {
	gone := map[string]bool{}
	for _, p := range before.Policies() {
		gone[p.Slug] = true
	}
	for _, p := range after.Policies() {
		delete(gone, p.Slug)
	}
	o, b := 0, 0
	for _, policy := range slices.Sorted(maps.Keys(gone)) {
		of := exceptions.Filter{Policy: policy, Limit: rowsCounted}
		overrides, err := w.cfg.Exceptions.Overrides(ctx, t.ID, of)
		if err != nil {
			return "", err
		}
		blocks, err := w.cfg.Exceptions.Blocks(ctx, t.ID, of)
		if err != nil {
			return "", err
		}
		if o, b = o+len(overrides), b+len(blocks); max(o, b) >= rowsCounted {
			return "At least " + numberOf(o, "override") + " and " + numberOf(b, "block") + " have no effect any more, as their policies are not in the new plan.", nil
		}
	}
	if o+b == 0 {
		return "", nil
	}
	return numberOf(o, "override") + " and " + numberOf(b, "block") + " have no effect any more, as their policies are not in the new plan.", nil
}

// numberOf words a number of things: "1 override", "3 overrides".
func numberOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return views.Count(int64(n)).Exact + " " + thing + "s"
}

// changePlan is POST /tenants/{tenant}/settings/plan.
func (w *Web) changePlan(c echo.Context) error {
	f, err := form(c, "plan", "version")
	if err != nil {
		return err
	}
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	if !f.Has("plan") {
		return problem.New(problem.Malformed, "the form does not say which plan")
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	d := t.Document
	d.Plan = f.Get("plan")
	_, err = w.cfg.Tenants.UpdateTenant(ctx, t.ID, d, revision)
	switch {
	case err == nil:
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, settingsOf(t)+"?done=tenant-plan")
	case problem.Is(err, problem.Stale):
		return w.showPlanChange(c, http.StatusConflict, d.Plan, []views.Fault{{
			Message: "Somebody else changed the tenant since you opened this. Here is what the change would mean now: look at it again.",
		}})
	}
	v, failed := w.settingsView(c)
	if failed != nil {
		return failed
	}
	list, status, err := places{selects: []*views.Select{&v.PlanForm}, renamed: map[string]string{"plan": "to"}}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showSettings(c, status, v)
}

func (w *Web) suspendForm(c echo.Context) error {
	t := tenantOf(c)
	return w.render(c, http.StatusOK, views.ConfirmPage(w.tenantPage(c, "Suspend", views.Link{Text: "Settings", URL: settingsOf(t)}), views.Confirm{
		Head: w.tenantHead(c, "/settings"), Title: "Suspend " + t.Name + "?", Button: "Suspend the tenant", Bad: true,
		Text: []string{
			"Every check of it is answered 403 with the reason tenant_suspended, on every node within seconds, until you resume it.",
			"Its API keys and its people can still read, and change nothing. Nothing is deleted, and counters go on by their time.",
		},
		Action: settingsOf(t) + "/suspend", Back: settingsOf(t),
	}))
}

// suspendTenant and resumeTenant ask for no version: they mean the same whatever
// else was changed.
func (w *Web) suspendTenant(c echo.Context) error {
	return w.setStatus(c, tenants.Suspended, "tenant-suspended")
}

func (w *Web) resumeTenant(c echo.Context) error {
	return w.setStatus(c, tenants.Active, "tenant-resumed")
}

func (w *Web) setStatus(c echo.Context, status tenants.Status, done string) error {
	if _, err := form(c); err != nil {
		return err
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	d := t.Document
	d.Status = status
	if _, err := w.cfg.Tenants.UpdateTenant(ctx, t.ID, d, t.Revision); err != nil {
		return err
	}
	w.cfg.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, settingsOf(t)+"?done="+done)
}

// deleteTenant asks for the slug to be typed, as nothing brings a tenant back.
func (w *Web) deleteTenant(c echo.Context) error {
	f, err := form(c, "confirm", "version")
	if err != nil {
		return err
	}
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	if strings.TrimSpace(f.Get("confirm")) != t.Slug {
		err = problem.At("/confirm", "is not the slug: nothing was deleted")
	} else if err = w.cfg.Tenants.DeleteTenant(ctx, t.ID, revision); err == nil {
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, "/tenants?done=tenant-deleted")
	}
	v, failed := w.settingsView(c)
	if failed != nil {
		return failed
	}
	v.Confirm.Value = f.Get("confirm")
	if problem.Is(err, problem.Stale) {
		v.DelFaults = []views.Fault{{Message: "Somebody else changed the tenant since you opened this: look at it again, and then delete it."}}
		return w.showSettings(c, http.StatusConflict, v)
	}
	list, status, err := places{inputs: []*views.Input{&v.Confirm}}.tell(err)
	if err != nil {
		return err
	}
	v.DelFaults = list
	return w.showSettings(c, status, v)
}
