package alerts

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) listRules(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	rows, err := w.cfg.Alerts.Rules(ctx, s.owner, alerts.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	names, err := w.channelNames(ctx, s)
	if err != nil {
		return err
	}
	newURL := ""
	if s.write {
		newURL = s.base + "/rules/new"
	}
	v := views.AlertRules{AlertHead: w.head(c, "/rules")}
	v.List = web.NewList(c, rows, func(r alerts.Watched) string { return r.ID }, newURL, func(r alerts.Watched) views.AlertRuleRow {
		return w.ruleRow(s, &r, names)
	})
	v.Empty = views.Empty{
		Title: "No rules",
		Text:  "A rule compares a figure with a threshold, and sends a message when the alert begins and when it ends.",
	}
	if s.write {
		v.Empty.Link = views.Link{Text: "Add rules", URL: newURL}
	}
	return w.Render(c, http.StatusOK, views.AlertRulesPage(w.page(c, "Rules"), v))
}

// channelNames returns the names of an owner's channels, by the IDs of the channels.
func (w *pages) channelNames(ctx context.Context, s scope) (map[string]string, error) {
	list, err := w.cfg.Alerts.Channels(ctx, s.owner, alerts.Filter{Limit: alerts.MaxChannels})
	names := make(map[string]string, len(list))
	for _, c := range list {
		names[c.ID] = c.Name
	}
	return names, err
}

func (w *pages) ruleRow(s scope, r *alerts.Watched, channels map[string]string) views.AlertRuleRow {
	v := views.AlertRuleRow{
		Name: r.Name, URL: s.base + "/rules/" + r.ID, Figure: r.Figure(), Begins: beginsWords(&r.Document), Detail: r.State.Detail,
	}
	v.Status, v.Tone = statusWords(r)
	if r.State.Err != "" && !r.Disabled {
		v.Detail = web.Sentence(r.State.Err)
	} else if !r.State.At.IsZero() && !r.Disabled {
		v.Value = r.Number(r.State.Value)
		v.Since = views.NewMoment(r.State.Since, w.Now())
	}
	if now := w.Now(); r.MutedUntil.After(now) {
		v.Muted = views.NewMoment(r.MutedUntil, now)
	}
	for _, id := range r.Channels {
		if name, exists := channels[id]; exists {
			v.Channels = append(v.Channels, name)
		}
	}
	return v
}

// statusWords returns the state of a rule in words, and the tone of its badge.
func statusWords(r *alerts.Watched) (status, tone string) {
	switch {
	case r.Disabled:
		return "Disabled", ""
	case r.State.Phase == alerts.Firing && r.EachTenant:
		return "Firing for " + views.Quantity(int64(r.State.Firing()), "tenant", "tenants"), "bad"
	case r.State.Phase == alerts.Firing:
		return "Firing", "bad"
	case r.State.Err != "":
		return "Not measured", "warn"
	case r.State.Phase == alerts.Pending:
		return "Pending", "warn"
	case r.State.At.IsZero():
		return "Not evaluated yet", ""
	}
	return "OK", "good"
}

// beginsWords says in words when the alert of a rule begins and ends.
func beginsWords(d *alerts.Document) string {
	text := "Begins at " + thresholdWords(d)
	if d.For > 0 {
		text += " for " + enforcement.FormatWindow(d.For)
	}
	if d.Recovery == d.Threshold {
		return text
	}
	if d.Metric.BeginsBelow() {
		return text + ", ends above " + d.Number(d.Recovery)
	}
	return text + ", ends below " + d.Number(max(d.Recovery, 0))
}

// newRule shows the templates for rules. If the address names a template, it shows the form of
// a rule with the values of this template instead.
func (w *pages) newRule(c echo.Context) error {
	s := w.scope(c)
	list := alerts.Templates(s.operator())
	i := slices.IndexFunc(list, func(t alerts.Template) bool { return t.Slug == c.QueryParam("from") })
	if i < 0 {
		return w.showTemplates(c, http.StatusOK, nil, nil)
	}
	d := list[i].Document
	if c.QueryParam("tenant") != "" {
		d.EachTenant = false
	}
	f, err := w.ruleForm(c, s, d, list[i].NeedsPolicy)
	if err != nil {
		return err
	}
	// The address may have values for the tenant and the policy of the form.
	for _, name := range []string{"tenant", "policy"} {
		if field := f.Field(name); field != nil && c.QueryParam(name) != "" {
			field.Value = c.QueryParam(name)
		}
	}
	f.From = list[i].Slug
	return w.showRuleForm(c, http.StatusOK, f)
}

// showTemplates shows the templates for rules. If the form for them had faults, form has its
// fields; otherwise form is nil.
func (w *pages) showTemplates(c echo.Context, status int, form url.Values, faults []views.Fault) error {
	s := w.scope(c)
	v := views.AlertTemplates{
		AlertHead: w.head(c, "/rules"), Action: s.base + "/rules/recommended", Back: s.base + "/rules", Faults: faults,
		Rules: views.Checks{Name: "rules", Label: "Rules"},
	}
	for _, t := range alerts.Templates(s.operator()) {
		v.Templates = append(v.Templates, views.AlertTemplate{
			Name: t.Name, Summary: t.Summary, Begins: beginsWords(&t.Document), URL: s.base + "/rules/new?from=" + t.Slug,
		})
		if !t.NeedsPolicy {
			v.Rules.Options = append(v.Rules.Options, views.CheckBox{
				Name: templateField + t.Slug, Label: t.Name, Hint: t.Summary, Checked: form == nil || form.Has(templateField+t.Slug),
			})
		}
	}
	var err error
	if v.Channels, err = w.channelChecks(c.Request().Context(), s,
		func(id string) bool { return form == nil || form.Has(channelField+id) }); err != nil {
		return err
	}
	v.NewChannelURL = s.base + "/channels/new"
	return w.Render(c, status, views.AlertTemplatesPage(w.page(c, "Add rules", views.Link{Text: "Rules", URL: v.Back}), v))
}

// Prefixes of the fields of check boxes.
const (
	templateField = "template-"
	channelField  = "channel-"
)

// channelChecks returns a check box for each channel of an owner.
func (w *pages) channelChecks(ctx context.Context, s scope, checked func(id string) bool) (views.Checks, error) {
	v := views.Checks{Name: "channels", Label: "Messages go to"}
	list, err := w.cfg.Alerts.Channels(ctx, s.owner, alerts.Filter{Limit: alerts.MaxChannels})
	for _, ch := range list {
		v.Options = append(v.Options, views.CheckBox{
			Name: channelField + ch.ID, Label: ch.Name, Hint: kindNames[ch.Kind] + ": " + address(&ch), Checked: checked(ch.ID),
		})
	}
	return v, err
}

// checkedIDs returns the IDs of the checked boxes whose field names begin with a prefix.
func checkedIDs(f url.Values, prefix string) []string {
	var list []string
	for name := range f {
		if id, is := strings.CutPrefix(name, prefix); is {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// addRecommended creates a rule for each checked template.
func (w *pages) addRecommended(c echo.Context) error {
	f, err := web.WideForm(c, func(name string) bool {
		return strings.HasPrefix(name, templateField) || strings.HasPrefix(name, channelField)
	})
	if err != nil {
		return err
	}
	s := w.scope(c)
	channels := checkedIDs(f, channelField)
	made := 0
	for _, t := range alerts.Templates(s.operator()) {
		if !f.Has(templateField + t.Slug) {
			continue
		}
		d := t.Document
		d.Channels = channels
		if _, err = w.cfg.Alerts.CreateRule(c.Request().Context(), s.owner, d); err != nil {
			break
		}
		made++
	}
	switch {
	case err != nil:
	case made == 0:
		err = problem.At("/rules", "must be at least one")
	default:
		return w.done(c, s.base+"/rules", "alert-rules-created")
	}
	var v struct{ Rules views.Checks }
	v.Rules = views.Checks{Name: "rules", Label: "Rules"}
	var faults []views.Fault
	return web.Retry(err, &v, &faults, nil, func(status int) error { return w.showTemplates(c, status, f, faults) })
}

// eachField is the name of the check box with which a rule watches each tenant separately.
const eachField = "each_tenant"

// scopeFields adds the form fields for what the rule watches: a tenant and a policy. onePolicy
// says that the rule must name a policy.
func scopeFields(v *views.AlertRuleForm, s scope, d *alerts.Document, onePolicy bool) {
	if can, must := d.Metric.WatchesTenants(); can && s.operator() {
		hint := "The slug of one tenant. Empty: all tenants together, unless each tenant is watched."
		if must {
			hint = "The slug of one tenant. Empty if each tenant is watched."
		}
		v.Fields = append(v.Fields, views.OptionalInput("tenant", "Tenant", d.Tenant, hint))
		v.Each = views.Checks{Name: "each", Label: "Tenants", Options: []views.CheckBox{{
			Name: eachField, Label: "Watch each tenant", Checked: d.EachTenant,
			Hint: "Each tenant that reaches the threshold has an alert of its own.",
		}}}
	}
	if !d.Metric.WatchesPolicies() {
		return
	}
	i := views.OptionalInput("policy", "Policy", d.Policy, "The slug of one policy. Empty: all policies.")
	if i.Optional = !onePolicy; onePolicy {
		i.Hint = "The slug of the policy that is counted."
	}
	v.Fields = append(v.Fields, i)
}

// ruleForm returns the form of a rule, with the fields that its metric needs. onePolicy says
// that the rule must name a policy.
func (w *pages) ruleForm(c echo.Context, s scope, d alerts.Document, onePolicy bool) (views.AlertRuleForm, error) {
	v := views.AlertRuleForm{
		AlertHead: w.head(c, "/rules"), Title: "New rule", Button: "Create the rule", Action: s.base + "/rules", Back: s.base + "/rules",
		Metric: string(d.Metric), Figure: metricWords[d.Metric], NewChannelURL: s.base + "/channels/new",
		Enabled: views.Checks{Name: "state", Label: "State", Options: []views.CheckBox{{
			Name: "enabled", Label: "Evaluate this rule", Hint: "If not, its alert ends and nothing is measured.", Checked: !d.Disabled,
		}}},
	}
	add := func(i views.Input) { v.Fields = append(v.Fields, i) }
	add(views.TextInput("name", "Name", d.Name, "Messages begin with it."))
	scopeFields(&v, s, &d, onePolicy)
	if d.Metric.HasWindow() {
		add(views.TextInput("window", "Window", length(d.Window), "The time that is measured, in whole minutes: 5m, 1h."))
	}
	unit := ""
	if u := strings.TrimSpace(d.Metric.Unit()); u != "" {
		unit = " (" + u + ")"
	}
	begins, ends := "The alert begins when the figure is this or more.", "The alert ends when the figure is below this. Empty: the threshold."
	if d.Metric.BeginsBelow() {
		begins, ends = "The alert begins when the figure is this or less.", "The alert ends when the figure is above this. Empty: the threshold."
	}
	add(views.TextInput("threshold", "Threshold"+unit, number(d.Threshold), begins))
	add(views.OptionalInput("recovery", "Recovery"+unit, number(d.Recovery), ends))
	add(views.OptionalInput("for", "For at least", length(d.For),
		"How long the figure must stay there before the alert begins or ends: 30s, 2m. Empty: no time."))
	if d.Metric.IsRate() {
		add(views.OptionalInput("min_requests", "Requests at least", number(float64(d.MinRequests)),
			"With fewer requests in the window, the rate counts as 0."))
	}
	var err error
	v.Channels, err = w.channelChecks(c.Request().Context(), s,
		func(id string) bool { return d.Channels == nil || slices.Contains(d.Channels, id) })
	return v, err
}

func (w *pages) showRuleForm(c echo.Context, status int, v views.AlertRuleForm) error {
	return w.Render(c, status, views.AlertRuleFormPage(w.page(c, v.Title, views.Link{Text: "Rules", URL: v.Back}), v))
}

var ruleFields = []string{
	"name", "metric", "from", "tenant", eachField, "policy", "window", "threshold", "recovery", "for", "min_requests", "enabled", "version",
}

// ruleFormValues reads the fields of the form of a rule. The form for rules of a tenant has no
// field for the tenant.
func ruleFormValues(c echo.Context, s scope) (url.Values, error) {
	return web.WideForm(c, func(name string) bool {
		if strings.HasPrefix(name, channelField) {
			return true
		}
		return slices.Contains(ruleFields, name) && (s.operator() || name != "tenant" && name != eachField)
	})
}

// createRule is POST …/rules.
func (w *pages) createRule(c echo.Context) error {
	s := w.scope(c)
	f, err := ruleFormValues(c, s)
	if err != nil {
		return err
	}
	d := alerts.Document{Metric: alerts.Metric(f.Get("metric"))}
	v, err := w.ruleForm(c, s, d, slices.ContainsFunc(alerts.Templates(s.operator()), func(t alerts.Template) bool {
		return t.Slug == f.Get("from") && t.NeedsPolicy
	}))
	if err != nil {
		return err
	}
	d, err = readRule(f, &v, d)
	if err == nil {
		_, err = w.cfg.Alerts.CreateRule(c.Request().Context(), s.owner, d)
	}
	if err == nil {
		return w.done(c, s.base+"/rules", "alert-rule-created")
	}
	v.From = f.Get("from")
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showRuleForm(c, status, v) })
}

// oneRule shows a rule with its state, and the form that changes it.
func (w *pages) oneRule(c echo.Context) error {
	s := w.scope(c)
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	v, err := w.changeForm(c, s, &r)
	if err != nil {
		return err
	}
	return w.showRuleForm(c, http.StatusOK, v)
}

func (w *pages) ruleOf(c echo.Context, s scope) (alerts.Watched, error) {
	id, err := web.PathID(c, "rule")
	if err != nil {
		return alerts.Watched{}, err
	}
	return w.cfg.Alerts.Rule(c.Request().Context(), s.owner, id)
}

// changeForm returns the form that changes a rule.
func (w *pages) changeForm(c echo.Context, s scope, r *alerts.Watched) (views.AlertRuleForm, error) {
	d := r.Document
	if d.Channels == nil {
		d.Channels = []string{}
	}
	v, err := w.ruleForm(c, s, d, false)
	if err != nil {
		return v, err
	}
	ctx := c.Request().Context()
	names, err := w.channelNames(ctx, s)
	if err != nil {
		return v, err
	}
	past, err := w.cfg.Alerts.Incidents(ctx, s.owner, alerts.Filter{Of: r.ID, Limit: shownAlerts})
	for i := range past {
		v.Past = append(v.Past, w.alertRow(s, &past[i]))
	}
	v.Title, v.Button, v.Action, v.Version = r.Name, "Save the rule", s.base+"/rules/"+r.ID, number(float64(r.Version))
	v.Exists, v.MayWrite, v.Notice, v.Row = true, s.write, web.Notice(c), w.ruleRow(s, r, names)
	v.Mute = web.EndingField(c, "", "1h", web.ShortLifetimes...)
	return v, err
}

// shownAlerts is the maximum number of alerts on the page of a rule.
const shownAlerts = 10

// changeRule is POST …/rules/:rule.
func (w *pages) changeRule(c echo.Context) error {
	s := w.scope(c)
	f, err := ruleFormValues(c, s)
	if err != nil {
		return err
	}
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	v, err := w.changeForm(c, s, &r)
	if err != nil {
		return err
	}
	version, err := formVersion(f)
	if err != nil {
		return err
	}
	d, err := readRule(f, &v, r.Document)
	if err == nil {
		_, err = w.cfg.Alerts.ChangeRule(c.Request().Context(), s.owner, r.ID, version, d)
	}
	if err == nil {
		return w.done(c, v.Action, "alert-rule-saved")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showRuleForm(c, status, v) })
}

// muteRule is POST …/rules/:rule/mute.
func (w *pages) muteRule(c echo.Context, f url.Values) error {
	s := w.scope(c)
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	v, err := w.changeForm(c, s, &r)
	if err != nil {
		return err
	}
	until, err := web.ParseEnding(f, &v.Mute, w.Now(), web.ShortLifetimes)
	if err == nil {
		_, err = w.cfg.Alerts.Mute(c.Request().Context(), s.owner, r.ID, until)
	}
	if err == nil {
		return w.done(c, v.Action, "alert-muted")
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showRuleForm(c, status, v) })
}
