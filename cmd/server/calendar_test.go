package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/cli"
)

// A policy limits requests to 10,000 per month in Berlin, from the 15th. The test checks the
// headers, explain, usage, and an override. After a change of the time zone, the used units are
// still used.
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

	over := `{"policy": "monthly", "limits": [{"name": "l1", "window": "1d"}], "reason": "x"}`
	if refused := ask("POST", "/v1/tenants/acme/overrides", over).want(t, 422); !strings.Contains(refused.body, "/limits/0/window") {
		t.Errorf("an override of the window: %d %s", refused.status, refused.body)
	}
}

// The commands in docs/algorithms.md print what that page shows.
func TestCalendarSessionOfTheDocuments(t *testing.T) {
	t.Parallel()
	const page = "../../docs/algorithms.md"
	for _, session := range []struct{ scenario, answer string }{{"billing_anchor_day", "reset_after_ms"}, {"max_rollover", "rolled_over"}} {
		_, scenario, _ := strings.Cut(snippet(t, page, "sh", session.scenario), "<<'END'\n")
		out, err := command(t, nil, strings.TrimSuffix(scenario, "END"), "simulate")
		if err != nil {
			t.Fatal(err)
		}
		var shown, played any
		for text, into := range map[string]*any{snippet(t, page, "json", session.answer): &shown, out: &played} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		}
		if !reflect.DeepEqual(shown, played) {
			t.Errorf("%s shows\n%v, but the answer is\n%v", page, shown, played)
		}
	}
}

// The binary contains the time zone database, so the host needs no zone files.
func TestZonesAreInTheBinary(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("main.go")
	if err != nil || !strings.Contains(string(text), "\t_ \"time/tzdata\"") {
		t.Errorf("main.go does not import time/tzdata: %v", err)
	}
}

const monthlyPlan = `name: Pro
policies:
  - slug: monthly
    limits:
      - {algorithm: fixed_window, quota: 10000, window: month, max_rollover: 2500}
  - slug: weekly
    limits:
      - {algorithm: fixed_window, quota: 5000, window: week, anchor: sunday}
`

func TestCLICalendar(t *testing.T) {
	t.Parallel()
	session(t, "calendar", cliServer(t), []cliStep{
		{args: "plans create pro -f -", stdin: monthlyPlan},
		{args: "plans create bad -f -", stdin: strings.Replace(monthlyPlan, "fixed_window", "gcra", 1), exit: cli.ExitInvalid},
		{args: "plans create bad -f -", stdin: strings.Replace(monthlyPlan, "sunday", "calendar", 1), exit: cli.ExitInvalid},
		{args: "plans create bad -f -", stdin: strings.Replace(monthlyPlan, "month,", "fortnight,", 1), exit: cli.ExitInvalid},
		{args: "plans create bad -f -", stdin: strings.Replace(monthlyPlan, "month,", "30d,", 1), exit: cli.ExitInvalid},
		{args: "plans create bad -f -", stdin: strings.Replace(monthlyPlan, "2500", "0", 1), exit: cli.ExitInvalid},
		{args: "plans get pro --draft -o yaml"},
		{args: "plans publish pro"},
		{args: "tenants create acme --name Acme --plan pro --time-zone Europe/Berlin --billing-anchor-day 15"},
		{args: "tenants create bad --name Bad --plan pro --time-zone Europe/Atlantis", exit: cli.ExitInvalid},
		{args: "check GET / --tenant acme --cost 5000"},
		{args: "overrides create acme --policy weekly --factor 2 --reason 'a launch'"},
		{args: "overrides create acme --policy monthly --window l1=1d --reason 'a try'", exit: cli.ExitInvalid},
		{args: "explain GET / --tenant acme --cost 5001", exit: cli.ExitDenied},
		{args: "check GET / --tenant acme --cost 5000"},
		{args: "check GET / --tenant acme", exit: cli.ExitDenied},
	})
}
