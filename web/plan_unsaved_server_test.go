//go:build !quick

package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// Issue 13, 1.2: the editor keeps typed values when its page is left or loaded again,
// says that they are not saved, and offers them until they are saved.
func TestEditorKeepsTypedValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	b, origin := w.browser(t)
	bounded, cancel := context.WithTimeout(b.Context, time.Minute)
	t.Cleanup(cancel)
	b.Context = bounded
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	const (
		edit  = "/plans/busy/edit"
		quota = `document.getElementById("policies.0.limits.0.quota")`
		// The browser asks before it leaves the page. A page that no person has touched has no dialog.
		asks = `!dispatchEvent(new Event("beforeunload", {cancelable: true}))`
	)
	shown := func(mark string) bool {
		return browser.Evaluate[bool](b, `(document.querySelector("[`+mark+`]")?.offsetParent ?? null) !== null`)
	}
	state := func(when string, unsaved, kept bool) {
		t.Helper()
		if shown("data-unsaved") != unsaved || shown("data-kept") != kept || browser.Evaluate[bool](b, asks) != unsaved {
			t.Fatalf("%s: %q", when, b.Text(".editor-bar"))
		}
	}
	b.Open(origin + edit)
	state("an unchanged draft", false, false)
	browser.Evaluate[bool](b, quota+`.value = "77", `+quota+`.dispatchEvent(new Event("input", {bubbles: true}))`)
	state("a typed value", true, false)
	b.Open(origin + "/plans")
	b.Open(origin + edit)
	state("after leaving", false, true)
	b.Follow(chromedp.Reload())
	state("after a reload", false, true)
	if status := b.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-restore]").click()`)); status != http.StatusOK {
		t.Fatalf("restored: %d", status)
	}
	state("restored", true, false)
	if got := browser.Evaluate[string](b, quota+".value"); got != "77" {
		t.Errorf("restored a quota of %q", got)
	}
	b.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("#draft button[value=save]").click()`))
	b.Open(origin + edit)
	state("saved", false, false)
	if got := browser.Evaluate[string](b, quota+".value"); got != "77" {
		t.Errorf("saved a quota of %q", got)
	}
	browser.Evaluate[bool](b, quota+`.value = "78", `+quota+`.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-unsaved] [data-discard]").click()`))
	state("discarded", false, false)
	// The browser reports the question that it does not ask, because no person touched the page.
	for _, line := range b.Complaints() {
		if !strings.Contains(line, "'beforeunload' confirmation panel") {
			t.Errorf("the browser reports %q", line)
		}
	}
}
