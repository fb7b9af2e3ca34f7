package web_test

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
)

func compare[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// alertRules returns the rules of an owner.
func (w *world) alertRules(owner string) []alerts.Watched {
	w.t.Helper()
	list, err := w.alerts.Rules(w.t.Context(), owner, alerts.Filter{})
	must(w.t, err)
	return list
}

// to returns the URL to which a write redirected, without the notice.
func (w *world) to(made reply) string {
	w.t.Helper()
	address, _, _ := strings.Cut(made.Header().Get("Location"), "?")
	if made.Code != http.StatusSeeOther || address == "" {
		w.t.Fatalf("%d %s", made.Code, made.body)
	}
	return address
}

// The operator and a tenant's own people create, change, mute and delete a rule by forms,
// each by the same pages, and every change has an audit line.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	for _, owner := range []struct{ by, tenant, base string }{{"editor", "", "/alerts"}, {"acme-admin", "acme", "/tenants/acme/alerts"}} {
		w := newWorld(t)
		id := w.ids[owner.tenant]
		channel := w.ids[owner.tenant+":channel"]
		form := w.get(owner.base+"/rules/new?from=denial-rate", owner.by)
		if form.Code != http.StatusOK || strings.Contains(form.body, `name="tenant"`) != (owner.tenant == "") {
			t.Fatalf("%s: %d", owner.by, form.Code)
		}
		fields := url.Values{
			"metric": {"denial_rate"}, "from": {"denial-rate"}, "name": {"Too many 429s"}, "policy": {""}, "window": {"10m"}, "threshold": {"30"}, "recovery": {""},
			"for": {"90s"}, "min_requests": {"1,000"}, "enabled": {"on"}, "channel-" + channel: {"on"},
		}
		if owner.tenant == "" {
			fields["tenant"] = []string{"acme"}
		}
		// An invalid value has an error at its field, and the form keeps the entered values.
		fields.Set("window", "90s")
		faulty := w.post(owner.base+"/rules", owner.by, fields)
		if faulty.Code != http.StatusUnprocessableEntity || !strings.Contains(faulty.body, `id="window-error"`) || !strings.Contains(faulty.body, "Too many 429s") {
			t.Fatalf("%s: %d %s", owner.by, faulty.Code, faulty.body)
		}
		fields.Set("window", "10m")
		if to := w.to(w.post(owner.base+"/rules", owner.by, fields)); to != owner.base+"/rules" {
			t.Errorf("redirected to %s", to)
		}
		r := w.alertRules(id)[0]
		want := alerts.Document{
			Name: "Too many 429s", Metric: alerts.DenialRate, Window: 10 * time.Minute, Threshold: 30, Recovery: 30, For: 90 * time.Second, MinRequests: 1000,
			Channels: []string{channel},
		}
		if owner.tenant == "" {
			want.Tenant = "acme"
		}
		compare(t, "the rule", r.Document, want)

		page := owner.base + "/rules/" + r.ID
		w.to(w.post(page+"/mute", owner.by, url.Values{"life": {"1h"}, "until": {""}}))
		if muted := w.alertRules(id)[0].MutedUntil; !muted.Equal(w.clock().Add(time.Hour)) {
			t.Errorf("muted until %s", muted)
		}
		if text := w.get(owner.base+"/rules", owner.by).body; !strings.Contains(text, "muted, ends") {
			t.Error("the list does not show the mute")
		}
		w.to(w.post(page+"/unmute", owner.by, nil))

		// A change with an old revision changes nothing.
		change := url.Values{"metric": {"denial_rate"}, "name": {"Renamed"}, "window": {"10m"}, "threshold": {"40"}, "recovery": {"20"}, "version": {"1"}}
		if got := w.post(page, owner.by, change); got.Code != http.StatusPreconditionFailed {
			t.Errorf("a stale change: %d", got.Code)
		}
		change.Set("version", "3")
		w.to(w.post(page, owner.by, change))
		r = w.alertRules(id)[0]
		if d := r.Document; d.Name != "Renamed" || !d.Disabled || d.Recovery != 20 || len(d.Channels) != 0 || d.MinRequests != 0 || !d.MutedUntil.IsZero() {
			t.Errorf("%+v", d)
		}
		w.to(w.post(page+"/delete", owner.by, nil))
		if got := w.get(page, owner.by); got.Code != http.StatusNotFound {
			t.Errorf("a deleted rule: %d", got.Code)
		}
		lines, err := w.store.AuditEntries(t.Context(), audit.Filter{TenantID: id, Limit: 5})
		must(t, err)
		var actions []string
		for _, l := range lines {
			if l.Object == r.ID && l.Actor.ID == w.ids[owner.by] {
				actions = append(actions, l.Action)
			}
		}
		compare(t, "audit lines, newest first", actions, []string{
			"alert_rule.delete", "alert_rule.change", "alert_rule.change", "alert_rule.change", "alert_rule.create",
		})
	}
}

// The recommended rules are added at once, with the checked channels.
func TestRecommendedAlertRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, owner := range []struct{ by, tenant, base string }{{"owner", "", "/alerts"}, {"acme-admin", "acme", "/tenants/acme/alerts"}} {
		id := w.ids[owner.tenant]
		before := len(w.alertRules(id))
		if none := w.post(owner.base+"/rules/recommended", owner.by, nil); none.Code != http.StatusUnprocessableEntity {
			t.Errorf("nothing checked: %d", none.Code)
		}
		f := url.Values{"channel-" + w.ids[owner.tenant+":channel"]: {"on"}}
		for _, template := range alerts.Templates(owner.tenant == "") {
			if !template.NeedsPolicy {
				f.Set("template-"+template.Slug, "on")
			}
		}
		w.to(w.post(owner.base+"/rules/recommended", owner.by, f))
		made := w.alertRules(id)
		if len(made)-before != len(f)-1 || len(made[0].Channels) != 1 {
			t.Errorf("%s: %d rules of %d templates", owner.by, len(made)-before, len(f)-1)
		}
	}
}

// A channel is added, tested, given a new secret, and deleted by forms. Each secret is
// shown once. The delivery log shows the answer of the receiver, and can send a message
// again.
func TestAlertChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	const base = "/tenants/acme/alerts"
	made := w.post(base+"/channels", "acme-admin", url.Values{"name": {"pager"}, "kind": {"webhook"}, "url": {"https://hooks.example.com/x"}})
	shown := w.once(made, "acme-admin")
	list, err := w.alerts.Channels(ctx, w.ids["acme"], alerts.Filter{})
	must(t, err)
	c := list[0]
	if c.Name != "pager" || !strings.Contains(shown.body, c.Secret) {
		t.Fatalf("%d %+v", shown.Code, c.ChannelDocument)
	}
	page := base + "/channels/" + c.ID
	if text := w.get(page, "acme-admin").body; strings.Contains(text, c.Secret) {
		t.Error("the page shows the secret again")
	}
	rotated := w.once(w.post(page+"/rotate", "acme-admin", nil), "acme-admin")
	after, err := w.alerts.Channel(ctx, w.ids["acme"], c.ID)
	must(t, err)
	if after.Secret == c.Secret || !strings.Contains(rotated.body, after.Secret) {
		t.Error("the new secret is not shown")
	}
	if private := w.post(page, "acme-admin", url.Values{"name": {"pager"}, "url": {"https://10.0.0.1/"}, "version": {"2"}}); private.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(private.body, `id="url-error"`) {
		t.Errorf("a private address: %d", private.Code)
	}

	// If the receiver fails, the message waits, is given up after some time, and can be sent
	// again.
	message := w.to(w.post(page+"/test", "acme-admin", nil))
	due, err := w.store.ClaimDeliveries(ctx, w.clock(), w.clock().Add(time.Minute), 10)
	must(t, err)
	d := due[len(due)-1].Delivery
	d.Status, d.Answer, d.DueAt, d.EndAt = alerts.Dead, "410 Gone", time.Time{}, w.clock().UTC()
	must(t, w.store.EndAttempt(ctx, d, w.clock().UTC()))
	if message != base+"/messages/"+d.ID {
		t.Fatalf("the test leads to %s, the message is %s", message, d.ID)
	}
	if text := w.get(message, "acme-viewer").body; !strings.Contains(text, "410 Gone") || !strings.Contains(text, "given up") || strings.Contains(text, "Send again") {
		t.Error("the page of the message lacks its answer, or a viewer may send it again")
	}
	if dead := w.get(base+"/messages?status=dead", "acme-admin").body; !strings.Contains(dead, d.ID) {
		t.Error("the list of dead messages lacks it")
	}
	w.to(w.post(message+"/repeat", "acme-admin", nil))
	again, _, err := w.alerts.Delivery(ctx, w.ids["acme"], d.ID)
	must(t, err)
	if again.Status != alerts.Waiting || again.Attempts != 0 {
		t.Errorf("sent again: %+v", again)
	}
	if dead := w.get(base+"/messages?status=dead", "acme-admin").body; strings.Contains(dead, d.ID) {
		t.Error("the list of dead messages still has it")
	}

	// The pages of another tenant and of the operator do not show it.
	for _, address := range []string{"/alerts/channels/" + c.ID, "/alerts/messages/" + d.ID, "/tenants/globex/alerts/channels/" + c.ID, "/tenants/globex/alerts/messages/" + d.ID} {
		if got := w.get(address, "owner"); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", address, got.Code)
		}
	}
	w.to(w.post(page+"/delete", "acme-admin", nil))
	if got := w.get(message, "acme-admin"); got.Code != http.StatusNotFound {
		t.Errorf("a message of a deleted channel: %d", got.Code)
	}
}

// The first page lists open alerts before ended ones. The address in a message, which has
// the ID of the tenant, leads to the page of the alert.
func TestAlertPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, owner := range []struct{ by, tenant, base string }{{"viewer", "", "/alerts"}, {"acme-viewer", "acme", "/tenants/acme/alerts"}} {
		list := w.get(owner.base, owner.by).body
		open, past := strings.Index(list, "1 alert is open"), strings.Index(list, "Past alerts")
		if open < 0 || past < open || strings.Contains(list, "Add rules") {
			t.Errorf("%s: open at %d, past at %d", owner.by, open, past)
		}
		address := "/alerts/"
		if owner.tenant != "" {
			address = "/tenants/" + w.ids["acme"] + "/alerts/"
		}
		one := w.get(address+w.ids[owner.tenant+":alert"], owner.by)
		if one.Code != http.StatusOK || !strings.Contains(one.body, "25%") && !strings.Contains(one.body, "22%") {
			t.Errorf("%s: %d %s", owner.by, one.Code, one.body)
		}
		if got := w.get(address+w.ids["globex"], owner.by); got.Code != http.StatusNotFound {
			t.Errorf("an unknown alert: %d", got.Code)
		}
	}
	// Members of a tenant cannot open alerts of the operator.
	for _, path := range []string{"/alerts", "/alerts/" + w.ids[":alert"], "/alerts/rules/" + w.ids[":rule"], "/alerts/channels/" + w.ids[":channel"]} {
		if got := w.get(path, "acme-admin"); got.Code != http.StatusForbidden {
			t.Errorf("%s by a tenant admin: %d", path, got.Code)
		}
	}
	for _, path := range []string{"/alerts/rules/" + w.ids[":rule"] + "/delete", "/alerts/channels/" + w.ids[":channel"] + "/test"} {
		if got := w.post(path, "acme-admin", nil); got.Code != http.StatusForbidden {
			t.Errorf("%s by a tenant admin: %d", path, got.Code)
		}
	}
	if empty := w.get("/tenants/globex/alerts", "owner").body; !strings.Contains(empty, "No rules yet") {
		t.Error("a tenant without rules has no hint")
	}
}

// An invitation is e-mailed if the check box is checked. The page of the link names the page
// that shows whether it was delivered.
func TestInvitationByMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config) { c.admin.Mail = true })
	for _, g := range []struct{ by, tenant, base, role, messages string }{
		{"owner", "", "/people", "viewer", "/alerts/messages"},
		{"acme-admin", "acme", "/tenants/acme/members", "tenant_viewer", "/tenants/acme/alerts/messages"},
	} {
		if form := w.get(g.base, g.by).body; !strings.Contains(form, `name="mail"`) {
			t.Errorf("%s has no check box", g.base)
		}
		queued := func() (n int) {
			list, err := w.alerts.Deliveries(t.Context(), w.ids[g.tenant], alerts.Filter{})
			must(t, err)
			for _, d := range list {
				if d.Event == alerts.EventInvited {
					n++
				}
			}
			return n
		}
		w.post(g.base, g.by, url.Values{"email": {"a@new.example"}, "role": {g.role}})
		if queued() != 0 {
			t.Error("an invitation without the box is e-mailed")
		}
		link := w.once(w.post(g.base, g.by, url.Values{"email": {"b@new.example"}, "role": {g.role}, "mail": {"on"}}), g.by)
		if queued() != 1 || !strings.Contains(link.body, `href="`+g.messages+`"`) || !strings.Contains(link.body, "/invite/") {
			t.Errorf("%s: %d queued, %d %s", g.base, queued(), link.Code, link.body)
		}
		if list := w.get(g.messages, g.by).body; !strings.Contains(list, "Invitation") {
			t.Error("the messages lack the invitation")
		}
	}
	without := newWorld(t)
	if form := without.get("/people", "owner").body; strings.Contains(form, `name="mail"`) {
		t.Error("the check box is there without a mail server")
	}
}
