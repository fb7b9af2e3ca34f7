//go:build !quick

package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// An editorTab is the editor of the plan busy in a browser.
type editorTab struct {
	*browser.Browser
	t      *testing.T
	w      *world
	origin string
}

func (w *world) editorTab(t *testing.T) editorTab {
	t.Helper()
	w.publish("busy", busyPlan(), "acme")
	b, origin := w.browser(t)
	bounded, cancel := context.WithTimeout(b.Context, 4*time.Minute)
	t.Cleanup(cancel)
	b.Context = bounded
	e := editorTab{b, t, w, origin}
	e.as("owner", "light")
	t.Cleanup(func() {
		// The browser reports that it did not show the dialog, because no person has used the
		// page.
		for _, line := range b.Complaints() {
			if !strings.Contains(line, "'beforeunload' confirmation panel") {
				t.Errorf("the browser reports %q", line)
			}
		}
	})
	return e
}

func (e editorTab) as(person, theme string) {
	e.t.Helper()
	e.Cookies(e.origin, map[string]string{"headgate": e.w.cookies[person], web.ThemeCookie: theme})
}

func (e editorTab) open(path string) {
	e.t.Helper()
	if status := e.Open(e.origin + path); status != http.StatusOK {
		e.t.Fatalf("%s: %d", path, status)
	}
}

// click clicks an element and waits for the next page.
func (e editorTab) click(selector string) {
	e.t.Helper()
	if status := e.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector('` + selector + `').click()`)); status != http.StatusOK {
		e.t.Fatalf("%s: %d", selector, status)
	}
}

const editorQuota = `document.getElementById("policies.0.limits.0.quota")`

func (e editorTab) typed(value string) {
	browser.Evaluate[bool](e.Browser, editorQuota+`.value = "`+value+`", `+editorQuota+`.dispatchEvent(new Event("input", {bubbles: true}))`)
}

// wait waits until a condition in JavaScript holds.
func (e editorTab) wait(what, condition string) {
	e.t.Helper()
	const patience = `new Promise((done) => {
		const end = Date.now() + 120000;
		const look = () => (%s) ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 50);
		look();
	})`
	if !browser.Evaluate[bool](e.Browser, fmt.Sprintf(patience, condition)) {
		e.t.Fatalf("%s: %q", what, e.Text("#draft"))
	}
}

// state checks which marks the editor shows, whether the browser asks before it leaves the page, and the first quota.
func (e editorTab) state(when string, unsaved, kept bool, quota string) {
	e.t.Helper()
	shown := func(mark string) bool {
		return browser.Evaluate[bool](e.Browser, `(document.querySelector("[`+mark+`]")?.offsetParent ?? null) !== null`)
	}
	// A page that no person has touched has no dialog.
	asks := browser.Evaluate[bool](e.Browser, `!dispatchEvent(new Event("beforeunload", {cancelable: true}))`)
	waits := browser.Evaluate[bool](e.Browser, editorQuota+`.closest("[inert]") !== null`)
	got := browser.Evaluate[string](e.Browser, editorQuota+".value")
	if shown("data-unsaved") != unsaved || shown("data-kept") != kept || asks != unsaved || waits != kept || got != quota {
		e.t.Fatalf("%s: quota %q, asks: %t, waits: %t, %q", when, got, asks, waits, e.Text(".editor-bar"))
	}
}

// The editor keeps typed values when its page is left or loaded again, says that they are
// not saved, and offers them until they are saved.
func TestEditorKeepsTypedValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.editorTab(t)
	const edit = "/plans/busy/edit"
	e.open(edit)
	was := browser.Evaluate[string](e.Browser, editorQuota+".value")
	e.state("an unchanged draft", false, false, was)
	e.typed("77")
	e.state("a typed value", true, false, "77")
	e.open("/plans")
	e.open(edit)
	e.state("after leaving", false, true, was)
	e.typed("1") // the fields wait for the person's choice, but a script can still change them
	e.Follow(chromedp.Reload())
	e.state("after a reload", false, true, was)
	e.click("[data-restore]")
	e.state("restored", true, false, "77")
	e.click("#draft button[value=save]")
	e.open(edit)
	e.state("saved", false, false, "77")

	// After going back to a saved page, the values that were entered after the save are still
	// there.
	e.typed("78")
	e.open("/plans/busy/diff?done=draft-saved")
	e.open(edit)
	e.state("after the old page of the save", false, true, "77")
	e.click("[data-kept] [data-discard]")
	e.state("discarded", false, false, "77")
	e.Follow(chromedp.Reload())
	e.state("discarded, loaded again", false, false, "77")

	// The JSON is kept too.
	e.open(edit + "/json")
	browser.Evaluate[bool](e.Browser, `((f) => { f.value = f.value.replace("77", "79"); return f.dispatchEvent(new Event("input", {bubbles: true})) })(document.getElementById("json"))`)
	e.open(edit)
	e.click("[data-restore]")
	if got := browser.Evaluate[string](e.Browser, `document.getElementById("json").value`); !strings.Contains(got, "79") {
		t.Errorf("restored the JSON %s", got)
	}
	e.click("#draft button[value=form]")
	e.state("JSON as a form", true, false, "79")

	// A publication discards values that were not saved, and warns before it.
	e.open("/plans/busy/publish")
	if !browser.Evaluate[bool](e.Browser, `document.querySelector("[data-publish-kept]").offsetParent !== null`) {
		t.Error("the page that publishes does not name the changes that are not saved")
	}
	e.click(`form[action="/plans/busy/publish"] button`)
	e.open(edit)
	e.state("published", false, false, "77")
}

// Stored values belong to one person. The page says if another person saved the draft
// meanwhile.
func TestKeptValuesBelongToAPersonAndARevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.editorTab(t)
	axe := axeSource(t)
	const edit = "/plans/busy/edit"
	e.open(edit)
	was := browser.Evaluate[string](e.Browser, editorQuota+".value")
	e.typed("77")
	e.as("editor", "light")
	e.open(edit)
	e.state("another person", false, false, was)
	e.as("owner", "dark")
	e.open(edit)
	e.state("the same person", false, true, was)
	older := func() bool {
		return browser.Evaluate[bool](e.Browser, `document.querySelector("[data-kept-older]").offsetParent !== null`)
	}
	if older() {
		t.Error("the page says that the draft was saved in between")
	}
	for _, width := range []int64{1280, 360} {
		e.Do(chromedp.EmulateViewport(width, 900))
		keep(t, e.Browser, "kept dark "+strconv.FormatInt(width, 10))
		if wide := browser.Evaluate[[]string](e.Browser, sticksOut); len(wide) > 0 {
			t.Errorf("%d: wider than the page: %q", width, wide)
		}
		e.Do(chromedp.Evaluate[chromedp.Void](axe))
		for _, v := range browser.Evaluate[[]violation](e.Browser, everyRule) {
			t.Errorf("%d: %s (%s) %v", width, v.ID, v.Help, v.Nodes)
		}
	}
	e.Do(chromedp.EmulateViewport(1280, 900))

	p, err := w.plans.Plan(t.Context(), "busy")
	must(t, err)
	content := busyPlan()
	content.Description = "saved in between"
	_, err = w.plans.SaveDraft(t.Context(), p.ID, plans.New(content), p.DraftRevision)
	must(t, err)
	e.Follow(chromedp.Reload())
	e.state("saved in between", false, true, was)
	if !older() {
		t.Error("the page does not say that the draft was saved in between")
	}
	keep(t, e.Browser, "kept older dark 1280")
	e.click("[data-restore]")
	e.state("restored", true, false, "77")
	if status := e.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("#draft button[value=save]").click()`)); status != http.StatusConflict {
		t.Fatalf("a save over another person's: %d", status)
	}
	e.Complaints(http.StatusConflict)

	// The values on the page of a conflict are not lost either.
	e.open(edit)
	e.state("after the conflict", false, true, was)
	e.click(`form[action="/sign-out"] button`)
	w.cookies["owner"], _, _, err = w.people.SignIn(t.Context(), "owner@people.example", password, "192.0.2.1", "Firefox")
	must(t, err)
	e.as("owner", "light")
	e.open(edit)
	e.state("after signing out", false, false, was)
}

// Issue 13, 1.2: a new policy does not redraw the others, its first field is in view with the focus, and the sentences
// that read limits aloud follow the typing.
func TestEditorAddsAndReadsAloud(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.editorTab(t)
	e.open("/plans/busy/edit?policy=login-per-ip")
	wait := e.wait
	e.typed("1234")
	wait("the summary", `document.querySelector("[id='policies.0'] summary").textContent.includes("1,234 per minute")`)
	wait("the limit", `document.querySelector("[id='policies.0.limits.0'] legend").textContent.includes("1,234 per minute")`)

	browser.Evaluate[bool](e.Browser, `(document.getElementById("policies.0").dataset.same = "yes") === "yes"`)
	const inView = `((f) => { const r = f.getBoundingClientRect(), bar = document.querySelector(".editor-bar").getBoundingClientRect();
		return document.activeElement === f && r.top >= bar.bottom && r.bottom <= innerHeight })`
	const sends = `(() => { const send = XMLHttpRequest.prototype.send; XMLHttpRequest.prototype.send = function (body) {
		(window.sent = new URLSearchParams(body.toString())), this.addEventListener("load", () => (window.came = this.response.length)); send.call(this, body) };
		return true })()`
	browser.Evaluate[bool](e.Browser, sends)
	whole := browser.Evaluate[int](e.Browser, `document.documentElement.outerHTML.length`)
	browser.Evaluate[bool](e.Browser, `document.getElementById("do-add-policy").click() === undefined`)
	wait("a new policy", `document.getElementById("policies.3.slug") !== null && `+inView+`(document.getElementById("policies.3.slug"))`)
	if !browser.Evaluate[bool](e.Browser, `document.getElementById("policies.0").dataset.same === "yes"`) {
		t.Error("the other policies are drawn again")
	}
	names := browser.Evaluate[string](e.Browser, `[...window.sent.keys()].sort().join(" ")`)
	if came := browser.Evaluate[int](e.Browser, `window.came`); names != "do policies.0.slug policies.1.slug policies.2.slug revision" || came > whole/3 {
		t.Errorf("the button sent %s, and %d bytes of %d came back", names, came, whole)
	}
	wait("the new policy is kept", `sessionStorage.getItem(Object.keys(sessionStorage).find((k) => k.startsWith("draft:"))).includes("policies.3.slug")`)
	e.state("with a new policy", true, false, "1234")
	browser.Evaluate[bool](e.Browser, `document.getElementById("do-policies.0.add-limit").click() === undefined`)
	wait("a new limit", `document.getElementById("policies.0.limits.1.quota") !== null && `+inView+`(document.getElementById("policies.0.limits.1.quota"))`)
}

// A button that changes the form loses neither what is typed until its answer comes nor a click that begins before it.
func TestAnswersOfTheEditorLoseNothing(t *testing.T) {
	t.Parallel()
	e := newWorld(t).editorTab(t)
	e.open("/plans/busy/edit?policy=login-per-ip")
	wait := e.wait
	const add, limit = `document.getElementById("do-policies.0.add-limit").click()`, `document.getElementById("policies.0.limits.%d.quota") !== null`
	e.typed("1234")
	browser.Evaluate[bool](e.Browser, add+`, `+editorQuota+`.value = "5678", `+editorQuota+`.dispatchEvent(new Event("input", {bubbles: true}))`)
	wait("a second limit", fmt.Sprintf(limit, 1))
	if got := browser.Evaluate[string](e.Browser, editorQuota+`.value`); got != "5678" {
		t.Errorf("the quota is %q, want what was typed before the answer came", got)
	}

	browser.Evaluate[bool](e.Browser, `document.addEventListener("htmx:afterRequest", () => (document.body.dataset.answered = "yes")),
		document.body.dispatchEvent(new PointerEvent("pointerdown", {bubbles: true})), window.save = document.querySelector("[value=save]"), `+add+`, true`)
	wait("the answer", `document.body.dataset.answered === "yes"`)
	if !browser.Evaluate[bool](e.Browser, `window.save.isConnected && document.getElementById("policies.0.limits.2.quota") === null`) {
		t.Error("the pressed button is replaced before the pointer is up")
	}
	browser.Evaluate[bool](e.Browser, `document.body.dispatchEvent(new PointerEvent("pointerup", {bubbles: true}))`)
	wait("a third limit", fmt.Sprintf(limit, 2))
}
