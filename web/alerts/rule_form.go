package alerts

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// metricWords has, for each metric, a sentence that says what a rule watches. The form of a
// rule shows it.
var metricWords = map[alerts.Metric]string{
	alerts.DenialRate:     "The rate of requests that limits deny, in percent of all requests.",
	alerts.Denials:        "The number of requests that limits deny.",
	alerts.DegradedShare:  "The share of decisions that nodes make without the shared limiter.",
	alerts.LimiterLatency: "The p99 latency of the limiter on all nodes, in milliseconds.",
	alerts.QuotaUsed:      "The used quota of the fullest known key, in percent.",
	alerts.NearLimit: "The highest warning threshold (warn_at) of a limit that a known key has reached, in percent. " +
		"It is 0 if no key has reached one.",
	alerts.ExhaustedIn: "The hours until the first known key has used up a quota, at the pace of the last minutes. " +
		"Only limits with a window of an hour or more count.",
	alerts.SilentNodes: "The number of nodes that stopped reporting. " +
		"A node counts until it reports again, or until 24 hours after its last report.",
	alerts.NodeAlarms:    "The number of alarms on the System page.",
	alerts.SnapshotsHeld: "The number of nodes that hold back a suspicious snapshot of tenants and plans.",
}

// number formats a number for a form field. For 0, it returns "".
func number(n float64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// length formats a duration for a form field. For 0, it returns "".
func length(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return enforcement.FormatWindow(d)
}

// readRule reads the form of a rule. It returns d with the values of the form in place of
// its own. It reads only the fields that the metric of the rule has.
func readRule(f url.Values, v *views.AlertRuleForm, d alerts.Document) (alerts.Document, error) {
	for i := range v.Fields {
		v.Fields[i].Value = f.Get(v.Fields[i].Name)
	}
	v.Enabled.Options[0].Checked = f.Get("enabled") == "on"
	for i := range v.Channels.Options {
		v.Channels.Options[i].Checked = f.Has(v.Channels.Options[i].Name)
	}
	if len(v.Each.Options) > 0 {
		d.EachTenant = f.Get(eachField) == "on"
		v.Each.Options[0].Checked = d.EachTenant
	}
	d.Disabled, d.Channels = !v.Enabled.Options[0].Checked, checkedIDs(f, channelField)
	var faults problem.Fields
	for i := range v.Fields {
		name, text := v.Fields[i].Name, strings.TrimSpace(v.Fields[i].Value)
		switch name {
		case "name":
			d.Name = text
		case "tenant":
			d.Tenant = text
		case "policy":
			if d.Policy = text; text == "" && !v.Fields[i].Optional {
				faults.Add("/policy", "is required: this rule counts one policy")
			}
		case "window":
			d.Window = readLength(&faults, name, text)
		case "for":
			d.For = readLength(&faults, name, text)
		case "threshold":
			d.Threshold = readNumber(&faults, name, text)
		case "recovery":
			d.Recovery = d.Threshold
			if text != "" {
				d.Recovery = readNumber(&faults, name, text)
			}
		case "min_requests":
			d.MinRequests = int64(readNumber(&faults, name, text))
		}
	}
	return d, faults.Err()
}

// readNumber parses a number that may have commas. "" means 0.
func readNumber(faults *problem.Fields, name, text string) float64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || name == "min_requests" && (n != float64(int64(n))) {
		faults.Add("/"+name, "must be a number")
	}
	return n
}

// readLength reads a duration from a form field. "" means 0.
func readLength(faults *problem.Fields, name, text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := enforcement.ParseWindow(text)
	if err != nil {
		faults.Add("/"+name, "%v", err)
	}
	return d
}

// unmuteRule is POST …/rules/:rule/unmute.
func (w *pages) unmuteRule(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	if _, err := w.cfg.Alerts.Mute(c.Request().Context(), s.owner, r.ID, time.Time{}); err != nil {
		return err
	}
	return w.done(c, s.base+"/rules/"+r.ID, "alert-unmuted")
}

func (w *pages) confirmRule(c echo.Context) error {
	s := w.scope(c)
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	back := s.base + "/rules/" + r.ID
	v := views.Confirm{
		Head: w.head(c, "").Tenant, Title: "Delete the rule " + r.Name + "?", Button: "Delete the rule", Bad: true, Action: back + "/delete",
		Back: back,
		Text: []string{"Its open alert ends without a message. Past alerts stay in the list."},
	}
	return w.Render(c, http.StatusOK, views.ConfirmPage(w.page(c, "Delete", views.Link{Text: "Rules", URL: s.base + "/rules"}), v))
}

func (w *pages) deleteRule(c echo.Context, _ url.Values) error {
	s := w.scope(c)
	r, err := w.ruleOf(c, s)
	if err != nil {
		return err
	}
	if err := w.cfg.Alerts.DeleteRule(c.Request().Context(), s.owner, r.ID); err != nil {
		return err
	}
	return w.done(c, s.base+"/rules", "alert-rule-deleted")
}
