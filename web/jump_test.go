package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// Issue 13, 3: the palette finds keys, policies, decisions, people and settings, and to a tenant's own people only theirs.
func TestThePaletteFinds(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	for _, test := range []struct{ by, query, links string }{
		{"viewer", ids["login"], "/denials/" + ids["login"]},
		{"acme-viewer", ids["login"], "/tenants/acme/denials/" + ids["login"]},
		{"viewer", "user=u1", "/denials?k.user=u1 /explain?k.user=u1"},
		{"acme-viewer", "user=u1", "/tenants/acme/denials?k.user=u1 /tenants/acme/explain?k.user=u1"},
		{"viewer", "login-per", "/overview?policy=login-per-ip"},
		{"acme-viewer", "login-per", ""},
		{"viewer", "editor@", "/people/" + w.ids["editor"]},
		{"acme-viewer", "editor@", ""},
		{"acme-viewer", "acme-admin@", "/tenants/acme/members/" + w.ids["acme-admin"]},
		{"owner", "retention", "/settings/retention"},
		{"acme-viewer", "retention", ""},
		{"acme-viewer", "password", "/account"},
		{"viewer", "globex", "/tenants/globex"},
		{"acme-viewer", "globex", ""},
		{"viewer", "lobby", "/settings/links#link-" + w.ids[":link"]},
		{"acme-viewer", "lobby", "/tenants/acme/links#link-" + w.ids["acme:link"]},
		{"globex-admin", "lobby", ""},
		{"owner", "displays", "/settings/links"},
	} {
		page := w.get("/jump/found?q="+strings.ReplaceAll(test.query, "=", "%3D"), test.by)
		if got := strings.Join(hrefs(page.tree(t)), " "); page.Code != http.StatusOK || got != test.links {
			t.Errorf("%s finds %q for %q, want %q", test.by, got, test.query, test.links)
		}
	}
	// The value of a key keeps its case; names do not differ in case. Without any result, the palette says how a key is written.
	for query, link := range map[string]string{"user%3DAnn": "/denials?k.user=Ann", "LOGIN-per": "/overview?policy=login-per-ip"} {
		if links := hrefs(w.get("/jump/found?q="+query, "viewer").tree(t)); !slices.Contains(links, link) {
			t.Errorf("%s finds %q", query, links)
		}
	}
	for query, says := range map[string]bool{"ada": true, "overview": false, "globex": false, "": false} {
		if got := w.get("/jump/found?q="+query, "viewer"); strings.Contains(got.body, "such as user=u1") != says {
			t.Errorf("%q: %s", query, got.body)
		}
	}
	// Every link of the palette leads to a page, and without scripts, the only one is opened at once.
	if page := w.get("/jump?q="+ids["login"], "viewer"); page.Code != http.StatusSeeOther || page.Header().Get("Location") != "/denials/"+ids["login"] {
		t.Errorf("%d %s", page.Code, page.Header().Get("Location"))
	}
	if page := w.get("/overview", "viewer"); !strings.Contains(page.body, "Keyboard shortcuts") {
		t.Error("there is no list of shortcuts")
	}
}

// Issue 13, 3: the palette finds a counted key by its bare value: of all tenants, or to a tenant's own people only theirs. It also
// finds keys that are in no ranking.
func TestThePaletteFindsKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "10.0.0.7", 6)
	w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/reports", Attributes: attributes("user", "user-17"), Cost: 1})
	w.flushNow()
	w.login("acme", "10.0.0.8", 1) // its counts are not written yet
	const acme = "/tenants/acme/usage/"
	for _, test := range []struct{ by, query, links string }{
		{"viewer", "10.0.0.7", acme + "login-per-ip?k.ip=10.0.0.7"},
		{"acme-viewer", "10.0.0.7", acme + "login-per-ip?k.ip=10.0.0.7"},
		{"globex-admin", "10.0.0.7", ""},
		{"acme-viewer", "user-17", acme + "reports-per-user?k.user=user-17"},
		{"viewer", "user-1", acme + "reports-per-user?k.user=user-17"},
		{"globex-admin", "user-17", ""},
		{"acme-viewer", "10.0.0.8", acme + "login-per-ip?k.ip=10.0.0.8"},
		{"viewer", "10.0.0.8", acme + "login-per-ip?k.ip=10.0.0.8"},
		{"viewer", "10.0.0.9", ""},
	} {
		page := w.get("/jump/found?q="+test.query, test.by)
		links := hrefs(page.tree(t))
		if got := strings.Join(links, " "); page.Code != http.StatusOK || got != test.links {
			t.Errorf("%s finds %q for %q, want %q", test.by, got, test.query, test.links)
		}
		for _, link := range links {
			if key := w.get(link, test.by); key.Code != http.StatusOK {
				t.Errorf("%s: %d", link, key.Code)
			}
		}
	}
}

// Issue 13, 1.11: the empty page makes a key, and the command of its page works.
func TestTheEmptyPageMakesAKey(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/overview", "/tenants/acme"} {
		w := newWorld(t)
		page := w.get(path, "owner")
		action := ""
		for n := range page.tree(t).Descendants() {
			if n.Data == "form" && strings.HasSuffix(attr(n, "action"), "/keys") {
				action = attr(n, "action")
			}
		}
		if action == "" {
			t.Fatalf("%s has no form for a key", path)
		}
		made := w.once(w.post(action, "owner", formOf(t, page, action)), "owner")
		if made.Code != http.StatusOK || !strings.Contains(made.body, "/v1/check") || !strings.Contains(made.body, "Bearer hg_tn_") {
			t.Errorf("%s: %d, without a command with a key", path, made.Code)
		}
		if viewer := w.get(path, "viewer"); strings.Contains(viewer.body, `action="`+action+`"`) {
			t.Errorf("%s offers a key to a viewer", path)
		}
	}
}
