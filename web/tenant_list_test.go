package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// listedWorld has the tenants acme (10 requests, 50% limited), globex (suspended), and t00 to t59, of which t07 had 4
// requests, 75% limited.
func listedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	limited := plans.Content{Name: "Five", Policies: []plans.Policy{{
		Slug: "total", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 5, Window: 24 * time.Hour}},
	}}}
	w.publish("five", limited, "acme")
	limited.Policies[0].Limits[0].Quota = 1
	w.publish("one", limited, "")
	for n := range 60 {
		plan := ""
		if n == 7 {
			plan = "one"
		}
		_, err := w.tenants.CreateTenant(t.Context(), fmt.Sprintf("t%02d", n), tenants.Document{Name: fmt.Sprintf("Tenant %02d", 59-n), Plan: plan})
		must(t, err)
	}
	must(t, w.watcher.Refresh(t.Context()))
	for range 10 {
		w.decide("acme", checkOf(t, "GET /v1/x"))
	}
	for range 4 {
		w.decide("t07", checkOf(t, "GET /v1/x"))
	}
	w.flushNow()
	w.now.Add(time.Second.Microseconds()) // into a minute that is counted
	return w
}

// slugsIn returns the slugs in a list of tenants.
func slugsIn(page *html.Node) (list []string) {
	for _, row := range rowsIn(page, "tenants") {
		for _, word := range strings.Fields(row) {
			if word == "acme" || word == "globex" || len(word) == 3 && word[0] == 't' && word[1] >= '0' && word[1] <= '9' {
				list = append(list, word)
				break
			}
		}
	}
	return list
}

// Issue 13, 1.9: tenants are sorted, and filtered by plan and status, with totals and the nearest limit.
func TestTenantsAreSortedAndFiltered(t *testing.T) {
	t.Parallel()
	w := listedWorld(t)
	for address, want := range map[string]string{
		"/tenants?sort=rate":               "t07 acme",
		"/tenants?sort=requests":           "acme t07",
		"/tenants?sort=name":               "acme globex t59 t58",
		"/tenants?sort=newest":             "t59 t58",
		"/tenants?plan=one":                "t07",
		"/tenants?status=suspended":        "globex",
		"/tenants?status=active&q=t0":      "t00 t01",
		"/tenants?sort=newest&page=2":      "t09 t08",
		"/tenants?sort=none&status=none":   "acme globex",
		"/tenants?plan=five&sort=requests": "acme",
	} {
		page := w.get(address, "viewer")
		slugs := strings.Join(slugsIn(page.tree(t)), " ")
		if address == "/tenants?sort=none&status=none" { // the fixture creates these two in any order
			if !strings.Contains(slugs, "acme") || !strings.Contains(slugs, "globex") {
				t.Errorf("%s: %q", address, slugs)
			}
			continue
		}
		if page.Code != http.StatusOK || !strings.HasPrefix(slugs, want) {
			t.Errorf("%s: %d, %q, want %q first", address, page.Code, slugs, want)
		}
	}
	all := w.get("/tenants?sort=rate", "viewer")
	tree := all.tree(t)
	if !strings.Contains(textOf(tree), "62 tenants, 1 suspended: 14 requests in the last 24 hours, 57.1% denied by limits.") {
		t.Errorf("the totals are %q", texts(tree, classed("summary")))
	}
	if rows := rowsIn(tree, "tenants"); !strings.Contains(rows[0], "100% of total") || len(rows) != 50 {
		t.Errorf("%d rows, the first one is %q", len(rows), rows[0])
	}
	sorted := texts(tree, func(n *html.Node) bool { return attr(n, "aria-sort") == "descending" })
	if len(sorted) != 1 || sorted[0] != "429 rate" || !hasPrefix(hrefs(tree), "/tenants?page=2&sort=rate") {
		t.Errorf("sorted by %q, and the links are %q", sorted, hrefs(tree))
	}
	if page := w.get("/tenants?plan=none", "viewer"); !strings.Contains(page.body, "No plan has the slug none.") || !strings.Contains(page.body, "No tenant matches these filters.") {
		t.Error("an unknown plan is not told")
	}
}

// Issue 13, 1.9: the page of a tenant starts with its traffic and the three limits nearest to exhaustion.
func TestTenantStartsWithItsNearestLimits(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	for range 40 {
		w.decide("acme", checkOf(t, "GET /v1/x"))
	}
	for user, n := range map[string]int{"u1": 1, "u2": 4, "u3": 5, "u4": 1} {
		for range n {
			w.decide("acme", checkOf(t, "GET /v1/search", "user="+user))
		}
	}
	w.flushNow()
	w.now.Add(time.Second.Microseconds()) // into a minute that is counted
	page := w.get("/tenants/acme", "viewer")
	tree := page.tree(t)
	var near []string
	for list := range tree.Descendants() {
		if classed("near-limits")(list) {
			near = texts(list, func(n *html.Node) bool { return n.Data == "li" })
		}
	}
	// u3 has nothing left, the whole tenant is used up within minutes, and u2 has the least left of the others.
	if len(near) != 3 || !strings.HasPrefix(near[0], "user u3 · per-user") || !strings.HasPrefix(near[1], "the whole tenant · total") ||
		!strings.HasPrefix(near[2], "user u2 · per-user") {
		t.Fatalf("the nearest limits are %q", near)
	}
	text := words(t, page)
	last := -1
	for _, part := range []string{"user u3", "Requests", "Overrides, lists, and blocks", "All limits of 2 policies and their busiest keys"} {
		at := strings.Index(text, part)
		if at <= last {
			t.Errorf("%q is at %d of the page, before what should be above it", part, at)
		}
		last = at
	}
	if open := texts(tree, func(n *html.Node) bool { return classed("all-left")(n) && has(n, "open") }); len(open) > 0 {
		t.Error("all limits are shown at once")
	}
}

// Issue 13, 1.9: members of a tenant have one navigation.
func TestMembersHaveOneNavigation(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	for _, path := range []string{"/tenants/acme", "/tenants/acme/denials", "/tenants/acme/keys", "/tenants/acme/blocks", "/tenants/acme/members"} {
		for by, want := range map[string]int{"acme-admin": 0, "acme-viewer": 0, "owner": 1} {
			tree := w.get(path, by).tree(t)
			if tabs := texts(tree, classed("tabs")); len(tabs) != want {
				t.Errorf("%s has the tabs %q on %s", by, tabs, path)
			}
			if want == 0 && !hasPrefix(hrefs(tree), path) {
				t.Errorf("%s is not in the navigation of %s", path, by)
			}
		}
	}
}
