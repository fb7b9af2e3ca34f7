package web_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web"
)

// everyPage requests each page in each of its states.
func (w *world) everyPage(t *testing.T) map[string]reply {
	t.Helper()
	link := regexp.MustCompile(`value="http://[^"]*(/invite/[^"]+)"`)
	made := w.once(w.post("/people", "owner", url.Values{"email": {"new@people.example"}, "role": {"editor"}}), "owner")
	renew := w.once(w.post("/people/"+w.ids["viewer"]+"/link", "owner", nil), "owner")
	invite := link.FindStringSubmatch(made.body)
	choose := link.FindStringSubmatch(renew.body)
	if made.Code != http.StatusOK || invite == nil || renew.Code != http.StatusOK || choose == nil {
		t.Fatalf("invite: %d, new link: %d", made.Code, renew.Code)
	}
	bad := url.Values{"email": {"x"}, "role": {""}}
	return map[string]reply{
		"docs": w.get("/docs", ""), "problems": w.get("/docs/problems", ""), "problem": w.get("/docs/problems/no-policy", ""),
		"no problem": w.get("/docs/problems/none", ""), "nowhere": w.get("/none", "owner"), "stylesheet": w.get("/static/none.css", ""),
		"overview": w.get("/overview", "owner"), "narrow overview": w.get("/overview?tenant=none&policy=a&route=b", "owner"), "denials": w.get("/denials", "owner"),
		"narrow denials": w.get("/denials?tenant=none&attribute=x&decision=y&k.user=u0&live=0", "owner"), "own denials": w.get("/tenants/acme/denials", "acme-viewer"),
		"denial": w.get("/denials/"+w.ids["decision"], "owner"), "own denial": w.get("/tenants/acme/denials/"+w.ids["decision"], "acme-viewer"), "no denial": w.get("/denials/none", "owner"),
		"home": w.get("/", "owner"), "jump": w.get("/jump?q=o", "owner"), "no jump": w.get("/jump?q=%3Cb%3E", "acme-viewer"), "jump found": w.get("/jump/found?q=a", "owner"), "sign-in": w.get("/sign-in?next=/people", ""), "signed out": w.get("/sign-in?done=left", ""),
		"failed": w.post("/sign-in", "", url.Values{"email": {"x"}, "password": {"y"}}), "to sign-in": w.get("/account", ""),
		"set-up": w.get("/setup/none", ""), "invite": w.get(invite[1], ""), "choose": w.get(choose[1], ""), "dead": w.get("/invite/none", ""),
		"unfit": w.post(invite[1], "", url.Values{"name": {""}, "password": {"x"}}), "link": made, "new link": renew,
		"account": w.get("/account?done=renamed", "acme-admin"), "name": w.post("/account/name", "owner", url.Values{"name": {""}}),
		"password": w.post("/account/password", "owner", url.Values{"current_password": {"x"}, "password": {"y"}}),
		"people":   w.get("/people", "owner"), "search": w.get("/people?q=none", "viewer"), "uninvited": w.post("/people", "owner", bad),
		"person": w.get("/people/"+w.ids["editor"], "owner"), "self": w.get("/people/"+w.ids["owner"], "owner"),
		"role":    w.post("/people/"+w.ids["editor"]+"/role", "owner", url.Values{"role": {"none"}}),
		"remove":  w.post("/people/"+w.ids["editor"]+"/remove", "owner", url.Values{"confirm": {"x"}}),
		"members": w.get("/tenants/acme/members", "acme-viewer"), "member": w.get("/tenants/acme/members/"+w.ids["acme-viewer"], "editor"),
		"forbidden": w.get("/people", "acme-admin"), "foreign": w.get("/tenants/globex/members", "acme-admin"),
		"audit": w.get("/audit", "owner"), "filtered audit": w.get("/audit?tenant=none&kind=plan&actor=x&from=y", "viewer"), "own audit": w.get("/tenants/acme/audit", "acme-admin"),
		"line": w.get("/audit/"+w.ids["line"], "owner"), "own line": w.get("/tenants/acme/audit/"+w.ids["line"], "acme-viewer"), "audit file": w.get("/audit.csv", "owner"), "verified": w.post("/audit/verify", "viewer", nil),
		"system": w.get("/system", "viewer"), "retention": w.get("/settings/retention", "owner"), "roles": w.get("/settings/roles", "owner"), "about": w.get("/settings/about", "owner"),
		"operator keys": w.get("/settings/keys?done=key-revoked", "owner"), "new operator key": w.get("/settings/keys/new", "owner"), "bad operator key": w.post("/settings/keys", "owner", url.Values{"name": {""}}),
		"operator key": w.once(w.post("/settings/keys", "owner", url.Values{"name": {"x"}, "scope-read": {"on"}, "life": {"never"}}), "owner"),
		"shown before": w.get("/settings/keys/new/"+w.ids["line"], "owner"), "rotate": w.get("/settings/keys/"+w.ids["operator_key"]+"/rotate", "owner"), "revoke": w.get("/settings/keys/"+w.ids["operator_key"]+"/revoke", "owner"),
		"method": w.send("DELETE", "/account", "owner", nil), "field": w.post("/account/name", "owner", url.Values{"role": {"owner"}}),
		"explain": w.get("/explain", "owner"), "explained": w.get("/explain?tenant=acme&method=GET&path=/v1&k.user=u1", "viewer"), "unexplained": w.get("/explain?tenant=none&cost=x", "viewer"),
		"explain here": w.get("/tenants/acme/explain?path=/&more=1", "acme-viewer"), "playground": w.get("/playground", "acme-admin"), "unplayed": w.get("/playground?quota=x", "viewer"),
		"media": w.send("POST", "/account/name", "owner", nil, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }),
		"large": w.post("/account/name", "owner", url.Values{"name": {strings.Repeat("x", web.MaxForm)}}),
		"cross": w.send("POST", "/account/name", "owner", url.Values{"name": {"x"}}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
	}
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"

// Every page, including error pages, has all security headers, has no inline scripts or styles,
// and refers to no other host.
func TestEveryPageIsStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	statuses := map[int]bool{}
	for name, page := range w.everyPage(t) {
		statuses[page.Code] = true
		h := page.Header()
		for header, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
			"Strict-Transport-Security": "", // this is http
		} {
			if h.Get(header) != want || len(h.Values(header)) > 1 {
				t.Errorf("%s: %s is %q", name, header, h.Values(header))
			}
		}
		public := strings.HasPrefix(name, "docs") || strings.HasPrefix(name, "problem") || name == "no problem"
		if !public && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control is %q", name, h.Get("Cache-Control"))
		}
		if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
			strict(t, name, page.tree(t))
		}
	}
	for _, status := range []int{200, 303, 400, 403, 404, 405, 410, 413, 415, 422} {
		if !statuses[status] {
			t.Errorf("no page answered %d", status)
		}
	}
}

// strict checks one page.
func strict(t *testing.T, name string, n *html.Node) {
	t.Helper()
	ids := map[string]bool{}
	for n := range n.Descendants() {
		if n.Type == html.TextNode && strings.Contains(n.Data, "@said(") || strings.Contains(n.Data, "@moment(") {
			t.Errorf("%s shows a template's own text: %q", name, n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "script" && attr(n, "type") != "application/json" && (!strings.HasPrefix(attr(n, "src"), "/static/") || n.FirstChild != nil) {
			t.Errorf("%s has a <script> that is not a file of ours", name)
		}
		if n.Data == "style" || n.Data == "iframe" || n.Data == "object" || n.Data == "base" {
			t.Errorf("%s has <%s>", name, n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
				t.Errorf("%s: <%s> has %s", name, n.Data, a.Key)
			case a.Key == "id" && ids[a.Val]:
				t.Errorf("%s has the id %q twice", name, a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			case (a.Key == "href" || a.Key == "src" || a.Key == "action") && !regexp.MustCompile(`^(/([^/]|$)|#)`).MatchString(a.Val):
				t.Errorf("%s: <%s> leads to %q", name, n.Data, a.Val)
			}
		}
	}
	labelled(t, name, n, ids)
}

// labelled checks the forms of a page: each field has a label, and the element that describes
// the field exists.
func labelled(t *testing.T, name string, page *html.Node, ids map[string]bool) {
	t.Helper()
	labels := map[string]bool{}
	for n := range page.Descendants() {
		if n.Data == "label" {
			labels[attr(n, "for")] = true
		}
	}
	for n := range page.Descendants() {
		if n.Data != "input" || attr(n, "type") == "hidden" || attr(n, "type") == "radio" || has(n, "hidden") {
			continue
		}
		if !labels[attr(n, "id")] {
			t.Errorf("%s: the field %q has no label", name, attr(n, "name"))
		}
		for _, id := range strings.Fields(attr(n, "aria-describedby")) {
			if !ids[id] {
				t.Errorf("%s: %q is described by %q, which is not there", name, attr(n, "name"), id)
			}
		}
		if attr(n, "type") == "password" && (attr(n, "value") != "" || attr(n, "autocomplete") == "") {
			t.Errorf("%s: the password field %q is filled in, or nothing can fill it in", name, attr(n, "name"))
		}
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Key == key {
			return true
		}
	}
	return false
}

// If a page fails, it does not show why. The log has the error with the same request ID.
func TestAPageThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.store.Close())
	page := w.get("/account", "owner")
	if page.Code < 500 || !strings.Contains(page.Header().Get("Content-Type"), "text/html") || page.Header().Get("Content-Security-Policy") != policy {
		t.Fatalf("%d %v", page.Code, page.Header())
	}
	strict(t, "failed", page.tree(t))
	id := page.Header().Get(web.RequestIDHeader)
	if id == "" || !strings.Contains(page.body, id) || !strings.Contains(w.log.String(), id) || strings.Contains(page.body, "sql") {
		t.Errorf("request %q\n%s\n%s", id, page.body, w.log)
	}
}

// With TLS, on the node or on a proxy, the cookie has the prefix __Host- and is only sent over
// TLS. Every cookie has the strictest attributes that are possible.
func TestCookies(t *testing.T) {
	t.Parallel()
	in := url.Values{"email": {"editor@people.example"}, "password": {password}}
	behindTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	for name, c := range map[string]struct {
		public string
		change func(*http.Request)
		https  bool
	}{
		"http":        {"", func(*http.Request) {}, false},
		"https":       {"", behindTLS, true},
		"proxy":       {"https://limits.example", func(*http.Request) {}, true},
		"proxy, caps": {"HTTPS://limits.example", func(*http.Request) {}, true},
	} {
		w := newWorld(t, func(cfg *config) { cfg.shell.PublicURL = c.public })
		cookieName := "headgate"
		if c.https {
			cookieName = "__Host-headgate"
		}
		origin := func(r *http.Request) {
			c.change(r)
			if c.https {
				r.Header.Set("Origin", "https://limits.example")
			}
		}
		signIn := w.send("POST", "/sign-in", "", in, origin)
		with := func(r *http.Request) {
			origin(r)
			r.AddCookie(&http.Cookie{Name: cookieName, Value: signIn.cookie()})
		}
		replies := map[string]reply{
			"sign-in": signIn, "account": w.send("GET", "/account", "", nil, with),
			"password": w.send("POST", "/account/password", "", url.Values{"current_password": {password}, "password": {"nine loud geese at noon"}}, with),
		}
		with = func(r *http.Request) {
			origin(r)
			r.AddCookie(&http.Cookie{Name: cookieName, Value: replies["password"].cookie()})
		}
		replies["sign-out"] = w.send("POST", "/sign-out", "", url.Values{}, with)
		if replies["account"].Code != http.StatusOK || signIn.cookie() == "" {
			t.Errorf("%s: sign-in %d, account %d", name, signIn.Code, replies["account"].Code)
		}
		for page, r := range replies {
			// A sign-in also sets a cookie that recognizes the browser later.
			sets := map[string]int{"account": 0, "sign-in": 2, "password": 1, "sign-out": 1}[page]
			if len(r.Result().Cookies()) != sets {
				t.Errorf("%s, %s: %d and the cookies %v", name, page, r.Code, r.Result().Cookies())
			}
			for i, cookie := range r.Result().Cookies() {
				raw := r.Result().Header.Values("Set-Cookie")[i]
				marks := page == "sign-in" && cookie.Name == cookieName+"-browser"
				if cookie.Name != cookieName && !marks || cookie.Path != "/" || cookie.Domain != "" || !cookie.HttpOnly ||
					cookie.Secure != c.https || cookie.SameSite != http.SameSiteLaxMode || !cookie.Expires.IsZero() ||
					len(raw) >= 4096 || (cookie.MaxAge == -1) != (page == "sign-out") || (cookie.MaxAge > 0) != marks {
					t.Errorf("%s, %s: %s", name, page, raw)
				}
			}
			want := ""
			if c.https {
				want = "max-age=31536000"
			}
			if got := r.Header().Get("Strict-Transport-Security"); got != want {
				t.Errorf("%s, %s: HSTS %q", name, page, got)
			}
		}
	}
}

// Every write rejects requests from another site, and from a browser that does not send its
// origin. A GET to the URL of a write changes nothing.
func TestWritesOfOtherSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := func() string {
		users, err := w.people.Users(t.Context(), ownerOf(w), "", usersFilter)
		must(t, err)
		members, err := w.people.Users(t.Context(), ownerOf(w), w.ids["acme"], usersFilter)
		must(t, err)
		open, err := w.people.Invitations(t.Context(), ownerOf(w), "")
		must(t, err)
		return fmt.Sprint(users, members, open)
	}
	before := state()
	form := url.Values{
		"email": {"z@people.example"}, "role": {"viewer"}, "name": {"Z"}, "password": {"nine loud geese at noon"},
		"current_password": {password}, "confirm": {"viewer@people.example"},
	}
	del := func(names ...string) func(*http.Request) {
		return func(r *http.Request) {
			for _, n := range names {
				r.Header.Del(n)
			}
		}
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	variants := map[string][]func(*http.Request){
		"foreign origin": {del("Sec-Fetch-Site"), set("Origin", "https://evil.example")},
		"null origin":    {del("Sec-Fetch-Site"), set("Origin", "null")},
		"cross-site":     {set("Sec-Fetch-Site", "cross-site")},
		"same-site":      {set("Sec-Fetch-Site", "same-site")},
		"neither":        {del("Sec-Fetch-Site", "Origin")},
	}
	for _, r := range w.table(t) {
		if r.Method != http.MethodPost {
			continue
		}
		for name, change := range variants {
			got := w.send("POST", w.at(r.Path), "owner", form, change...)
			if got.Code != http.StatusForbidden || len(got.Result().Cookies()) > 0 {
				t.Errorf("POST %s, %s: %d", r.Path, name, got.Code)
			}
		}
		w.get(w.at(r.Path)+"?"+form.Encode(), "owner")
		w.send("HEAD", w.at(r.Path)+"?"+form.Encode(), "owner", nil)
		for _, media := range []string{"text/plain", "application/json", "multipart/form-data; boundary=x", ""} {
			got := w.send("POST", w.at(r.Path), "owner", form, func(r *http.Request) { r.Header.Set("Content-Type", media) })
			if got.Code != http.StatusUnsupportedMediaType {
				t.Errorf("POST %s as %q: %d", r.Path, media, got.Code)
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("something was changed:\n%s\n%s", before, after)
	}
	if page := w.get("/account", "owner"); page.Code != http.StatusOK {
		t.Errorf("the session is gone: %d", page.Code)
	}
}

// A write accepts only the fields of its page.
func TestFieldsBesideTheForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range w.table(t) {
		if r.Method != http.MethodPost {
			continue
		}
		for _, extra := range []string{"id", "tenant", "tenant_id", "created_by", "disabled", "revision"} {
			if extra == "revision" && strings.HasPrefix(r.Path, "/plans/:plan/") {
				continue // what it changes has one
			}
			if extra == "tenant" && strings.HasPrefix(r.Path, "/alerts/rules") {
				continue // a rule of the operator can name a tenant
			}
			if got := w.post(w.at(r.Path), "owner", url.Values{extra: {"1"}}); got.Code != http.StatusBadRequest {
				t.Errorf("POST %s with %s: %d", r.Path, extra, got.Code)
			}
		}
		if got := w.send("POST", w.at(r.Path)+"?name=x", "owner", url.Values{}); got.Code != http.StatusBadRequest {
			t.Errorf("POST %s with a query: %d", r.Path, got.Code)
		}
	}
}

// A sign-in only redirects to pages of the dashboard, for every value in the form.
func TestNextStaysHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ next, want string }{
		{"", "/"},
		{"/account", "/account"},
		{"/people", "/people"},
		{"/tenants/acme/members", "/tenants/acme/members"},
		{"/people/" + w.ids["viewer"], "/people/" + w.ids["viewer"]},
		{"//evil.example", "/"},
		{"/\\evil.example", "/"},
		{"https://evil.example/account", "/"},
		{"javascript:alert(1)", "/"},
		{"/account/../../evil", "/"},
		{"/people/..", "/"},
		{"/tenants/%2f%2fevil.example/members", "/"},
		{"/account?next=//evil.example", "/"},
		{"/account?done=password", "/"},
		{"/denials?k.user=a%26b&range=24h", "/denials?k.user=a%26b&range=24h"},
		{"/overview?tenant=acme\r\nSet-Cookie: a=b", "/overview?tenant=acme%0D%0ASet-Cookie%3A+a%3Db"},
		{"/overview?%zz", "/"},
		{"//evil.example/overview?range=24h", "/"},
		{"/overview?q=" + strings.Repeat("x", 3000), "/"},
		{"/account\r\nSet-Cookie: a=b", "/"},
		{" /account", "/"},
		{"/sign-out", "/"},
		{"/v1/tenants", "/"},
		{"/sign-in", "/"},
	} {
		in := w.post("/sign-in", "", url.Values{"email": {"editor@people.example"}, "password": {password}, "next": {c.next}})
		if got := in.Header().Get("Location"); in.Code != http.StatusSeeOther || got != c.want {
			t.Errorf("next %q leads to %d %q, want %q", c.next, in.Code, got, c.want)
		}
		if page := w.get("/sign-in?next="+url.QueryEscape(c.next), "owner"); page.Header().Get("Location") != c.want {
			t.Errorf("signed in, next %q leads to %q", c.next, page.Header().Get("Location"))
		}
	}
	// A person who opens a link without a session gets to its page after the sign-in, with the
	// same filters.
	for address, want := range map[string]string{
		"/denials?range=24h&k.user=a%26b": "/denials?k.user=a%26b&range=24h", "/overview?next=/x": "/overview", "/people": "/people",
	} {
		away := w.get(address, "").Header().Get("Location")
		if page := w.get(away, "owner"); page.Header().Get("Location") != want {
			t.Errorf("%s leads by %s to %s, want %s", address, away, page.Header().Get("Location"), want)
		}
	}
}

// The cookie before a sign-in is never the session after it, and an ended session stays
// ended.
func TestFixationAndReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := func(name, with string) string {
		t.Helper()
		got := w.post("/sign-in", with, url.Values{"email": {name + "@people.example"}, "password": {password}})
		if got.Code != http.StatusSeeOther || got.cookie() == "" || got.cookie() == with {
			t.Fatalf("sign in as %s: %d, cookie %q", name, got.Code, got.cookie())
		}
		return got.cookie()
	}
	alive := func(what, cookie string, want bool) {
		t.Helper()
		if got := w.get("/account", cookie); (got.Code == http.StatusOK) != want {
			t.Errorf("%s: %d", what, got.Code)
		}
	}
	planted := strings.Repeat("B", 42) + "A"
	first := in("editor", planted)
	alive("a planted cookie after sign-in", planted, false)
	alive("the session", first, true)

	second := in("editor", first)
	alive("the session before signing in again", first, false)
	w.post("/sign-out", second, nil)
	alive("after sign-out", second, false)

	here, there := in("editor", ""), in("editor", "")
	changed := w.post("/account/password", here, url.Values{"current_password": {password}, "password": {"nine loud geese at noon"}})
	if changed.Code != http.StatusSeeOther || changed.cookie() == "" || changed.cookie() == here {
		t.Fatalf("password: %d %q", changed.Code, changed.cookie())
	}
	alive("this session's old cookie after a new password", here, false)
	alive("another session after a new password", there, false)
	alive("this session's new cookie", changed.cookie(), true)

	for what, change := range map[string]reply{
		"role":    w.post("/people/"+w.ids["editor"]+"/role", "owner", url.Values{"role": {"viewer"}}),
		"disable": w.post("/tenants/acme/members/"+w.ids["acme-admin"]+"/disable", "owner", nil),
		"remove":  w.post("/tenants/acme/members/"+w.ids["acme-viewer"]+"/remove", "owner", url.Values{"confirm": {"ACME-viewer@people.example"}}),
	} {
		if change.Code != http.StatusSeeOther {
			t.Errorf("%s: %d %s", what, change.Code, change.body)
		}
	}
	alive("after a change of role", changed.cookie(), false)
	alive("after being disabled", "acme-admin", false)
	alive("after being removed", "acme-viewer", false)

	viewer := in("viewer", "")
	ended := w.post("/account/sessions/end-others", viewer, nil)
	if ended.Code != http.StatusSeeOther {
		t.Errorf("end others: %d", ended.Code)
	}
	alive("one of the others", "viewer", false)
	alive("this one", viewer, true)

	w.now.Add((31 * time.Minute).Microseconds())
	alive("after half an hour of nothing", viewer, false)
}

// A person can end only their own sessions by ID.
func TestEndOneSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.post("/sign-in", "", url.Values{"email": {"viewer@people.example"}, "password": {password}}).cookie()
	ids := regexp.MustCompile(`/account/sessions/([0-9a-f-]{36})/end`).FindStringSubmatch(w.get("/account", "viewer").body)
	if ids == nil {
		t.Fatal("the page does not offer to end the other session")
	}
	if got := w.post(ids[0], "editor", nil); got.Code != http.StatusNotFound {
		t.Errorf("somebody else's session: %d", got.Code)
	}
	if got := w.get("/account", other); got.Code != http.StatusOK {
		t.Errorf("the session was ended: %d", got.Code)
	}
	if got := w.post(ids[0], "viewer", nil); got.Code != http.StatusSeeOther {
		t.Errorf("end: %d", got.Code)
	}
	if got := w.get("/account", other); got.Code != http.StatusSeeOther {
		t.Errorf("the session goes on: %d", got.Code)
	}
}

// The response does not show whether an account exists, below and above the limit of attempts.
func TestSignInTellsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for try := range 6 {
		var pages []string
		for _, name := range []string{"editor", "nobody"} {
			email := name + "@people.example"
			got := w.send("POST", "/sign-in", "", url.Values{"email": {email}, "password": {"wrong"}}, func(r *http.Request) { r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", try+1) })
			h := got.Header().Clone()
			h.Del(web.RequestIDHeader)
			pages = append(pages, fmt.Sprint(got.Code, h, strings.ReplaceAll(got.body, email, "")))
			want := http.StatusUnprocessableEntity
			if try >= 5 {
				want = http.StatusTooManyRequests
			}
			if got.Code != want || (got.Header().Get("Retry-After") != "") != (try >= 5) {
				t.Errorf("try %d of %s: %d %v", try, name, got.Code, got.Header())
			}
			if strings.Contains(got.body, "wrong\"") {
				t.Error("the password is in the form again")
			}
		}
		if pages[0] != pages[1] {
			t.Errorf("the answers differ:\n%s\n%s", pages[0], pages[1])
		}
	}
}

// Failed sign-ins of others do not lock out a browser that signed in before.
func TestSignInFromAKnownBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := url.Values{"email": {"owner@people.example"}, "password": {password}}
	first := w.send("POST", "/sign-in", "", in)
	for range accounts.FailuresPerAccount {
		w.send("POST", "/sign-in", "", url.Values{"email": in["email"], "password": {"wrong"}})
	}
	if got := w.send("POST", "/sign-in", "", in); got.Code != http.StatusTooManyRequests {
		t.Errorf("an unknown browser: %d", got.Code)
	}
	known := func(r *http.Request) {
		for _, cookie := range first.Result().Cookies() {
			r.AddCookie(cookie)
		}
	}
	if got := w.send("POST", "/sign-in", "", in, known); got.Code != http.StatusSeeOther {
		t.Errorf("a known browser: %d", got.Code)
	}
}
