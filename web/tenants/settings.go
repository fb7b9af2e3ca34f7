package tenants

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// redactChoice is whether values are kept.
func redactChoice(redact bool) views.Choice {
	value := "keep"
	if redact {
		value = "hash"
	}
	return views.Choice{
		Name: "redact_values", Label: "Values of attributes", Value: value,
		Options: []views.Option{
			{Value: "keep", Label: "are kept", Hint: "Rankings and refusals show users, addresses and what else is sent."},
			{
				Value: "hash", Label: "are not kept",
				Hint: "People see hashes in rankings and nothing in refusals. What was kept before stays until it is removed by age.",
			},
		},
	}
}

func (w *pages) settingsView(c echo.Context) (views.TenantSettings, error) {
	t, now := web.TenantOf(c), w.Now()
	plan, err := w.planSelect(c.Request().Context(), "to", t.Plan)
	return views.TenantSettings{
		Head: w.TenantHead(c, "/settings"), Base: web.SettingsURL(t), Notice: web.Notice(c), Slug: t.Slug, ID: t.ID,
		Created: views.NewMoment(t.CreatedAt, now), Updated: views.NewMoment(t.UpdatedAt, now), Revision: strconv.FormatInt(t.Revision, 10),
		Name:     views.Input{Name: "name", Label: "Name", Type: "text", Value: t.Name, Autocomplete: "off"},
		NoPolicy: noPolicyChoice(t.NoPolicy), Redact: redactChoice(t.RedactValues),
		Plan: t.Plan, PlanURL: web.PlanURL(t.Plan), PlanForm: plan, Suspended: t.Status == tenants.Suspended,
		Confirm: views.Input{Name: "confirm", Label: "Type the slug " + t.Slug + " to confirm", Type: "text", Autocomplete: "off"},
	}, err
}

func (w *pages) tenantSettings(c echo.Context) error {
	v, err := w.settingsView(c)
	if err != nil {
		return err
	}
	return w.showSettings(c, http.StatusOK, v)
}

func (w *pages) showSettings(c echo.Context, status int, v views.TenantSettings) error {
	return w.Render(c, status, views.TenantSettingsPage(w.TenantPage(c, "Settings"), v))
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
func (w *pages) saveTenant(c echo.Context) error {
	f, err := web.Form(c, "name", "no_policy", "redact_values", "version")
	if err != nil {
		return err
	}
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), web.TenantOf(c)
	d := t.Document
	d.Name, d.NoPolicy, d.RedactValues = strings.TrimSpace(f.Get("name")), tenants.NoPolicy(f.Get("no_policy")),
		f.Get("redact_values") == "hash"
	_, err = w.cfg.Tenants.UpdateTenant(ctx, t.ID, d, revision)
	switch {
	case err == nil:
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, web.SettingsURL(t)+"?done=tenant-saved")
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
	list, status, err := web.Places{Inputs: []*views.Input{&v.Name}, Choices: []*views.Choice{&v.NoPolicy, &v.Redact}}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showSettings(c, status, v)
}

// staleSettings shows an edit beside what somebody else stored meanwhile.
func (w *pages) staleSettings(c echo.Context, yours tenants.Document) error {
	stored, err := w.cfg.Tenants.Tenant(c.Request().Context(), web.TenantOf(c).ID)
	if err != nil {
		return err
	}
	v := views.Stale{
		Head: w.TenantHead(c, "/settings"), Action: web.SettingsURL(stored), Back: web.SettingsURL(stored),
		Revision: strconv.FormatInt(stored.Revision, 10), Updated: views.NewMoment(stored.UpdatedAt, w.Now()),
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
	return w.Render(c, http.StatusConflict, views.StalePage(w.TenantPage(c, "Settings"), v))
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

func (w *pages) suspendForm(c echo.Context) error {
	t := web.TenantOf(c)
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.TenantPage(c, "Suspend", views.Link{Text: "Settings", URL: web.SettingsURL(t)}),
		views.Confirm{
			Head: w.TenantHead(c, "/settings"), Title: "Suspend " + t.Name + "?", Button: "Suspend the tenant", Bad: true,
			Text: []string{
				"Every check of it is answered 403 with the reason tenant_suspended, on every node within seconds, until you resume it.",
				"Its API keys and its people can still read, and change nothing. Nothing is deleted, and counters go on by their time.",
			},
			Action: web.SettingsURL(t) + "/suspend", Back: web.SettingsURL(t),
		}))
}

// suspendTenant and resumeTenant ask for no version: they mean the same whatever
// else was changed.
func (w *pages) suspendTenant(c echo.Context) error {
	return w.setStatus(c, tenants.Suspended, "tenant-suspended")
}

func (w *pages) resumeTenant(c echo.Context) error {
	return w.setStatus(c, tenants.Active, "tenant-resumed")
}

func (w *pages) setStatus(c echo.Context, status tenants.Status, done string) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	ctx, t := c.Request().Context(), web.TenantOf(c)
	d := t.Document
	d.Status = status
	if _, err := w.cfg.Tenants.UpdateTenant(ctx, t.ID, d, t.Revision); err != nil {
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, web.SettingsURL(t)+"?done="+done)
}

// deleteTenant asks for the slug to be typed, as nothing brings a tenant back.
func (w *pages) deleteTenant(c echo.Context) error {
	f, err := web.Form(c, "confirm", "version")
	if err != nil {
		return err
	}
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), web.TenantOf(c)
	if strings.TrimSpace(f.Get("confirm")) != t.Slug {
		err = problem.At("/confirm", "is not the slug: nothing was deleted")
	} else if err = w.cfg.Tenants.DeleteTenant(ctx, t.ID, revision); err == nil {
		w.Changed(ctx)
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
	list, status, err := web.Places{Inputs: []*views.Input{&v.Confirm}}.Report(err)
	if err != nil {
		return err
	}
	v.DelFaults = list
	return w.showSettings(c, status, v)
}
