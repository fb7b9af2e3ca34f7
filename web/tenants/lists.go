package tenants

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// ---- lists

func entryList(list exceptions.List) string {
	if list == exceptions.Deny {
		return "deny list"
	}
	return "allow list"
}

func (w *pages) listEntries(c echo.Context) error {
	t, now := web.TenantOf(c), w.Now()
	f := exceptions.Filter{
		List: exceptions.List(c.QueryParam("list")), Query: strings.TrimSpace(c.QueryParam("q")), After: afterOf(c),
		Limit: exceptionsOnPage + 1,
	}
	if f.List != exceptions.Deny && f.List != exceptions.Allow {
		f.List = ""
	}
	rows, err := w.cfg.Exceptions.Entries(c.Request().Context(), t.ID, f)
	if err != nil {
		return err
	}
	base := web.TenantURL(t, "/lists")
	v := views.Lists{
		Head: w.TenantHead(c, "/lists"), Notice: web.Notice(c), Base: base, Query: c.QueryParam("q"), Narrow: f.List != "" || f.Query != "",
		List: views.Select{Name: "list", Label: "List", Value: string(f.List), Optional: true, Options: []views.Option{
			{Value: "", Label: "Both"}, {Value: "deny", Label: "Deny"}, {Value: "allow", Label: "Allow"},
		}},
		Empty: views.Empty{
			Title: "Nothing is on the lists",
			Text:  "Put a user, an address or a whole network on the deny list to refuse it, or on the allow list to let it pass uncharged.",
		},
	}
	if v.Narrow {
		v.Empty = views.Empty{Title: "Nothing like this is on the lists", Text: "Another value, or both lists, may have what you look for."}
	}
	write := web.MayInTenant(c, accounts.ExceptionsWrite)
	if write {
		v.NewURL = base + "/new"
	}
	q := url.Values{}
	for name, value := range map[string]string{"list": string(f.List), "q": f.Query} {
		if value != "" {
			q.Set(name, value)
		}
	}
	rows, v.Next = cutPage(rows, exceptionsOnPage, func(n exceptions.Entry) string { return n.ID }, base, q)
	for _, n := range rows {
		r := views.ListRow{
			Deny: n.List == exceptions.Deny, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason, By: n.CreatedBy.Name,
			Ends: views.NewMoment(n.ExpiresAt, now), Over: !n.ExpiresAt.IsZero() && !now.Before(n.ExpiresAt),
		}
		if write {
			r.DeleteURL = base + "/" + n.ID + "/delete"
		}
		v.Rows = append(v.Rows, r)
	}
	return w.Render(c, http.StatusOK, views.ListsPage(w.TenantPage(c, "Lists"), v))
}

func (w *pages) entryForm(c echo.Context, q url.Values) views.EntryForm {
	t := web.TenantOf(c)
	v := views.EntryForm{
		Head: w.TenantHead(c, "/lists"), Action: web.TenantURL(t, "/lists"), Back: web.TenantURL(t, "/lists"),
		List: views.Choice{Name: "list", Label: "List", Value: "deny", Options: []views.Option{
			{Value: "deny", Label: "Deny", Hint: "Requests with the value are refused with 403, before any policy."},
			{Value: "allow", Label: "Allow", Hint: "Requests with the value pass, and are charged to no limit."},
		}},
		Attribute: views.Input{
			Name: "attribute", Label: "Attribute", Type: "text", Autocomplete: "off", Value: q.Get("attribute"),
			Hint: "As requests send it: ip, user, api_key.",
		},
		Value: views.Input{
			Name: "value", Label: "Value", Type: "text", Autocomplete: "off", Value: q.Get("value"),
			Hint: "Of ip also a network, like 203.0.113.0/24.",
		},
		Reason: reasonInput(q, true),
		End:    web.EndingField("never", "never", web.ShortLifetimes...),
	}
	chooses(&v.List, q.Get("list"))
	return v
}

func (w *pages) newEntryForm(c echo.Context) error {
	return w.showEntryForm(c, http.StatusOK, w.entryForm(c, c.QueryParams()))
}

func (w *pages) showEntryForm(c echo.Context, status int, v views.EntryForm) error {
	return w.Render(c, status, views.EntryFormPage(w.TenantPage(c, "Add to a list", views.Link{Text: "Lists", URL: v.Back}), v))
}

func (w *pages) createEntry(c echo.Context) error {
	f, err := web.Form(c, "list", "attribute", "value", "reason", "life", "until")
	if err != nil {
		return err
	}
	ctx, t, v := c.Request().Context(), web.TenantOf(c), w.entryForm(c, f)
	n := exceptions.NewEntry{
		List: exceptions.List(f.Get("list")), Attribute: strings.TrimSpace(f.Get("attribute")), Value: strings.TrimSpace(f.Get("value")),
		Reason: strings.TrimSpace(f.Get("reason")),
	}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.ShortLifetimes); err == nil {
		_, err = w.cfg.Exceptions.CreateEntry(ctx, t.ID, n)
	}
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, web.TenantURL(t, "/lists")+"?done=entry-created")
	}
	list, status, err := web.Places{
		Inputs: []*views.Input{&v.Attribute, &v.Value, &v.Reason, &v.End.Until}, Choice: &v.List, Selects: []*views.Select{&v.End.Life},
		Renamed: map[string]string{"expires_at": web.EndingFieldName(v.End)},
	}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showEntryForm(c, status, v)
}

func (w *pages) entryOf(c echo.Context) (exceptions.Entry, error) {
	id, err := web.PathID(c, "entry")
	if err != nil {
		return exceptions.Entry{}, err
	}
	return w.cfg.Exceptions.Entry(c.Request().Context(), web.TenantOf(c).ID, id)
}

func (w *pages) deleteEntryForm(c echo.Context) error {
	n, err := w.entryOf(c)
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	what := "Requests with it are no longer refused by the list: the plan decides."
	if n.List == exceptions.Allow {
		what = "Requests with it are charged and limited by the plan again."
	}
	return w.ShowConfirm(c, http.StatusOK, "Take off the list", "Lists", views.Confirm{
		Head: w.TenantHead(c, "/lists"), Title: "Take it off the " + entryList(n.List) + "?", Text: []string{what}, Button: "Take it off",
		Bad:    true,
		Facts:  []views.Fact{{Name: "Attribute", Value: n.Attribute}, {Name: "Value", Value: n.Value}, {Name: "Reason", Value: n.Reason}},
		Action: web.TenantURL(t, "/lists/") + n.ID + "/delete", Back: web.TenantURL(t, "/lists"),
	})
}

func (w *pages) deleteEntry(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	return w.ended(c, "entry", "/lists", "entry-deleted", w.cfg.Exceptions.DeleteEntry)
}
