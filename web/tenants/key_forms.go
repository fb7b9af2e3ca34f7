package tenants

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// This file has forms about one key of one policy: for blocks, resets and leases.

func (w *pages) listBlocks(c echo.Context) error {
	t := web.TenantOf(c)
	rows, err := w.cfg.Exceptions.Blocks(c.Request().Context(), t.ID, exceptions.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	v := web.NewList(c, rows, func(b exceptions.Block) string { return b.ID }, newURL(c, "/blocks"), func(b exceptions.Block) views.BlockRow {
		return w.blockRow(c, t, b, policies)
	})
	v.Head = w.TenantHead(c, "/blocks")
	v.Empty = views.Empty{Title: "No blocks", Text: "A block denies all requests of one key of a policy until it ends."}
	return w.Render(c, http.StatusOK, views.BlocksPage(w.TenantPage(c, "Blocks"), v))
}

func (w *pages) blockRow(c echo.Context, t tenants.Tenant, b exceptions.Block, policies []plans.Policy) views.BlockRow {
	p, known := web.PolicyBySlug(policies, b.Policy)
	r := views.BlockRow{
		Policy: b.Policy, Key: web.KeyWords(b.Key, p.CountBy), Reason: b.Reason, By: b.CreatedBy.Name,
		Ends: views.NewMoment(b.ExpiresAt, w.Now()), DeleteURL: deleteURL(c, "/blocks", b.ID),
		Idle: w.idle(t, b),
	}
	if known {
		r.KeyURL = web.KeyURL(t, b.Policy, b.Key)
	}
	return r
}

func confirmBlock(b exceptions.Block) views.Confirm {
	return views.Confirm{
		Title: "End the block?", Button: "End the block", Text: []string{"The limits decide requests of this key again."},
		Facts: []views.Fact{
			{Name: "Policy", Value: b.Policy}, {Name: "Key", Value: web.KeyWords(b.Key, nil)}, {Name: "Reason", Value: b.Reason},
		},
	}
}

func (w *pages) blockForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	return views.BoundForm{
		Head: w.TenantHead(c, "/blocks"), Policy: p.Slug, Applies: web.AppliesWords(p), Keys: keyInputs(q, p), List: "Blocks",
		Title: "Block a key", Lead: "The policy denies every request of this key until the block ends, also below the limits.",
		Action: web.TenantURL(t, "/blocks"), Back: web.TenantURL(t, "/blocks"), PickURL: web.TenantURL(t, "/blocks/new"),
		Reason: reasonInput(q, false), HasEnd: true, End: web.EndingField(c, "", "24h", web.ShortLifetimes...),
		Button: "Block the key", Bad: true,
	}
}

func (w *pages) resetForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	return views.BoundForm{
		Head: w.TenantHead(c, ""), Policy: p.Slug, Applies: web.AppliesWords(p), Keys: keyInputs(q, p),
		Title: "Reset a key", Lead: "The counters of this key start again at zero. The charts stay. You cannot undo this.",
		Action: web.TenantURL(t, "/reset"), Back: web.KeyURL(t, p.Slug, web.KeyFromForm(q, p)), PickURL: web.TenantURL(t, "/reset"),
		Reason: reasonInput(q, true), Button: "Reset the counters", Bad: true,
	}
}

func (w *pages) revokeForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	return views.BoundForm{
		Head: w.TenantHead(c, ""), Policy: p.Slug, Applies: web.AppliesWords(p), Keys: keyInputs(q, p),
		Title: "Revoke a lease",
		Lead: "The places of the lease are free at once. The holder is not told: if it renews the lease, it takes places again. " +
			"A block of the key keeps it out.",
		Action: web.TenantURL(t, "/leases/revoke"), Back: web.KeyURL(t, p.Slug, web.KeyFromForm(q, p)),
		PickURL: web.TenantURL(t, "/leases/revoke"),
		Lease:   views.TextInput("lease", "Lease", q.Get("lease"), "The ID from the list of holders."),
		Reason:  reasonInput(q, true), Button: "Revoke the lease", Bad: true,
	}
}

func (w *pages) revokeLease(c echo.Context) error {
	f, p, err := w.policyForm(c, "reason", "lease")
	if err != nil {
		return err
	}
	t, v, key := web.TenantOf(c), w.revokeForm(c, p, f), web.KeyFromForm(f, p)
	_, released, err := w.cfg.Usage.RevokeLease(c.Request().Context(), t.ID, p.Slug, key, f.Get("lease"), strings.TrimSpace(f.Get("reason")))
	if err == nil {
		done := "lease-revoked"
		if released == 0 {
			done = "lease-ended"
		}
		return c.Redirect(http.StatusSeeOther, web.AppendQuery(web.KeyURL(t, p.Slug, key), url.Values{"done": {done}}))
	}
	return web.Retry(err, &v, &v.Faults, map[string]string{"lease/id": "lease"}, func(status int) error { return w.showKeyForm(c, status, v) })
}

// newKeyForm returns the handler that shows an empty form about a key. If the address names no
// policy, the handler shows the page of pickPolicy first.
func (w *pages) newKeyForm(title, lead, current string,
	form func(echo.Context, plans.Policy, url.Values) views.BoundForm,
) echo.HandlerFunc {
	return func(c echo.Context) error {
		list, err := w.Policies(c)
		if err != nil {
			return err
		}
		p, known := web.PolicyBySlug(list, c.QueryParam("policy"))
		if !known {
			return w.pickPolicy(c, list, title, lead, current)
		}
		return w.showKeyForm(c, http.StatusOK, form(c, p, c.QueryParams()))
	}
}

func (w *pages) showKeyForm(c echo.Context, status int, v views.BoundForm) error {
	var above []views.Link
	if v.List != "" {
		above = []views.Link{{Text: v.List, URL: v.Back}}
	}
	return w.Render(c, status, views.BoundFormPage(w.TenantPage(c, v.Title, above...), v))
}

func (w *pages) createBlock(c echo.Context) error {
	f, p, err := w.policyForm(c, "reason", "life", "until")
	if err != nil {
		return err
	}
	t, v := web.TenantOf(c), w.blockForm(c, p, f)
	n := exceptions.NewBlock{Policy: p.Slug, Key: web.KeyFromForm(f, p), Reason: strings.TrimSpace(f.Get("reason"))}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.ShortLifetimes); err == nil {
		_, err = w.cfg.Exceptions.CreateBlock(c.Request().Context(), t.ID, n)
	}
	if err == nil {
		return w.done(c, web.TenantURL(t, "/blocks"), "block-created")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showKeyForm(c, status, v) })
}

func (w *pages) resetKey(c echo.Context) error {
	f, p, err := w.policyForm(c, "reason")
	if err != nil {
		return err
	}
	t, v, key := web.TenantOf(c), w.resetForm(c, p, f), web.KeyFromForm(f, p)
	if err = w.cfg.Usage.Reset(c.Request().Context(), t.ID, p.Slug, key, strings.TrimSpace(f.Get("reason"))); err == nil {
		return c.Redirect(http.StatusSeeOther, web.AppendQuery(web.KeyURL(t, p.Slug, key), url.Values{"done": {"key-reset"}}))
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showKeyForm(c, status, v) })
}
