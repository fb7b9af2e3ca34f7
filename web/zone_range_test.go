package web

import (
	"net/url"
	"testing"
	"time"
)

// A time range in a time zone with half hours, and on the days on which the clock changes: the
// URL of the time range names its zone and is parsed to the same times.
func TestTimeRangeInZones(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	for _, test := range []struct{ query, zone, from, to, fault string }{
		{"from=2026-11-20T00:00&to=2026-11-20T12:15&tz=Asia/Kolkata", "Asia/Kolkata", "2026-11-19T18:30:00Z", "2026-11-20T06:45:00Z", ""},
		{"from=2026-11-20T00:00&to=2026-11-20T12:15", "Asia/Kolkata", "2026-11-20T00:00:00Z", "2026-11-20T12:15:00Z", ""},
		{"from=2026-11-20T00:00&to=2026-11-20T12:00&tz=Australia/Lord_Howe", "Australia/Lord_Howe", "2026-11-19T13:00:00Z", "2026-11-20T01:00:00Z", ""},
		// In October, 02:30 is twice; in March, 02:30 does not exist.
		{"from=2026-10-25T02:30%2B02:00&to=2026-10-25T02:30%2B01:00&tz=Europe/Berlin", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", ""},
		{"from=2026-10-25T00:00&to=2026-10-26T00:00&tz=Europe/Berlin", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", ""},
		{"from=2026-03-29T01:30&to=2026-03-29T03:30&tz=Europe/Berlin", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", ""},
		{"from=2026-11-20T00:00Z&to=2026-11-20T12:00Z&tz=Europe/Berlin", "Europe/Berlin", "2026-11-20T00:00:00Z", "2026-11-20T12:00:00Z", ""},
		{"range=24h&tz=Asia/Kolkata", "Asia/Kolkata", "2026-11-20T09:30:00Z", "2026-11-21T09:30:00Z", ""},
		{"from=2026-11-20T00:00&to=2026-11-20T12:00&tz=Mars", "UTC", "", "", "No time zone has this name. Use a name such as Europe/Berlin."},
		{"from=2026-11-20T00:00&to=2026-11-20T12:00&tz=Local", "UTC", "", "", "No time zone has this name. Use a name such as Europe/Berlin."},
		{"from=x&to=2026-11-20T12:00&tz=Asia/Kolkata", "Asia/Kolkata", "", "", "Enter both times as 2026-11-21T09:30, in Asia/Kolkata."},
	} {
		q, err := url.ParseQuery(test.query)
		must(t, err)
		zone, known := LoadZone(test.zone)
		if !known {
			t.Fatalf("no zone %s", test.zone)
		}
		s := ParseTimeRange(q, now, zone)
		if s.Fault != test.fault {
			t.Errorf("%s: %q, want %q", test.query, s.Fault, test.fault)
		}
		if s.Fault != "" || test.fault != "" {
			continue
		}
		if got := [2]string{s.From.Format(time.RFC3339), s.To.Format(time.RFC3339)}; got != [2]string{test.from, test.to} {
			t.Errorf("%s: %v, want %s to %s", test.query, got, test.from, test.to)
		}
		u, err := url.Parse(s.Address("/overview", nil))
		must(t, err)
		again := ParseTimeRange(u.Query(), now, zone)
		if u.Query().Get("tz") != test.zone || again.Preset != s.Preset || !again.From.Equal(s.From) || !again.To.Equal(s.To) {
			t.Errorf("%s: its address %s is %v", test.query, u, again)
		}
		// The form of the page and the URL without a zone lead to the same time range.
		back, err := url.Parse(withoutZone(u.RequestURI(), now))
		must(t, err)
		utc := ParseTimeRange(back.Query(), now, time.UTC)
		if back.Query().Has("tz") || utc.Preset != s.Preset || !utc.From.Equal(s.From) || !utc.To.Equal(s.To) {
			t.Errorf("%s: without its zone, the address is %s", test.query, back)
		}
	}
}
