//go:build !quick

package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/web"
)

// Issue 13, 2: charts mark events. The marks are reached with Tab and the arrow keys, show their text, are apart from each
// other, and lead to the list.
func TestChartsMarkEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 6)
	w.now.Add((20 * time.Minute).Microseconds())
	w.override("acme", "reports-per-user", "u1")
	w.get("/account", "owner") // otherwise the session would end
	w.now.Add((20 * time.Minute).Microseconds())
	w.override("acme", "reports-per-user", "u2")
	w.publish("other", busyPlan(), "")
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0")
		for _, chart := range []string{"#rate", "#traffic", "#split", "#latency"} {
			b.Do(chromedp.WaitReady(chart + " .event-marks button"))
		}
		b.Do(chromedp.Focus("#rate .event-marks button[tabindex='0']"), chromedp.KeyEvent(kb.ArrowRight))
		if text := b.Text("#rate .event-text"); text != "21 Nov 09:20:00 Override created: reports-per-user of acme" {
			t.Errorf("%v: the second mark says %q", look, text)
		}
		if label := browser.Evaluate[string](b, `document.activeElement.getAttribute("aria-label")`); label != "21 Nov 09:20:00 Override created: reports-per-user of acme" {
			t.Errorf("%v: the second mark has the label %q", look, label)
		}
		b.Do(chromedp.KeyEvent(kb.End))
		if text := b.Text("#rate .event-text"); !strings.Contains(text, "21 Nov 09:40:00 Override created: reports-per-user of acme; 21 Nov 09:40:00 Plan published: other") {
			t.Errorf("%v: the last mark says %q", look, text)
		}
		b.Do(chromedp.KeyEvent(kb.Escape))
		if shown := browser.Evaluate[bool](b, `document.querySelector("#rate .event-text").checkVisibility()`); shown {
			t.Errorf("%v: Escape leaves the text", look)
		}
		if gap := browser.Evaluate[float64](b, leastGap); gap < 24 {
			t.Errorf("%v: two marks are %v px apart", look, gap)
		}
		b.Do(chromedp.KeyEvent(kb.Enter))
		if row := browser.Evaluate[string](b, `document.activeElement.closest("details[open] tr")?.dataset.mark ?? ""`); row != "O" {
			t.Errorf("%v: the last mark leads to the row %q", look, row)
		}
		keep(t, b, "events "+look.theme+" "+map[int64]string{1280: "1280", 360: "360"}[look.width])
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%v: the browser complains:\n%s", look, strings.Join(list, "\n"))
		}
	}
}

// leastGap returns the least distance between the centers of two marks of the chart of rates.
const leastGap = `(() => {
	const lefts = [...document.querySelectorAll("#rate .event-marks button")].map((b) => parseFloat(b.style.left));
	return Math.min(...lefts.slice(1).map((left, i) => left - lefts[i]));
})()`
