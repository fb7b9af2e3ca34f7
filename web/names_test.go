package web_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/tenants"
)

var usersFilter = accounts.UserFilter{Limit: 100}

func ownerOf(w *world) accounts.Principal {
	return accounts.Principal{Kind: "user", ID: w.ids["owner"], Role: accounts.Owner}
}

// payloads are texts that become something else on a page that does not escape them.
var payloads = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `<svg/onload=alert(1)>`, `"><script>alert(1)</script>`,
	`'><script>alert(1)</script>`, `" onmouseover="alert(1)`, `' onmouseover='alert(1)`, `" autofocus onfocus="alert(1)`, `x" style="color:red`,
	`</title><script>alert(1)</script>`, `</textarea><script>alert(1)</script>`, `</style><script>alert(1)</script>`, `</script><script>alert(1)</script>`, `<!--<img src="--><img src=x onerror=alert(1)>">`,
	`<iframe src=javascript:alert(1)>`, `<a href="javascript:alert(1)">x</a>`, `javascript:alert(1)`, `JaVaScRiPt:alert(1)`, `data:text/html,<script>alert(1)</script>`,
	`<math><mi//xlink:href="data:x,<script>alert(1)</script>">`, `<form action=//evil.example><button>x`, `<input autofocus onfocus=alert(1)>`, `<details open ontoggle=alert(1)>`, `<video><source onerror=alert(1)>`,
	`<body onload=alert(1)>`, `<object data=javascript:alert(1)>`, `<embed src=//evil.example>`, `<link rel=stylesheet href=//evil.example>`, `<base href=//evil.example>`,
	`<meta http-equiv=refresh content=0;url=//evil.example>`, `<template><script>alert(1)</script></template>`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`, `<xmp><img src=x onerror=alert(1)></xmp>`, `<plaintext>`,
	`&lt;script&gt;alert(1)&lt;/script&gt;`, `&#60;script&#62;alert(1)&#60;/script&#62;`, `&quot;onfocus=alert(1)`, `&amp;lt;img src=x onerror=alert(1)&amp;gt;`, `%3Cscript%3Ealert(1)%3C/script%3E`,
	`\u003cscript\u003ealert(1)\u003c/script\u003e`, `\x3cscript\x3ealert(1)`, `{{constructor.constructor('alert(1)')()}}`, `${alert(1)}`, `<%= 7*7 %>`,
	`#{7*7}`, `[[${7*7}]]`, `{ templ.Raw("<b>") }`, `hx-get="//evil.example"`, `" hx-on:click="alert(1)`,
	"<scr\u200bipt>alert(1)</scr\u200bipt>", "\ufeff<b>x</b>", "＜script＞alert(1)＜/script＞", "<\u0130mg src=x onerror=alert(1)>", "`onmouseover=alert(1)`",
	`<a/href=//evil.example>x`, `<p id="main">x</p>`, `<label for="password">x</label>`, `]]><script>alert(1)</script>`, `=HYPERLINK("//evil.example")`,
}

// shape returns a page without texts and values: its elements with the names of their
// attributes.
func shape(page *html.Node) string {
	var b strings.Builder
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			if attr(n, "class") == "escape" || attr(n, "title") == "similar letters from several alphabets" {
				return // marks for invisible characters
			}
			b.WriteString("<" + n.Data)
			for _, a := range n.Attr {
				b.WriteString(" " + a.Key)
			}
			b.WriteString(">")
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(page)
	return b.String()
}

// For every name, a page has the same elements and shows the name as text.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	if len(payloads) != 60 {
		t.Fatalf("%d payloads", len(payloads))
	}
	w := newWorld(t)
	var want map[string]string
	for n, payload := range append([]string{"plain"}, payloads...) {
		got := map[string]string{}
		for name, page := range w.named(t, payload) {
			tree := page.tree(t)
			got[name] = shape(tree)
			strict(t, name, tree)
		}
		if n == 0 {
			want = got
			continue
		}
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%q on the page %s:\n%s\nwant\n%s", payload, name, got[name], want[name])
			}
		}
	}
}

// named uses a text in every field that accepts it, and returns the pages that show it.
func (w *world) named(t *testing.T, text string) map[string]reply {
	t.Helper()
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "test", Name: text}, audit.Origin{})
	if saved := w.post("/account/name", "owner", url.Values{"name": {text}}); saved.Code != http.StatusSeeOther {
		t.Fatalf("the name %q: %d", text, saved.Code)
	}
	acme, err := w.tenants.Tenant(ctx, "acme")
	must(t, err)
	acme.Name = text
	_, err = w.tenants.UpdateTenant(ctx, "acme", acme.Document, acme.Revision)
	must(t, err)
	// The session is written to the store directly: a sign-in computes a slow hash, and there
	// are 60.
	session, err := w.store.CreateSession(ctx, accounts.Session{
		ID: uuid.Must(uuid.NewV7()).String(), Hash: sha256.Sum256([]byte(text)), UserID: w.ids["owner"], Address: "192.0.2.7", Agent: text,
		CreatedAt: w.clock(), SeenAt: w.clock(), ExpiresAt: w.clock().Add(time.Hour),
	}, audit.Entry{Actor: audit.Actor{Kind: "user", ID: w.ids["owner"], Name: text}, Action: "session.sign_in", Object: w.ids["owner"]})
	must(t, err)
	invitation, token, err := w.people.Invite(ctx, accounts.CommandPrincipal("test"), "", "plain@people.example", accounts.Viewer)
	must(t, err)
	defer func() {
		must(t, w.people.SignOut(ctx, accounts.User{ID: w.ids["owner"]}, session))
		must(t, w.people.Withdraw(ctx, accounts.CommandPrincipal("test"), "", invitation.ID))
	}()
	return map[string]reply{
		"account": w.get("/account", "owner"), "people": w.get("/people", "viewer"), "person": w.get("/people/"+w.ids["owner"], "viewer"),
		"search": w.get("/people?q="+url.QueryEscape("nobody-"+text), "owner"), "member's account": w.get("/account", "acme-admin"),
		"members": w.get("/tenants/acme/members", "editor"), "sign-in": w.get("/sign-in?next="+url.QueryEscape(text)+"&done="+url.QueryEscape(text), ""),
		"failed":    w.send("POST", "/sign-in", "", url.Values{"email": {text}, "password": {text}, "next": {text}}, func(r *http.Request) { r.RemoteAddr = w.nextAddress() }),
		"uninvited": w.post("/people", "owner", url.Values{"email": {"a b" + text}, "role": {text}}),
		"unfit":     w.post("/invite/"+token, "", url.Values{"name": {text + strings.Repeat("x", tenants.MaxName)}, "password": {string([]rune(text)[:1])}}),
		"remove":    w.post("/people/"+w.ids["editor"]+"/remove", "owner", url.Values{"confirm": {text}}),
		"role":      w.post("/people/"+w.ids["editor"]+"/role", "owner", url.Values{"role": {text}}),
		"nowhere":   w.get("/"+url.PathEscape(text), "owner"),
	}
}

// nextAddress returns a new IP address for each failed sign-in, so that no limit is reached.
func (w *world) nextAddress() string {
	return fmt.Sprintf("203.0.113.%d:1", w.now.Add(1)%250)
}

// Invisible characters are shown as escapes on the page.
func TestTricksAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if saved := w.post("/account/name", "owner", url.Values{"name": {"Ada\u202egnp.exe\u200b"}}); saved.Code != http.StatusSeeOther {
		t.Fatalf("%d", saved.Code)
	}
	page := w.get("/people", "viewer")
	if strings.ContainsAny(page.body, "\u202e\u200b") || !strings.Contains(page.body, ">U+202E</span>") || !strings.Contains(page.body, ">U+200B</span>") {
		t.Errorf("the name is not escaped:\n%s", page.body)
	}
	if saved := w.post("/account/name", "owner", url.Values{"name": {"Оwner"}}); saved.Code != http.StatusSeeOther {
		t.Fatalf("%d", saved.Code)
	}
	if page := w.get("/people", "viewer"); !strings.Contains(page.body, "mixed alphabets") {
		t.Error("a name of look-alikes is not marked")
	}
}

// A form with invalid values is shown again with all entered values except passwords. The error
// is at its field and in the list at the top.
func TestFormsKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, token, err := w.people.Invite(t.Context(), accounts.CommandPrincipal("test"), "", "new@people.example", accounts.Viewer)
	must(t, err)
	e := empty(t)
	setup, err := e.people.SetupLink(t.Context())
	must(t, err)
	for name, c := range map[string]struct {
		page   reply
		kept   string
		faulty []string
	}{
		"sign-in":  {w.post("/sign-in", "", url.Values{"email": {"typed@x"}, "password": {"secret-1"}}), "typed@x", []string{"password"}},
		"set-up":   {e.post("/setup/"+setup, "", url.Values{"email": {"typed"}, "name": {"Typed"}, "password": {"secret-1"}}), "Typed", []string{"email", "password"}},
		"join":     {w.post("/invite/"+token, "", url.Values{"name": {"Typed"}, "password": {"secret-1"}}), "Typed", []string{"password"}},
		"name":     {w.post("/account/name", "owner", url.Values{"name": {"   "}}), "   ", []string{"name"}},
		"password": {w.post("/account/password", "owner", url.Values{"current_password": {"secret-1"}, "password": {"secret-2"}}), "Owner", []string{"current_password"}},
		"short":    {w.post("/account/password", "owner", url.Values{"current_password": {password}, "password": {"secret-2"}}), "Owner", []string{"password"}},
		"invite":   {w.post("/people", "owner", url.Values{"email": {"typed"}, "role": {"none"}}), "typed", []string{"email", "role"}},
		"taken":    {w.post("/people", "owner", url.Values{"email": {"viewer@people.example"}, "role": {"viewer"}}), "viewer@people.example", []string{"email"}},
		"remove":   {w.post("/people/"+w.ids["editor"]+"/remove", "owner", url.Values{"confirm": {"typed"}}), "typed", []string{"confirm"}},
		"role":     {w.post("/people/"+w.ids["editor"]+"/role", "owner", url.Values{"role": {"tenant_admin"}}), "Editor", []string{"role"}},
	} {
		if c.page.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", name, c.page.Code)
		}
		if strings.Contains(c.page.body, "secret-") || !strings.Contains(c.page.body, c.kept) {
			t.Errorf("%s: the page has a password, or lost %q", name, c.kept)
		}
		links := map[string]bool{}
		invalid := map[string]bool{}
		for n := range c.page.tree(t).Descendants() {
			if attr(n, "aria-invalid") == "true" && attr(n, "aria-describedby") != "" {
				invalid[attr(n, "id")] = true
			}
			if n.Data == "a" {
				links[attr(n, "href")] = true
			}
		}
		for _, field := range c.faulty {
			if !invalid[field] || !links["#"+field] || !strings.Contains(c.page.body, `role="alert"`) {
				t.Errorf("%s: the fault of %s is not at its field (%v) or not in the list (%v)", name, field, invalid, links)
			}
		}
		if len(invalid) != len(c.faulty) {
			t.Errorf("%s: the fields %v are faulty, want %v", name, invalid, c.faulty)
		}
	}
}

// The last owner cannot be removed, and nobody can change their own role.
func TestLastOwnerAndOneself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, what := range []string{"role", "disable", "link", "remove"} {
		form := map[string]url.Values{"role": {"role": {"viewer"}}, "remove": {"confirm": {"owner@people.example"}}}[what]
		if got := w.post("/people/"+w.ids["owner"]+"/"+what, "owner", form); got.Code != http.StatusForbidden {
			t.Errorf("%s oneself: %d", what, got.Code)
		}
	}
	if page := w.get("/people/"+w.ids["owner"], "owner"); strings.Contains(page.body, "/remove") {
		t.Error("the page offers to remove oneself")
	}
}
