//go:build !quick

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// One rule watches the quotas of each tenant, another the warning thresholds. Each tenant that reaches one has an alert of
// its own, whose forecast is in the zone of the tenant. Tenants below have none.
func TestQuotaAlertsOfEachTenant(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	key := node.await(node.out, operatorKeyLine)[1]
	post := func(path, body string) answer {
		t.Helper()
		return call(t, key, "POST", node.origin+path, body)
	}
	made := post("/v1/plans", `{"slug": "plan", "draft": {"name": "Plan", "policies": [{"slug": "monthly", "limits": [
		{"algorithm": "fixed_window", "quota": 10, "window": "30d", "warn_at": [40, 60]}]}]}}`).want(t, 201)
	call(t, key, "POST", node.origin+"/v1/plans/plan/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	for _, slug := range []string{"acme", "globex", "initech"} {
		post("/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": %[1]q, "plan": "plan", "time_zone": "Asia/Kathmandu"}}`, slug)).want(t, 201)
	}
	for slug, checks := range map[string]int{"acme": 9, "globex": 5, "initech": 1} {
		eventually(t, "the tenant is known", func() bool { return post("/v1/check", fmt.Sprintf(`{"tenant": %q}`, slug)).status == 200 })
		for range checks - 1 {
			post("/v1/check", fmt.Sprintf(`{"tenant": %q}`, slug)).want(t, 200)
		}
	}
	for _, template := range []string{"quota_used", "near_limit"} {
		post("/v1/alert-rules", fmt.Sprintf(`{"name": %q, "metric": %q, "each_tenant": true, "threshold": %d}`, template, template,
			map[string]int{"quota_used": 80, "near_limit": 1}[template])).want(t, 201)
	}
	type alert struct {
		Rule   struct{ Name, Tenant string }
		Value  float64
		Detail string
	}
	var open struct{ Data []alert }
	eventually(t, "three alerts", func() bool {
		call(t, key, "GET", node.origin+"/v1/alerts?open=true", "").want(t, 200).into(t, &open)
		return len(open.Data) >= 3
	})
	var got []string
	for _, a := range open.Data {
		got = append(got, fmt.Sprintf("%s of %s: %v", a.Rule.Name, a.Rule.Tenant, a.Value))
		if strings.Contains(a.Detail, "UTC") || !strings.Contains(a.Detail, "policy monthly has") {
			t.Errorf("the detail is %q", a.Detail)
		}
		if a.Rule.Tenant == "acme" && !strings.HasSuffix(a.Detail, " Asia/Kathmandu.") {
			t.Errorf("the forecast is %q", a.Detail)
		}
	}
	slices.Sort(got)
	want := []string{"near_limit of acme: 60", "near_limit of globex: 40", "quota_used of acme: 90"}
	if !slices.Equal(got, want) {
		t.Errorf("alerts %q, want %q", got, want)
	}
	var rules struct {
		Data []struct {
			State struct {
				Phase   string
				Tenants []struct{ Tenant, Phase string }
			}
		}
	}
	call(t, key, "GET", node.origin+"/v1/alert-rules", "").want(t, 200).into(t, &rules)
	if s := rules.Data[1].State; s.Phase != "firing" || len(s.Tenants) != 1 || s.Tenants[0].Tenant != "acme" { // newest first
		t.Errorf("the rule about quotas is %+v", s)
	}
}
