package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// Issue 13, 2: the charts of requests and of denials are grouped by tenant, policy or route: the largest five, and the others.
func TestChartsAreGrouped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 8)
	w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 1},
		enforcement.Check{Method: "GET", Path: "/v1/none", Cost: 1})
	w.flushNow()
	for path, want := range map[string]string{
		"/overview?by=route":                        "Time (UTC) /v1/login (none) /v1/search; 21 Nov 09:00 (unfinished) 37.5% 0% 0%",
		"/overview?by=policy&tenant=acme&compare=1": "Time (UTC) login-per-ip search-per-user 429 rate of all before; 21 Nov 09:00 (unfinished) 37.5% 0% –",
		"/overview": "Time (UTC) 429 rate; 21 Nov 09:00 (unfinished) 30%",
	} {
		if rate := strings.Join(chartRows(t, w.get(path, "viewer"), "rate"), "; "); rate != want {
			t.Errorf("%s: the 429 rate is %q, want %q", path, rate, want)
		}
	}
	for _, test := range []struct{ path, by, requests, denied string }{
		{"/overview?by=tenant", "viewer", "Time (UTC) acme; 21 Nov 09:00 (unfinished) 10", "Time (UTC) acme; 21 Nov 09:00 (unfinished) 3"},
		{"/overview?by=route", "viewer", "Time (UTC) /v1/login (none) /v1/search; 21 Nov 09:00 (unfinished) 8 1 1", "Time (UTC) /v1/login; 21 Nov 09:00 (unfinished) 3"},
		{"/overview?by=policy&tenant=acme", "viewer", "Time (UTC) login-per-ip search-per-user; 21 Nov 09:00 (unfinished) 8 1", "Time (UTC) login-per-ip; 21 Nov 09:00 (unfinished) 3"},
		{"/tenants/acme?by=route", "acme-viewer", "Time (UTC) /v1/login (none) /v1/search; 21 Nov 09:00 (unfinished) 8 1 1", "Time (UTC) /v1/login; 21 Nov 09:00 (unfinished) 3"},
		// One policy, and the tenants of one tenant, are not grouped.
		{"/overview?by=policy&policy=login-per-ip", "viewer", "Time (UTC) Allowed Denied by limits Other denials; 21 Nov 09:00 (unfinished) 5 3 0", ""},
		{"/tenants/acme?by=tenant", "acme-viewer", "Time (UTC) Allowed Denied by limits Other denials; 21 Nov 09:00 (unfinished) 7 3 0", ""},
	} {
		page := w.get(test.path, test.by)
		requests, denied := strings.Join(chartRows(t, page, "traffic"), "; "), strings.Join(chartRows(t, page, "denied"), "; ")
		if page.Code != http.StatusOK || requests != test.requests || denied != test.denied {
			t.Errorf("%s: %d %q and %q, want %q and %q", test.path, page.Code, requests, denied, test.requests, test.denied)
		}
	}
	for path, by := range map[string]string{"/overview?by=color": "viewer", "/tenants/acme?by=color": "acme-admin"} {
		if page := w.get(path, by); page.Code != http.StatusUnprocessableEntity || !strings.Contains(page.body, "Requests cannot be grouped by color.") {
			t.Errorf("%s: %d", path, page.Code)
		}
	}
	if page := w.get("/tenants/acme", "acme-viewer"); strings.Contains(page.body, "by=tenant") || !strings.Contains(page.body, "by=route#traffic") {
		t.Error("the page of a tenant offers to group by tenant, or not by route")
	}
}
