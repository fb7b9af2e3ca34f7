package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

const ownerPassword = "a brook runs under the mill"

// A browser keeps cookies and sends the origin of a form. It does not follow redirects.
type browser struct {
	t      *testing.T
	origin string
	client *http.Client
}

func newBrowser(t *testing.T, origin string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{t, origin, &http.Client{Jar: jar, CheckRedirect: stay}}
}

// at returns the same browser at another node. Cookies do not depend on the port.
func (b *browser) at(origin string) *browser { return &browser{b.t, origin, b.client} }

func (b *browser) send(method, path string, form url.Values) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.origin+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.origin)
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

func (b *browser) get(path string) answer { b.t.Helper(); return b.send(http.MethodGet, path, nil) }

func (b *browser) post(path string, pairs ...string) answer {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.send(http.MethodPost, path, form)
}

func (b *browser) signIn(email, password string) answer {
	b.t.Helper()
	return b.post("/sign-in", "email", email, "password", password)
}

var setupLink = regexp.MustCompile(`(/setup/\S+)`)

// The first start prints a link. The first person who opens it becomes the owner and is
// signed in. A second start prints no link.
func TestFirstOwnerByLink(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	node := start(t, settings)
	link := node.await(node.out, setupLink)[1]
	b := newBrowser(t, node.origin)
	if a := b.get("/account").want(t, 303); !strings.HasPrefix(a.header.Get("Location"), "/sign-in") {
		t.Errorf("a stranger is sent to %q", a.header.Get("Location"))
	}
	b.get(link).want(t, 200)
	b.post(link, "email", "ann@example.com", "name", "Ann", "password", "short").want(t, 422)
	b.post(link, "email", "ann@example.com", "name", "Ann", "password", ownerPassword).want(t, 303)
	if again := newBrowser(t, node.origin).post(link, "email", "eve@example.com", "name", "Eve", "password", ownerPassword); again.status < 400 {
		t.Errorf("the link worked twice: %d", again.status)
	}

	b = newBrowser(t, node.origin)
	b.signIn("ann@example.com", ownerPassword+"?").want(t, 422)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)
	if page := b.get("/account").want(t, 200); !strings.Contains(page.body, "ann@example.com") || !strings.Contains(strings.ToLower(page.body), "owner") {
		t.Errorf("the account page does not say who is there:\n%s", page.body)
	}
	if err := node.end(); err != nil {
		t.Fatal(err)
	}
	again := start(t, settings)
	if text, _ := again.out.read(); strings.Contains(text, "/setup/") {
		t.Errorf("a set-up link although there is an owner:\n%s", text)
	}
	b.at(again.origin).get("/account").want(t, 200) // sessions are in the store
	for _, secret := range []string{ownerPassword, strings.TrimPrefix(link, "/setup/")} {
		for _, n := range []*running{node, again} {
			if logs, _ := n.logs.read(); strings.Contains(logs, secret) {
				t.Error("a secret is in the log")
			}
		}
	}
}

// Settings can create the first owner. They have no effect once an owner exists.
func TestFirstOwnerBySettings(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADMIN_EMAIL": "ops@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	}
	node := start(t, settings)
	newBrowser(t, node.origin).signIn("ops@example.com", ownerPassword).want(t, 303)
	if err := node.end(); err != nil {
		t.Fatal(err)
	}
	settings["HEADGATE_ADMIN_PASSWORD"] = ownerPassword + " and on"
	node = start(t, settings)
	b := newBrowser(t, node.origin)
	b.signIn("ops@example.com", ownerPassword+" and on").want(t, 422)
	b.signIn("ops@example.com", ownerPassword).want(t, 303)
}

// Commands create, disable and enable users while a node runs.
func TestUserCommands(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	node := start(t, settings)
	run := func(stdin string, args ...string) string {
		t.Helper()
		out, err := command(t, settings, stdin, args...)
		if err != nil {
			t.Fatalf("headgate %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	run(ownerPassword+"\n", "user", "create", "--email", "ann@example.com", "--role", "owner")
	run(ownerPassword+"\n", "user", "create", "--email", "tom@example.com", "--role", "tenant_viewer", "--tenant", sampleTenant)
	if list := run("", "user", "list"); !strings.Contains(list, "ann@example.com") || strings.Contains(list, "tom@example.com") {
		t.Errorf("the operator's people:\n%s", list)
	}
	if list := run("", "user", "list", "--tenant", sampleTenant); !strings.Contains(list, "tom@example.com") || strings.Contains(list, "ann@example.com") {
		t.Errorf("the tenant's people:\n%s", list)
	}
	tom := newBrowser(t, node.origin)
	tom.signIn("tom@example.com", ownerPassword).want(t, 303)
	tom.get("/account").want(t, 200)
	run("", "user", "disable", "--tenant", sampleTenant, "tom@example.com")
	tom.get("/account").want(t, 303)
	tom.signIn("tom@example.com", ownerPassword).want(t, 422)
	run("", "user", "enable", "--tenant", sampleTenant, "tom@example.com")
	tom.signIn("tom@example.com", ownerPassword).want(t, 303)
	run("", "user", "role", "--tenant", sampleTenant, "tom@example.com", "tenant_admin")
	tom.get("/account").want(t, 303) // a changed role ends the session

	link := strings.TrimSpace(run("", "user", "invite", "--email", "bob@example.com", "--role", "viewer", "--public-url", node.origin))
	bob := newBrowser(t, node.origin)
	bob.post(strings.TrimPrefix(link, node.origin), "name", "Bob", "password", ownerPassword).want(t, 303)
	link = strings.TrimSpace(run("", "user", "link", "bob@example.com", "--public-url", node.origin))
	bob.post(strings.TrimPrefix(link, node.origin), "password", ownerPassword+" again").want(t, 303)
	newBrowser(t, node.origin).signIn("bob@example.com", ownerPassword+" again").want(t, 303)

	for _, wrong := range [][]string{
		{"user", "disable", "nobody@example.com"},
		{"user", "disable", "ann@example.com"}, // the last owner
		{"user", "create", "--email", "x@example.com", "--role", "tenant_admin"},
		{"user", "list", "--tenant", "nowhere"},
		{"user", "invite", "--email", "x@example.com", "--role", "viewer", "--public-url", "javascript:alert(1)"},
		{"user", "link", "ann@example.com", "--public-url", "limits.example.com"},
	} {
		if _, err := command(t, settings, ownerPassword+"\n", wrong...); err == nil {
			t.Errorf("headgate %s: no error", strings.Join(wrong, " "))
		}
	}
	if _, err := command(t, settings, "", "user", "create", "--email", "y@example.com", "--role", "owner"); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("no password: %v", err)
	}
	// A failed attempt to create a user leaves no invitation. With an invitation, the OpenID
	// provider could sign the person in.
	if _, err := command(t, settings, "short\n", "user", "create", "--email", "z@example.com", "--role", "owner"); err == nil {
		t.Error("a short password passed")
	}
	ann := newBrowser(t, node.origin)
	ann.signIn("ann@example.com", ownerPassword).want(t, 303)
	if page := ann.get("/people").want(t, 200); !strings.Contains(page.body, "ann@example.com") || strings.Contains(page.body, "z@example.com") {
		t.Errorf("an invitation is left:\n%s", page.body)
	}
}
