package web

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSpanOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	for _, test := range []struct {
		query, preset string
		from, to      string
		live          bool
		fault         string
	}{
		{"", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, ""},
		{"range=15m", "15m", "2026-11-21T09:15", "2026-11-21T09:30", true, ""},
		{"range=90d&live=0", "90d", "2026-08-23T09:30", "2026-11-21T09:30", false, ""},
		{"range=2h", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "No range has this name."},
		{"from=2026-11-20T00:00&to=2026-11-20T12:00", "", "2026-11-20T00:00", "2026-11-20T12:00", false, ""},
		{"from=2026-11-20T00:00&to=2026-11-20T12:00&range=7d", "", "2026-11-20T00:00", "2026-11-20T12:00", false, ""},
		{"from=2026-11-20T12:00&to=2026-11-20T12:00", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "The end must be after the start."},
		{"from=2026-11-22T12:00&to=2026-11-23T12:00", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "The start is in the future."},
		{"from=2020-11-20T12:00&to=2026-11-20T12:00", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "A range has at most three years."},
		{"from=yesterday&to=2026-11-20T12:00", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "Enter both times as 2026-11-21T09:30, in UTC."},
		{"to=2026-11-20T12:00", "1h", "2026-11-21T08:30", "2026-11-21T09:30", true, "Enter both times as 2026-11-21T09:30, in UTC."},
	} {
		q, err := url.ParseQuery(test.query)
		must(t, err)
		s := ParseTimeRange(q, now, nil)
		got := [...]any{s.Preset, s.From.Format(RangeForm), s.To.Format(RangeForm), s.Live, s.Fault}
		want := [...]any{test.preset, test.from, test.to, test.live, test.fault}
		if got != want {
			t.Errorf("%s: %v, want %v", test.query, got, want)
		}
		// The URL of a time range is parsed to the same time range.
		if test.fault == "" {
			u, err := url.Parse(s.Address("/overview", nil))
			must(t, err)
			again := ParseTimeRange(u.Query(), now, nil)
			if again.Preset != s.Preset || !again.From.Equal(s.From) || !again.To.Equal(s.To) {
				t.Errorf("%s: its address %s says %v", test.query, u, again)
			}
		}
	}
}

// The links of a time range keep the other query parameters and lead to each other.
func TestRanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	also := url.Values{"tenant": {"acme"}, "policy": {""}}
	r := ParseTimeRange(url.Values{"range": {"24h"}}, now, nil).Picker("/overview", also, true)
	var links []string
	for _, p := range r.Presets {
		links = append(links, p.URL)
		if p.Current != (p.Text == "24h") {
			t.Errorf("%s: current is %v", p.Text, p.Current)
		}
	}
	want := []string{
		"/overview?range=15m&tenant=acme", "/overview?tenant=acme", "/overview?range=6h&tenant=acme", "/overview?range=24h&tenant=acme",
		"/overview?range=7d&tenant=acme", "/overview?range=30d&tenant=acme", "/overview?range=90d&tenant=acme",
	}
	if diff := cmp.Diff(want, links); diff != "" {
		t.Error(diff)
	}
	if r.PauseURL != "/overview?live=0&range=24h&tenant=acme" || r.LiveURL != "" {
		t.Errorf("pause: %q, live: %q", r.PauseURL, r.LiveURL)
	}
	if len(r.Hidden) != 1 || r.Hidden[0].Name != "tenant" {
		t.Errorf("the form of an own time keeps %v", r.Hidden)
	}
	paused := ParseTimeRange(url.Values{"range": {"24h"}, "live": {"0"}}, now, nil).Picker("/overview", also, true)
	if paused.PauseURL != "" || paused.LiveURL != "/overview?range=24h&tenant=acme" {
		t.Errorf("paused: pause %q, live %q", paused.PauseURL, paused.LiveURL)
	}
	own := ParseTimeRange(url.Values{"from": {"2026-11-20T00:00"}, "to": {"2026-11-20T12:00"}}, now, nil).Picker("/overview", also, true)
	if own.PauseURL != "" || own.LiveURL != "" || own.From != "2026-11-20T00:00" {
		t.Errorf("what is over cannot be live: %+v", own)
	}
}
