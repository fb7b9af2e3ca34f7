//go:build !quick

package web_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// until returns JavaScript for a promise that is resolved when an expression is true.
func until(expression string) string {
	return `new Promise((done) => { const look = () => ((` + expression + `) ? done(true) : setTimeout(look, 20)); look(); })`
}

// Issue 13, 1.4: the live list of denials stands still while it is read, and says how many came.
func TestLiveListHolds(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.login("acme", "203.0.113.9", 8) // further ones are denied
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	deny := func(n int) string {
		t.Helper()
		w.now.Add(time.Second.Microseconds())
		if n > 1 {
			w.login("acme", "203.0.113.9", n-1)
		}
		w.now.Add(time.Millisecond.Microseconds()) // the last one is the newest
		id := w.login("acme", "203.0.113.9", 1)
		w.flushNow()
		return id
	}
	const first = `document.querySelector("[data-hold] tbody tr").id.slice(4)`
	become := func(what, expression string) {
		t.Helper()
		browser.Evaluate[bool](b, until(expression))
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%s: the browser complains:\n%s", what, strings.Join(list, "\n"))
		}
	}
	const news = `(document.querySelector("[data-release]").offsetParent === null ? "" : document.querySelector("[data-release]").innerText)`
	for _, width := range []int64{1280, 360} {
		b.Do(chromedp.EmulateViewport(width, 800))
		for name, hold := range map[string]struct{ begin, begun, end string }{
			"focus": {
				`document.querySelector("[data-hold] a").focus({ preventScroll: true })`,
				`document.activeElement.closest("[data-hold]") !== null`, `document.activeElement.blur()`,
			},
			"scroll": {`scrollTo(0, 60)`, `scrollY > 8`, `scrollTo(0, 0)`}, // the page scrolls smoothly, so it takes time
		} {
			newest := deny(1)
			b.Open(origin + "/denials")
			become("the page is live", `document.documentElement.dataset.stream === "open"`)
			become("the newest denial", first+` === "`+newest+`"`)
			b.Do(chromedp.Evaluate[chromedp.Void](hold.begin))
			become("the list is held by "+name, hold.begun)
			became := deny(3)
			become("3 new", news+` === "3 new: show"`)
			last := deny(2)
			become("5 new", news+` === "5 new: show"`)
			if got := browser.Evaluate[string](b, first); got != newest {
				t.Errorf("%d, %s: the list moved to %s (%s is new)", width, name, got, became)
			}
			b.Do(chromedp.Evaluate[chromedp.Void](hold.end))
			become("the list again", first+` === "`+last+`" && `+news+` === ""`)
		}
	}
	// The list also stays in place while the pointer is on it. A button shows the number of new
	// denials.
	b.Do(chromedp.EmulateViewport(1280, 800))
	newest := deny(1)
	b.Open(origin + "/denials")
	become("the page is live", `document.documentElement.dataset.stream === "open"`)
	become("the newest denial", first+` === "`+newest+`"`)
	const middle = `((r) => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector("[data-hold] tbody tr td").getBoundingClientRect())`
	at := browser.Evaluate[[2]float64](b, middle)
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	become("the pointer is on the list", `document.querySelector("[data-hold]:hover") !== null`)
	place := browser.Evaluate[float64](b, `document.querySelector("[data-hold] tbody tr").getBoundingClientRect().top`)
	// A node keeps 50 denials of one second, so 60 need two seconds. One flush brings more than a page of them.
	var last string
	for range 2 {
		w.now.Add(time.Second.Microseconds())
		w.login("acme", "203.0.113.9", 29)
		w.now.Add(time.Millisecond.Microseconds())
		last = w.login("acme", "203.0.113.9", 1)
	}
	w.flushNow()
	become("a page of new denials", news+` === "At least 50 new: show"`)
	if got := browser.Evaluate[string](b, first); got != newest {
		t.Errorf("under the pointer, the list moved to %s", got)
	}
	if now := browser.Evaluate[float64](b, `document.querySelector("[data-hold] tbody tr").getBoundingClientRect().top`); now != place {
		t.Errorf("the button moved the row under the pointer from %v to %v", place, now)
	}
	b.Do(chromedp.Click("[data-release]"))
	become("the list again", first+` === "`+last+`" && `+news+` === ""`)

	// With groups, the list has no rows for single denials.
	b.Open(origin + "/denials?group=key")
	become("the page is live", `document.documentElement.dataset.stream === "open"`)
	b.Do(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-hold] a").focus()`))
	deny(4)
	become("a changed group", news+` === "Changed: show"`)
}

// Issue 13, 1.4: a page that lost its connection says so, with the time, and does not say "Live".
func TestLostConnection(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL)
	b.Cookies(server.URL, map[string]string{"headgate": w.cookies["owner"], "headgate-zone": "Asia%2FKolkata"})
	for _, path := range []string{"/denials", "/overview"} {
		b.Open(server.URL + path)
		browser.Evaluate[bool](b, until(`document.documentElement.dataset.stream === "open"`))
		if text := b.Text("main"); !strings.Contains(text, "Live") || b.Text("[data-lost]") != "" {
			t.Errorf("%s: connected, it says %q, %q", path, b.Text("[data-lost]"), text)
		}
		live := browser.Evaluate[float64](b, `getComputedStyle(document.querySelector("main [sse-swap]")).filter === "none" ? 1 : 0`)
		b.Do(chromedp.Evaluate[chromedp.Void](`window.EventSource = class extends EventTarget { static CLOSED = 2; readyState = 2; constructor() { super(); setTimeout(() => this.onerror()); } close() {} }`))
		server.CloseClientConnections()
		browser.Evaluate[bool](b, until(`document.querySelector("[data-lost]").innerText !== ""`))
		if text := b.Text("[data-lost]"); !strings.HasPrefix(text, "Connection lost at ") || !strings.Contains(text, " Asia/Kolkata. The figures are from then.") {
			t.Errorf("%s: without a connection, it says %q", path, text)
		}
		if text := b.Text("main"); strings.Contains(text, "Live") {
			t.Errorf("%s: without a connection, it says Live: %q", path, text)
		}
		if gray := browser.Evaluate[float64](b, `getComputedStyle(document.querySelector("main [sse-swap]")).filter === "grayscale(1)" ? 1 : 0`); gray+live != 2 {
			t.Errorf("%s: the figures are not gray", path)
		}
		b.Complaints() // the browser reports the lost connection
	}
}
