package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// rowsIn returns the rows of the table with a class, as text.
func rowsIn(page *html.Node, class string) (list []string) {
	for table := range page.Descendants() {
		if table.Data == "table" && classed(class)(table) {
			for n := range table.Descendants() {
				if n.Data == "tr" && n.Parent.Data == "tbody" {
					list = append(list, textOf(n))
				}
			}
		}
	}
	return list
}

// Issue 13, 1.4: denials are grouped by key, policy or route, and each group leads to its denials.
func TestDenialsAreGrouped(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t)
	w.login("acme", "203.0.113.9", 8)
	w.flushNow()
	for address, want := range map[string][]string{
		"/denials?group=key&tenant=acme&reason=limited": {"ip 203.0.113.9 9", "ip 203.0.113.70 1", "ip 203.0.113.66 1"},
		"/denials?group=policy":                         {"login-per-ip acme 11", "No policy globex 1", "reports-per-user acme 1", "No policy acme 1"},
		"/denials?group=route":                          {"/v1/login acme 11", "(none) 2 tenants 2", "/v1/reports acme 1"},
		"/tenants/acme/denials?group=policy":            {"login-per-ip 11", "reports-per-user 1", "No policy 1"},
	} {
		page := w.get(address, "viewer")
		tree := page.tree(t)
		rows := rowsIn(tree, "denials")
		if page.Code != http.StatusOK || len(rows) != len(want) {
			t.Fatalf("%s: %d, %q", address, page.Code, rows)
		}
		for i := range want {
			if !strings.HasPrefix(rows[i], want[i]) {
				t.Errorf("%s: the group %q, want %q", address, rows[i], want[i])
			}
		}
		for n := range tree.Descendants() {
			if n.Data != "a" || !strings.HasPrefix(attr(n, "id"), "g-") || strings.HasSuffix(attr(n, "id"), "-last") {
				continue
			}
			if list := denied(w.get(attr(n, "href"), "viewer").tree(t)); len(list) == 0 {
				t.Errorf("%s: the group %q leads to %s, which is empty", address, textOf(n), attr(n, "href"))
			}
		}
	}
	if filter := w.get("/denials?group=key&tenant=acme", "viewer").body; !strings.Contains(filter, `name="group" value="key"`) {
		t.Error("the filters lose the grouping")
	}
}

// Issue 13, 1.8: the column Key has the key that was counted, and nothing else.
func TestDenialsShowTheCountedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Hour}}
	w.publish("keys", plans.Content{Name: "Keys", Policies: []plans.Policy{
		{Slug: "network", Match: plans.Match{Path: "/network"}, CountBy: []string{"ip/64"}, Limits: one},
		{Slug: "all", Match: plans.Match{Path: "/all"}, Limits: one},
	}}, "acme")
	for _, path := range []string{"/network", "/all"} {
		check := checkOf(t, "GET "+path, "ip=2001:db8::7", "user=u1", "plan=gold")
		w.decide("acme", check, check)
	}
	w.flushNow()
	rows := strings.Join(rowsIn(w.get("/tenants/acme/denials", "viewer").tree(t), "denials"), "\n")
	for _, want := range []string{"network ip 2001:db8::/64 1 h", "all the whole tenant 1 h", "No policy no key was counted; user u0"} {
		if !strings.Contains(rows, want) {
			t.Errorf("the rows do not have %q:\n%s", want, rows)
		}
	}
	if strings.Contains(rows, "u1") || strings.Contains(rows, "gold") {
		t.Errorf("the rows have attributes that were not counted:\n%s", rows)
	}
}

// Issue 13, 1.8: the page Denials offers no time range for which denials are no longer stored.
func TestDenialsOfferADay(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	for _, address := range []string{"/denials?range=90d", "/denials?from=2026-10-01T00:00&to=2026-11-21T09:30"} {
		page := w.get(address, "viewer")
		links := strings.Join(hrefs(page.tree(t)), "\n")
		if page.Code != http.StatusOK || strings.Contains(links, "range=7d") || strings.Contains(links, "range=90d") || !strings.Contains(links, "range=24h") {
			t.Errorf("%s: %d, the links are\n%s", address, page.Code, links)
		}
		if !strings.Contains(page.body, "Headgate keeps these data for 24 h. The page does not go further back.") || !strings.Contains(page.body, ids["login"]) {
			t.Errorf("%s does not say how far back it goes, or lost the denials", address)
		}
	}
	if page := w.get("/denials?range=24h", "viewer"); strings.Contains(page.body, "does not go further back") {
		t.Error("a day is told to be too long")
	}
}

// Every filter suggests values.
func TestFiltersSuggest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	for address, want := range map[string]map[string]string{
		"/overview":             {"tenant": "acme globex", "policy": "login-per-ip reports-per-user search-per-user", "route": "/v1/login /v1/reports /v1/search"},
		"/denials":              {"tenant": "acme globex", "policy": "login-per-ip reports-per-user search-per-user", "attribute": "ip= user="},
		"/tenants/acme/denials": {"policy": "login-per-ip reports-per-user search-per-user", "route": "/v1/login /v1/reports /v1/search"},
		"/audit":                {"tenant": "acme globex", "object": "acme busy globex", "actor": "owner@people.example editor@people.example viewer@people.example"},
	} {
		tree := w.get(address, "owner").tree(t)
		for field, values := range want {
			var got []string
			for list := range tree.Descendants() {
				if list.Data != "datalist" || attr(list, "id") != "filter-"+field+"-list" {
					continue
				}
				for option := range list.ChildNodes() {
					if option.Data == "option" {
						got = append(got, attr(option, "value"))
					}
				}
			}
			if strings.Join(got, " ") != values {
				t.Errorf("%s suggests %q for %s, want %q", address, got, field, values)
			}
		}
	}
	if page := w.get("/denials?tenant=globex", "owner"); strings.Contains(page.body, "filter-policy-list") {
		t.Error("policies of another tenant are suggested")
	}
}
