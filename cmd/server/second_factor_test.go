package main

import (
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
)

var appSecret = regexp.MustCompile(`name="secret"[^>]*value="([A-Z2-7]+)"|value="([A-Z2-7]+)"[^>]*name="secret"`)

// enroll adds the first authenticator app in the second step of a sign-in, and returns its secret. Its code is of the step before, so that two more
// sign-ins can follow within a minute.
func (b *browser) enroll() string {
	b.t.Helper()
	page := b.get("/sign-in/second/app").want(b.t, http.StatusOK)
	m := appSecret.FindStringSubmatch(html.UnescapeString(page.body))
	if m == nil {
		b.t.Fatalf("the page has no secret: %s", page.body)
	}
	secret := m[1] + m[2]
	for range 2 { // a new step may have begun
		a := b.post("/sign-in/second/app", "secret", secret, "code", appCode(b.t, secret, -1), "name", "Phone")
		if a.status == http.StatusSeeOther {
			return secret
		}
	}
	b.t.Fatal("the code of the app was not accepted")
	return ""
}

func appCode(t *testing.T, secret string, steps int) string {
	t.Helper()
	code, err := totp.GenerateCode(secret, time.Now().Add(time.Duration(steps)*30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// Issue 13: a person of a role that requires a second factor is led to add one, and can do nothing before.
func TestRequiredSecondFactor(t *testing.T) {
	t.Parallel()
	database := sqliteIn(t.TempDir())
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": database, "HEADGATE_ADMIN_EMAIL": "ops@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
		"HEADGATE_REQUIRE_SECOND_FACTOR": "owner,editor",
	})
	b := newBrowser(t, node.origin)
	leads := func(a answer, to string) {
		t.Helper()
		if at := a.header.Get("Location"); a.status != http.StatusSeeOther || !strings.HasPrefix(at, to) {
			t.Errorf("%d to %q, want %q", a.status, at, to)
		}
	}
	leads(b.post("/sign-in", "email", "ops@example.com", "password", ownerPassword, "next", "/plans"), "/sign-in/second?next=%2Fplans")
	if page := b.get("/sign-in/second").want(t, http.StatusOK); !strings.Contains(page.body, `href="/sign-in/second/app`) || strings.Contains(page.body, `name="code"`) {
		t.Errorf("the second step does not lead to a new second factor: %s", page.body)
	}
	pages := []string{"/overview", "/plans", "/tenants", "/people", "/audit", "/system", "/settings", "/alerts", "/account", "/account/second-factor"}
	for _, page := range pages {
		leads(b.get(page), "/sign-in?next=")
	}
	for _, write := range []string{"/account/name", "/tenants", "/people"} {
		leads(b.post(write, "name", "x", "slug", "x", "email", "x@example.com", "role", "owner"), "/sign-in")
	}
	if a := b.post("/sign-in/second", "code", "000000"); a.status == http.StatusSeeOther {
		t.Errorf("a code without an app: %d", a.status)
	}
	for _, page := range pages {
		leads(b.get(page), "/sign-in?next=")
	}
	b.enroll()
	for _, page := range pages[:4] {
		b.get(page).want(t, http.StatusOK)
	}
	if page := b.get("/account/second-factor").want(t, http.StatusOK); !strings.Contains(page.body, "Phone") {
		t.Error("the account does not list the app")
	}

	// A role that is not named signs in with the password alone.
	settings := map[string]string{"HEADGATE_DATABASE_URL": database}
	if _, err := command(t, settings, ownerPassword+"\n", "user", "create", "--email", "vera@example.com", "--role", "viewer"); err != nil {
		t.Fatal(err)
	}
	viewer := newBrowser(t, node.origin)
	leads(viewer.signIn("vera@example.com", ownerPassword), "/")
	viewer.get("/overview").want(t, http.StatusOK)
}

// Issue 13: HEADGATE_SECRETS_KEY is replaced. Apps that were added before verify with the old key beside the new one, and after the command with the
// new key alone.
func TestRotateSecretsKey(t *testing.T) {
	t.Parallel()
	oldKey, newKey := strings.Repeat("old ", 8), strings.Repeat("new ", 8)
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADMIN_EMAIL": "ops@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
		"HEADGATE_REQUIRE_SECOND_FACTOR": "owner", "HEADGATE_SECRETS_KEY": oldKey,
	}
	var secret string
	with := func(key, former string, use func(b *browser)) {
		t.Helper()
		settings["HEADGATE_SECRETS_KEY"], settings["HEADGATE_SECRETS_KEY_OLD"] = key, former
		node := start(t, settings)
		b := newBrowser(t, node.origin)
		b.signIn("ops@example.com", ownerPassword).want(t, http.StatusSeeOther)
		use(b)
		if err := node.end(); err != nil {
			t.Fatal(err)
		}
	}
	second := func(steps, status int) func(b *browser) {
		return func(b *browser) {
			t.Helper()
			b.post("/sign-in/second", "code", appCode(t, secret, steps)).want(t, status)
		}
	}
	with(oldKey, "", func(b *browser) { secret = b.enroll() })
	with(newKey, "", second(0, http.StatusServiceUnavailable)) // the key alone was replaced
	with(newKey, oldKey, second(0, http.StatusSeeOther))

	reencrypt := func(want string, more ...string) {
		t.Helper()
		out, err := command(t, settings, "", append([]string{"secrets", "reencrypt"}, more...)...)
		if fields := strings.Join(strings.Fields(out), " "); !strings.HasPrefix(fields, "REENCRYPTED CURRENT UNREADABLE "+want) || (err != nil) != strings.HasSuffix(want, "1") {
			t.Errorf("secrets reencrypt %v: %s, %v; want %s", more, fields, err, want)
		}
	}
	settings["HEADGATE_SECRETS_KEY_OLD"] = ""
	reencrypt("0 0 1")
	settings["HEADGATE_SECRETS_KEY_OLD"] = oldKey
	reencrypt("1 0 0", "--dry-run")
	reencrypt("1 0 0")
	reencrypt("0 1 0")
	settings["HEADGATE_SECRETS_KEY_OLD"] = ""
	reencrypt("0 1 0")
	with(newKey, "", second(1, http.StatusSeeOther)) // and the old key is gone

	for name, c := range map[string]struct{ key, former, want string }{
		"the same key":      {newKey, newKey, "HEADGATE_SECRETS_KEY_OLD: is the same"},
		"a short key":       {newKey, "short", "HEADGATE_SECRETS_KEY_OLD: must have at least 32"},
		"without a new key": {"", oldKey, "HEADGATE_SECRETS_KEY"},
	} {
		settings["HEADGATE_SECRETS_KEY"], settings["HEADGATE_SECRETS_KEY_OLD"] = c.key, c.former
		if _, err := command(t, settings, "", "secrets", "reencrypt"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The variables and the keys of a configuration file that docs/settings.md names as secrets are known. HEADGATE_SECRETS_KEY was not.
func TestSecretSettingsAreKnown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(HEADGATE_\\w+)`, `HEADGATE_\\w+_FILE` \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 8 {
		t.Fatalf("docs/settings.md names %d secrets", len(rows))
	}
	folder := t.TempDir()
	for _, row := range rows {
		name := row[1]
		for _, variable := range []string{name + "=x", name + "_FILE=x"} {
			p := program{
				getenv: func(string) string { return "" }, environ: func() []string { return []string{variable} },
				stdout: io.Discard, stderr: io.Discard,
			}
			if err := p.run(t.Context(), []string{"version"}); err != nil {
				t.Errorf("%s: %v", variable, err)
			}
		}
		file := filepath.Join(folder, strings.ToLower(name)+".yaml")
		key := strings.ToLower(strings.TrimPrefix(name, "HEADGATE_"))
		if err := os.WriteFile(file, []byte(key+": x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if !configHasSecrets(file) {
			t.Errorf("%s is not taken for a secret", key)
		}
	}
}
