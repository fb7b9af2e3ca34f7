package tenants

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// ---- blocks

func (w *pages) listBlocks(c echo.Context) error {
	t := web.TenantOf(c)
	rows, err := w.cfg.Exceptions.Blocks(c.Request().Context(), t.ID, exceptions.Filter{After: afterOf(c), Limit: exceptionsOnPage + 1})
	if err != nil {
		return err
	}
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	base := web.TenantURL(t, "/blocks")
	v := views.Blocks{Head: w.TenantHead(c, "/blocks"), Notice: web.Notice(c), Empty: views.Empty{
		Title: "Nothing is blocked", Text: "A block refuses one key of one policy until an instant: an abuser, while you look at what happens.",
	}}
	write := web.MayInTenant(c, accounts.ExceptionsWrite)
	if write {
		v.NewURL = base + "/new"
	}
	rows, v.Next = cutPage(rows, exceptionsOnPage, func(b exceptions.Block) string { return b.ID }, base, nil)
	for _, b := range rows {
		v.Rows = append(v.Rows, w.blockRow(t, b, policies, write))
	}
	return w.Render(c, http.StatusOK, views.BlocksPage(w.TenantPage(c, "Blocks"), v))
}

func (w *pages) blockRow(t tenants.Tenant, b exceptions.Block, policies []plans.Policy, write bool) views.BlockRow {
	now := w.Now()
	p, known := web.PolicyBySlug(policies, b.Policy)
	r := views.BlockRow{
		Policy: b.Policy, Key: web.KeyWords(b.Key, p.CountBy), Reason: b.Reason, By: b.CreatedBy.Name, Ends: views.NewMoment(b.ExpiresAt, now),
	}
	spec := enforcement.Block{ID: b.ID, Policy: b.Policy, Until: b.ExpiresAt.UnixMicro()}
	for name, value := range b.Key {
		spec.Key = append(spec.Key, enforcement.Attribute{Name: name, Value: value})
	}
	switch {
	case !now.Before(b.ExpiresAt):
		r.Idle = "it has ended"
	case !known:
		r.Idle = "no effect: the plan has no such policy"
	case p.Mode != enforcement.PolicyEnforce:
		r.Idle = "no effect: the policy is not enforced"
	case !w.usable(t, enforcement.ExceptionSpec{Blocks: []enforcement.Block{spec}}):
		r.Idle = "no effect with the plan as it is"
	}
	if known {
		r.KeyURL = web.KeyURL(t, b.Policy, b.Key)
	}
	if write {
		r.DeleteURL = web.TenantURL(t, "/blocks/") + b.ID + "/delete"
	}
	return r
}

func (w *pages) blockForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	v := w.boundForm(c, p, q, "/blocks")
	v.Title, v.Lead = "Block a key", "Every request of this key that the policy applies to is refused until the end, whatever it has left."
	v.Action, v.Back, v.PickURL = web.TenantURL(t, "/blocks"), web.TenantURL(t, "/blocks"), web.TenantURL(t, "/blocks/new")
	v.Reason, v.HasEnd, v.End, v.Button, v.Bad = reasonInput(q, false), true, web.EndingField("", "24h", web.ShortLifetimes...),
		"Block the key", true
	return v
}

func (w *pages) newBlockForm(c echo.Context) error {
	list, err := w.Policies(c)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(list, c.QueryParam("policy"))
	if !known {
		return w.pickPolicy(c, list, "Block a key", "A block is of one policy: choose it first.", "/blocks")
	}
	return w.showBound(c, http.StatusOK, "Blocks", w.blockForm(c, p, c.QueryParams()))
}

func (w *pages) createBlock(c echo.Context) error {
	f, p, known, err := w.policyForm(c, "reason", "life", "until")
	if err != nil {
		return err
	}
	if !known {
		return errNoPolicy
	}
	ctx, t, v := c.Request().Context(), web.TenantOf(c), w.blockForm(c, p, f)
	n := exceptions.NewBlock{Policy: p.Slug, Key: web.KeyFromForm(f, p), Reason: strings.TrimSpace(f.Get("reason"))}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.ShortLifetimes); err == nil {
		_, err = w.cfg.Exceptions.CreateBlock(ctx, t.ID, n)
	}
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, web.TenantURL(t, "/blocks")+"?done=block-created")
	}
	list, status, err := boundPlaces(&v).Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showBound(c, status, "Blocks", v)
}

func (w *pages) deleteBlockForm(c echo.Context) error {
	id, err := web.PathID(c, "block")
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	b, err := w.cfg.Exceptions.Block(c.Request().Context(), t.ID, id)
	if err != nil {
		return err
	}
	return w.ShowConfirm(c, http.StatusOK, "End the block", "Blocks", views.Confirm{
		Head: w.TenantHead(c, "/blocks"), Title: "End the block?",
		Text: []string{"Requests of this key are decided by what it has left again."}, Button: "End the block", Bad: true,
		Facts: []views.Fact{
			{Name: "Policy", Value: b.Policy},
			{Name: "Key", Value: web.KeyWords(b.Key, nil)},
			{Name: "Reason", Value: b.Reason},
		},
		Action: web.TenantURL(t, "/blocks/") + b.ID + "/delete", Back: web.TenantURL(t, "/blocks"),
	})
}

func (w *pages) deleteBlock(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	return w.ended(c, "block", "/blocks", "block-deleted", w.cfg.Exceptions.DeleteBlock)
}
