//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	chromium "github.com/headgate/headgate/internal/servertest/browser"
)

// printedKey matches a tenant's API key on a page.
var printedKey = regexp.MustCompile(`hg_tn_[0-9A-Za-z]+`)

// A walker uses the dashboard like a person: it fills in fields by their names and presses
// buttons by their texts.
type walker struct {
	*chromium.Browser
	t      *testing.T
	origin string
}

func walk(t *testing.T, origin string) *walker {
	t.Helper()
	return &walker{chromium.Start(t, origin), t, origin}
}

// open goes to a path, and fails when there is no page.
func (w *walker) open(path string) {
	w.t.Helper()
	if status := w.Open(w.origin + path); status != http.StatusOK {
		w.t.Fatalf("%s answers %d:\n%s", path, status, w.Text("main"))
	}
}

// fill sets fields of the form on the page. pairs has names and values in turn. The value
// selects a radio button. For a check box, "on" checks it and "" clears it.
func (w *walker) fill(pairs ...string) {
	w.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		done := chromium.Evaluate[string](w.Browser, fmt.Sprintf(`((name, value) => {
			const fields = [...document.querySelectorAll("main [name]")].filter(e => e.name === name && e.type !== "hidden");
			if (!fields.length) return "there is no field " + name + " among " + [...document.querySelectorAll("main [name]")].map(e => e.name).join(" ");
			for (const d of document.querySelectorAll("main details")) if (d.contains(fields[0])) d.open = true;
			const radio = fields.find(e => e.type === "radio" && e.value === value);
			if (radio) { radio.click(); return ""; }
			const box = fields.find(e => e.type === "checkbox");
			if (box) { if (box.checked !== (value !== "")) box.click(); return ""; }
			const field = fields[0];
			if (field.type === "radio") return name + " cannot be " + value;
			field.focus();
			field.value = value;
			field.dispatchEvent(new Event("input", {bubbles: true}));
			return field.value === value ? "" : name + " became " + field.value;
		})(%q, %q)`, pairs[i], pairs[i+1]))
		if done != "" {
			w.t.Fatalf("%s: %s", w.Title(), done)
		}
	}
}

// press presses the button or link with these words, which leads to a page with
// the status.
func (w *walker) press(words string, status int) {
	w.t.Helper()
	quoted := "'" + words + "'"
	xpath := "//main//button[contains(normalize-space(.), " + quoted + ")] | //main//a[contains(normalize-space(.), " + quoted + ")]"
	if found := chromium.Evaluate[int](w.Browser, fmt.Sprintf(`document.evaluate(%q, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE).snapshotLength`, xpath)); found == 0 {
		w.t.Fatalf("%s has no %q:\n%s", w.Title(), words, w.Text("main"))
	}
	got := w.Follow(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.evaluate(%q, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE).snapshotItem(0).click()`, xpath)))
	if got != status {
		w.t.Fatalf("%q leads to %d:\n%s", words, got, w.Text("main"))
	}
}

// sees fails unless the page shows each of the words.
func (w *walker) sees(words ...string) {
	w.t.Helper()
	text := w.Text("main")
	for _, word := range words {
		if !strings.Contains(text, word) {
			w.t.Fatalf("%s does not show %q:\n%s", w.Title(), word, text)
		}
	}
}

// comes waits until the page shows the words without being loaded again.
func (w *walker) comes(selector, words string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s shows %q", w.Title(), words), func() bool { return strings.Contains(w.Text(selector), words) })
}

// A new user does everything in a real browser: set up, create a plan, try it, publish it,
// create a tenant and an API key, see a denial, find its reason, raise the limit for one user,
// and show a member only their tenant.
func TestDashboardWalk(t *testing.T) {
	t.Parallel()
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false"}).serving()
	setup := node.await(node.out, setupLink)[1]
	w := walk(t, node.origin)

	// The set-up page, which also signs in.
	w.open(setup)
	w.fill("email", "ada@example.com", "name", "Ada Lovelace", "password", ownerPassword)
	w.press("Create the first account", 200)
	w.sees("Overview", "Create a tenant")

	// A wrong number in a plan has an error at its field. All entered values are kept.
	w.open("/plans/new")
	w.fill("name", "Starter", "slug", "Starter plan")
	w.press("Create the plan", 422)
	w.fill("slug", "starter")
	w.press("Create the plan", 200)
	w.open("/plans/starter/edit")
	w.fill("policies.0.slug", "per-user", "policies.0.count_by.0", "user", "policies.0.limits.0.algorithm", "fixed_window",
		"policies.0.limits.0.quota", "many", "policies.0.limits.0.window", "1h")
	w.press("Save the draft", 422)
	w.sees("must be a whole number")
	if typed := chromium.Evaluate[string](w.Browser, `document.querySelector('[name="policies.0.limits.0.quota"]').value`); typed != "many" {
		t.Errorf("what was typed became %q", typed)
	}
	w.fill("policies.0.limits.0.quota", "3")
	w.press("Save the draft", 200)
	w.open("/plans/starter/edit/json")
	if text := chromium.Evaluate[string](w.Browser, `document.querySelector("main textarea").value`); !strings.Contains(text, `"algorithm": "fixed_window"`) {
		t.Errorf("the draft as JSON is\n%s", text)
	}
	w.open("/plans/starter/preview")
	w.sees("per-user")
	w.open("/plans/starter/publish")
	w.press("Publish", 200)
	w.open("/plans/starter")
	w.sees("3 per hour", "version 1")

	// A tenant and its API key, which is shown once.
	w.open("/tenants/new")
	w.fill("name", "Acme Inc.", "slug", "acme", "plan", "starter")
	w.press("Create", 200)
	w.open("/tenants/acme/keys/new")
	w.fill("name", "gateway", "scope-check", "on")
	w.press("Create", 200)
	key := printedKey.FindString(w.Text("main"))
	if key == "" {
		t.Fatalf("the key is not shown:\n%s", w.Text("main"))
	}
	w.open("/tenants/acme/keys")
	if strings.Contains(w.Text("body"), key) {
		t.Error("the key is shown twice")
	}

	w.open("/overview?range=15m")
	w.sees("curl", "/v1/check")

	// Three requests are allowed and the fourth is denied. Two open pages show the denial
	// without being loaded again.
	second := walk(t, node.origin)
	cookie := chromium.Evaluate[string](w.Browser, `document.cookie`)
	if strings.Contains(cookie, "headgate=") {
		t.Error("a script can read the session's cookie")
	}
	second.open("/sign-in")
	second.fill("email", "ada@example.com", "password", ownerPassword)
	second.press("Sign in", 200)
	second.open("/denials")
	const check = `{"method":"GET","path":"/v1/items","attributes":{"user":"u1"}}`
	for range 3 {
		call(t, key, "POST", node.origin+"/v1/check", check).want(t, 200)
	}
	refused := call(t, key, "POST", node.origin+"/v1/check", check).want(t, 429)
	asked := time.Now()
	var decision struct {
		ID string `json:"decision_id"`
	}
	refused.into(t, &decision)
	second.comes("main", "per-user")
	t.Logf("on Denials after %s", time.Since(asked).Round(time.Millisecond))
	w.comes("main", "u1")
	t.Logf("on Overview after %s", time.Since(asked).Round(time.Millisecond))

	// The page of the denial shows the reason.
	second.open("/denials/" + decision.ID)
	second.sees("429", "per-user", "u1", "/v1/items")

	second.press("Explain it now", 200)
	second.sees("Would be denied with 429", "per-user")
	second.open("/denials/" + decision.ID)

	// The button on the page leads to an override for this user.
	second.press("Override the limits", 200)
	second.fill("factor", "2", "reason", "launch week")
	second.press("Create the override", 200)
	second.sees("The override is in force.", "per-user") // back on the denial
	second.open("/tenants/acme/overrides")
	second.sees("launch week")
	call(t, key, "POST", node.origin+"/v1/check", check).want(t, 200)
	second.open("/tenants/acme/explain?method=GET&path=%2Fv1%2Fitems&k.user=u1")
	second.sees("Would pass", "per-user")
	second.open("/system")
	second.sees("1 node")
	second.open("/audit")
	second.sees("ada@example.com", "created an override of per-user")

	// Members of the tenant see only their own tenant.
	w.open("/tenants/acme/members")
	w.fill("email", "tom@acme.example", "role", "tenant_viewer")
	w.press("Create a link", 200)
	link := chromium.Evaluate[string](w.Browser, `document.querySelector('main input[value*="/invite/"]').value`)
	third := walk(t, node.origin)
	third.open(strings.TrimPrefix(link, node.origin))
	third.fill("name", "Tom", "password", "a green kettle on the roof")
	third.press("Create account", 200)
	third.fill("email", "tom@acme.example", "password", "a green kettle on the roof")
	third.press("Sign in", 200)
	third.sees("Acme Inc.", "per-user", "u1")
	for _, path := range []string{"/overview", "/plans/starter", "/tenants", "/system", "/audit", "/denials", "/settings"} {
		if status := third.Open(node.origin + path); status != http.StatusForbidden {
			t.Errorf("a tenant's viewer gets %d at %s", status, path)
		}
	}
	for _, path := range []string{"/tenants/globex", "/tenants/globex/keys", "/tenants/globex/denials"} {
		if status := third.Open(node.origin + path); status != http.StatusNotFound {
			t.Errorf("a tenant's viewer gets %d at %s", status, path)
		}
	}
	if status := third.Open(node.origin + "/tenants/acme/overrides/new"); status != http.StatusForbidden {
		t.Errorf("a tenant's viewer gets %d at the form of an override", status)
	}
	for name, list := range map[string][]string{
		"the owner": w.Complaints(http.StatusUnprocessableEntity), "the owner's other window": second.Complaints(), "the viewer": third.Complaints(403, 404),
	} {
		if len(list) > 0 {
			t.Errorf("the browser of %s complains:\n%s", name, strings.Join(list, "\n"))
		}
	}
}
