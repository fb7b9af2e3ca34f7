package web_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// The pages show what the current window has, and how much of it was rolled over.
func TestRolledOverUnitsOnPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("rolling", plans.Content{Name: "Rolling", Policies: []plans.Policy{{
		Slug: "monthly", CountBy: []string{"user"}, Limits: []enforcement.Limit{{
			Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 1_000, Window: enforcement.Month.Longest(), Period: enforcement.Month,
			Anchor: enforcement.ByCalendar, MaxRollover: 500,
		}},
	}}}, "acme")
	check := func(cost int64) {
		w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: cost})
	}
	now := w.now.Load()
	w.now.Store(time.UnixMicro(now).AddDate(0, -1, 0).UnixMicro())
	check(800)
	w.now.Store(now)
	check(300)
	check(1_000)
	w.flush()
	request := url.Values{"method": {"GET"}, "path": {"/v1/search"}, "name": {"user"}, "value": {"u1"}, "cost": {"100"}}
	for page, wants := range map[string][]string{
		"/tenants/acme/explain?" + request.Encode(): {
			"Would pass: 800 of 1,200 left in policy monthly after it.", "900 of 1,200 left, 200 rolled over, resets in",
		},
		"/tenants/acme/usage/monthly?k.user=u1": {"300 of 1,200 used", "200 of them rolled over · resets on 1 Dec"},
		"/tenants/acme":                         {"1,000 per calendar month, up to 500 roll over", "300 of 1,200 used", "200 of them rolled over"},
		"/plans/rolling":                        {"1,000 per calendar month, up to 500 roll over"},
		"/tenants/acme/denials":                 {"monthly"},
	} {
		text := words(t, w.get(page, "owner"))
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not have %q:\n%s", page, want, text)
			}
		}
	}
	editor := w.get("/plans/rolling/edit", "editor")
	if got := typedIn(t, editor, "policies.0.limits.0.max_rollover"); got != "500" {
		t.Errorf("the form has the rollover %q", got)
	}
}
