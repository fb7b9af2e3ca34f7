//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// cookies of a browser, by name.
func (b *browser) cookies() map[string]string {
	b.t.Helper()
	u, err := url.Parse(b.origin)
	if err != nil {
		b.t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range b.client.Jar.Cookies(u) {
		found[c.Name] = c.Value
	}
	return found
}

// session is the value of the session's cookie.
func (b *browser) session() string { b.t.Helper(); return b.cookies()["headgate"] }

// replay requests the account page with a copied session cookie.
func replay(t *testing.T, origin, session string) int {
	t.Helper()
	return call(t, "", "GET", origin+"/account", "", "Cookie", "headgate="+session).status
}

// Sessions are in the database. A session that ends on one node ends on all other nodes with
// the next request.
func TestSessionsOnTwoNodes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2, map[string]string{"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword})
	here, there := f.nodes[0].origin, f.nodes[1].origin

	// Session fixation: a cookie from before the sign-in is not valid as the session
	// afterwards.
	fixed := newBrowser(t, here)
	planted := strings.Repeat("A", 43)
	u, _ := url.Parse(here)
	fixed.client.Jar.SetCookies(u, []*http.Cookie{{Name: "headgate", Value: planted, Path: "/"}})
	fixed.signIn("ann@example.com", ownerPassword).want(t, 303)
	if fixed.session() == planted || replay(t, there, planted) != 303 {
		t.Error("the cookie from before the sign-in is the session")
	}

	first, second := newBrowser(t, here), newBrowser(t, here)
	first.signIn("ann@example.com", ownerPassword).want(t, 303)
	second.signIn("ann@example.com", ownerPassword).want(t, 303)
	first.at(there).get("/account").want(t, 200)
	second.at(there).get("/account").want(t, 200)

	// Signing out on one node ends the session on the other, also for a copy of the cookie.
	kept := second.session()
	second.at(there).post("/sign-out").want(t, 303)
	if got := replay(t, here, kept); got != 303 {
		t.Errorf("a signed-out session answers %d", got)
	}

	// A new password ends the other sessions and gives this one a new cookie.
	second.signIn("ann@example.com", ownerPassword).want(t, 303)
	other, before := second.session(), first.session()
	const next = "another brook, another mill"
	first.post("/account/password", "current_password", ownerPassword, "password", next).want(t, 303)
	for name, session := range map[string]string{"the other session": other, "the cookie of before": before, "the fixed one": fixed.session()} {
		if got := replay(t, there, session); got != 303 {
			t.Errorf("after a change of the password %s answers %d", name, got)
		}
	}
	first.at(there).get("/account").want(t, 200)

	// A changed role or a disabled account takes effect everywhere with the next request.
	settings := map[string]string{"HEADGATE_DATABASE_URL": f.databaseURL}
	if _, err := command(t, settings, ownerPassword+"\n", "user", "create", "--email", "bob@example.com", "--role", "owner"); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][]string{{"user", "role", "bob@example.com", "viewer"}, {"user", "disable", "bob@example.com"}} {
		bob := newBrowser(t, here)
		bob.signIn("bob@example.com", ownerPassword).want(t, 303)
		bob.at(there).get("/account").want(t, 200)
		if _, err := command(t, settings, "", change...); err != nil {
			t.Fatal(err)
		}
		if got := replay(t, there, bob.session()); got != 303 {
			t.Errorf("after %v the session answers %d", change, got)
		}
	}
}

// Failed sign-ins are counted over all nodes. After five for an address, the address must
// wait, whether an account exists or not, and with any password.
func TestSignInIsLimitedOverAllNodes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 2, map[string]string{"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword})
	for _, email := range []string{"ann@example.com", "nobody@example.com"} {
		for i := range 5 {
			newBrowser(t, f.nodes[i%2].origin).signIn(email, fmt.Sprint("a wrong password ", i)).want(t, 422)
		}
		for _, node := range f.nodes {
			a := newBrowser(t, node.origin).signIn(email, ownerPassword).want(t, 429)
			if a.header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", email)
			}
		}
	}
}

// A run that uses every secret does not write any of them to the output, the log or the
// database, at the most detailed log level.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 1, map[string]string{
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword, "HEADGATE_LOG_LEVEL": "debug",
	})
	origin := f.nodes[0].origin
	f.publish("plan", `[{"slug": "all", "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 1, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	const canary = "canary-71fd2c"
	secrets := []string{bootstrap, ownerPassword, canary}

	b := newBrowser(t, origin)
	b.signIn("ann@example.com", "wrong "+canary).want(t, 422)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)
	secrets = append(secrets, b.session())
	pages := b.get("/account").want(t, 200).body + b.get("/people").want(t, 200).body

	var key, operator struct{ Token string }
	call(t, bootstrap, "POST", origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["check", "read"]}`).want(t, 201).into(t, &key)
	for range 3 {
		call(t, key.Token, "POST", origin+"/v1/check", `{"path": "/x", "attributes": {"user": "`+canary+`"}}`)
	}
	call(t, key.Token, "POST", origin+"/v1/check", `{"tenant": "other"}`).want(t, 403)
	call(t, key.Token+"x", "GET", origin+"/v1/tenants/acme", "").want(t, 401)
	call(t, bootstrap, "POST", origin+"/v1/operator-keys", `{"name": "ops", "scopes": ["manage"]}`).want(t, 201).into(t, &operator)
	secrets = append(secrets, key.Token, operator.Token)
	metrics := call(t, "", "GET", origin+"/metrics", "").want(t, 200).body
	ready := call(t, "", "GET", origin+"/readyz?verbose", "").want(t, 200).body
	log := call(t, operator.Token, "GET", origin+"/v1/audit?limit=100", "").want(t, 200).body

	logs, _ := f.nodes[0].logs.read()
	for _, secret := range secrets {
		for where, text := range map[string]string{"the log": logs, "/metrics": metrics, "/readyz": ready, "the audit log": log, "pages": pages} {
			if strings.Contains(text, secret) {
				t.Errorf("%.12s… is in %s", secret, where)
			}
		}
	}
}
