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

// routeChoice returns the form field that says whether checks of the tenant may lack a method
// and a path.
func routeChoice(optional bool) views.Choice {
	c := views.Choice{
		Name: "require_route", Label: "Checks without a method or a path", Value: "yes",
		Options: []views.Option{
			{Value: "yes", Label: "Reject", Hint: "They are answered 400, so that a caller cannot pass the policies of a route by leaving it out."},
			{Value: "no", Label: "Accept", Hint: "Policies with a method or a path do not match them."},
		},
	}
	if optional {
		c.Value = "no"
	}
	return c
}

// redactChoice returns the form field that says whether the values of attributes in the tenant's
// requests are stored.
func redactChoice(redact bool) views.Choice {
	c := views.Choice{
		Name: "redact_values", Label: "Attribute values", Value: "keep",
		Options: []views.Option{
			{Value: "keep", Label: "Keep values", Hint: "Rankings and denials show users, addresses and other attributes."},
			{
				Value: "hash", Label: "Do not keep values",
				Hint: "Rankings show hashes, and denials show no values. Values that are already stored stay until they expire.",
			},
		},
	}
	if redact {
		c.Value = "hash"
	}
	return c
}

// maxKeysInput returns the form field for the maximum number of live counters. If the field is
// empty, HEADGATE_MAX_KEYS applies.
func maxKeysInput(bound int64) views.Input {
	return views.OptionalInput("max_keys", "Most live counters", boundText(bound),
		"Above this number, new keys of a limit share one counter. Empty: HEADGATE_MAX_KEYS.")
}

// sampleInput returns the form field for the sample of allowed requests. Its number n means that one
// of n allowed requests is recorded. If the field is empty, none is recorded.
func sampleInput(oneIn uint32) views.Input {
	return views.OptionalInput("sample_allowed", "Record one in this many allowed requests", boundText(int64(oneIn)),
		"Denials shows them beside the denied ones, with their attributes, for 24 hours. 100 records 1%. Empty: none.")
}

// traceChoice returns the form field that says whether requests are traced for previews of drafts.
func traceChoice(no bool) views.Choice {
	c := views.Choice{
		Name: "trace", Label: "Trace of requests", Value: "keep",
		Options: []views.Option{
			{
				Value: "keep", Label: "Keep for two days",
				Hint: "Previews of a draft replay the requests of some keys exactly. The trace has hashes of keys, times, and costs, and no values.",
			},
			{Value: "none", Label: "Keep none", Hint: "Previews estimate from counts per minute. What is stored stays until it expires."},
		},
	}
	if no {
		c.Value = "none"
	}
	return c
}

// zoneInput returns the form field for the time zone of the tenant's calendar windows.
func zoneInput(zone string) views.Input {
	return views.TextInput("time_zone", "Time zone", zone,
		"Days, weeks, months, quarters, and years of its limits begin at midnight in this zone, such as Europe/Berlin.")
}

// billingDayInput returns the form field for the day on which the tenant's months, quarters and
// years begin.
func billingDayInput(day int) views.Input {
	return views.TextInput("billing_anchor_day", "First day of the billing month", strconv.Itoa(day),
		"Months, quarters, and years of its limits begin on this day, 1 to 31. In a shorter month, they begin on its last day.")
}

// billingDayOf parses the billing day from the form. If the text is not a number above 0, it returns
// -1, which the service rejects.
func billingDayOf(f url.Values) int {
	n, err := strconv.Atoi(strings.TrimSpace(f.Get("billing_anchor_day")))
	if err != nil || n < 1 {
		return -1
	}
	return n
}

func boundText(bound int64) string {
	if bound == 0 {
		return ""
	}
	return strconv.FormatInt(bound, 10)
}

// boundOf parses a number from a field of the form. For an empty field, it returns 0. For text that
// is not a number, it returns -1, which the service rejects.
func boundOf(f url.Values, field string) int64 {
	text := strings.ReplaceAll(strings.TrimSpace(f.Get(field)), ",", "")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// sampleOf reads the field of sampleInput from the form. For text that is not a number, it
// returns a number that the service rejects.
func sampleOf(f url.Values) uint32 {
	if n := boundOf(f, "sample_allowed"); n >= 0 && n <= tenants.MaxSample {
		return uint32(n)
	}
	return tenants.MaxSample + 1
}

func (w *pages) settingsView(c echo.Context) (views.TenantSettings, error) {
	t, now := web.TenantOf(c), w.Now()
	plan, err := w.planSelect(c.Request().Context(), "to", t.Plan)
	return views.TenantSettings{
		Head: w.TenantHead(c, "/settings"), Base: web.SettingsURL(t), Notice: web.Notice(c), Slug: t.Slug, ID: t.ID,
		Created: views.NewMoment(t.CreatedAt, now), Updated: views.NewMoment(t.UpdatedAt, now), Revision: strconv.FormatInt(t.Revision, 10),
		Name: views.TextInput("name", "Name", t.Name, ""), NoPolicy: noPolicyChoice(t.NoPolicy), Route: routeChoice(t.RouteOptional),
		Redact:  redactChoice(t.RedactValues),
		MaxKeys: maxKeysInput(t.MaxKeys), Sample: sampleInput(t.SampleAllowed), Trace: traceChoice(t.NoTrace),
		Zone: zoneInput(t.TimeZone), BillingDay: billingDayInput(t.BillingAnchorDay),
		Plan: t.Plan, PlanURL: web.PlanURL(t.Plan), PlanForm: plan, Suspended: t.Status == tenants.Suspended,
		Confirm: views.TextInput("confirm", "Type the slug "+t.Slug+" to confirm", "", ""),
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
	return w.Render(c, status, views.TenantSettingsPage(w.TenantPage(c, "Tenant settings"), v))
}

// retrySettings shows the settings form again after the error err. The function change stores the
// entered values in the view, and returns the list for error messages.
func (w *pages) retrySettings(c echo.Context, err error, renamed map[string]string,
	change func(*views.TenantSettings) *[]views.Fault,
) error {
	v, failed := w.settingsView(c)
	if failed != nil {
		return failed
	}
	list := change(&v)
	return web.Retry(err, &v, list, renamed, func(status int) error { return w.showSettings(c, status, v) })
}

// revisionOf returns the revision of the tenant from the form. It is the revision that the visitor
// saw when the form was opened.
func revisionOf(f url.Values) (int64, error) {
	n, err := strconv.ParseInt(f.Get("version"), 10, 64)
	if err != nil {
		return 0, problem.New(problem.Malformed, "the form does not say which version it changes")
	}
	return n, nil
}

// saveTenant is POST /tenants/{tenant}/settings.
func (w *pages) saveTenant(c echo.Context, f url.Values) error {
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	d := t.Document
	d.Name, d.NoPolicy, d.RedactValues = strings.TrimSpace(f.Get("name")), tenants.NoPolicy(f.Get("no_policy")),
		f.Get("redact_values") == "hash"
	d.RouteOptional, d.MaxKeys = f.Get("require_route") == "no", boundOf(f, "max_keys")
	if f.Has("sample_allowed") { // forms of the previous release do not have this field
		d.SampleAllowed = sampleOf(f)
	}
	if f.Has("trace") { // forms of the previous release do not have this field
		d.NoTrace = f.Get("trace") == "none"
	}
	if f.Has("time_zone") { // forms of the previous release do not have these fields
		d.TimeZone, d.BillingAnchorDay = strings.TrimSpace(f.Get("time_zone")), billingDayOf(f)
	}
	_, err = w.cfg.Tenants.UpdateTenant(c.Request().Context(), t.ID, d, revision)
	switch {
	case err == nil:
		return w.done(c, web.SettingsURL(t), "tenant-saved")
	case problem.Is(err, problem.Stale):
		return w.staleSettings(c, d)
	}
	return w.retrySettings(c, err, nil, func(v *views.TenantSettings) *[]views.Fault {
		v.Name.Value, v.Revision = f.Get("name"), f.Get("version")
		v.NoPolicy.Choose(f.Get("no_policy"))
		v.Route.Choose(f.Get("require_route"))
		v.Redact.Choose(f.Get("redact_values"))
		v.MaxKeys.Value, v.Zone.Value, v.BillingDay.Value = f.Get("max_keys"), f.Get("time_zone"), f.Get("billing_anchor_day")
		v.Sample.Value = f.Get("sample_allowed")
		v.Trace.Choose(f.Get("trace"))
		return &v.Faults
	})
}

// staleSettings shows the visitor's values next to the stored values, if another person has changed
// the tenant since the form was opened.
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
		{"time_zone", "Time zone", yours.TimeZone, stored.TimeZone},
		{
			"billing_anchor_day", "First day of the billing month", strconv.Itoa(yours.BillingAnchorDay),
			strconv.Itoa(stored.BillingAnchorDay),
		},
		{"no_policy", "Requests that match no policy", string(yours.NoPolicy), string(stored.NoPolicy)},
		{"require_route", "Checks without a method or a path", routeChoice(yours.RouteOptional).Value, routeChoice(stored.RouteOptional).Value},
		{"redact_values", "Attribute values", redactChoice(yours.RedactValues).Value, redactChoice(stored.RedactValues).Value},
		{"max_keys", "Most live counters", boundText(yours.MaxKeys), boundText(stored.MaxKeys)},
		{
			"sample_allowed", "Record one in this many allowed requests", boundText(int64(yours.SampleAllowed)),
			boundText(int64(stored.SampleAllowed)),
		},
		{"trace", "Trace of requests", traceChoice(yours.NoTrace).Value, traceChoice(stored.NoTrace).Value},
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
	return w.Render(c, http.StatusConflict, views.StalePage(w.TenantPage(c, "Tenant settings"), v))
}

// optionWords returns the label for the value of a settings field.
func optionWords(field, value string) string {
	for _, k := range []views.Choice{noPolicyChoice(""), routeChoice(false), redactChoice(false), traceChoice(false)} {
		if i := slices.IndexFunc(k.Options, func(o views.Option) bool { return o.Value == value }); k.Name == field && i >= 0 {
			return k.Options[i].Label
		}
	}
	if field == "max_keys" && value == "" {
		return "HEADGATE_MAX_KEYS"
	}
	if field == "sample_allowed" && value == "" {
		return "none"
	}
	return value
}

func (w *pages) suspendForm(c echo.Context) error {
	t := web.TenantOf(c)
	v := views.Confirm{
		Head: w.TenantHead(c, "/settings"), Title: "Suspend " + t.Name + "?", Button: "Suspend the tenant", Bad: true,
		Text: []string{
			"Headgate answers every check of this tenant with 403 and the reason tenant_suspended, on every node within seconds.",
			"Its API keys and members can read, but change nothing. Nothing is deleted. Windows continue.",
		},
		Action: web.SettingsURL(t) + "/suspend", Back: web.SettingsURL(t),
	}
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.TenantPage(c, "Suspend", views.Link{Text: "Tenant settings", URL: v.Back}), v))
}

// setStatus returns a handler that changes the status of a tenant. It does not compare
// revisions, because the change does not depend on other edits.
func (w *pages) setStatus(status tenants.Status, done string) func(echo.Context, url.Values) error {
	return func(c echo.Context, _ url.Values) error {
		t := web.TenantOf(c)
		d := t.Document
		d.Status = status
		if _, err := w.cfg.Tenants.UpdateTenant(c.Request().Context(), t.ID, d, t.Revision); err != nil {
			return err
		}
		return w.done(c, web.SettingsURL(t), done)
	}
}

// deleteTenant deletes a tenant. For confirmation, the visitor must type the tenant's slug.
func (w *pages) deleteTenant(c echo.Context, f url.Values) error {
	revision, err := revisionOf(f)
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	if strings.TrimSpace(f.Get("confirm")) != t.Slug {
		err = problem.At("/confirm", "is not the slug: nothing was deleted")
	} else if err = w.cfg.Tenants.DeleteTenant(c.Request().Context(), t.ID, revision); err == nil {
		return w.done(c, "/tenants", "tenant-deleted")
	}
	if problem.Is(err, problem.Stale) {
		err = problem.New(problem.Conflict, "another person changed the tenant after you opened this page: check it, and then delete it")
	}
	return w.retrySettings(c, err, nil, func(v *views.TenantSettings) *[]views.Fault {
		v.Confirm.Value = f.Get("confirm")
		return &v.DelFaults
	})
}
