package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

type alertsCommand struct {
	List        alertsList             `cmd:"" help:"List alerts, newest first: headgate alerts list --open"`
	Get         alertsGet              `cmd:"" help:"Show an alert."`
	Rules       alertRulesCommand      `cmd:"" help:"List, create, change, mute and delete alert rules."`
	Channels    alertChannelsCommand   `cmd:"" help:"List, create, test, change and delete channels, the addresses that get messages."`
	Deliveries  alertDeliveriesCommand `cmd:"" help:"List the messages that were sent or given up, and send one again."`
	Maintenance maintenanceCommand     `cmd:"" help:"List, create and delete maintenance windows, in which rules announce no alerts."`
}

var alertColumns = []Column{
	{"ID", "id"},
	{"RULE", "rule.name"},
	{"METRIC", "rule.metric"},
	{"THRESHOLD", "rule.threshold"},
	{"BEGAN", "began_at"},
	{"ENDED", "ended_at"},
	{"VALUE", "value"},
	{"PEAK", "peak"},
	{"DETAIL", "detail"},
}

type alertsList struct {
	Connection
	owner
	Open  bool `setting:"false" help:"Only alerts that last."`
	Limit int  `setting:"false" help:"How many rows. Default: all."`
}

// Run lists alerts.
func (l alertsList) Run(ctx context.Context, t Terminal) error {
	filters := map[string]string{}
	if l.Open {
		filters["open"] = "true"
	}
	return l.ownRows(ctx, t, l.Connection, "alerts", filters, l.Limit, alertColumns)
}

type alertsGet struct {
	Connection
	owner
	ID string `arg:"" help:"The alert's id, from headgate alerts list."`
}

// Run shows an alert.
func (g alertsGet) Run(ctx context.Context, t Terminal) error {
	return g.show(ctx, t, g.Connection, alertColumns, "alerts", g.ID)
}

type alertRulesCommand struct {
	List      alertRulesList      `cmd:"" help:"List rules with their state."`
	Get       alertRulesGet       `cmd:"" help:"Show a rule with its state: headgate alerts rules get 0190… --document -o yaml > rule.yaml"`
	Templates alertRulesTemplates `cmd:"" help:"List the templates for headgate alerts rules create --template."`
	Create    alertRulesCreate    `cmd:"" help:"Create a rule: headgate alerts rules create --template denial-rate --channel 0190… --threshold 10"`
	Set       alertRulesSet       `cmd:"" help:"Change some fields of a rule: headgate alerts rules set 0190… --threshold 30 --recovery 20"`
	Save      alertRulesSave      `cmd:"" help:"Replace a rule by a document: headgate alerts rules save 0190… -f rule.yaml"`
	Mute      alertRulesMute      `cmd:"" help:"Announce no alert of a rule for a time: headgate alerts rules mute 0190… --for 2h"`
	Unmute    alertRulesUnmute    `cmd:"" help:"End the mute of a rule."`
	Delete    alertRulesDelete    `cmd:"" help:"Delete a rule. An open alert of it ends."`
}

var ruleColumns = []Column{
	{"ID", "id"},
	{"NAME", "rule.name"},
	{"METRIC", "rule.metric"},
	{"WATCHED", "rule.tenant"},
	{"EACH TENANT", "rule.each_tenant"},
	{"POLICY", "rule.policy"},
	{"THRESHOLD", "rule.threshold"},
	{"STATE", "state.phase"},
	{"VALUE", "state.value"},
	{"DISABLED", "rule.disabled"},
	{"MUTED UNTIL", "rule.muted_until"},
	{"ERROR", "state.error"},
}

// aRule has the arguments of a command for one rule.
type aRule struct {
	owner
	ID string `arg:"" help:"The rule's id, from headgate alerts rules list."`
}

func (r aRule) path() string { return r.owner.path("alert-rules", r.ID) }

type alertRulesList struct {
	Connection
	owner
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists rules.
func (l alertRulesList) Run(ctx context.Context, t Terminal) error {
	return l.ownRows(ctx, t, l.Connection, "alert-rules", nil, l.Limit, ruleColumns)
}

type alertRulesGet struct {
	Connection
	aRule
	Document bool `setting:"false" help:"Only the document, which headgate alerts rules save takes."`
}

// Run shows a rule.
func (g alertRulesGet) Run(ctx context.Context, t Terminal) error {
	if !g.Document {
		return g.show(ctx, t, g.Connection, ruleColumns, "alert-rules", g.ID)
	}
	c, err := g.client(t)
	if err != nil {
		return err
	}
	a, err := c.get(ctx, g.path(), nil)
	if err != nil {
		return err
	}
	var is struct {
		Rule json.RawMessage `json:"rule"`
	}
	if err := json.Unmarshal(a.body, &is); err != nil {
		return fmt.Errorf("read rule %s: %w", g.ID, err)
	}
	return c.output.rows(t, is.Rule, "", documentColumns...)
}

var documentColumns = []Column{
	{"NAME", "name"},
	{"METRIC", "metric"},
	{"TENANT", "tenant"},
	{"EACH TENANT", "each_tenant"},
	{"POLICY", "policy"},
	{"WINDOW", "window"},
	{"THRESHOLD", "threshold"},
	{"RECOVERY", "recovery"},
	{"FOR", "for"},
	{"MIN REQUESTS", "min_requests"},
	{"CHANNELS", "channels"},
}

type alertRulesTemplates struct {
	Connection
	owner
}

// Run lists the templates.
func (r alertRulesTemplates) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	a, err := c.get(ctx, r.path("alert-templates"), nil)
	if err != nil {
		return err
	}
	return c.output.rows(t, a.body, "data", Column{"TEMPLATE", "slug"}, Column{"METRIC", "rule.metric"}, Column{"THRESHOLD", "rule.threshold"},
		Column{"NEEDS", "needs"}, Column{"BEGINS WHEN", "summary"})
}

// ruleFields has the flags for the fields of an alert rule.
type ruleFields struct {
	Name        string    `setting:"false" help:"Name for people."`
	Metric      string    `setting:"false" help:"The figure, such as denial_rate or quota_used; docs/alerts.md lists all."`
	Watch       *string   `setting:"false" placeholder:"SLUG" help:"The tenant that a rule of the operator watches; empty for all tenants."`
	EachTenant  *bool     `setting:"false" negatable:"" help:"A rule of the operator watches each tenant, with an alert for each."`
	Policy      *string   `setting:"false" placeholder:"SLUG" help:"Only this policy; empty for all."`
	Window      *string   `setting:"false" placeholder:"5m" help:"The time that is measured, from 1m to 1d."`
	Threshold   string    `setting:"false" placeholder:"N" help:"The figure at which the alert begins."`
	Recovery    *string   `setting:"false" placeholder:"N" help:"The figure below which the alert ends. Default: the threshold."`
	For         *string   `setting:"false" placeholder:"2m" help:"How long the figure must stay there. Default: no time."`
	MinRequests *int64    `setting:"false" placeholder:"N" help:"Number of requests in the window below which a rate counts as 0."`
	Channel     *[]string `setting:"false" placeholder:"ID" help:"Channel that gets the messages; may be repeated, or empty for none. headgate alerts channels list has the ids."`
	Disabled    *bool     `setting:"false" negatable:"" help:"The rule is not evaluated."`
}

// patch returns a merge patch with the fields for which a flag was given.
func (f ruleFields) patch() (object, error) {
	o := object{}
	o.set("name", f.Name)
	o.set("metric", f.Metric)
	for name, value := range map[string]*string{"tenant": f.Watch, "policy": f.Policy, "window": f.Window, "for": f.For} {
		if value != nil {
			o[name] = nil
			o.set(name, *value)
		}
	}
	switch {
	case f.EachTenant != nil:
		o["each_tenant"] = *f.EachTenant
	case f.Watch != nil && *f.Watch != "":
		o["each_tenant"] = nil // templates have it
	}
	if err := o.number("threshold", f.Threshold); err != nil {
		return nil, err
	}
	if f.Recovery != nil {
		o["recovery"] = nil
		if err := o.number("recovery", *f.Recovery); err != nil {
			return nil, err
		}
	}
	if f.MinRequests != nil {
		o["min_requests"] = *f.MinRequests
	}
	if f.Channel != nil {
		channels := []string{}
		for _, id := range *f.Channel {
			if id != "" {
				channels = append(channels, id)
			}
		}
		o["channels"] = channels
	}
	if f.Disabled != nil {
		o["disabled"] = *f.Disabled
	}
	return o, nil
}

// number adds a member with the number in text, unless text is "".
func (o object) number(name, text string) error {
	if text == "" {
		return nil
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return usage("--%s: %q is not a number", name, text)
	}
	o[name] = json.Number(text)
	return nil
}

type alertRulesCreate struct {
	writing
	owner
	File     string `short:"f" setting:"false" xor:"base" placeholder:"FILE" help:"Document of the rule, as YAML or JSON; - reads standard input. Flags replace its fields."`
	Template string `setting:"false" xor:"base" help:"Begin with a template, from headgate alerts rules templates. Flags replace its fields."`
	ruleFields
}

// Run creates a rule. It starts with the rule in a file, with a template, or with an empty rule. It
// then sets the fields for which a flag was given.
func (n alertRulesCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	document, needs := object{}, []string(nil)
	switch {
	case n.File != "":
		document, err = readObject(t, n.File)
	case n.Template != "":
		document, needs, err = c.template(ctx, n.path("alert-templates"), n.Template)
	}
	if err != nil {
		return err
	}
	patch, err := n.patch()
	if err != nil {
		return err
	}
	for name, value := range patch {
		document[name] = value
		if value == nil {
			delete(document, name)
		}
	}
	for _, member := range needs {
		if document[member] == nil {
			return usage("--template %s needs --%s", n.Template, member)
		}
	}
	if len(document) == 0 {
		return usage("a rule needs --name, --metric and --threshold, or begin with --template or -f")
	}
	return c.create(ctx, n.path("alert-rules"), document, ruleColumns...)
}

// template returns the alert rule of the template with the given slug. needs are the members that
// the caller must add to the rule.
func (c *client) template(ctx context.Context, path, slug string) (rule object, needs []string, err error) {
	a, err := c.get(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	var is struct {
		Data []struct {
			Slug  string
			Rule  object
			Needs []string
		}
	}
	if err := json.Unmarshal(a.body, &is); err != nil {
		return nil, nil, fmt.Errorf("read the templates: %w", err)
	}
	for _, template := range is.Data {
		if template.Slug == slug {
			return template.Rule, template.Needs, nil
		}
	}
	return nil, nil, usage("--template: there is no template %q; headgate alerts rules templates lists them", slug)
}

// readObject reads a JSON or YAML document that is an object.
func readObject(t Terminal, file string) (object, error) {
	text, err := readDocument(t, file)
	if err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil || o == nil {
		return nil, &Error{ExitInvalid, fmt.Errorf("%s: must be an object such as {name: …, metric: …, threshold: …}", file)}
	}
	return o, nil
}

type alertRulesSet struct {
	writing
	aRule
	ruleFields
}

// Run changes the fields for which a flag was given.
func (s alertRulesSet) Run(ctx context.Context, t Terminal) error {
	patch, err := s.patch()
	if err != nil {
		return err
	}
	if len(patch) == 0 {
		return usage("nothing to change: give a flag such as --threshold 30")
	}
	return s.patchRule(ctx, t, s.writing, patch)
}

// patchRule reads the rule and sends a merge patch for it. If the rule changes between the two
// requests, the error is a conflict.
func (r aRule) patchRule(ctx context.Context, t Terminal, w writing, patch object) error {
	c, err := w.client(t)
	if err != nil {
		return err
	}
	return c.changeRead(ctx, http.MethodPatch, r.path(), patch, ruleColumns...)
}

// changeRead reads the ETag of an object and then changes the object with If-Match. If the
// object changes between the two requests, the API returns a conflict.
func (c *client) changeRead(ctx context.Context, method, at string, body any, columns ...Column) error {
	before, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	return c.change(ctx, method, at, body, before.header.Get("ETag"), columns...)
}

type alertRulesSave struct {
	writing
	aRule
	File string `required:"" short:"f" setting:"false" placeholder:"FILE" help:"Document of the rule, as YAML or JSON; - reads standard input."`
}

// Run replaces a rule.
func (s alertRulesSave) Run(ctx context.Context, t Terminal) error {
	c, err := s.client(t)
	if err != nil {
		return err
	}
	document, err := readObject(t, s.File)
	if err != nil {
		return err
	}
	return c.changeRead(ctx, http.MethodPut, s.path(), document, ruleColumns...)
}

type alertRulesMute struct {
	writing
	aRule
	For time.Duration `required:"" setting:"false" help:"How long, like 2h."`
}

// Run mutes a rule.
func (m alertRulesMute) Run(ctx context.Context, t Terminal) error {
	if m.For <= 0 {
		return usage("--for: is %s, and must be more than 0", m.For)
	}
	return m.patchRule(ctx, t, m.writing, object{"muted_until": time.Now().UTC().Add(m.For).Format(time.RFC3339)})
}

type alertRulesUnmute struct {
	writing
	aRule
}

// Run unmutes a rule.
func (u alertRulesUnmute) Run(ctx context.Context, t Terminal) error {
	return u.patchRule(ctx, t, u.writing, object{"muted_until": nil})
}

type alertRulesDelete struct {
	writing
	aRule
}

// Run deletes a rule.
func (d alertRulesDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	return c.remove(ctx, d.path(), "", "alert rule "+d.ID)
}
