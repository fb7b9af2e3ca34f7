package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/web"
)

// inZone sends the cookie of a time zone.
func inZone(name string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: web.ZoneCookie, Value: url.QueryEscape(name)}) }
}

// Issue 13, 1.7: the zone is chosen with a form and kept in a cookie. The redirect leads back to
// the same period.
func TestChooseTimeZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct{ chosen, back, to string }{
		{"UTC", "/overview", "/overview"},
		{"tenant", "/tenants/acme", "/tenants/acme"},
		{"Asia/Kolkata", "/overview?range=24h&tz=Europe%2FBerlin", "/overview?range=24h"},
		{
			"America/New_York", "/overview?from=2026-11-20T01:00&to=2026-11-20T03:00&tz=Europe/Berlin",
			"/overview?from=2026-11-20T00%3A00&to=2026-11-20T02%3A00",
		},
		{"Asia/Kolkata", "//elsewhere.example/people", "/"},
	} {
		r := w.post("/preferences/zone", "owner", url.Values{"zone": {test.chosen}, "back": {test.back}})
		if r.Code != http.StatusSeeOther || r.Header().Get("Location") != test.to {
			t.Errorf("%s, %s: %d to %q, want %q", test.chosen, test.back, r.Code, r.Header().Get("Location"), test.to)
		}
		var got *http.Cookie
		for _, c := range r.Result().Cookies() {
			if c.Name == web.ZoneCookie {
				got = c
			}
		}
		if got == nil || got.Value != url.QueryEscape(test.chosen) || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.MaxAge <= 0 {
			t.Errorf("%s: the cookie is %v", test.chosen, got)
		}
	}
	for _, name := range []string{"", "Local", "localtime", "posix/UTC", "Mars/Olympus", "../etc/passwd", strings.Repeat("a", 65)} {
		if r := w.post("/preferences/zone", "owner", url.Values{"zone": {name}}); r.Code != http.StatusUnprocessableEntity || len(r.Result().Cookies()) > 0 {
			t.Errorf("%q: %d %v", name, r.Code, r.Result().Cookies())
		}
	}
}

// Issue 13, 1.7: pages, their forms, streams, links and files name the zone of their times.
func TestTimesInTheZoneOfThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.tenant("acme")
	acme.Document.TimeZone = "Asia/Kolkata"
	_, err := w.tenants.UpdateTenant(w.as(t, "owner"), acme.ID, acme.Document, acme.Revision)
	must(t, err)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	for _, test := range []struct{ path, zone, want string }{
		{"/overview", "", "Time (UTC)"},
		{"/overview", "", "21 Nov 09:00"},
		{"/overview", "none", "Time (UTC)"},
		{"/overview", "Asia/Kolkata", "Time (Asia/Kolkata)"},
		{"/overview", "Asia/Kolkata", "21 Nov 14:30"},
		{"/overview", "Asia/Kolkata", "at 14:30"},
		{"/overview", "Asia/Kolkata", "From (Asia/Kolkata)"},
		{"/overview", "Asia/Kolkata", `data-zone="Asia/Kolkata"`},
		{"/overview", "Asia/Kolkata", "tz=Asia%2FKolkata"},
		{"/overview", "Asia/Kolkata", "The last hour, in Asia/Kolkata"},
		{"/overview?range=90d", "Asia/Kolkata", "21 Nov 2026 05:30"}, // a day of UTC
		{"/overview?tz=Europe/Berlin", "Asia/Kolkata", "21 Nov 10:00"},
		{"/overview", "tenant", "Time (UTC)"},
		{"/tenants/acme", "tenant", "Time (Asia/Kolkata)"},
		{"/tenants/acme", "tenant", "Tenant: Asia/Kolkata"},
		{"/denials", "Asia/Kolkata", "Time (Asia/Kolkata)"},
		{"/denials", "Asia/Kolkata", "14:30:00"},
		{"/denials/" + w.ids["decision"], "Asia/Kolkata", "21 November 2026, 14:29:00.000 Asia/Kolkata"},
		{"/audit?range=24h", "Asia/Kolkata", "From (Asia/Kolkata)"},
		{"/audit?from=2026-11-21T14:00&to=2026-11-21T15:00&tz=Asia/Kolkata", "", "21 Nov 2026 14:00 to 21 Nov 2026 15:00 Asia/Kolkata"},
		{"/account", "Asia/Kolkata", "Pages show times in Asia/Kolkata."},
	} {
		page := w.send(http.MethodGet, test.path, "owner", nil, inZone(test.zone))
		if page.Code != http.StatusOK || !strings.Contains(page.body, test.want) {
			t.Errorf("%s in %q: %d without %q", test.path, test.zone, page.Code, test.want)
		}
	}
	file := w.send(http.MethodGet, "/tenants/acme/usage.csv?from=2026-11-21T14:00&to=2026-11-21T15:30&tz=Asia/Kolkata", "owner", nil)
	if !strings.Contains(file.body, "cost,time_zone\n") || !strings.Contains(file.body, "2026-11-21T14:30:00+05:30,minute,6,5,1,5,Asia/Kolkata\n") {
		t.Errorf("the file is\n%s", file.body)
	}
}
