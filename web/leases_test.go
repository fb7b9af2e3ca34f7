package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
)

// A concurrency limit is made in the editor. The page of a key shows who holds its places, and an
// editor can revoke a lease.
func TestHoldersOfAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.plans.CreatePlan(t.Context(), "gold", plans.Sample())
	must(t, err)
	_, typed := filled(t, w.get("/plans/gold/edit", "editor").tree(t), "draft", "save")
	set := func(quota string) reply {
		for name, value := range map[string]string{"algorithm": "concurrency", "quota": quota, "window": "5m", "burst": ""} {
			typed.Set("policies.3.limits.0."+name, value)
		}
		return w.post("/plans/gold/edit", "editor", typed)
	}
	if got := set("1001"); !strings.Contains(words(t, got), "must be 0 to 1000: a concurrency limit stores every lease") {
		t.Errorf("1001 places: %d %s", got.Code, words(t, got))
	}
	if got := set("2"); got.Code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", got.Code, got.body)
	}
	p, err := w.plans.Plan(t.Context(), "gold")
	must(t, err)
	if text := words(t, w.get("/plans/gold", "editor")); !strings.Contains(text, "2 at the same time, each for up to 5 minutes") {
		t.Errorf("the plan: %s", text)
	}
	w.publish("jobs", plans.Content{Name: "Jobs", Policies: []plans.Policy{
		{Slug: "jobs", Limits: []enforcement.Limit{p.Draft.Policies()[3].Limits[0]}},
		{Slug: "jobs-per-user", CountBy: []string{"user"}, Limits: []enforcement.Limit{p.Draft.Policies()[3].Limits[0]}},
	}}, "acme")
	const whole, ofUser = "/tenants/acme/usage/jobs", "/tenants/acme/usage/jobs-per-user?k.user=u1"
	if text := words(t, w.get(whole, "acme-viewer")); !strings.Contains(text, "No lease holds a place of this key.") {
		t.Errorf("nobody holds a place: %s", text)
	}
	for _, id := range []string{"job-<1>", "job-2"} {
		d := w.decide("acme", enforcement.Check{
			Method: "GET", Path: "/", Cost: 1, Lease: id, LeaseTTL: time.Minute, Attributes: attributes("user", "u1"),
		})
		if !d[0].Allowed {
			t.Fatalf("%+v", d[0])
		}
	}
	if text := words(t, w.get("/tenants/acme", "acme-viewer")); !strings.Contains(text, "all places are held") {
		t.Errorf("the tenant: %s", text)
	}
	for _, page := range []string{whole, ofUser} {
		seen := w.get(page, "acme-viewer")
		if text := words(t, seen); !strings.Contains(text, "job-<1>") || !strings.Contains(text, "2 of 2 used") || !strings.Contains(text, "the last lease ends in") {
			t.Errorf("%s: %s", page, text)
		}
		if strings.Contains(seen.body, "/leases/revoke") {
			t.Errorf("%s offers a viewer to revoke", page)
		}
	}
	const form = "/tenants/acme/leases/revoke?k.user=u1&policy=jobs-per-user&lease=job-%3C1%3E"
	found := false
	for n := range w.get(ofUser, "editor").tree(t).Descendants() {
		found = found || attr(n, "href") == form
	}
	if !found {
		t.Errorf("no link to %s", form)
	}
	if page := w.get(form, "editor"); page.Code != http.StatusOK || !strings.Contains(page.body, `value="job-&lt;1&gt;"`) || !strings.Contains(page.body, `value="u1"`) {
		t.Errorf("the form: %d %s", page.Code, page.body)
	}
	values := url.Values{"policy": {"jobs-per-user"}, "k.user": {"u1"}, "lease": {""}, "reason": {"it hangs"}}
	if bad := w.post("/tenants/acme/leases/revoke", "editor", values); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "lease" {
		t.Errorf("no lease: %d %q", bad.Code, wrongIn(t, bad))
	}
	values.Set("lease", "job-<1>")
	for _, done := range []string{"lease-revoked", "lease-ended"} {
		to(t, done, w.post("/tenants/acme/leases/revoke", "editor", values), ofUser+"&done="+done)
	}
	if text := words(t, w.get(ofUser, "editor")); strings.Contains(text, "job-<1>") || !strings.Contains(text, "job-2") {
		t.Errorf("after the revocation: %s", text)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "lease.revoke", Limit: 10})
	must(t, err)
	if len(lines) != 1 || lines[0].Actor.Name != "editor@people.example" || !strings.Contains(string(lines[0].After), "it hangs") {
		t.Errorf("%+v", lines)
	}
}
