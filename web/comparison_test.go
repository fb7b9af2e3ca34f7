package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// chartRows returns the rows of the table of a chart with a number other than 0: "09:00 5 1".
func chartRows(t *testing.T, page reply, id string) (rows []string) {
	t.Helper()
	var inside func(n *html.Node, in bool)
	inside = func(n *html.Node, in bool) {
		in = in || attr(n, "sse-swap") == id
		if in && n.Data == "tr" {
			row := strings.Join(strings.Fields(textOf(n)), " ")
			if strings.ContainsAny(strings.Join(strings.Fields(row)[min(3, len(strings.Fields(row))):], ""), "123456789") || n.Parent.Data == "thead" {
				rows = append(rows, row)
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			inside(c, in)
		}
	}
	inside(page.tree(t), false)
	return rows
}

// Issue 13, 2: compare=1 draws the previous period into the charts of requests and of the 429 rate, in steps and in the table.
func TestChartsCompareWithThePreviousPeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	for hour, n := range []int{8, 6} { // at 09:05 and at 10:05
		w.now.Store(start.Add(time.Duration(hour)*time.Hour + 5*time.Minute).UnixMicro())
		w.login("acme", "203.0.113.9", n)
		for range 4 { // or the sessions would end
			w.now.Add((10 * time.Minute).Microseconds())
			w.get("/account", "owner")
			w.get("/account", "acme-viewer")
		}
		w.flushNow()
	}
	w.now.Store(start.Add(time.Hour + 10*time.Minute).UnixMicro())
	for path, by := range map[string]string{"/overview?compare=1": "owner", "/overview?compare=1&tenant=acme&policy=login-per-ip": "owner", "/tenants/acme?compare=1": "acme-viewer"} {
		page := w.get(path, by)
		if got := strings.Join(chartRows(t, page, "traffic"), "; "); got != "Time (UTC) Allowed Denied by limits Other denials All requests before Denied by limits before; 21 Nov 10:05 5 1 0 8 3" {
			t.Errorf("%s: the chart of requests has %q", path, got)
		}
		if got := strings.Join(chartRows(t, page, "rate"), "; "); got != "Time (UTC) 429 rate 429 rate before; 21 Nov 10:05 16.7% 37.5%" {
			t.Errorf("%s: the chart of rates has %q", path, got)
		}
		if !strings.Contains(page.body, "Lines show 21 Nov 2026 08:10 to 21 Nov 2026 09:10 UTC") {
			t.Errorf("%s: the page does not say which time it compares with", path)
		}
		if !strings.Contains(page.body, "compare=1") || !strings.Contains(page.body, "live?compare=1") && !strings.Contains(page.body, "/live?compare=1") {
			t.Errorf("%s: the stream has no comparison", path)
		}
	}
	if page := w.get("/overview", "owner"); strings.Contains(strings.Join(chartRows(t, page, "traffic"), ""), "before") || !strings.Contains(page.body, "compare=1#traffic") {
		t.Error("the page compares without being asked, or offers no comparison")
	}
	// A time range whose length is no multiple of the step, and one for which the previous
	// period has no counts.
	page := w.get("/overview?compare=1&from=2026-11-21T10:00&to=2026-11-21T10:07", "owner")
	if got := fmt.Sprint(chartRows(t, page, "traffic")[1:]); got != "[21 Nov 10:05 5 1 0 0 0]" {
		t.Errorf("without counts before: %s", got)
	}
}
