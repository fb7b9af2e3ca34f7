package tenants

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// What is set for a tenant beside its plan: lists, blocks, and the reset of a
// key. Overrides are in tenant_overrides.go.

// exceptionsOnPage is how many rows stand on one page of a list.
const exceptionsOnPage = 50

// afterOf is the cursor of a list in the address.
func afterOf(c echo.Context) string {
	if after := c.QueryParam("after"); uuid.Validate(after) == nil {
		return after
	}
	return ""
}

// cutPage gives the rows of one page of a list that was asked for one more, and
// the address of the next; "" on the last.
func cutPage[T any](rows []T, most int, id func(T) string, path string, q url.Values) ([]T, string) {
	if len(rows) <= most {
		return rows, ""
	}
	rows = rows[:most]
	next := maps.Clone(q)
	if next == nil {
		next = url.Values{}
	}
	next.Set("after", id(rows[most-1]))
	return rows, path + "?" + next.Encode()
}

// keyFields are the names of the fields of all keys of some policies.
func keyFields(list []plans.Policy) []string {
	var fields []string
	for _, p := range list {
		for _, name := range web.KeyAttributes(p.CountBy) {
			if !slices.Contains(fields, web.KeyFieldPrefix+name) {
				fields = append(fields, web.KeyFieldPrefix+name)
			}
		}
	}
	return fields
}

// keyInputs are the fields of the key of a policy.
func keyInputs(q url.Values, p plans.Policy) []views.Input {
	var list []views.Input
	for _, name := range web.KeyAttributes(p.CountBy) {
		list = append(list, views.Input{
			Name: web.KeyFieldPrefix + name, Label: name, Type: "text", Autocomplete: "off", Optional: true, Value: q.Get(web.KeyFieldPrefix + name),
			Hint: "Left empty: the key of requests that send none.",
		})
	}
	return list
}

// usable reports whether what is set has an effect with what is in force on this
// node.
func (w *pages) usable(t tenants.Tenant, spec enforcement.ExceptionSpec) bool {
	world := w.cfg.Snapshot()
	if world == nil {
		return true // nobody knows
	}
	s, known := world.Subject(t.ID)
	if !known {
		return false
	}
	_, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return !f.Partial })
}

// pickPolicy asks which policy a form is about.
func (w *pages) pickPolicy(c echo.Context, list []plans.Policy, title, lead, current string) error {
	t := web.TenantOf(c)
	v := views.PolicyPick{
		Head: w.TenantHead(c, current), Title: title, Lead: lead, Action: c.Request().URL.Path, Back: web.TenantURL(t, current),
		Policy: views.Select{Name: "policy", Label: "Policy", Value: c.QueryParam("policy")},
	}
	if t.Plan == "" || len(list) == 0 {
		v.Empty = views.Empty{
			Title: "There is no policy",
			Text:  "The tenant follows no plan, or its plan has no policies: there is nothing to choose.",
		}
	}
	for _, p := range list {
		v.Policy.Options = append(v.Policy.Options, views.Option{Value: p.Slug, Label: p.Slug + ": " + web.AppliesWords(p)})
	}
	for name, values := range c.QueryParams() {
		if name != "policy" && len(values) > 0 && len(v.Hidden) < 20 {
			v.Hidden = append(v.Hidden, views.Hidden{Name: name, Value: values[0]})
		}
	}
	slices.SortFunc(v.Hidden, func(a, b views.Hidden) int { return strings.Compare(a.Name, b.Name) })
	return w.Render(c, http.StatusOK, views.PolicyPickPage(w.TenantPage(c, title), v))
}

// reasonInput is why something is set.
func reasonInput(q url.Values, optional bool) views.Input {
	return views.Input{
		Name: "reason", Label: "Reason", Type: "text", Autocomplete: "off", Optional: optional, Value: q.Get("reason"),
		Hint: "Whoever looks at it later reads this, and the tenant too.",
	}
}

// ended ends what the path names, and goes back to its list.
func (w *pages) ended(c echo.Context, name, list, done string, end func(context.Context, string, string) error) error {
	id, err := web.PathID(c, name)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), web.TenantOf(c)
	if err := end(ctx, t.ID, id); err != nil {
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, web.TenantURL(t, list)+"?done="+done)
}

// boundForm is a form about one key of one policy.
func (w *pages) boundForm(c echo.Context, p plans.Policy, q url.Values, current string) views.BoundForm {
	return views.BoundForm{
		Head: w.TenantHead(c, current), Policy: p.Slug, Applies: web.AppliesWords(p), Keys: keyInputs(q, p),
	}
}

func (w *pages) showBound(c echo.Context, status int, list string, v views.BoundForm) error {
	var above []views.Link
	if list != "" {
		above = append(above, views.Link{Text: list, URL: v.Back})
	}
	return w.Render(c, status, views.BoundFormPage(w.TenantPage(c, v.Title, above...), v))
}

// places are where the faults of such a form stand.
func boundPlaces(v *views.BoundForm) web.Places {
	at := web.Places{
		Inputs: []*views.Input{&v.Reason, &v.End.Until}, Selects: []*views.Select{&v.End.Life},
		Renamed: map[string]string{"expires_at": web.EndingFieldName(v.End)},
	}
	for i := range v.Keys {
		name := strings.TrimPrefix(v.Keys[i].Name, web.KeyFieldPrefix)
		at.Inputs = append(at.Inputs, &v.Keys[i])
		at.Renamed["key/"+problem.Escape(name)] = web.KeyFieldPrefix + name
	}
	return at
}

// policyForm reads a form about one of the tenant's policies; ok is false when
// there is no such policy any more.
func (w *pages) policyForm(c echo.Context, fields ...string) (f url.Values, p plans.Policy, ok bool, err error) {
	list, err := w.Policies(c)
	if err != nil {
		return nil, p, false, err
	}
	if f, err = web.Form(c, append(append(fields, "policy"), keyFields(list)...)...); err != nil {
		return nil, p, false, err
	}
	p, ok = web.PolicyBySlug(list, f.Get("policy"))
	return f, p, ok, nil
}

// errNoPolicy is the answer to a form about a policy that the plan does not have
// any more.
var errNoPolicy = problem.New(problem.Conflict, "the tenant's plan has no such policy any more: open the page again")
