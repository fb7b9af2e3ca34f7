package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Answers show what the current window has, and how much of it was rolled over.
func TestRolledOverUnitsInAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policies(plans.Policy{Slug: "monthly", CountBy: []string{"user"}, Limits: []enforcement.Limit{{
		Algorithm: enforcement.FixedWindow, Quota: 1_000, Window: enforcement.Month.Longest(), Period: enforcement.Month,
		Anchor: enforcement.ByCalendar, MaxRollover: 500, WarnAt: enforcement.WarnAt{80},
	}}})
	w.tenant(func(d *tenants.Document) { d.TimeZone, d.BillingAnchorDay = "Europe/Berlin", 15 })
	ask := func(now time.Time, method, path, body string, status int, wants ...string) answer {
		t.Helper()
		w.now.Store(now.UnixMicro())
		a := w.do(call{method: method, path: path, key: w.operator, body: body})
		if a.status != status {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		for _, want := range wants {
			if absent, no := strings.CutPrefix(want, "no "); strings.Contains(a.body, absent) == no {
				t.Errorf("%s at %s: want %s in %s", path, now, want, a.body)
			}
		}
		return a
	}
	body := func(cost int) string {
		return fmt.Sprintf(`{"tenant":"acme","method":"GET","path":"/","attributes":{"user":"u1"},"cost":%d}`, cost)
	}
	october := time.Date(2026, 10, 20, 12, 0, 0, 0, time.UTC)
	november, december := october.AddDate(0, 1, 0), october.AddDate(0, 2, 0)
	ask(october, "POST", "/v1/check", body(800), 200, `"quota":1000,"window_ms"`, `"remaining":200,`, `no rolled_over`)
	ask(october, "POST", "/v1/check", body(1_200), 429, `"retry_after_ms":2199600000,`) // the 15th of November, 00:00 in Berlin
	ask(october, "POST", "/v1/check", body(1_501), 429, `"reason":"cost_exceeds_quota"`, `"retry_after_ms":null,`)
	a := ask(november, "POST", "/v1/check", body(950), 200, `"quota":1200,"rolled_over":200,"window_ms"`, `"remaining":250,`, `no near_limit`)
	for name, want := range map[string]string{"RateLimit-Policy": `"monthly";q=1200;w=2592000`, "RateLimit": `"monthly";r=250;t=2113200`} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	ask(november, "POST", "/v1/check", body(10), 200, `"remaining":240,`, `"near_limit":80`)
	ask(november, "POST", "/v1/explain", body(10), 200, `"quota":1200,"rolled_over":200,"window_ms":2592000000,"remaining":240,`)
	ask(november, "POST", "/v1/check", body(241), 429, `"remaining":240,`)
	ask(december, "POST", "/v1/check", body(0), 200, `"quota":1240,"rolled_over":240,`, `"remaining":1240,`)
	ask(october.AddDate(1, 0, 0), "POST", "/v1/check", body(0), 200, `"quota":1500,"rolled_over":500,`)
	ask(october.AddDate(1, 2, 0), "POST", "/v1/check", body(0), 200, `"quota":1000,`, `no rolled_over`)
}

// A cost above the quota fits only as long as units are rolled over. If another limit denies the
// request for longer, it never fits.
func TestRetryOfACostAboveTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policies(plans.Policy{Slug: "both", Limits: []enforcement.Limit{
		{
			Name: "daily", Algorithm: enforcement.FixedWindow, Quota: 10, Window: enforcement.Day.Longest(), Period: enforcement.Day,
			Anchor: enforcement.ByCalendar, MaxRollover: 20,
		},
		{
			Name: "monthly", Algorithm: enforcement.FixedWindow, Quota: 16, Window: enforcement.Month.Longest(), Period: enforcement.Month,
			Anchor: enforcement.ByCalendar,
		},
	}})
	w.tenant(func(*tenants.Document) {})
	for _, step := range []struct {
		day, cost, status int
		want              string
	}{
		{3, 1, 200, `"remaining":9,`},
		{4, 15, 200, `"quota":19,"rolled_over":9,`},
		{4, 10, 429, `"retry_after_ms":2332800000,`}, // until December
		{4, 15, 429, `"retry_after_ms":null,`},       // the rolled over units end on the 17th
		{4, 17, 429, `"retry_after_ms":null,`},
	} {
		w.now.Store(time.Date(2026, 11, step.day, 0, 0, 0, 0, time.UTC).UnixMicro())
		a := w.do(call{method: "POST", path: "/v1/check", key: w.operatorCheck, body: fmt.Sprintf(
			`{"tenant":"acme","method":"GET","path":"/","cost":%d}`, step.cost)})
		if a.status != step.status || !strings.Contains(a.body, step.want) {
			t.Errorf("cost %d on day %d: %d %s, want %s", step.cost, step.day, a.status, a.body, step.want)
		}
	}
}

// The errors name the field.
func TestMaxRolloverIsValidatedInDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for limit, want := range map[string]string{
		`"fixed_window","quota":5,"window":"month","max_rollover":0`:            "must be 1 to 100000000000",
		`"fixed_window","quota":5,"window":"month","max_rollover":100000000001`: "must be 1 to 100000000000",
		`"fixed_window","quota":5,"window":"30d","max_rollover":5`:              "needs a calendar window",
		`"gcra","quota":5,"window":"30d","max_rollover":5`:                      "needs a calendar window",
	} {
		a := w.do(call{method: "POST", path: "/v1/plans", key: w.operator, body: fmt.Sprintf(
			`{"slug":"bad","draft":{"name":"Bad","policies":[{"slug":"a","limits":[{"algorithm":%s}]}]}}`, limit)})
		if (a.status != 422 && a.status != 400) || !strings.Contains(a.body, "/limits/0/max_rollover") || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", limit, a.status, a.body)
		}
	}
}
