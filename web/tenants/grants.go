package tenants

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) listGrants(c echo.Context) error {
	t, ctx := web.TenantOf(c), c.Request().Context()
	rows, err := w.cfg.Exceptions.Grants(ctx, t.ID, exceptions.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	left := w.cfg.Usage.GrantsLeft(ctx, rows)
	v := web.NewList(c, rows, func(g exceptions.Grant) string { return g.ID }, newURL(c, "/grants"), func(g exceptions.Grant) views.GrantRow {
		p, known := web.PolicyBySlug(policies, g.Policy)
		r := views.GrantRow{
			Policy: g.Policy + ", limit " + g.Limit, Key: grantKeyWords(g, p), Units: views.Count(g.Units).Exact, Reason: g.Reason,
			By: g.CreatedBy.Name, Ends: views.NewMoment(g.ExpiresAt, w.Now()), DeleteURL: deleteURL(c, "/grants", g.ID), Idle: w.idle(t, g),
		}
		if n, answered := left[g.ID]; answered {
			r.Left = views.Count(n).Exact
		}
		if known && len(g.Key) > 0 {
			r.KeyURL = web.KeyURL(t, g.Policy, g.Key)
		}
		return r
	})
	v.Head = w.TenantHead(c, "/grants")
	v.Empty = views.Empty{Title: "No grants", Text: "A grant gives a limit units beyond its quota, once, until it ends."}
	return w.Render(c, http.StatusOK, views.GrantsPage(w.TenantPage(c, "Grants"), v))
}

// grantKeyWords returns words for the key that a grant tops up.
func grantKeyWords(g exceptions.Grant, p plans.Policy) string {
	if len(g.Key) == 0 && len(p.CountBy) > 0 {
		return "every key"
	}
	return web.KeyWords(g.Key, p.CountBy)
}

func confirmGrant(g exceptions.Grant) views.Confirm {
	return views.Confirm{
		Title: "Void the grant?", Button: "Void the grant",
		Text: []string{"What is left of it can no longer be spent. Refunds return nothing to it. You cannot undo this."},
		Facts: []views.Fact{
			{Name: "Policy", Value: g.Policy},
			{Name: "Limit", Value: g.Limit},
			{Name: "Key", Value: grantKeyWords(g, plans.Policy{})},
			{Name: "Units", Value: views.Count(g.Units).Exact},
			{Name: "Reason", Value: g.Reason},
		},
	}
}

func (w *pages) grantForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	v := views.BoundForm{
		Head: w.TenantHead(c, "/grants"), Policy: p.Slug, Applies: web.AppliesWords(p), Keys: keyInputs(q, p), List: "Grants",
		Title: "New grant", Lead: "Checks spend the units when the window has nothing left. What is left when the grant ends is lost.",
		Action: web.TenantURL(t, "/grants"), Back: web.TenantURL(t, "/grants"), PickURL: web.TenantURL(t, "/grants/new"),
		Units:  views.TextInput("units", "Units", q.Get("units"), "How many units beyond the quota."),
		Reason: reasonInput(q, false), HasEnd: true, End: web.EndingField(c, "", "30d", grantLifetimes...), Button: "Create the grant",
	}
	for i := range v.Keys {
		v.Keys[i].Hint = "Empty in all fields: every key of the policy shares the units."
	}
	v.Limit = views.Select{Name: "limit", Label: "Limit", Value: q.Get("limit")}
	for _, l := range p.Limits {
		if l.Grantable() {
			v.Limit.Options = append(v.Limit.Options, views.Option{Value: l.Name, Label: l.Name + ": " + plans.Describe(l)})
		}
	}
	return v
}

// grantLifetimes are the durations that the form offers for a grant.
var grantLifetimes = append(web.ShortLifetimes[2:], web.Lifetime{Value: "365d", Label: "in a year", Length: 365 * web.Day})

func (w *pages) createGrant(c echo.Context) error {
	f, p, err := w.policyForm(c, "limit", "units", "reason", "life", "until")
	if err != nil {
		return err
	}
	t, v := web.TenantOf(c), w.grantForm(c, p, f)
	n := exceptions.NewGrant{
		Policy: p.Slug, Limit: f.Get("limit"), Key: web.KeyFromForm(f, p), Reason: strings.TrimSpace(f.Get("reason")),
	}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), grantLifetimes); err == nil {
		n.Units, err = strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(f.Get("units")), ",", ""), 10, 64)
		if err != nil {
			err = problem.At("/units", "must be a whole number")
		}
	}
	if err == nil {
		_, err = w.cfg.Exceptions.CreateGrant(c.Request().Context(), t.ID, n)
	}
	if err == nil {
		return w.done(c, web.TenantURL(t, "/grants"), "grant-created")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showKeyForm(c, status, v) })
}
