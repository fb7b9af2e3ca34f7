//go:build !quick

package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// focused returns the text or name of the element with the focus.
const focused = `((e) => e === document.body ? "" : (e.getAttribute("aria-label") || e.innerText || e.name || e.id || "").trim())(document.activeElement)`

// Only with the keyboard, a person can skip the navigation, go through it, find any page by its
// name, and open and close the navigation on a phone.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	keys := func(k string) { t.Helper(); b.Do(chromedp.KeyEvent(k)) }

	// The first stop of the Tab key skips the navigation.
	b.Open(origin + "/plans?live=0")
	keys(kb.Tab)
	if got := browser.Evaluate[string](b, focused); got != "Skip to the content" {
		t.Fatalf("the first stop is %q", got)
	}
	keys(kb.Enter)
	keys(kb.Tab)
	if !browser.Evaluate[bool](b, `document.querySelector("main").contains(document.activeElement)`) {
		t.Errorf("behind the skip link the focus is at %q", browser.Evaluate[string](b, focused))
	}
	if !browser.Evaluate[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== "none" && parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2`) {
		t.Error("one cannot see where the focus is")
	}

	// Every stop of the Tab key can be reached and left, and is visible when it has the focus.
	b.Open(origin + "/plans")
	var stops []string
	for range 200 {
		keys(kb.Tab)
		stop := browser.Evaluate[string](b, focused)
		if stop == "" || len(stops) > 0 && stop == stops[0] {
			break
		}
		if !browser.Evaluate[bool](b, `((r) => r.width > 0 && r.height > 0)(document.activeElement.getBoundingClientRect())`) {
			t.Errorf("the focus is at %q, which cannot be seen", stop)
		}
		stops = append(stops, stop)
	}
	all := strings.Join(stops, "\n")
	for _, want := range []string{"Overview", "Denials", "Tenants", "Plans", "Sign out", "Dark theme", "Pro"} {
		if !strings.Contains(all, want) {
			t.Errorf("the keyboard does not reach %q:\n%s", want, all)
		}
	}

	// The palette can be opened, typed into, used with the arrow keys, and closed.
	b.Do(chromedp.KeyEvent("k", chromedp.KeyModifiers(2))) // Ctrl
	if !browser.Evaluate[bool](b, `document.getElementById("palette").open`) {
		t.Fatal("Ctrl K opens nothing")
	}
	keys(kb.Escape)
	if browser.Evaluate[bool](b, `document.getElementById("palette").open`) {
		t.Error("Escape does not close the palette")
	}
	b.Do(chromedp.KeyEvent("k", chromedp.KeyModifiers(2)), chromedp.KeyEvent("acme"))
	b.Do(chromedp.WaitVisible(`#jump-found a[href="/tenants/acme"]`), chromedp.KeyEvent(kb.ArrowDown))
	if got := browser.Evaluate[string](b, `document.activeElement.getAttribute("href")`); got != "/tenants/acme" {
		t.Errorf("the arrow goes to %q", got)
	}
	if status, title := b.Follow(chromedp.KeyEvent(kb.Enter)), b.Title(); status != 200 || !strings.Contains(title, "Acme") {
		t.Errorf("Enter leads to %d %q", status, title)
	}

	// On a phone the navigation opens by its button and closes with Escape.
	b.Do(chromedp.EmulateViewport(360, 800))
	b.Open(origin + "/plans")
	for range 10 {
		if browser.Evaluate[string](b, focused) == "Open the navigation" {
			break
		}
		keys(kb.Tab)
	}
	keys(kb.Enter)
	if !browser.Evaluate[bool](b, `document.getElementById("navigation").matches(":popover-open")`) {
		t.Fatalf("the navigation does not open; the focus is at %q", browser.Evaluate[string](b, focused))
	}
	keys(kb.Tab)
	if !browser.Evaluate[bool](b, `document.getElementById("navigation").contains(document.activeElement)`) {
		t.Errorf("in the open navigation the focus is at %q", browser.Evaluate[string](b, focused))
	}
	keys(kb.Escape)
	if browser.Evaluate[bool](b, `document.getElementById("navigation").matches(":popover-open")`) {
		t.Error("Escape does not close the navigation")
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
}
