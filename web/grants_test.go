package web_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
)

// addGrant tops up the first limit of acme's plan that can have grants.
func (w *world) addGrant() {
	w.t.Helper()
	ctx := w.t.Context()
	t, err := w.tenants.Tenant(ctx, "acme")
	must(w.t, err)
	p, err := w.plans.Plan(ctx, t.Plan)
	must(w.t, err)
	v, err := w.plans.Version(ctx, p.ID, p.Published)
	must(w.t, err)
	for _, policy := range v.Document.Policies() {
		i := slices.IndexFunc(policy.Limits, enforcement.Limit.Grantable)
		if i < 0 || policy.Mode == enforcement.PolicyShadow || policy.Mode == enforcement.PolicyOff {
			continue
		}
		g, err := w.exceptions.CreateGrant(ctx, "acme", exceptions.NewGrant{
			Policy: policy.Slug, Limit: policy.Limits[i].Name, Units: 500, Reason: "invoice 4711", ExpiresAt: w.clock().Add(30 * 24 * time.Hour),
		})
		must(w.t, err)
		w.ids["grant"] = g.ID
		return
	}
	w.t.Fatal("the plan of acme has no limit that can have grants")
}

// The form creates a grant, which the list shows with what is left; the page of the key offers the form; the last page voids it.
func TestGrantPages(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const acme, grants = "/tenants/acme", "/tenants/acme/grants"
	if text := words(t, w.get(grants, "acme-viewer")); !strings.Contains(text, "No grants") {
		t.Errorf("%s", text)
	}
	if text := words(t, w.get(grants+"/new", "editor")); !strings.Contains(text, "Choose the policy first") {
		t.Errorf("%s", text)
	}
	if page := w.get(acme+"/usage/total", "editor"); !strings.Contains(page.body, grants+"/new?policy=total") {
		t.Errorf("the page of the key does not offer a grant")
	}
	if page := w.get(acme+"/usage/per-user?k.user=u1", "editor"); strings.Contains(page.body, grants+"/new") {
		t.Errorf("the page of a key of a bucket offers a grant")
	}
	form := url.Values{"policy": {"total"}, "limit": {"l1"}, "units": {"1,5"}, "reason": {"invoice 4711"}, "life": {"30d"}}
	for field, value := range map[string]string{"units": "many", "reason": "", "limit": "l9", "life": "never"} {
		wrong := url.Values{}
		for name := range form {
			wrong.Set(name, form.Get(name))
		}
		wrong.Set(field, value)
		if bad := w.post(grants, "editor", wrong); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != field {
			t.Errorf("%s: %d %q", field, bad.Code, wrongIn(t, bad))
		}
	}
	w.publish("closed", plans.Content{Name: "Closed", Policies: []plans.Policy{
		{Slug: "total", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Window: time.Hour}}},
	}}, "acme")
	if bad := w.post(grants, "editor", url.Values{"policy": {"total"}, "limit": {"l1"}, "units": {"5"}, "reason": {"r"}, "life": {"30d"}}); bad.Code != http.StatusUnprocessableEntity ||
		wrongIn(t, bad) != "limit" || !strings.Contains(words(t, bad), "quota 0") {
		t.Errorf("a quota of 0: %d %q", bad.Code, wrongIn(t, bad))
	}
	w.publish("metered-again", metered(), "acme")
	form.Set("units", "20")
	if refused := w.post(grants, "acme-admin", form); refused.Code != http.StatusForbidden {
		t.Errorf("a member creates a grant: %d", refused.Code)
	}
	to(t, "create", w.post(grants, "editor", form), grants+"?done=grant-created")
	allowed := 0
	for range 105 {
		if d := w.decide("acme", enforcement.Check{Path: "/", Cost: 1}); d[0].Allowed {
			allowed++
		}
	}
	if allowed != 105 {
		t.Errorf("%d of 105 checks passed with a quota of 100", allowed)
	}
	if text := words(t, w.get(grants, "acme-viewer")); !strings.Contains(text, "total, limit l1 15 of 20 21 December 2026 invoice 4711 by") {
		t.Errorf("%s", text)
	}
	if text := words(t, w.get(acme+"/usage/total", "acme-viewer")); !strings.Contains(text, "15 of a grant of 20 left") {
		t.Errorf("%s", text)
	}
	rows, err := w.exceptions.Grants(t.Context(), "acme", exceptions.Filter{Limit: 10})
	must(t, err)
	if text := words(t, w.get(grants+"/"+rows[0].ID+"/delete", "editor")); !strings.Contains(text, "Void the grant?") {
		t.Errorf("%s", text)
	}
	to(t, "void", w.post(grants+"/"+rows[0].ID+"/delete", "editor", nil), grants+"?done=grant-deleted")
	if d := w.decide("acme", enforcement.Check{Path: "/", Cost: 1}); d[0].Allowed {
		t.Error("a check passed after the grant was voided")
	}
}
