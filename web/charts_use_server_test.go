//go:build !quick

package web_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/web"
)

// touched selects the middle of the chart of requests with a finger.
const touched = `(() => {
	const over = document.querySelector("#traffic .u-over");
	const box = over.getBoundingClientRect();
	const send = (type, part) => over.dispatchEvent(new PointerEvent(type,
		{ bubbles: true, pointerType: "touch", clientX: box.left + box.width * part, clientY: box.top + box.height / 2 }));
	send("pointerdown", 0.25);
	send("pointermove", 0.75);
	send("pointerup", 0.75);
})()`

// Issue 13, 2: charts are read with the keyboard, share their cursor, hide series, and zoom with a finger.
func TestUseCharts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	for _, n := range []int{31, 40, 9} {
		w.now.Add(time.Minute.Microseconds())
		w.login("acme", "203.0.113.9", n)
	}
	w.flushNow()
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0&range=15m")
		b.Do(chromedp.WaitVisible("#traffic canvas"), chromedp.WaitVisible("#rate canvas"))

		b.Do(chromedp.Focus("#traffic .plot"), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.ArrowLeft))
		if aloud := b.Text("#traffic [role=status]"); aloud != "21 Nov, 09:02 UTC: Allowed 5, Denied by limits 35, Other denials 0" {
			t.Errorf("%v: the arrow key reads %q", look, aloud)
		}
		if time, rate := b.Text("#rate .legend b"), b.Text("#rate .legend [data-color]"); time != "21 Nov, 09:02 UTC" || rate != "429 rate 87.5%" {
			t.Errorf("%v: the cursor of the other chart shows %q, %q", look, time, rate)
		}
		b.Do(chromedp.KeyEvent(kb.Escape))
		const hovers = `(() => {
			const box = document.querySelector("#rate .u-over").getBoundingClientRect();
			const at = document.querySelector("#rate hg-chart").chart.valToPos(Date.UTC(2026, 10, 21, 9, 2) / 1000, "x");
			document.querySelector("#rate .u-over").dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + at, clientY: box.top + 20 }));
			return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.querySelector("#traffic .legend b").textContent))));
		})()`
		if time := browser.Evaluate[string](b, hovers); time != "21 Nov, 09:02 UTC" {
			t.Errorf("%v: the cursor of the other chart follows the mouse to %q", look, time)
		}
		b.Do(chromedp.Focus("#traffic .plot"), chromedp.KeyEvent(kb.Escape))
		if time := b.Text("#rate .legend b") + b.Text("#traffic .legend b"); time != "" {
			t.Errorf("%v: Escape leaves the cursor at %q", look, time)
		}

		const high = `document.querySelector("#traffic hg-chart").chart.scales.y.max`
		before := browser.Evaluate[float64](b, high)
		b.Do(chromedp.Focus("#traffic .legend button[data-color=bad]"), chromedp.KeyEvent(kb.Enter))
		if after := browser.Evaluate[float64](b, high); before < 40 || after > 10 {
			t.Errorf("%v: without denials the axis ends at %v instead of %v", look, after, before)
		}
		if pressed := browser.Evaluate[string](b, `document.activeElement.getAttribute("aria-pressed")`); pressed != "false" {
			t.Errorf("%v: the button of the hidden series is pressed: %q", look, pressed)
		}

		b.Follow(chromedp.Evaluate[chromedp.Void](touched))
		u, err := url.Parse(browser.Evaluate[string](b, `location.href`))
		must(t, err)
		if q := u.Query(); q.Get("from") == "" || q.Get("to") == "" || q.Has("range") {
			t.Errorf("%v: a finger opens %s", look, u)
		}
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%v: the browser complains:\n%s", look, strings.Join(list, "\n"))
		}
	}
}
