//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	chromium "github.com/headgate/headgate/internal/servertest/browser"
)

// The further tasks of an operator, one after the other on a new server: a quota of a billing month, the charts of one tenant, a
// viewer, the playground, a live list while the server stops, the keyboard and other ways to see, and large numbers.
func TestFurtherOperatorTasks(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	n := &newcomer{walker: walk(t, node.origin)}
	operator := node.await(node.out, operatorKeyLine)[1]
	setup := node.await(node.out, setupLink)[1]
	n.Do(chromedp.EmulateViewport(1280, 800))
	// Without smooth scrolling, a click does not miss.
	if _, err := chromedp.Call(n.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(n.Context, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}); err != nil {
		t.Fatal(err)
	}
	n.open(setup)
	n.enter("email", "ada@example.com", "name", "Ada Lovelace", "password", ownerPassword)
	n.click("Create the first account", "No requests in this time")

	n.begin("6 10,000 requests a month from the 15th")
	n.tasksOfABillingMonth(operator)
	n.begin("7 the charts of one tenant and one hour")
	n.tasksOfOneTenant(operator)
	n.begin("8 a viewer of one tenant")
	n.tasksOfAViewer()
	n.begin("9 algorithms in the playground")
	n.tasksOfThePlayground()
	n.begin("12 1,000 tenants and 100 policies")
	n.tasksOfLargeNumbers(operator)
	n.begin("11 keyboard, palette, zoom, without a script")
	n.tasksOfTheKeyboard()
	n.begin("10 a live list, and a server that stops")
	n.tasksOfALiveList(operator, node)
	n.begin("")
}

// post sends a request to the API, and wants a status.
func (n *newcomer) post(key, path, body string, status int, header ...string) answer {
	n.t.Helper()
	return call(n.t, key, "POST", n.origin+path, body, header...).want(n.t, status)
}

// arrives waits until the page with this path is loaded.
func (n *newcomer) arrives(path string) {
	n.t.Helper()
	n.within("the page is "+path, func() bool {
		return n.is(fmt.Sprintf(`document.readyState === "complete" && location.pathname === %q`, path))
	})
}

func (n *newcomer) tasksOfABillingMonth(operator string) {
	n.t.Helper()
	n.click("Plans", "New plan")
	n.click("New plan", "Create the plan")
	n.enter("name", "Monthly", "slug", "monthly")
	n.click("Create the plan", "Save the draft")
	const limit = "policies.0.limits.0."
	n.enter("policies.0.slug", "quota", "policies.0.mode", "enforce", limit+"quota", "10000", limit+"window", "month")
	// The sentence says at once that this algorithm has no calendar month. So the first save works.
	n.shows("not valid yet: only fixed_window has calendar windows")
	n.keep("not-valid-yet")
	n.enter(limit+"algorithm", "fixed_window")
	n.shows("10,000 per calendar month")
	n.click("Save the draft", "")
	n.within("the saved draft", func() bool { return n.is(`location.search.includes("done=draft-saved")`) })
	n.click("Publish…", "Publish")
	n.publish("Publish", 1)
	n.click("Tenants", "New tenant")
	n.click("New tenant", "Create the tenant")
	n.enter("name", "Nepal Air", "slug", "nepal", "plan", "monthly")
	n.click("Create the tenant", "")
	n.within("the tenant", func() bool { return n.is(`location.pathname.startsWith("/tenants/nepal")`) })
	n.click("Tenant settings", "")
	n.arrives("/tenants/nepal/settings")
	n.enter("time_zone", "Asia/Kathmandu", "billing_anchor_day", "15")
	n.click("Save", "")
	n.within("the saved tenant", func() bool { return n.is(`location.search.includes("done=")`) })
	n.within("the tenant has its plan", func() bool {
		return strings.Contains(call(n.t, operator, "POST", n.origin+"/v1/check", `{"tenant": "nepal", "method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.1"}}`).body, `"allowed":true`)
	})
	n.click("Usage", "resets on 15 ")
	n.shows("00:00 Asia/Kathmandu")
	n.keep("billing-month")
}

func (n *newcomer) tasksOfOneTenant(operator string) {
	n.t.Helper()
	n.login(operator, "demo", 12)
	n.click("Overview", "Top limited keys")
	n.arrives("/overview")
	n.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-zones]").value = "Europe/Berlin"`)) // that of the browser
	n.clicks++
	n.click("Set the time zone", "Europe/Berlin")
	n.within("the page in the zone", func() bool {
		return n.is(`document.readyState === "complete" && document.body.dataset.zone === "Europe/Berlin"`)
	})
	n.click("Filter", "Apply")
	n.enter("tenant", "demo")
	n.click("Apply", "203.0.113.9")
	n.within("the filter", func() bool { return n.is(`location.search.includes("tenant=demo")`) })
	n.shows("429 rate")
	n.shows("of its requests")
	n.click("Share", "")
	n.arrives("/overview/share")
	n.enter("name", "for the meeting")
	n.click("Create the link", "The link is shown only once")
	link := chromium.Evaluate[string](n.Browser, `document.getElementById("link").value`)
	n.click("Back to the page", "of its requests")
	if a := call(n.t, "", "GET", link, ""); a.status != http.StatusOK || !strings.Contains(a.body, "Europe/Berlin") {
		n.t.Errorf("%s: the link shows %d", n.task, a.status)
	}
	n.click("the previous period", "")
	n.within("the comparison", func() bool { return n.is(`location.search.includes("compare=1")`) })
	n.click("policy", "")
	n.shows("429 rate by policy")
	n.keep("one-tenant")
	n.click("Tenants", "New tenant")
	n.arrives("/tenants")
	n.click("Demo", "Usage as CSV")
	file := chromium.Evaluate[string](n.Browser, `fetch([...document.querySelectorAll("main a")].find((a) => a.innerText.includes("Usage as CSV")).href).then((a) => a.text())`)
	if !strings.Contains(file, "login-per-ip") || !strings.Contains(file, "+01:00,minute,") || !strings.Contains(file, "Europe/Berlin") {
		n.t.Errorf("%s: the file is %s", n.task, file)
	}
}

func (n *newcomer) tasksOfAViewer() {
	n.t.Helper()
	n.click("Tenants", "Nepal Air")
	n.click("Nepal Air", "")
	n.arrives("/tenants/nepal")
	n.click("Members", "")
	n.arrives("/tenants/nepal/members")
	n.enter("email", "bo@example.com", "role", "tenant_viewer")
	n.click("Create a link", "")
	n.within("the link", func() bool {
		return n.is(`[...document.querySelectorAll("main input")].some((e) => e.value.includes("/invite/"))`)
	})
	link := chromium.Evaluate[string](n.Browser, `[...document.querySelectorAll("main input")].map((e) => e.value).find((v) => v.includes("/invite/"))`)
	n.click("Sign out", "Sign in")
	n.open(strings.TrimPrefix(link, n.origin))
	n.enter("name", "Bo", "password", "a long enough password")
	n.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("main form button").click()`))
	n.clicks++
	n.shows("Your account is created")
	n.enter("email", "bo@example.com", "password", "a long enough password")
	n.click("Sign in", "")
	n.within("the usage of the tenant", func() bool { return n.is(`location.pathname.startsWith("/tenants/nepal")`) })
	n.shows("Nepal Air")
	for _, path := range []string{"/tenants", "/overview", "/tenants/demo"} {
		if status := n.Open(n.origin + path); status != http.StatusForbidden && status != http.StatusNotFound {
			n.t.Errorf("%s: the viewer opens %s: %d", n.task, path, status)
		}
	}
	n.Complaints() // the browser reports these answers
	n.open("/tenants/nepal")
	n.click("Sign out", "Sign in")
	n.enter("email", "ada@example.com", "password", ownerPassword)
	n.click("Sign in", "Overview")
}

func (n *newcomer) tasksOfThePlayground() {
	n.t.Helper()
	n.click("Playground", "")
	n.arrives("/playground")
	for _, name := range []string{"fixed_window", "sliding_window_counter", "token_bucket"} {
		n.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			`((e) => e.checked || e.click())(document.querySelector("main [name=algorithm][value=%s]"))`, name)))
		n.clicks++
	}
	n.click("Play", "Side by side")
	n.within("three algorithms are compared", func() bool { return n.is(`document.querySelectorAll("table.compared tbody tr").length >= 3`) })
	n.keep("playground")

	// Reservations are settled with less than their estimate, and a repetition is not charged.
	n.click("Reservations and repetitions", "")
	n.enter("request", "reserve", "again", "key", "cost", "5", "real_cost", "1")
	n.click("Play", "Repetitions that got the first answer and charged nothing:")
	n.shows("settled. ")
	n.click("View as table", "Settled with 1")
	n.shows("The first answer again")
	n.keep("playground of reservations")
}

// tasksOfLargeNumbers finds the tenant with the highest 429 rate among 1,000, and adds a policy to 100.
func (n *newcomer) tasksOfLargeNumbers(operator string) {
	n.t.Helper()
	policies := make([]string, 100)
	for i := range policies {
		policies[i] = fmt.Sprintf(`{"slug": "p%03d", "match": {"path": "/v%d/*"}, "limits": [{"algorithm": "gcra", "quota": 5, "window": "1m"}]}`, i, i)
	}
	made := n.post(operator, "/v1/plans", fmt.Sprintf(`{"slug": "hundred", "draft": {"name": "Hundred", "policies": [%s]}}`, strings.Join(policies, ", ")), 201)
	n.post(operator, "/v1/plans/hundred/publish", "", 200, "If-Match", made.header.Get("ETag"))
	for i := range 998 {
		n.post(operator, "/v1/tenants", fmt.Sprintf(`{"slug": "t%04d", "tenant": {"require_route": false, "name": "T%04d", "plan": "hundred"}}`, i, i), 201)
	}
	eventually(n.t, "the last tenant is denied", func() bool {
		return call(n.t, operator, "POST", n.origin+"/v1/check", `{"tenant": "t0700", "path": "/v7/x"}`).status == http.StatusTooManyRequests
	})
	for range 30 {
		call(n.t, operator, "POST", n.origin+"/v1/check", `{"tenant": "t0700", "path": "/v7/x"}`)
	}
	n.click("Tenants", "429 rate")
	n.within("the tenant with the highest rate is first", func() bool {
		n.click("429 rate", "")
		n.within("the sorted list", func() bool { return n.is(`document.readyState === "complete" && location.search.includes("sort")`) })
		return n.is(`document.querySelector("table.tenants tbody th").innerText.includes("t0700")`)
	})
	n.keep("thousand-tenants")
	n.click("Plans", "Hundred")
	n.click("Hundred", "Edit the draft")
	n.click("Edit the draft", "Save the draft")
	nodes := chromium.Evaluate[int](n.Browser, `document.querySelectorAll("*").length`)
	n.click("Add a policy", "a new policy")
	n.within("the fields of policy 101", func() bool { return n.is(`document.activeElement?.name === "policies.100.slug"`) })
	if more := chromium.Evaluate[int](n.Browser, `document.querySelectorAll("*").length`) - nodes; more < 50 || more > 400 {
		n.t.Errorf("%s: a policy has %d elements", n.task, more)
	}
	if came := chromium.Evaluate[int](n.Browser, `performance.getEntriesByType("resource").findLast((e) => e.name.endsWith("/plans/hundred/edit")).decodedBodySize`); came == 0 || came > 40_000 {
		n.t.Errorf("%s: %d bytes came", n.task, came)
	}
	n.shows("denies nothing. Choose Enforce")
	n.keep("policy-101")
	n.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-unsaved] [data-discard]").click()`))
	n.clicks++
	n.within("the discarded draft", func() bool {
		return n.is(`document.readyState === "complete" && !document.getElementById("policies.100")`)
	})
}

// tasksOfTheKeyboard finds a counted key by its value alone, and reads a page in other ways.
func (n *newcomer) tasksOfTheKeyboard() {
	n.t.Helper()
	keys := func(k string, modifiers ...chromedp.KeyOption) {
		n.t.Helper()
		n.Do(chromedp.KeyEvent(k, modifiers...))
	}
	n.open("/plans")
	keys("k", chromedp.KeyModifiers(2)) // Ctrl
	n.within("the palette", func() bool { return n.is(`document.getElementById("palette").open`) })
	keys("203.0.113.9")
	n.keys += len("203.0.113.9")
	const found = `document.querySelector('#jump-found a[href="/tenants/demo/usage/login-per-ip?k.ip=203.0.113.9"]')`
	n.within("the counted key", func() bool { return n.is(`!!` + found) })
	keys(kb.ArrowDown)
	n.within("the first result has the focus", func() bool { return n.is(`document.activeElement === ` + found) })
	keys(kb.Enter)
	n.within("the page of the key", func() bool { return n.is(`location.pathname === "/tenants/demo/usage/login-per-ip"`) })
	n.shows("ip 203.0.113.9")

	// A window of 1280 px at 200 % has 640 px. Nothing is beside the window.
	n.Do(chromedp.EmulateViewport(640, 400, chromedp.EmulateScale(2)))
	for _, path := range []string{"/overview", "/denials", "/tenants", "/plans/starter/edit", "/alerts/rules/new"} {
		n.open(path)
		if wide := chromium.Evaluate[int](n.Browser, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
			n.t.Errorf("%s: at 200 %%, %s is %d px too wide: %s", n.task, path, wide, chromium.Evaluate[string](n.Browser,
				`[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.tagName + "." + e.className).slice(0, 5).join(" ")`))
		}
	}
	n.Do(chromedp.EmulateViewport(1280, 800))

	// Without a script, forms and filters work: the same key is found by its value.
	scripts := func(off bool) {
		if _, err := chromedp.Call(n.Context, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off}); err != nil {
			n.t.Fatal(err)
		}
	}
	scripts(true)
	n.open("/jump?q=203.0.113.9")
	scripts(false)
	if !n.is(`location.pathname === "/tenants/demo/usage/login-per-ip"`) {
		n.t.Errorf("%s: without a script, the palette leads to %s", n.task, n.Title())
	}
}

// tasksOfALiveList sends 50 checks and 10 denials a second, and stops the server.
func (n *newcomer) tasksOfALiveList(operator string, node *running) {
	n.t.Helper()
	n.open("/denials")
	n.within("the page is live", func() bool { return n.is(`document.documentElement.dataset.stream === "open"`) })
	stop := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		client := &http.Client{}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			ip := "203.0.113.9" // of five checks, one is denied
			if i%5 != 0 {
				ip = fmt.Sprintf("198.51.%d.%d", i/250%250, i%250)
			}
			body := fmt.Sprintf(`{"tenant": "demo", "method": "POST", "path": "/v1/login", "attributes": {"ip": %q}}`, ip)
			request, _ := http.NewRequest(http.MethodPost, n.origin+"/v1/check", strings.NewReader(body))
			request.Header.Set("Authorization", "Bearer "+operator)
			request.Header.Set("Content-Type", "application/json")
			if a, err := client.Do(request); err == nil {
				a.Body.Close()
			}
		}
	})
	const news = `(document.querySelector("[data-release]").offsetParent === null ? "" : document.querySelector("[data-release]").innerText)`
	n.within("the list holds, because nobody can read it", func() bool { return n.is(`document.documentElement.hasAttribute("data-held") && ` + news + ` !== ""`) })
	const first = `((r) => r.id + " " + r.getBoundingClientRect().top)(document.querySelector("[data-hold] tbody tr"))`
	place, before := chromium.Evaluate[string](n.Browser, first), chromium.Evaluate[string](n.Browser, news)
	n.within("more news", func() bool { return chromium.Evaluate[string](n.Browser, news) != before })
	if now := chromium.Evaluate[string](n.Browser, first); now != place {
		n.t.Errorf("%s: the first row was %s and is %s", n.task, place, now)
	}
	if text := n.Text("main .ranges"); strings.Contains(text, "Live") || !strings.Contains(text, "Held") {
		n.t.Errorf("%s: while the list waits, the page says %q", n.task, text)
	}
	n.keep("held")
	n.Do(chromedp.Click("[data-release]"))
	n.clicks++
	n.within("the newest rows", func() bool { return chromium.Evaluate[string](n.Browser, first) != place })
	n.click("Overview", "Live")
	n.within("the page is live", func() bool { return n.is(`document.documentElement.dataset.stream === "open"`) })
	close(stop)
	sending.Wait()
	node.end()
	n.within("the page says that the connection is lost", func() bool { return strings.HasPrefix(n.Text("[data-lost]"), "Connection lost at ") })
	if text := n.Text("main .ranges"); strings.Contains(text, "Live") {
		n.t.Errorf("%s: without a server, the page says %q", n.task, text)
	}
	n.keep("lost")
	n.Complaints() // the browser reports the lost connection
}
