package web_test

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Issue 13, 2: each bar of the histogram of retry times has its edge and its count, and leads to its denials. A limited
// key shows the share of its requests, its limit, and its trend.
func TestHistogramAndLimitedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	last := w.login("acme", "203.0.113.9", 8)
	w.login("acme", "203.0.113.10", 5)
	w.flushNow()
	page := w.get("/overview", "owner")
	tree := page.tree(t)
	bar := ""
	for n := range tree.Descendants() {
		if n.Type == html.ElementNode && n.Data == "a" && strings.HasPrefix(attr(n, "id"), "retry-after-bar-") {
			bar = attr(n, "href")
			if got := strings.Join(strings.Fields(textOf(n)), " "); got != "3 ≤ 1 min" {
				t.Errorf("the bar says %q", got)
			}
		}
	}
	if bar == "" {
		t.Fatal("no bar leads to its denials")
	}
	if list := w.get(bar, "owner"); list.Code != http.StatusOK || !strings.Contains(list.body, last) || !strings.Contains(list.body, "30 s to 1 min") {
		t.Errorf("%s: %d without the denial", bar, list.Code)
	}
	if other := w.get(strings.Replace(bar, "wait=1m", "wait=5s", 1), "owner"); strings.Contains(other.body, last) {
		t.Error("the denials of another bar have this denial")
	}
	if bad := w.get("/denials?wait=x", "owner"); bad.Code != http.StatusUnprocessableEntity || !strings.Contains(bad.body, "No retry time has this name.") {
		t.Errorf("a retry time that does not exist: %d", bad.Code)
	}
	for _, want := range []string{"37.5% of its requests", "Limit: 5 per minute, exact", `aria-label="Denied over time"`} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the limited key has no %q", want)
		}
	}
}
