package web_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/plans"
)

// The Overview names the limiter that decides: with one process and without Redis, there is no shared one.
func TestOverviewNamesTheLimiter(t *testing.T) {
	t.Parallel()
	for embedded, want := range map[bool]string{true: "The limiter of this node made all decisions", false: "The shared limiter made all decisions"} {
		w := busyWorld(t, func(c *config) { c.traffic.Embedded = embedded })
		text := words(t, w.get("/overview", "viewer"))
		tile, chart := "Degraded 0% no data before "+want, "Decided by "+want+"."
		if !strings.Contains(text, tile) || !strings.Contains(text, chart) || strings.Contains(text, "shared limiter made") == embedded {
			t.Errorf("embedded %t: the tile or the chart does not say %q", embedded, want)
		}
	}
}

// The vertical axis of the histogram has numbers between 0 and the highest one.
func TestHistogramHasTicks(t *testing.T) {
	t.Parallel()
	w := busyWorld(t)
	for n := range w.get("/overview", "viewer").tree(t).Descendants() {
		if classed("histogram-scale")(n) {
			if got := strings.Join(strings.Fields(textOf(n)), " "); got != "3 2 1 0" {
				t.Errorf("the axis has %q", got)
			}
			return
		}
	}
	t.Error("there is no axis")
}

// No two links to pages have the same name in the navigation and in the tabs of a tenant, unless they lead to the same kind
// of page: of all tenants, and of this one.
func TestNamesOfPagesDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	named := map[string][]string{}
	for n := range w.get("/tenants/acme", "owner").tree(t).Descendants() {
		if n.Type == html.ElementNode && n.Data == "a" && strings.HasPrefix(attr(n, "href"), "/") {
			name := strings.TrimSpace(textOf(n))
			if href := attr(n, "href"); !slices.Contains(named[name], href) {
				named[name] = append(named[name], href)
			}
		}
	}
	if list := named["Settings"]; len(list) != 1 || len(named["Tenant settings"]) != 1 {
		t.Errorf("Settings leads to %q, Tenant settings to %q", list, named["Tenant settings"])
	}
	if text := words(t, w.get("/tenants/acme/settings", "owner")); !strings.Contains(text, "Tenant settings") {
		t.Errorf("the page is named otherwise: %s", text)
	}
}

// Without a mail server, the form of a channel says why it does not offer e-mail, and links to the guide.
func TestChannelsSayWhyThereIsNoMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config) { c.noMail = true })
	for by, page := range map[string]string{"owner": "/alerts/channels/new", "acme-admin": "/tenants/acme/alerts/channels/new"} {
		form := w.get(page, by)
		text := words(t, form)
		if !strings.Contains(text, "E-mail is not offered: this server has no mail server.") || strings.Contains(text, "HEADGATE_SMTP_ADDR") != (by == "owner") {
			t.Errorf("%s: %s", by, text)
		}
		if !slices.Contains(hrefs(form.tree(t)), "/docs/guides/alerts#e-mail") {
			t.Errorf("%s: no link to the guide", by)
		}
	}
	if guide := w.get("/docs/guides/alerts", ""); !strings.Contains(guide.body, `id="e-mail"`) {
		t.Error("the guide has no part about e-mail")
	}
}

// A form that asks when something ends names the zone of the page, and reads the time in it.
func TestEndsAreInTheZoneOfThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := "/alerts/rules/" + w.ids[":rule"]
	zone := inZone("Asia/Kathmandu")
	for path, label := range map[string]string{page: "At (Asia/Kathmandu)", "/overview/share": "At (Asia/Kathmandu)"} {
		if got := w.send(http.MethodGet, path, "owner", nil, zone); !strings.Contains(got.body, label) {
			t.Errorf("%s: %d without %q", path, got.Code, label)
		}
	}
	w.to(w.send(http.MethodPost, page+"/mute", "owner", url.Values{"life": {"at"}, "until": {"2026-12-01T00:00"}}, zone))
	want := time.Date(2026, 11, 30, 18, 15, 0, 0, time.UTC)
	for _, r := range w.alertRules("") {
		if r.ID == w.ids[":rule"] && !r.MutedUntil.Equal(want) {
			t.Errorf("muted until %s, want %s", r.MutedUntil, want)
		}
	}
}

// The operator's rules about quotas watch each tenant; a rule about denials of a policy names the policy.
func TestRulesOfEachTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	form := w.get("/alerts/rules/new?from=quota-95", "owner")
	f := formOf(t, form, "/alerts/rules")
	if !strings.Contains(form.body, `name="each_tenant" value="on" checked`) || f.Get("tenant") != "" {
		t.Errorf("the form of the template has %v", f)
	}
	w.to(w.post("/alerts/rules", "owner", f))
	if d := w.alertRules("")[0].Document; !d.EachTenant || d.Metric != alerts.QuotaUsed || d.Threshold != 95 {
		t.Errorf("%+v", d)
	}
	if own := w.get("/tenants/acme/alerts/rules/new?from=quota-95", "acme-admin"); strings.Contains(own.body, "each_tenant") {
		t.Error("a tenant's rule offers other tenants")
	}
	f = formOf(t, w.get("/alerts/rules/new?from=denials", "owner"), "/alerts/rules")
	if got := w.post("/alerts/rules", "owner", f); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.body, `id="policy-error"`) {
		t.Errorf("without a policy: %d", got.Code)
	}
	f.Set("policy", "logins")
	f.Del("each_tenant")
	w.to(w.post("/alerts/rules", "owner", f))
	if d := w.alertRules("")[0].Document; d.Policy != "logins" || d.Tenant != "" || d.Metric != alerts.Denials {
		t.Errorf("%+v", d)
	}
}

// Each row of the top limited keys has the share of the key's own requests, also that of a whole tenant.
func TestEveryLimitedKeyHasItsShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("routes", plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "all", Match: plans.Match{Path: "/v1/all"}, Limits: busyPlan().Policies[0].Limits}, busyPlan().Policies[0],
	}}, "acme")
	for range 8 {
		w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/all", Cost: 1})
	}
	w.login("acme", "203.0.113.9", 10)
	w.flushNow()
	text := words(t, w.get("/overview", "viewer"))
	for _, want := range []string{"37.5% of its requests", "50.0% of its requests"} {
		if !strings.Contains(text, want) {
			t.Errorf("no key has %q", want)
		}
	}
}
