package plans

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	const head, tail = `{"name":"a","policies":[{"slug":"b","limits":[`, `]}]}`
	for text, want := range map[string]string{
		`{"algorithm":"fixed_window","quota":10000,"window":"month"}`:                                `"window":"month","anchor":"calendar"`,
		`{"algorithm":"fixed_window","quota":1,"window":"month","anchor":"calendar"}`:                `"window":"month","anchor":"calendar"`,
		`{"algorithm":"fixed_window","quota":1,"window":"week"}`:                                     `"window":"week","anchor":"monday"`,
		`{"algorithm":"fixed_window","quota":1,"anchor":"sunday","window":"week"}`:                   `"window":"week","anchor":"sunday"`,
		`{"algorithm":"fixed_window","quota":1,"window":"month","anchor":"first_hit"}`:               "/policies/0/limits/0/anchor",
		`{"algorithm":"fixed_window","quota":1,"window":"month","anchor":"sunday"}`:                  "/policies/0/limits/0/anchor",
		`{"algorithm":"fixed_window","quota":1,"window":"week","anchor":"calendar"}`:                 "/policies/0/limits/0/anchor",
		`{"algorithm":"fixed_window","quota":1,"window":"7d","anchor":"sunday"}`:                     "/policies/0/limits/0/anchor",
		`{"algorithm":"fixed_window","quota":1,"window":"30d","anchor":"calendar"}`:                  "/policies/0/limits/0/anchor",
		`{"algorithm":"sliding_window_counter","quota":1,"window":"month"}`:                          "/policies/0/limits/0/window",
		`{"algorithm":"gcra","quota":1,"window":"month"}`:                                            "/policies/0/limits/0/window",
		`{"algorithm":"fixed_window","quota":1,"window":"day"}],"consistency":"leased","count_by":[`: "/policies/0/consistency",
	} {
		c, err := decode([]byte(head + text + tail))
		d := New(c)
		if err == nil {
			err = d.Validate()
		}
		if strings.HasPrefix(want, "/") {
			if err == nil {
				t.Errorf("%s: valid", text)
			} else if _, places := at(t, err); !slices.Contains(places, want) {
				t.Errorf("%s: %v, want an error at %s", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		stored, err := d.MarshalJSON()
		if err != nil || !strings.Contains(string(stored), want) {
			t.Errorf("%s: stored as %s, %v", text, stored, err)
		}
		if again, err := decode(stored); err != nil || again.Policies[0].Limits[0] != d.Policies()[0].Limits[0] {
			t.Errorf("%s: %v after a round trip: %v", text, again, err)
		}
	}
	for text, limit := range map[string]enforcement.Limit{
		"10,000 per calendar month":       {Algorithm: enforcement.FixedWindow, Quota: 10_000, Period: enforcement.Month, Anchor: enforcement.ByCalendar},
		"5 per calendar week":             {Algorithm: enforcement.FixedWindow, Quota: 5, Period: enforcement.Week, Anchor: enforcement.Monday},
		"5 per calendar week from sunday": {Algorithm: enforcement.FixedWindow, Quota: 5, Period: enforcement.Week, Anchor: enforcement.Sunday},
	} {
		if got := Describe(limit); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
