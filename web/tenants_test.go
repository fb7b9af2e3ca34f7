package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// addExceptions adds to acme a key, and an override, a list entry and a block for the
// policy tenant-total or one that its plan has.
func (w *world) addExceptions() {
	w.t.Helper()
	ctx := w.t.Context()
	k, _, err := w.tenants.CreateKey(ctx, "acme", tenants.NewKey{Name: "gateway", Scopes: []tenants.Scope{tenants.ScopeCheck}})
	must(w.t, err)
	t, err := w.tenants.Tenant(ctx, "acme")
	must(w.t, err)
	p, err := w.plans.Plan(ctx, t.Plan)
	must(w.t, err)
	policy := p.Draft.Policies()[0].Slug
	o, err := w.exceptions.CreateOverride(ctx, "acme", exceptions.NewOverride{Policy: policy, Factor: 2000, Reason: "launch week"})
	must(w.t, err)
	n, err := w.exceptions.CreateEntry(ctx, "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "203.0.113.0/24", Reason: "scrapers"})
	must(w.t, err)
	b, err := w.exceptions.CreateBlock(ctx, "acme", exceptions.NewBlock{Policy: policy, Reason: "abuse"})
	must(w.t, err)
	w.ids["key"], w.ids["override"], w.ids["entry"], w.ids["block"] = k.ID, o.ID, n.ID, b.ID
	must(w.t, w.watcher.Refresh(ctx))
}

// metered returns a plan with one policy for the whole tenant and one for each user.
func metered() plans.Content {
	return plans.Content{Name: "Metered", Policies: []plans.Policy{
		{Slug: "total", Limits: []enforcement.Limit{{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 100, Window: time.Hour}}},
		{
			Slug: "per-user", Match: plans.Match{Path: "/v1/search"}, CountBy: []string{"user"},
			Limits: []enforcement.Limit{{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Minute, Burst: 5}},
		},
	}}
}

func newMetered(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.publish("metered", metered(), "acme")
	return w
}

// to fails the test unless a reply redirects to a URL.
func to(t *testing.T, what string, r reply, location string) {
	t.Helper()
	if r.Code != http.StatusSeeOther || r.Header().Get("Location") != location {
		t.Fatalf("%s: %d %q, want %q\n%s", what, r.Code, r.Header().Get("Location"), location, r.body)
	}
}

// words returns the text of a page's main part, with single spaces.
func words(t *testing.T, r reply) string {
	t.Helper()
	var b strings.Builder
	for n := range r.tree(t).Descendants() {
		if attr(n, "id") != "main" {
			continue
		}
		for d := range n.Descendants() {
			if d.Type == html.TextNode {
				b.WriteString(d.Data + " ")
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// wrongIn returns the fields of a page that are marked as invalid.
func wrongIn(t *testing.T, r reply) string {
	t.Helper()
	var list []string
	for n := range r.tree(t).Descendants() {
		if attr(n, "aria-invalid") == "true" {
			list = append(list, attr(n, "id"))
		}
	}
	return strings.Join(list, " ")
}

// typedIn returns the value of a field of a page.
func typedIn(t *testing.T, r reply, name string) string {
	t.Helper()
	for n := range r.tree(t).Descendants() {
		if attr(n, "name") != name {
			continue
		}
		switch {
		case n.Data == "select":
			for o := range n.Descendants() {
				if has(o, "selected") {
					return attr(o, "value")
				}
			}
		case attr(n, "type") == "radio" && !has(n, "checked"):
		default:
			return attr(n, "value")
		}
	}
	return ""
}

// A tenant is created from the list by the form. The list has the counts of the last day
// for all its tenants.
func TestTenantsAreListedAndCreated(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	bad := w.post("/tenants", "editor", url.Values{"name": {"  "}, "slug": {"Not a slug"}, "plan": {"none"}, "no_policy": {"deny"}})
	if bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "name slug" || typedIn(t, bad, "slug") != "Not a slug" || typedIn(t, bad, "no_policy") != "deny" {
		t.Errorf("%d %q %q %q", bad.Code, wrongIn(t, bad), typedIn(t, bad, "slug"), typedIn(t, bad, "no_policy"))
	}
	for slug, field := range map[string]string{"acme": "slug", "new": "slug"} {
		if taken := w.post("/tenants", "editor", url.Values{"name": {"X"}, "slug": {slug}}); taken.Code != http.StatusUnprocessableEntity || wrongIn(t, taken) != field {
			t.Errorf("%s: %d %q", slug, taken.Code, wrongIn(t, taken))
		}
	}
	if unknown := w.post("/tenants", "editor", url.Values{"name": {"X"}, "slug": {"x"}, "plan": {"none"}}); unknown.Code != http.StatusUnprocessableEntity || wrongIn(t, unknown) != "plan" {
		t.Errorf("an unknown plan: %d %q", unknown.Code, wrongIn(t, unknown))
	}
	to(t, "create", w.post("/tenants", "editor", url.Values{"name": {"Initech"}, "slug": {"initech"}, "plan": {"metered"}, "no_policy": {"deny"}}), "/tenants/initech?done=tenant-created")
	made, err := w.tenants.Tenant(t.Context(), "initech")
	must(t, err)
	if made.Name != "Initech" || made.Plan != "metered" || made.NoPolicy != tenants.Deny {
		t.Errorf("%+v", made.Document)
	}
	w.decide("initech", enforcement.Check{Path: "/x", Cost: 100}, enforcement.Check{Path: "/x", Cost: 1}, enforcement.Check{Path: "/x", Cost: 1})
	w.flush()
	list := w.get("/tenants?q=INI", "viewer")
	if text := words(t, list); !strings.Contains(text, "Initech initech metered Active 3 66.7%") || strings.Contains(text, "Acme") || strings.Contains(text, "New tenant") {
		t.Errorf("%s", text)
	}
	if none := w.get("/tenants?q=nobody", "owner"); !strings.Contains(words(t, none), "No tenant name or slug contains: nobody") {
		t.Errorf("%s", words(t, none))
	}
	if all := words(t, w.get("/tenants", "owner")); !strings.Contains(all, "New tenant") || !strings.Contains(all, "Globex Inc. globex none Suspended 0 –") {
		t.Errorf("%s", all)
	}
}

// A tenant without a plan, and checks that no policy matched, are visible in
// the list, on the tenant's page, and on the System page.
func TestChecksWithoutAPolicyAreVisible(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	must(t, w.watcher.Refresh(t.Context()))
	_, err := w.tenants.CreateTenant(t.Context(), "bare", tenants.Document{Name: "Bare"})
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	planless := w.watcher.Current().Counts().Planless
	w.decide("bare", enforcement.Check{Path: "/x", Cost: 1}, enforcement.Check{Path: "/x", Cost: 1})
	w.flush()
	for path, want := range map[string]string{
		"/tenants?q=bare": "Bare bare none Active 2 2 without a policy",
		"/tenants/bare":   "no plan, so no policy limits its checks",
		"/system":         fmt.Sprintf("Checks that no policy limits Tenants without a plan %d Allowed without a policy, 24 h 2 Denied without a policy, 24 h 0", planless),
	} {
		if text := words(t, w.get(path, "owner")); !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in\n%s", path, want, text)
		}
	}
	if text := words(t, w.get("/tenants/bare", "owner")); !strings.Contains(text, "100% of requests · 2 without a policy") {
		t.Errorf("the tiles: %s", text)
	}
}

// A list with several pages shows each tenant once.
func TestTenantsByPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 50 + 3 {
		_, err := w.tenants.CreateTenant(t.Context(), "many-"+string(rune('a'+i/26))+string(rune('a'+i%26)), tenants.Document{Name: "Many"})
		must(t, err)
	}
	seen, next := map[string]int{}, "/tenants?q=many"
	for pages := 0; next != ""; pages++ {
		if pages > 2 {
			t.Fatal("the pages do not end")
		}
		page := w.get(next, "owner")
		next = ""
		for n := range page.tree(t).Descendants() {
			if n.Data == "a" && attr(n, "class") == "title" {
				seen[attr(n, "href")]++
			}
			if attr(n, "rel") == "next" {
				next = attr(n, "href")
			}
		}
	}
	if len(seen) != 50+3 {
		t.Errorf("%d tenants", len(seen))
	}
	for path, n := range seen {
		if n != 1 {
			t.Errorf("%s stands there %d times", path, n)
		}
	}
}

// The first page of a tenant shows the remaining quota by policy and key, and when it will be
// used up. Members of the tenant see the same.
func TestTenantHome(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	if empty := words(t, w.get("/tenants/acme", "acme-viewer")); !strings.Contains(empty, "100 per hour") || !strings.Contains(empty, "0 of 100 used") || !strings.Contains(empty, "No key has requests in the last hour.") {
		t.Errorf("%s", empty)
	}
	for range 5 {
		w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 1})
	}
	w.decide("acme", enforcement.Check{Path: "/v1/other", Cost: 45})
	w.flush()
	w.addExceptions()
	for _, caller := range []string{"owner", "acme-viewer"} {
		text := words(t, w.get("/tenants/acme", caller))
		for _, want := range []string{
			"plan metered · version 1", "200 per hour 50 of 200 used", "override until 28 Nov", "blocked until 28 Nov", "used up in", "per minute",
			"user u1", "10 per minute, bursts of 5", "Overrides 1 next ends in 7 days", "List entries 1 no end", "Blocks 1 next ends in 7 days",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not see %q:\n%s", caller, want, text)
			}
		}
	}
	if none := words(t, w.get("/tenants/globex", "globex-admin")); !strings.Contains(none, "Headgate counts nothing for a tenant without a plan") || !strings.Contains(none, "This tenant is suspended") {
		t.Errorf("%s", none)
	}
}

// The stream sends the remaining units and the traffic.
func TestTenantLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(cfg *config) { cfg.shell.Stopping = context.Background() })
	w.publish("metered", metered(), "acme")
	w.decide("acme", enforcement.Check{Path: "/v1/other", Cost: 45})
	w.flush()
	server := httptest.NewServer(w.handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/tenants/acme/live", nil)
	must(t, err)
	r.AddCookie(&http.Cookie{Name: "headgate", Value: w.cookies["acme-viewer"]})
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	missing := map[string]bool{"event: left": true, "event: tiles": true}
	lines := bufio.NewScanner(answer.Body)
	used := false
	for len(missing) > 0 && lines.Scan() {
		delete(missing, lines.Text())
		used = used || strings.Contains(lines.Text(), ">45<")
	}
	for !used && lines.Scan() {
		used = strings.Contains(lines.Text(), ">45<")
	}
	if len(missing) > 0 || !used {
		t.Errorf("the stream has not %v, or not what was used: %t, %v", missing, used, lines.Err())
	}
}

// The tabs and actions depend on the role.
func TestTenantsTabsByRole(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	tabs := func(caller, path string) string {
		var list []string
		for n := range w.get(path, caller).tree(t).Descendants() {
			if n.Data == "nav" && attr(n, "aria-label") == "Pages of the tenant" {
				for d := range n.Descendants() {
					if d.Type == html.TextNode && strings.TrimSpace(d.Data) != "" {
						list = append(list, d.Data)
					}
				}
			}
		}
		return strings.Join(list, " ")
	}
	for caller, settings := range map[string]bool{"owner": true, "viewer": false, "acme-admin": false, "acme-viewer": false} {
		got := tabs(caller, "/tenants/acme/keys")
		if strings.HasPrefix(caller, "acme-") {
			if got != "" {
				t.Errorf("%s has the pages twice: %s", caller, got)
			}
			continue
		}
		if strings.HasSuffix(got, " Tenant settings") != settings || !strings.HasPrefix(got, "Usage ") || !strings.Contains(got, " API keys Overrides Lists Blocks Grants Reservations Members") {
			t.Errorf("%s: %s", caller, got)
		}
	}
	for path, offers := range map[string]map[string]bool{
		"/tenants/acme/keys":      {"owner": true, "acme-admin": true, "viewer": false, "acme-viewer": false},
		"/tenants/acme/overrides": {"owner": true, "acme-admin": false, "viewer": false, "acme-viewer": false},
		"/tenants/acme/lists":     {"editor": true, "acme-admin": false, "viewer": false},
		"/tenants/acme/blocks":    {"editor": true, "acme-admin": false, "viewer": false},
		"/tenants/globex/keys":    {"globex-admin": false, "owner": true}, // the tenant is suspended
	} {
		for caller, want := range offers {
			if got := strings.Contains(w.get(path, caller).body, path+"/new"); got != want {
				t.Errorf("%s is offered more on %s: %t", caller, path, got)
			}
		}
	}
}

// If a list has more rows than are counted, the page says so.
func TestTenantHomeWithLongLists(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	for i := range web.MaxCountedExceptions + 1 {
		_, err := w.exceptions.CreateEntry(t.Context(), "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: strconv.Itoa(i), ExpiresAt: w.clock().Add(time.Hour)})
		must(t, err)
	}
	if text := words(t, w.get("/tenants/acme", "owner")); !strings.Contains(text, "List entries 500+ only the newest are counted Blocks 0") {
		t.Errorf("%s", text)
	}
}
