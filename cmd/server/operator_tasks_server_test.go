//go:build !quick

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	chromium "github.com/headgate/headgate/internal/servertest/browser"
)

// A newcomer uses the dashboard with the mouse and the keyboard alone: no address is typed but those that Headgate shows.
// Each task counts clicks and typed characters.
type newcomer struct {
	*walker
	task         string
	clicks, keys int
	pictures     int
}

// begin begins a task, and logs what the one before took.
func (n *newcomer) begin(task string) {
	n.t.Helper()
	if n.task != "" {
		n.t.Logf("%s: %d clicks, %d characters", n.task, n.clicks, n.keys)
	}
	n.task, n.clicks, n.keys = task, 0, 0
}

// keep saves a picture of the first screen in the folder of HEADGATE_SCREENSHOTS, if it is set.
func (n *newcomer) keep(name string) {
	n.t.Helper()
	folder := os.Getenv("HEADGATE_SCREENSHOTS")
	if folder == "" {
		return
	}
	n.pictures++
	ctx, cancel := context.WithTimeout(n.Context, 5*time.Second)
	defer cancel()
	picture, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		n.t.Logf("no picture of %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("task-%02d-%s.png", n.pictures, name)), picture.Data, 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// place is a script that returns the middle of the visible link, button, label or summary with a name, or what covers it. A
// name that begins with the words is taken if no name is equal.
const place = `((words) => {
	if (document.readyState !== "complete") return { fault: "the page is being loaded" };
	const name = (e) => (e.getAttribute("aria-label") ?? e.innerText ?? "").replace(/\s+/g, " ").trim();
	const all = ["main :is(a, button, summary, label)", "a, button, summary, label"].flatMap((where) => [...document.querySelectorAll(where)])
		.filter((e) => e.checkVisibility({ checkVisibilityCSS: true, checkOpacity: true }) && e.getClientRects().length && !e.closest("[inert]"));
	const hit = all.find((e) => name(e) === words) ?? all.find((e) => name(e).startsWith(words));
	if (!hit) return { fault: "the page has no " + words + " among: " + all.map(name).join(" | ") };
	hit.scrollIntoView({ block: "center", behavior: "instant" });
	const r = hit.getClientRects()[0], x = r.left + r.width / 2, y = r.top + r.height / 2;
	const top = document.elementFromPoint(x, y);
	return { x, y, fault: hit.contains(top) || top?.contains(hit) ? "" : words + " is covered by " + top?.outerHTML.slice(0, 120) };
})`

// A spot is the result of place.
type spot struct {
	X, Y  float64
	Fault string
}

// click clicks what has these words, and waits until the page shows the words then. Without them, it does not wait.
func (n *newcomer) click(words, then string) {
	n.t.Helper()
	var at spot
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		before := at
		found, err := ask[spot](n, fmt.Sprintf("%s(%q)", place, words)) // a page is being loaded, or a live page draws a part again
		if at = found; err == nil && at.Fault == "" && at == before {
			break // it stands still, as it does for a person
		}
	}
	if at.Fault != "" {
		n.keep("failed")
		n.t.Fatalf("%s: %s: %s", n.task, n.Title(), at.Fault)
	}
	n.clicks++
	n.Do(chromedp.MouseClickXY(at.X, at.Y))
	if then != "" {
		n.shows(then)
	}
}

// within waits until a condition holds.
func (n *newcomer) within(what string, holds func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	text, _ := n.read()
	n.keep("failed")
	n.t.Fatalf("%s: %s is not so: %s\n%s", n.task, what, n.Title(), text)
}

// shows waits until the page shows the words.
func (n *newcomer) shows(words string) {
	n.t.Helper()
	n.within(fmt.Sprintf("the page shows %q", words), func() bool {
		text, _ := n.read()
		return strings.Contains(strings.ToLower(text), strings.ToLower(words))
	})
}

// read returns the visible text of the page with the values of its fields. While a page is loaded, it returns an error.
func (n *newcomer) read() (string, error) {
	const all = `document.readyState !== "complete" ? "" : document.title + "\n" + document.body.innerText +
		[...document.querySelectorAll("main input, main textarea")].map((e) => "\n" + e.value).join("")`
	return ask[string](n, all)
}

// ask returns the value of an expression in the page. While another page is loaded, it returns an error.
func ask[T any](n *newcomer, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(n.Context, 3*time.Second)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// is reports whether an expression is true in the page.
func (n *newcomer) is(expression string) bool {
	is, err := ask[bool](n, expression)
	return is && err == nil
}

// enter fills in fields, and counts their characters. A choice of a list or of a box counts as a click.
func (n *newcomer) enter(pairs ...string) {
	n.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		typed := chromium.Evaluate[bool](n.Browser, fmt.Sprintf(
			`!["radio", "checkbox", "select-one"].includes(document.querySelector('main [name=%q]:not([type=hidden])')?.type)`, pairs[i]))
		if n.fill(pairs[i], pairs[i+1]); typed {
			n.keys += len(pairs[i+1])
		} else {
			n.clicks++
		}
	}
}

// agree answers yes to the question whether to leave a page with changes that are not saved, as a person does who reads it,
// and reports that it was asked.
func (n *newcomer) agree() (asked <-chan string) {
	n.t.Helper()
	said := make(chan string, 8)
	if err := chromedp.Listen(n.Context, func(event any) {
		if e, is := event.(*page.EventJavascriptDialogOpening); is {
			go func() {
				_, _ = chromedp.Call(n.Context, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
				said <- string(e.Type)
			}()
		}
	}); err != nil {
		n.t.Fatal(err)
	}
	return said
}

// blank is a script that returns the titles of the charts over time that show nothing.
const blank = `[...document.querySelectorAll("figure.chart")].filter((f) => {
	const canvas = f.querySelector("hg-chart canvas");
	if (!canvas) return !!f.querySelector("hg-chart");
	const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
	for (let i = 0; i < data.length; i += 4) {
		if (data[i + 3] > 100 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) return false;
	}
	return true;
}).map((f) => f.querySelector("h2").textContent)`

// inView reports whether an element is in the window without scrolling.
func (n *newcomer) inView(selector string) bool {
	return n.is(fmt.Sprintf(`(() => {
		scrollTo(0, 0);
		const r = document.querySelector(%q)?.getBoundingClientRect();
		return !!r && r.height > 0 && r.top >= 0 && r.bottom <= innerHeight;
	})()`, selector))
}

// login sends checks of a sign-in, and returns the last answer.
func (n *newcomer) login(key, tenant string, times int) answer {
	n.t.Helper()
	body := fmt.Sprintf(`{"tenant": %q, "method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`, tenant)
	var last answer
	for range times {
		last = call(n.t, key, "POST", n.origin+"/v1/check", body)
	}
	return last
}

// The first tasks of an operator, one after the other on a new server in an empty folder: the first requests, who is limited
// and why, a higher limit for an hour, the change of a plan, and a key. Every step is a click on words that the page shows, or text
// in one of its fields.
func TestOperatorTasks(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	n := &newcomer{walker: walk(t, node.origin)}
	operator := node.await(node.out, operatorKeyLine)[1]
	setup := node.await(node.out, setupLink)[1]
	asked := n.agree()
	n.Do(chromedp.EmulateViewport(1280, 800))

	n.begin("1 first requests")
	n.open(setup)
	n.enter("email", "ada@example.com", "name", "Ada Lovelace", "password", ownerPassword)
	n.click("Create the first account", "No requests in this time")
	n.keep("empty")
	n.click("Create an API key and a command", "Bearer hg_tn_")
	command := chromium.Evaluate[string](n.Browser, `document.querySelector("main pre").innerText`)
	for range 6 {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	n.click("Overview", "Top limited keys")
	n.within("six requests in the tiles", func() bool { return strings.Contains(n.Text(".tiles"), "6") })
	n.within("every chart shows something", func() bool { return len(chromium.Evaluate[[]string](n.Browser, blank)) == 0 })
	n.keep("six-requests")

	n.begin("2 who is limited most, and why")
	n.login(operator, "demo", 12)
	n.shows("203.0.113.9")
	if !n.inView("[aria-labelledby=limited-title] tbody tr") {
		t.Errorf("%s: the first key is not in the first screen", n.task)
	}
	n.keep("limited")
	n.click("ip 203.0.113.9", "login-per-ip")
	n.keep("key")

	n.begin("3 raise a limit for an hour from a denial")
	n.click("Denials", "login-per-ip")
	n.tasksOfADenial()

	n.begin("4 change a plan, leave it, preview, publish, roll back")
	n.tasksOfAPlan(asked)

	n.begin("5 a tenant and a key that is shown once")
	n.tasksOfAKey()

	n.begin("")
	for _, line := range n.Complaints(http.StatusGone) { // the page of the key, loaded again
		t.Errorf("the browser complains: %s", line)
	}
}

func (n *newcomer) tasksOfADenial() {
	n.t.Helper()
	n.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("main tbody a").click()`))
	n.clicks++
	n.shows("Double the limits for an hour")
	n.keep("denial")
	denial := n.Title()
	n.click("Double the limits for an hour", "Create the override")
	n.keep("double")
	n.click("Create the override", "The override is in force.")
	if n.Title() != denial {
		n.t.Errorf("%s: the way leads to %s and not back to %s", n.task, n.Title(), denial)
	}
}

// publish presses the button, and waits until the plan is in force.
func (n *newcomer) publish(button string, version int) {
	n.t.Helper()
	n.click(button, "")
	n.within("the publication", func() bool { return n.is(`location.pathname.endsWith("/rollout")`) })
	n.shows(fmt.Sprintf("version %d", version))
}

func (n *newcomer) tasksOfAPlan(asked <-chan string) {
	n.t.Helper()
	n.click("Plans", "Starter")
	n.click("Starter", "Edit the draft")
	n.click("Edit the draft", "Save the draft")
	n.enter("policies.0.limits.0.quota", "7")
	policies := chromium.Evaluate[int](n.Browser, `document.querySelectorAll("[name$='.slug']").length`)
	n.click("Add a policy", "a new policy")
	id := fmt.Sprintf("policies.%d", policies)
	n.within("the new policy has its fields", func() bool {
		return n.is(fmt.Sprintf(`document.activeElement?.name === %q`, id+".slug"))
	})
	n.enter(id+".slug", "per-user", id+".count_by.0", "user", id+".limits.0.algorithm", "sliding_window_counter",
		id+".limits.0.quota", "100", id+".limits.0.window", "1m")
	n.click(fmt.Sprintf("Add a limit to policy %d", policies+1), "")
	n.within("a second limit", func() bool {
		return n.is(fmt.Sprintf(`!!document.getElementsByName(%q)[0]`, id+".limits.1.quota"))
	})
	n.keep("editor")
	n.enter(id+".limits.1.algorithm", "token_bucket", id+".limits.1.quota", "10", id+".limits.1.window", "1s", id+".limits.1.burst", "20")
	n.click("Tenants", "New tenant") // half-way
	select {
	case kind := <-asked:
		if kind != "beforeunload" {
			n.t.Errorf("%s: the question is %s", n.task, kind)
		}
	case <-time.After(time.Minute):
		n.t.Errorf("%s: the browser did not ask before it left the page", n.task)
	}
	n.click("Plans", "Starter")
	n.click("Starter", "Edit the draft")
	n.click("Edit the draft", "Continue with them")
	n.keep("kept")
	n.click("Continue with them", "")
	n.within("what was typed", func() bool {
		return n.is(fmt.Sprintf(`document.querySelector("#draft")?.elements[%q]?.value === "20"`, id+".limits.1.burst"))
	})
	n.click("Save the draft", "")
	n.within("the saved draft", func() bool { return n.is(`location.search.includes("done=draft-saved")`) })
	n.keep("saved")
	n.click("Preview", "What the draft would have denied")
	n.keep("preview")
	n.click("Publish…", "Publish for")
	n.enter("note", "7 sign-ins a minute")
	n.publish("Publish for", 2)
	n.keep("published")
	n.click("History", "7 sign-ins a minute")
	n.click("Version 1", "Publish again…")
	n.click("Publish again…", "Publish version 1 for")
	n.publish("Publish version 1 for", 1)
}

func (n *newcomer) tasksOfAKey() {
	n.t.Helper()
	n.click("Tenants", "New tenant")
	n.click("New tenant", "Create the tenant")
	n.enter("name", "Acme Inc.", "slug", "acme", "plan", "starter")
	n.click("Create the tenant", "")
	n.within("the tenant", func() bool { return n.is(`location.pathname.startsWith("/tenants/acme")`) })
	n.click("API keys", "New key")
	n.click("New key", "Create the key")
	n.enter("name", "gateway", "scope-check", "on")
	n.click("Create the key", "hg_tn_")
	text, _ := n.read()
	key := printedKey.FindString(text)
	n.keep("new-key")
	n.Do(chromedp.Reload())
	n.shows("once")
	n.keep("new-key-reloaded")
	if text, _ := n.read(); strings.Contains(text, key) {
		n.t.Errorf("%s: the key is shown again", n.task)
	}
	n.click("API keys", "gateway")
	if rows := chromium.Evaluate[int](n.Browser, `document.querySelectorAll("main tbody tr").length`); rows != 1 {
		n.t.Errorf("%s: there are %d keys", n.task, rows)
	}
	call(n.t, key, "POST", n.origin+"/v1/check", login).want(n.t, 200)
	n.click("Revoke", "Revoke")
	n.keep("revoke")
	n.click("Revoke the key", "revoked")
	n.within("the key is refused", func() bool { return call(n.t, key, "POST", n.origin+"/v1/check", login).status == 401 })
}
