package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/web"
)

var sharedAddress = regexp.MustCompile(`http://limits\.example(/shared/[\w-]{43})"`)

// share shares a page with the form of the page, and returns the path of the link.
func (w *world) share(page, by string, f url.Values) string {
	w.t.Helper()
	made := w.post(page+"/share", by, f)
	if made.Code != http.StatusSeeOther {
		w.t.Fatalf("share %s: %d %s", page, made.Code, made.body)
	}
	shown := w.once(made, by)
	found := sharedAddress.FindStringSubmatch(shown.body)
	if shown.Code != http.StatusOK || found == nil {
		w.t.Fatalf("the page of the link of %s: %d %s", page, shown.Code, shown.body)
	}
	return found[1]
}

// shareForm returns the fields of the form for a link that ends in a week.
func shareForm(kind sharing.Kind, query string) url.Values {
	return url.Values{"kind": {string(kind)}, "name": {"Lobby <1>"}, "life": {"7d"}, "until": {""}, "query": {query}}
}

// wantShared checks a page that a link opens: it contains the texts and leads to no other page.
func (w *world) wantShared(path string, texts ...string) string {
	w.t.Helper()
	got := w.get(path, "")
	if got.Code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", path, got.Code, got.body)
	}
	for _, text := range texts {
		if !strings.Contains(got.body, text) {
			w.t.Errorf("%s lacks %q", path, text)
		}
	}
	h := got.Header()
	if h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Robots-Tag") != "noindex, nofollow" || h.Get("Cache-Control") != "no-store" {
		w.t.Errorf("%s: the headers are %v", path, h)
	}
	for _, a := range elements(got.tree(w.t), "a") {
		if href := attr(a, "href"); href != "#main" {
			w.t.Errorf("%s: a link to %q", path, href)
		}
	}
	for _, name := range []string{"form", "button"} {
		if list := elements(got.tree(w.t), name); len(list) > 0 {
			w.t.Errorf("%s has a %s", path, name)
		}
	}
	for _, chart := range elements(got.tree(w.t), "hg-chart") {
		if zoom := attr(chart, "data-zoom"); zoom != "" {
			w.t.Errorf("%s: a chart zooms to %q", path, zoom)
		}
	}
	return got.body
}

// elements returns the elements of a page with a name.
func elements(page *html.Node, name string) (list []*html.Node) {
	for n := range page.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			list = append(list, n)
		}
	}
	return list
}

// figures returns the text of the main part of a page.
func figures(t *testing.T, page string) string {
	t.Helper()
	n, err := html.Parse(strings.NewReader(page))
	must(t, err)
	return textOf(elements(n, "main")[0])
}

// A snapshot shows the figures of the time when it was taken, to anyone who has the link, until
// it ends or is revoked.
func TestSharedSnapshots(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	for _, test := range []struct {
		page, by, query string
		texts           []string
	}{
		{"/overview", "editor", "tz=Europe%2FBerlin", []string{"Snapshot of 21 November 2026, 10:", "Europe/Berlin", "203.0.113.9", "Lobby"}},
		{"/overview", "owner", "range=6h&compare=1&by=policy", []string{"Snapshot of", "21 Nov 2026"}},
		{"/overview", "owner", "tenant=acme", []string{`<span class="chip-name">Tenant</span>`}},
		{"/tenants/acme", "acme-admin", "", []string{"Acme Inc.", "Top limited keys"}},
		{"/tenants/acme", "owner", "by=route", []string{"Acme Inc."}},
		{"/denials", "editor", "reason=limited", []string{ids["login"], "Over the limit"}},
		{"/denials", "owner", "group=key", []string{"203.0.113.66"}},
		{"/tenants/acme/denials", "acme-admin", "", []string{ids["other login"], "Denials · Acme Inc."}},
	} {
		path := w.share(test.page, test.by, shareForm(sharing.Snapshot, test.query))
		before := figures(t, w.wantShared(path, test.texts...))
		w.login("acme", "203.0.113.200", 6)
		w.flushNow()
		if after := figures(t, w.wantShared(path)); after != before {
			t.Errorf("%s?%s: the snapshot changed from\n%s\nto\n%s", test.page, test.query, before, after)
		}
		if strings.Contains(before, "203.0.113.200") && test.page == "/overview" && test.by == "editor" {
			t.Error("the first snapshot has later requests")
		}
	}
	path := w.share("/overview", "editor", shareForm(sharing.Snapshot, ""))
	w.wantShared(path)
	list, err := w.sharing.Links(t.Context(), "", sharing.Filter{Limit: 1})
	must(t, err)
	if !list[0].LastUsedAt.Equal(w.clock()) {
		t.Errorf("the last use of the link is %v", list[0].LastUsedAt)
	}
	if got := w.get("/settings/links", "viewer"); !strings.Contains(got.body, "Lobby &lt;1&gt;") || strings.Contains(got.body, "/revoke") ||
		strings.Contains(got.body, strings.TrimPrefix(path, "/shared/")) {
		t.Errorf("the list of a viewer: %d %s", got.Code, got.body)
	}
	revoke := "/settings/links/" + list[0].ID + "/revoke"
	if got := w.get("/settings/links", "editor"); !strings.Contains(got.body, revoke) {
		t.Errorf("the list of an editor: %d %s", got.Code, got.body)
	}
	if got := w.post(revoke, "editor", nil); got.Code != http.StatusSeeOther {
		t.Fatalf("revoke: %d %s", got.Code, got.body)
	}
	gone := w.get(path, "owner")
	unknown := w.get("/shared/"+strings.Repeat("A", 43), "owner")
	if gone.Code != http.StatusNotFound || gone.body != unknown.body {
		t.Errorf("a revoked link: %d %s", gone.Code, gone.body)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Group: "shared_link", Limit: 2})
	must(t, err)
	if len(lines) != 2 || lines[0].Action != "shared_link.revoke" || lines[1].Action != "shared_link.create" || lines[1].Actor.Name != "editor@people.example" {
		t.Errorf("audit lines: %+v", lines)
	}
	path = w.share("/overview", "editor", shareForm(sharing.Snapshot, ""))
	w.now.Add((7 * 24 * time.Hour).Microseconds())
	if got := w.get(path, ""); got.Code != http.StatusNotFound {
		t.Errorf("an expired link: %d", got.Code)
	}
}

// A snapshot of a tenant's page that one of the operator's people takes shows nothing that the
// tenant's people may not see.
func TestSharedPageOfATenantShowsWhatMembersSee(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t)
	rule, err := w.alerts.CreateRule(t.Context(), "", alerts.Document{Name: "Secret of the operator", Metric: alerts.Denials, Window: time.Minute, Threshold: 1})
	must(t, err)
	began := alerts.Incident{ID: audit.NewID(), RuleID: rule.ID, Rule: rule.Document, BeganAt: w.clock().Add(-time.Minute)}
	_, err = w.store.Advance(t.Context(), alerts.Advance{RuleID: rule.ID, Seq: 1, Began: []alerts.Incident{began}})
	must(t, err)
	if got := w.get("/tenants/acme", "owner"); !strings.Contains(got.body, rule.Name) {
		t.Fatal("the page of the owner does not mark the alert")
	}
	for _, kind := range []sharing.Kind{sharing.Snapshot, sharing.Display} {
		if body := w.wantShared(w.share("/tenants/acme", "owner", shareForm(kind, ""))); strings.Contains(body, rule.Name) {
			t.Errorf("%s: shows an alert of the operator", kind)
		}
	}
	got := w.get("/tenants/acme/links", "acme-viewer")
	if strings.Contains(got.body, "owner@people.example") || !strings.Contains(got.body, "operator") {
		t.Errorf("the list of a member names one of the operator's people: %s", got.body)
	}
	if got := w.get("/tenants/acme/links", "viewer"); !strings.Contains(got.body, "owner@people.example") {
		t.Errorf("the list of a viewer does not say who shared the page: %s", got.body)
	}
}

// A display shows live figures, and ends when its link is revoked or expires.
func TestSharedDisplays(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.shell.RecheckSessionsEvery(time.Millisecond)
	for page, owner := range map[string]string{"/overview": "", "/tenants/acme": "acme"} {
		path := w.share(page, "owner", shareForm(sharing.Display, "range=15m"))
		body := w.wantShared(path, "The last 15 minutes", `sse-connect="`+path+`/live"`, "203.0.113.9")
		if strings.Contains(body, "Snapshot of") {
			t.Errorf("%s: says that it is a snapshot", page)
		}
		events := w.listen(t, path+"/live", "")
		next(t, events, "the tiles", func(e event) bool { return e.name == "tiles" && !strings.Contains(e.data, "href=") })
		w.login("acme", "203.0.113.201", 6)
		w.flushNow()
		next(t, events, "a new key", func(e event) bool {
			if strings.Contains(e.data, "href=") {
				t.Errorf("%s: the event %s has a link: %s", page, e.name, e.data)
			}
			return e.name == "limited" && strings.Contains(e.data, "203.0.113.201")
		})
		list, err := w.sharing.Links(t.Context(), w.ids[owner], sharing.Filter{Limit: 1})
		must(t, err)
		must(t, w.sharing.Revoke(t.Context(), w.ids[owner], list[0].ID))
		ended := next(t, events, "the end", func(e event) bool { return e.name == "ended" })
		if !strings.Contains(ended.data, "This link has ended") {
			t.Errorf("%s: %s", page, ended.data)
		}
		next(t, events, "the close", func(e event) bool { return e.name == "closed" })
		for range events { // until it ends
		}
		again := w.listen(t, path+"/live", "")
		next(t, again, "the end of a display that connects again", func(e event) bool { return e.name == "ended" })
	}
	path := w.share("/overview", "owner", shareForm(sharing.Display, ""))
	events := w.listen(t, path+"/live", "")
	next(t, events, "the tiles", func(e event) bool { return e.name == "tiles" })
	w.now.Add((7 * 24 * time.Hour).Microseconds())
	next(t, events, "the end of an expired link", func(e event) bool { return e.name == "ended" })
}

// Displays count toward the bounds of live pages: those of one link, of its tenant, and of the node.
func TestSharedDisplaysAreBounded(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t)
	path := w.share("/tenants/acme", "acme-admin", shareForm(sharing.Display, ""))
	list, err := w.sharing.Links(t.Context(), w.ids["acme"], sharing.Filter{Limit: 1})
	must(t, err)
	if got := w.get(path+"/live", ""); got.Code != http.StatusOK {
		t.Errorf("a display: %d", got.Code)
	}
	w.shell.SetStreamsOf(list[0].ID, web.MaxOwnStreams)
	if got := w.get(path+"/live", ""); got.Code != http.StatusServiceUnavailable {
		t.Errorf("one display of the link too many: %d", got.Code)
	}
	w.shell.SetStreamsOf(list[0].ID, 0)
	w.shell.SetStreams(web.MaxStreams)
	if got := w.get(path+"/live", ""); got.Code != http.StatusServiceUnavailable {
		t.Errorf("one display of the node too many: %d", got.Code)
	}
}

// The form keeps what was typed, and says what is wrong.
func TestShareForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		page   string
		change url.Values
		says   string
	}{
		"no name":          {"/overview", url.Values{"name": {""}}, "Name must have"},
		"no kind":          {"/overview", url.Values{"kind": {"x"}}, "must be display or snapshot"},
		"too long":         {"/overview", url.Values{"kind": {"snapshot"}, "life": {"366d"}}, "must be at most 90 days from now"},
		"a past end":       {"/overview", url.Values{"life": {"at"}, "until": {"2026-11-20T00:00"}}, "must be in the future"},
		"a fixed time":     {"/overview", url.Values{"kind": {"display"}, "query": {"from=2026-11-20T00:00&to=2026-11-20T12:00"}}, "does not end now"},
		"a live list":      {"/denials", url.Values{"kind": {"display"}}, "must be overview"},
		"an unknown value": {"/overview", url.Values{"query": {"tenant=none"}}, "correct the page"},
	} {
		f := shareForm(sharing.Snapshot, "")
		for field, values := range test.change {
			f[field] = values
		}
		if got := w.post(test.page+"/share", "owner", f); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.body, test.says) {
			t.Errorf("%s: %d %s", name, got.Code, got.body)
		}
	}
	got := w.get("/overview?range=6h&tz=Europe%2FBerlin&live=0&done=renamed", "owner")
	if !strings.Contains(got.body, `href="/overview/share?range=6h&amp;tz=Europe%2FBerlin"`) {
		t.Errorf("the overview has no link to the form")
	}
	for _, path := range []string{"/overview", "/denials", "/tenants/acme"} {
		if got := w.get(path, "viewer"); got.Code != http.StatusOK || strings.Contains(got.body, "/share") {
			t.Errorf("%s offers a viewer to share the page", path)
		}
	}
	for range sharing.MaxLinks {
		_, _, _ = w.sharing.Create(t.Context(), "", sharing.Document{Name: "x", Kind: sharing.Display, Page: sharing.Overview, Zone: "UTC"})
	}
	if got := w.post("/overview/share", "owner", shareForm(sharing.Display, "")); got.Code != http.StatusConflict {
		t.Errorf("one link too many: %d", got.Code)
	}
}
