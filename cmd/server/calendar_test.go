package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// 10,000 a month from the 15th, Berlin time: by REST, with headers, explain, usage and an
// override; and a change of the zone keeps what was used.
func TestCalendarQuota(t *testing.T) {
	t.Parallel()
	const bootstrap = "bootstrap-0123456789-0123456789-0123456789"
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false", "HEADGATE_BOOTSTRAP_KEY": bootstrap,
	})
	ask := func(method, path, body string, header ...string) answer {
		return call(t, bootstrap, method, node.origin+path, body, header...)
	}
	const policies = `[{"slug": "monthly", "limits": [{"algorithm": "fixed_window", "quota": 10000, "window": "month"}]}]`
	made := ask("POST", "/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+policies+`}}`).want(t, 201)
	if draft := ask("GET", "/v1/plans/pro/draft", "").want(t, 200); !strings.Contains(draft.body, `"window":"month","anchor":"calendar"`) {
		t.Errorf("the draft: %s", draft.body)
	}
	ask("POST", "/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	ask("POST", "/v1/tenants", `{"slug": "acme", "tenant": {"name": "Acme", "plan": "pro", "require_route": false,`+
		`"time_zone": "Europe/Berlin", "billing_anchor_day": 15}}`).want(t, 201)
	berlin, err := enforcement.NewCalendar("Europe/Berlin", 15)
	if err != nil {
		t.Fatal(err)
	}
	policyAt := func(now time.Time) string {
		from, until := berlin.Window(enforcement.Month, time.Monday, now)
		return fmt.Sprintf(`"monthly";q=10000;w=%d`, int(until.Sub(from).Seconds()))
	}
	before := time.Now()
	got := ask("POST", "/v1/check", `{"tenant": "acme", "cost": 10000}`).want(t, 200)
	if header := got.header.Get("RateLimit-Policy"); header != policyAt(before) && header != policyAt(time.Now()) {
		t.Errorf("RateLimit-Policy: %s, want %s", header, policyAt(before))
	}
	denied := ask("POST", "/v1/check", `{"tenant": "acme"}`).want(t, 429)
	if !strings.Contains(denied.body, `"reason":"over_limit"`) {
		t.Errorf("the denial: %s", denied.body)
	}
	explained := ask("POST", "/v1/explain", `{"tenant": "acme"}`).want(t, 200)
	usage := ask("GET", "/v1/tenants/acme/usage", "").want(t, 200)
	for _, a := range []answer{explained, usage} {
		if strings.Contains(a.body, `"window_ms":2764800000`) || !strings.Contains(a.body, `"remaining":0`) {
			t.Errorf("an answer with the wrong window or usage: %s", a.body)
		}
	}
	tenant := ask("GET", "/v1/tenants/acme", "").want(t, 200)
	ask("PATCH", "/v1/tenants/acme", `{"time_zone": "America/New_York"}`, "If-Match", tenant.header.Get("ETag"),
		"Content-Type", "application/merge-patch+json").want(t, 200)
	ask("POST", "/v1/check", `{"tenant": "acme", "mode": "peek"}`).want(t, 429)

	over := `{"policy": "monthly", "limits": {"l1": {"window": "1d"}}, "reason": "x", "expires_at": "2999-01-01T00:00:00Z"}`
	if refused := ask("POST", "/v1/tenants/acme/overrides", over); refused.status/100 != 4 {
		t.Errorf("an override of the window: %d %s", refused.status, refused.body)
	}
}
