package tenants

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// numberNames are the numbers of a limit that an override can replace. The name of the form
// field for a number is the name of the number, a dot, and the name of the limit.
var numberNames = []string{"quota", "burst", "window"}

// overrideForm returns the form for an override of one policy. q has the values of its fields,
// which come from an address, a form, or an override.
func (w *pages) overrideForm(c echo.Context, p plans.Policy, q url.Values) views.OverrideForm {
	list := web.TenantURL(web.TenantOf(c), "/overrides")
	v := views.OverrideForm{
		Title: "New override", Button: "Create the override", From: q.Get("back"),
		Head: w.TenantHead(c, "/overrides"), Action: list, Back: list, PickURL: list + "/new", Policy: p.Slug, Applies: web.AppliesWords(p),
		Scope: views.Choice{Name: "scope", Label: "Applies to", Value: "all", Options: []views.Option{
			{Value: "all", Label: "the whole tenant", Hint: "Every key of the policy."},
		}},
		Attribute: views.Select{Name: "attribute", Label: "Attribute", Value: q.Get("attribute"), Optional: true},
		Value:     views.OptionalInput("value", "Value, prefix or network", q.Get("value"), ""),
		How: views.Choice{Name: "how", Label: "Numbers", Value: "factor", Options: []views.Option{
			{Value: "factor", Label: "multiply the plan's numbers", Hint: "Every quota and burst, rounded down."},
			{Value: "limits", Label: "set the numbers of each limit", Hint: "Empty fields keep the number of the plan."},
		}},
		Factor: views.OptionalInput("factor", "Factor", q.Get("factor"), "2 doubles the numbers, 0.5 halves them."),
		Reason: reasonInput(q, false),
		End:    web.EndingField(c, "", "7d", web.ShortLifetimes...),
	}
	if v.From != "" {
		v.Back = w.Back(v.From)
	}
	for _, o := range v.End.Life.Options {
		if o.Value == q.Get("life") {
			v.End.Life.Value = o.Value
		}
	}
	names := web.KeyAttributes(p.CountBy)
	if v.HasAttribute = len(names) > 0; v.HasAttribute {
		v.Scope.Options = append(v.Scope.Options,
			views.Option{Value: "value", Label: "one value", Hint: "The keys with this exact value."},
			views.Option{
				Value: "prefix", Label: "a prefix or a network",
				Hint: "The keys whose value has this prefix. For ip, a network such as 203.0.113.0/24.",
			})
	}
	for _, name := range names {
		v.Attribute.Options = append(v.Attribute.Options, views.Option{Value: name, Label: name})
	}
	if q.Get("prefix") != "" {
		v.Value.Value, v.Scope.Value = q.Get("prefix"), "prefix"
	} else if q.Get("value") != "" && v.HasAttribute {
		v.Scope.Value = "value"
	}
	v.Scope.Choose(q.Get("scope"))
	for _, l := range p.Limits {
		field := func(what, label, now string) views.Input {
			name := what + "." + l.Name
			if q.Get(name) != "" {
				v.How.Value = "limits"
			}
			return views.OptionalInput(name, label, q.Get(name), "now "+now)
		}
		limit := views.OverrideLimit{
			Name: l.Name, Plan: plans.Describe(l), HasBurst: l.Algorithm.Bucket(),
			Quota: field("quota", "Quota", views.Count(l.Quota).Exact), Window: field("window", "Window", l.WindowText()),
		}
		if limit.HasBurst {
			limit.Burst = field("burst", "Burst", views.Count(l.Capacity()).Exact)
		}
		v.Limits = append(v.Limits, limit)
	}
	v.How.Choose(q.Get("how"))
	return v
}

func (w *pages) newOverrideForm(c echo.Context) error {
	list, err := w.Policies(c)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(list, c.QueryParam("policy"))
	if !known {
		list = slices.DeleteFunc(slices.Clone(list), func(p plans.Policy) bool { return len(p.Limits) == 0 })
		return w.pickPolicy(c, list, "New override", "An override belongs to one policy. Choose the policy first.", "/overrides")
	}
	return w.showOverrideForm(c, http.StatusOK, w.overrideForm(c, p, c.QueryParams()))
}

func (w *pages) showOverrideForm(c echo.Context, status int, v views.OverrideForm) error {
	list := views.Link{Text: "Overrides", URL: web.TenantURL(web.TenantOf(c), "/overrides")}
	return w.Render(c, status, views.OverrideFormPage(w.TenantPage(c, v.Title, list), v))
}

// keepEnd is the choice of the expiry field that leaves the end of an override unchanged.
const keepEnd = "keep"

// changeForm returns the form that changes an override. q has the values that the visitor
// entered. If q is nil, the form has the values of the override.
func (w *pages) changeForm(c echo.Context, o exceptions.Override, p plans.Policy, q url.Values) views.OverrideForm {
	if q == nil {
		q = overrideValues(o)
	}
	v := w.overrideForm(c, p, q)
	v.Title, v.Button, v.PickURL = "Change an override", "Save the override", ""
	v.Action, v.Version = web.TenantURL(web.TenantOf(c), "/overrides/"+o.ID+"/change"), q.Get("version")
	zone := views.Zone(c.Request().Context())
	keep := views.Option{Value: keepEnd, Label: "as it is: " + o.ExpiresAt.In(zone).Format("2 Jan 2006, 15:04 ") + zone.String()}
	v.End.Life.Options = slices.Insert(v.End.Life.Options, 0, keep)
	if v.End.Life.Value = q.Get("life"); v.End.Life.Value == "" {
		v.End.Life.Value = keepEnd
	}
	return v
}

// overrideValues returns the values of an override as fields of the form.
func overrideValues(o exceptions.Override) url.Values {
	q := url.Values{"attribute": {o.Attribute}, "reason": {o.Reason}, "version": {strconv.FormatInt(o.Revision, 10)}, "scope": {"all"}}
	switch {
	case o.Prefix != "":
		q.Set("scope", "prefix")
		q.Set("value", o.Prefix)
	case o.Attribute != "":
		q.Set("scope", "value")
		q.Set("value", o.Value)
	}
	if o.Factor != 0 {
		q.Set("factor", exceptions.FormatFactor(o.Factor))
	}
	for _, l := range o.Limits {
		if l.Quota != enforcement.Keep {
			q.Set("quota."+l.Name, strconv.FormatInt(l.Quota, 10))
		}
		if l.Burst != enforcement.Keep {
			q.Set("burst."+l.Name, strconv.FormatInt(l.Burst, 10))
		}
		if l.Window != 0 {
			q.Set("window."+l.Name, enforcement.FormatWindow(l.Window))
		}
	}
	return q
}

// overrideToChange returns the override that the path names, and its policy.
func (w *pages) overrideToChange(c echo.Context) (o exceptions.Override, p plans.Policy, err error) {
	id, err := web.PathID(c, "override")
	if err != nil {
		return o, p, err
	}
	if o, err = w.cfg.Exceptions.Override(c.Request().Context(), web.TenantOf(c).ID, id); err != nil {
		return o, p, err
	}
	list, err := w.Policies(c)
	if err != nil {
		return o, p, err
	}
	p, known := web.PolicyBySlug(list, o.Policy)
	if !known {
		return o, p, errNoPolicy
	}
	return o, p, nil
}

func (w *pages) changeOverrideForm(c echo.Context) error {
	o, p, err := w.overrideToChange(c)
	if err != nil {
		return err
	}
	return w.showOverrideForm(c, http.StatusOK, w.changeForm(c, o, p, nil))
}

// changeOverride is POST /tenants/{tenant}/overrides/{override}/change.
func (w *pages) changeOverride(c echo.Context) error {
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	f, err := web.Form(c, overrideFormFields(policies)...)
	if err != nil {
		return err
	}
	o, p, err := w.overrideToChange(c)
	if err != nil {
		return err
	}
	v := w.changeForm(c, o, p, f)
	version, err := strconv.ParseInt(f.Get("version"), 10, 64)
	if err != nil {
		return problem.At("/version", "must be the version of the override that the page showed")
	}
	n, err := readOverride(f, &v, p, w.Now())
	if f.Get("life") == keepEnd {
		n.ExpiresAt = o.ExpiresAt
	}
	if v.Aloud = aloud(n, p); err == nil && f.Get("step") == "look" {
		return w.showOverrideForm(c, http.StatusOK, v)
	}
	if err == nil {
		_, err = w.cfg.Exceptions.UpdateOverride(c.Request().Context(), o.TenantID, o.ID, n, version)
	}
	if problem.Is(err, problem.Stale) {
		v.Version = strconv.FormatInt(o.Revision, 10)
		v.Faults = []views.Fault{{
			Message: "Another person changed this override meanwhile. These are your values: save them again to replace the other ones.",
		}}
		return w.showOverrideForm(c, http.StatusConflict, v)
	}
	if err == nil {
		return w.done(c, v.Back, "override-changed")
	}
	return web.Retry(err, &v, &v.Faults, overrideFields(n), func(status int) error { return w.showOverrideForm(c, status, v) })
}

// aloud describes in words the limits of a policy after an override has replaced their numbers.
func aloud(n exceptions.NewOverride, p plans.Policy) []string {
	var list []string
	for _, l := range p.Limits {
		if become, changed := l.Overridden(n.Factor, n.Limits); changed {
			list = append(list, l.Name+": "+plans.Describe(become)+" (plan: "+plans.Describe(l)+")")
		}
	}
	return list
}

// overrideFormFields returns the names of all fields of the form.
func overrideFormFields(policies []plans.Policy) []string {
	fields := []string{"policy", "scope", "attribute", "value", "how", "factor", "reason", "life", "until", "step", "back", "version"}
	for _, p := range policies {
		for _, l := range p.Limits {
			for _, what := range numberNames {
				fields = append(fields, what+"."+l.Name)
			}
		}
	}
	return fields
}

// readOverride reads an override from a form.
func readOverride(f url.Values, v *views.OverrideForm, p plans.Policy, now time.Time) (exceptions.NewOverride, error) {
	n := exceptions.NewOverride{Policy: p.Slug, Reason: strings.TrimSpace(f.Get("reason"))}
	var faults problem.Fields
	switch v.Scope.Value {
	case "value":
		n.Attribute, n.Value = f.Get("attribute"), strings.TrimSpace(f.Get("value"))
	case "prefix":
		n.Attribute, n.Prefix = f.Get("attribute"), strings.TrimSpace(f.Get("value"))
	}
	if v.Scope.Value != "all" && n.Value+n.Prefix == "" {
		faults.Add("/value", "must not be empty, unless the override is for the whole tenant")
	}
	var err error
	if v.How.Value == "factor" {
		if n.Factor, err = exceptions.ParseFactor(strings.TrimSpace(f.Get("factor"))); err != nil {
			faults.Add("/factor", "%v", err)
		}
	} else {
		n.Limits = readNumbers(&faults, f, p)
	}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, now, web.ShortLifetimes); err != nil {
		faults.Add("/expires_at", "must be a time like 2026-11-21T09:30, in UTC")
	}
	return n, faults.Err()
}

// readNumbers reads the numbers that the visitor entered. It returns those limits for which the
// visitor entered at least one number.
func readNumbers(faults *problem.Fields, f url.Values, p plans.Policy) []enforcement.OverrideLimit {
	var list []enforcement.OverrideLimit
	for _, l := range p.Limits {
		o := enforcement.OverrideLimit{Name: l.Name, Quota: enforcement.Keep, Burst: enforcement.Keep}
		given := false
		for _, what := range numberNames {
			text := strings.TrimSpace(f.Get(what + "." + l.Name))
			if text == "" {
				continue
			}
			given = true
			if fault := setNumber(&o, what, text); fault != "" {
				faults.Add("/"+what+"."+problem.Escape(l.Name), "%s", fault)
			}
		}
		if given {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		faults.Add("/how", "need at least one number of a limit")
	}
	return list
}

// setNumber sets one number of a limit from the text of a form field. If the text is invalid,
// it returns an error message, otherwise "".
func setNumber(o *enforcement.OverrideLimit, what, text string) (fault string) {
	if what == "window" {
		var err error
		if o.Window, err = enforcement.ParseWindow(text); err != nil {
			return err.Error()
		}
		return ""
	}
	to, least := &o.Quota, int64(0)
	if what == "burst" {
		to, least = &o.Burst, 1
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	if err != nil || n < least {
		return "must be a whole number, at least " + strconv.FormatInt(least, 10)
	}
	*to = n
	return ""
}

func (w *pages) createOverride(c echo.Context) error {
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	f, err := web.Form(c, overrideFormFields(policies)...)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(policies, f.Get("policy"))
	if !known {
		return errNoPolicy
	}
	t, v := web.TenantOf(c), w.overrideForm(c, p, f)
	n, err := readOverride(f, &v, p, w.Now())
	if err == nil {
		v.Aloud = aloud(n, p)
	}
	if err == nil && f.Get("step") == "look" {
		return w.showOverrideForm(c, http.StatusOK, v)
	}
	if err == nil {
		_, err = w.cfg.Exceptions.CreateOverride(c.Request().Context(), t.ID, n)
	}
	if err == nil {
		return w.done(c, v.Back, "override-created")
	}
	return web.Retry(err, &v, &v.Faults, overrideFields(n), func(status int) error { return w.showOverrideForm(c, status, v) })
}

// overrideFields maps the JSON pointers of an override to the names of form fields.
func overrideFields(n exceptions.NewOverride) map[string]string {
	fields := map[string]string{"prefix": "value", "limits": "how"}
	for k, l := range n.Limits {
		at := "limits/" + strconv.Itoa(k)
		fields[at] = "quota." + l.Name
		for _, what := range numberNames {
			fields[at+"/"+what], fields[what+"."+problem.Escape(l.Name)] = what+"."+l.Name, what+"."+l.Name
		}
	}
	return fields
}
