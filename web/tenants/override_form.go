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

// numberNames are the numbers of a limit that an override can set. The name of a form field
// consists of such a number, a dot and the limit's name.
var numberNames = []string{"quota", "burst", "window"}

// overrideForm returns the form for one policy, with the values of q, which come from an
// address or a form.
func (w *pages) overrideForm(c echo.Context, p plans.Policy, q url.Values) views.OverrideForm {
	list := web.TenantURL(web.TenantOf(c), "/overrides")
	v := views.OverrideForm{
		Head: w.TenantHead(c, "/overrides"), Action: list, Back: list, PickURL: list + "/new", Policy: p.Slug, Applies: web.AppliesWords(p),
		Scope: views.Choice{Name: "scope", Label: "Applies to", Value: "all", Options: []views.Option{
			{Value: "all", Label: "the whole tenant", Hint: "Every key of the policy."},
		}},
		Attribute: views.Select{Name: "attribute", Label: "Attribute", Value: q.Get("attribute"), Optional: true},
		Value:     views.OptionalInput("value", "Value, prefix or network", q.Get("value"), "For one value or a prefix."),
		How: views.Choice{Name: "how", Label: "Numbers", Value: "factor", Options: []views.Option{
			{Value: "factor", Label: "multiply the plan's numbers", Hint: "Every quota and burst, rounded down."},
			{Value: "limits", Label: "set the numbers of each limit", Hint: "Empty fields keep the number of the plan."},
		}},
		Factor: views.OptionalInput("factor", "Factor", q.Get("factor"), "2 doubles the numbers, 0.5 halves them."),
		Reason: reasonInput(q, false),
		End:    web.EndingField("", "7d", web.ShortLifetimes...),
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
	return w.Render(c, status, views.OverrideFormPage(w.TenantPage(c, "New override", views.Link{Text: "Overrides", URL: v.Back}), v))
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

// readNumbers reads the overridden numbers of all limits for which the visitor entered any.
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

// setNumber sets one number of a limit from the text of a field. It returns the error of the
// text, or "".
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
	fields := []string{"policy", "scope", "attribute", "value", "how", "factor", "reason", "life", "until", "step"}
	for _, p := range policies {
		for _, l := range p.Limits {
			for _, what := range numberNames {
				fields = append(fields, what+"."+l.Name)
			}
		}
	}
	f, err := web.Form(c, fields...)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(policies, f.Get("policy"))
	if !known {
		return errNoPolicy
	}
	t, v := web.TenantOf(c), w.overrideForm(c, p, f)
	n, err := readOverride(f, &v, p, w.Now())
	for _, l := range p.Limits {
		if become, changed := l.Overridden(n.Factor, n.Limits); changed && err == nil {
			v.Aloud = append(v.Aloud, l.Name+": "+plans.Describe(become)+" (plan: "+plans.Describe(l)+")")
		}
	}
	if err == nil && f.Get("step") == "look" {
		return w.showOverrideForm(c, http.StatusOK, v)
	}
	if err == nil {
		_, err = w.cfg.Exceptions.CreateOverride(c.Request().Context(), t.ID, n)
	}
	if err == nil {
		return w.done(c, web.TenantURL(t, "/overrides"), "override-created")
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
