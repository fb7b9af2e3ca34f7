package tenants

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// This file contains functions that the pages of overrides, list entries, blocks and resets
// share.

// newURL returns the address of the form that adds an exception. It returns "" if the visitor
// may not add one. below is the end of the list's path: the part after the path of the tenant.
func newURL(c echo.Context, below string) string {
	if !web.MayInTenant(c, accounts.ExceptionsWrite) {
		return ""
	}
	return web.TenantURL(web.TenantOf(c), below+"/new")
}

// deleteURL returns the address of the page that deletes one exception. It returns "" if the
// visitor may not delete the exception.
func deleteURL(c echo.Context, below, id string) string {
	if newURL(c, below) == "" {
		return ""
	}
	return web.TenantURL(web.TenantOf(c), below+"/"+id+"/delete")
}

// deleteRoutes returns two routes for deleting an exception: the page that asks for
// confirmation, and the write. below is the end of the list's path: the part after the path of
// the tenant. parameter is the name of the path parameter that has the ID.
func deleteRoutes[T any](w *pages, below, parameter, title, done string, get func(context.Context, string, string) (T, error),
	end func(context.Context, string, string) error, confirm func(T) views.Confirm,
) []web.Route {
	path := web.TenantPath + below + "/:" + parameter + "/delete"
	ask := func(c echo.Context) error {
		id, err := web.PathID(c, parameter)
		if err != nil {
			return err
		}
		t := web.TenantOf(c)
		row, err := get(c.Request().Context(), t.ID, id)
		if err != nil {
			return err
		}
		v := confirm(row)
		v.Head, v.Bad = w.TenantHead(c, below), true
		v.Action, v.Back = web.TenantURL(t, below+"/"+id+"/delete"), web.TenantURL(t, below)
		return w.Render(c, http.StatusOK, views.ConfirmPage(w.TenantPage(c, v.Button, views.Link{Text: title, URL: v.Back}), v))
	}
	return []web.Route{
		web.Get(path, accounts.ExceptionsWrite, ask),
		web.PostForm(path, accounts.ExceptionsWrite, func(c echo.Context, _ url.Values) error {
			id, err := web.PathID(c, parameter)
			if err != nil {
				return err
			}
			if err := end(c.Request().Context(), web.TenantOf(c).ID, id); err != nil {
				return err
			}
			return w.done(c, web.TenantURL(web.TenantOf(c), below), done)
		}),
	}
}

// done loads an edit into this node's snapshot. Then it redirects to a page that shows a
// notice.
func (w *pages) done(c echo.Context, page, notice string) error {
	w.Changed(c.Request().Context())
	return c.Redirect(http.StatusSeeOther, web.AppendQuery(page, url.Values{"done": {notice}}))
}

// idle returns the reason why an exception has no effect, according to the current snapshot. It
// returns "" if the exception has an effect.
func (w *pages) idle(t tenants.Tenant, of interface {
	Idle(s *enforcement.Subject, now time.Time) exceptions.Idle
},
) string {
	current := w.cfg.Snapshot()
	if current == nil {
		return "" // unknown
	}
	s, _ := current.Subject(t.ID)
	return of.Idle(s, w.Now()).Words
}

// keyFields returns the names of the form fields for the key attributes of all policies.
func keyFields(list []plans.Policy) []string {
	var fields []string
	for _, p := range list {
		for _, name := range web.KeyAttributes(p.CountBy) {
			fields = append(fields, web.KeyFieldPrefix+name)
		}
	}
	return fields
}

// keyInputs returns the form fields for the key attributes of a policy.
func keyInputs(q url.Values, p plans.Policy) []views.Input {
	var list []views.Input
	for _, name := range web.KeyAttributes(p.CountBy) {
		field := web.KeyFieldPrefix + name
		list = append(list, views.OptionalInput(field, name, q.Get(field), "Empty: the key of requests that do not send it."))
	}
	return list
}

func reasonInput(q url.Values, optional bool) views.Input {
	i := views.TextInput("reason", "Reason", q.Get("reason"), "The operator and the tenant see it.")
	i.Optional = optional
	return i
}

// pickPolicy shows the first step of a form about one policy. In this step, the visitor selects
// the policy.
func (w *pages) pickPolicy(c echo.Context, list []plans.Policy, title, lead, current string) error {
	t := web.TenantOf(c)
	v := views.PolicyPick{
		Head: w.TenantHead(c, current), Title: title, Lead: lead, Action: c.Request().URL.Path, Back: web.TenantURL(t, current),
		Policy: views.Select{Name: "policy", Label: "Policy", Value: c.QueryParam("policy")},
	}
	if t.Plan == "" || len(list) == 0 {
		v.Empty = views.Empty{Title: "No policy to choose", Text: "The tenant has no plan, or its plan has no policies."}
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

// policyForm reads a form about one policy of the tenant's plan. It returns the form and the
// policy. In addition to fields, the form may have the fields for the key attributes.
func (w *pages) policyForm(c echo.Context, fields ...string) (url.Values, plans.Policy, error) {
	list, err := w.Policies(c)
	if err != nil {
		return nil, plans.Policy{}, err
	}
	f, err := web.Form(c, append(append(fields, "policy"), keyFields(list)...)...)
	if err != nil {
		return nil, plans.Policy{}, err
	}
	p, known := web.PolicyBySlug(list, f.Get("policy"))
	if !known {
		return nil, p, errNoPolicy
	}
	return f, p, nil
}

var errNoPolicy = problem.New(problem.Conflict, "the tenant's plan no longer has this policy: open the page again")
