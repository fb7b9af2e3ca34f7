package tenants

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) listEntries(c echo.Context) error {
	t, now := web.TenantOf(c), w.Now()
	f := exceptions.Filter{
		List: exceptions.List(c.QueryParam("list")), Query: strings.TrimSpace(c.QueryParam("q")), After: web.After(c), Limit: web.PageRows + 1,
	}
	if f.List != exceptions.Deny && f.List != exceptions.Allow {
		f.List = ""
	}
	rows, err := w.cfg.Exceptions.Entries(c.Request().Context(), t.ID, f)
	if err != nil {
		return err
	}
	v := views.Lists{
		Base: web.TenantURL(t, "/lists"), Query: c.QueryParam("q"), Narrow: f.List != "" || f.Query != "",
		Which: views.Select{Name: "list", Label: "List", Value: string(f.List), Optional: true, Options: []views.Option{
			{Value: "", Label: "Both"}, {Value: "deny", Label: "Deny"}, {Value: "allow", Label: "Allow"},
		}},
	}
	id := func(n exceptions.Entry) string { return n.ID }
	v.List = web.NewList(c, rows, id, newURL(c, "/lists"), func(n exceptions.Entry) views.ListRow {
		return views.ListRow{
			Deny: n.List == exceptions.Deny, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason, By: n.CreatedBy.Name,
			Ends: views.NewMoment(n.ExpiresAt, now), Over: n.Idle(now) != (exceptions.Idle{}),
			DeleteURL: deleteURL(c, "/lists", n.ID),
		}
	})
	v.Head = w.TenantHead(c, "/lists")
	v.Empty = views.Empty{
		Title: "The lists are empty",
		Text:  "Add a user, an address or a network to the deny list to deny its requests, or to the allow list to allow them without a charge.",
	}
	if v.Narrow {
		v.Empty = views.Empty{Title: "No entry matches", Text: "Search for another value, or in both lists."}
	}
	return w.Render(c, http.StatusOK, views.ListsPage(w.TenantPage(c, "Lists"), v))
}

func (w *pages) entryForm(c echo.Context, q url.Values) views.EntryForm {
	list := web.TenantURL(web.TenantOf(c), "/lists")
	v := views.EntryForm{
		Head: w.TenantHead(c, "/lists"), Action: list, Back: list,
		List: views.Choice{Name: "list", Label: "List", Value: "deny", Options: []views.Option{
			{Value: "deny", Label: "Deny", Hint: "Requests with this value are denied with 403 before any policy."},
			{Value: "allow", Label: "Allow", Hint: "Requests with this value are allowed, and no limit is charged."},
		}},
		Attribute: views.TextInput("attribute", "Attribute", q.Get("attribute"), "As requests send it: ip, user, api_key."),
		Value:     views.TextInput("value", "Value", q.Get("value"), "For ip, also a network such as 203.0.113.0/24."),
		Reason:    reasonInput(q, true),
		End:       web.EndingField(c, "never", "never", web.ShortLifetimes...),
	}
	v.List.Choose(q.Get("list"))
	return v
}

func (w *pages) newEntryForm(c echo.Context) error {
	return w.showEntryForm(c, http.StatusOK, w.entryForm(c, c.QueryParams()))
}

func (w *pages) showEntryForm(c echo.Context, status int, v views.EntryForm) error {
	return w.Render(c, status, views.EntryFormPage(w.TenantPage(c, "Add to a list", views.Link{Text: "Lists", URL: v.Back}), v))
}

func (w *pages) createEntry(c echo.Context, f url.Values) error {
	t, v := web.TenantOf(c), w.entryForm(c, f)
	n := exceptions.NewEntry{
		List: exceptions.List(f.Get("list")), Attribute: strings.TrimSpace(f.Get("attribute")), Value: strings.TrimSpace(f.Get("value")),
		Reason: strings.TrimSpace(f.Get("reason")),
	}
	var err error
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.ShortLifetimes); err == nil {
		_, err = w.cfg.Exceptions.CreateEntry(c.Request().Context(), t.ID, n)
	}
	if err == nil {
		return w.done(c, web.TenantURL(t, "/lists"), "entry-created")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showEntryForm(c, status, v) })
}

func confirmEntry(n exceptions.Entry) views.Confirm {
	v := views.Confirm{
		Title: "Remove from the deny list?", Button: "Remove from the list",
		Text:  []string{"The list no longer denies requests with this value. The plan decides."},
		Facts: []views.Fact{{Name: "Attribute", Value: n.Attribute}, {Name: "Value", Value: n.Value}, {Name: "Reason", Value: n.Reason}},
	}
	if n.List == exceptions.Allow {
		v.Title, v.Text = "Remove from the allow list?", []string{"The plan charges and limits requests with this value again."}
	}
	return v
}
