//go:build !quick

package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/web"
)

// laidOut returns the pages whose layout the tests of this file measure.
func (w *world) laidOut(t *testing.T) []string {
	t.Helper()
	w.publish("busy", busyPlan(), "acme")
	id := w.login("acme", "203.0.113.9", 8)
	w.flushNow()
	return []string{
		"/overview", "/denials", "/denials/" + id, "/denials?group=key", "/tenants", "/tenants/acme", "/tenants/acme/settings",
		"/tenants/acme/usage/login-per-ip?k.ip=203.0.113.9", "/plans", "/plans/busy", "/plans/busy/edit", "/explain?tenant=acme&path=/v1/login",
		"/playground", "/playground?request=reserve&again=key", "/audit", "/system",
	}
}

// settled waits until the chart of requests is drawn, if the page has one, and two frames have passed.
const settled = `new Promise(done => {
	const drawn = () => !document.querySelector("#traffic") || document.querySelector("#traffic canvas")
		? requestAnimationFrame(() => requestAnimationFrame(() => done(true))) : requestAnimationFrame(drawn);
	drawn();
})`

// shifted returns the sum of the layout shifts of a page that no input caused.
const shifted = `(() => {
	const o = new PerformanceObserver(() => {});
	o.observe({ type: "layout-shift", buffered: true });
	return o.takeRecords().filter(e => !e.hadRecentInput).reduce((sum, e) => sum + e.value, 0);
})()`

// The content of a wide page moves little while the page loads.
func TestPagesDoNotShift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pages := w.laidOut(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	b.Do(chromedp.EmulateViewport(1280, 800))
	for _, path := range pages {
		b.Do(chromedp.Navigate(origin + path))
		browser.Evaluate[bool](b, settled)
		if score := browser.Evaluate[float64](b, shifted); score > mostShift {
			t.Errorf("%s: layout shift %.4f, at most %.2f:\n%s", path, score, mostShift, strings.Join(browser.Evaluate[[]string](b, shifts), "\n"))
		}
	}
	// The score is not zero of a page that shifts.
	moved := browser.Evaluate[float64](b, `new Promise(done => {
		document.querySelector("main").style.marginTop = "300px";
		requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(`+shifted+`))));
	})`)
	if moved <= mostShift {
		t.Errorf("a page that moved by 300 px has a layout shift of %.4f", moved)
	}
}

// mostShift is the maximum sum of layout shifts of a page. A score of 0.1 is the limit of "good" of
// web.dev.
const mostShift = 0.1

// clipped returns the elements whose text is cut off, or lies on that of another element.
const clipped = `(() => {
	const found = [];
	const cut = e => e && (getComputedStyle(e).clipPath !== "none" || cut(e.parentElement)); // text for screen readers, such as the head of a stacked table
	const shown = e => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && e.getBoundingClientRect().width > 1 && !cut(e);
	const texts = [...document.querySelectorAll("main *")].filter(e => shown(e) && !e.closest(".hidden, .chart, svg, canvas, pre, .scroll, .decision-id") &&
		[...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
	for (const e of texts) {
		for (let c = e; c && c.tagName !== "MAIN"; c = c.parentElement) {
			const style = getComputedStyle(c);
			if (style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && c.scrollWidth > c.clientWidth + 1 && c.clientWidth > 1 ||
				style.overflowY === "hidden" && c.scrollHeight > c.clientHeight + 1 && c.clientHeight > 1) {
				found.push("clipped: " + c.tagName + "." + c.className + ": " + e.textContent.trim().slice(0, 40));
				break;
			}
		}
	}
	const boxes = texts.filter(e => !e.children.length).flatMap(e => {
		const range = document.createRange();
		range.selectNodeContents(e);
		return [...range.getClientRects()].map(r => ({ e, r })); // of each line
	});
	for (let i = 0; i < boxes.length; i++) for (let k = i + 1; k < boxes.length; k++) {
		const a = boxes[i].r, b = boxes[k].r;
		const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
		if (boxes[i].e !== boxes[k].e && x > 2 && y > 4) found.push("overlap: " + boxes[i].e.textContent.trim().slice(0, 30) + " and " + boxes[k].e.textContent.trim().slice(0, 30));
	}
	return found.slice(0, 5);
})()`

// At a zoom of 200%, a window of 1280 px has 640 CSS pixels. Nothing is cut off, lies on other text, or
// is wider than the page.
func TestZoomOf200Percent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pages := w.laidOut(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	b.Do(chromedp.EmulateViewport(640, 400, chromedp.EmulateScale(2)))
	for _, path := range pages {
		b.Do(chromedp.Navigate(origin + path))
		browser.Evaluate[bool](b, settled)
		if list := browser.Evaluate[[]string](b, clipped); len(list) > 0 {
			t.Errorf("%s: %q", path, list)
		}
		if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
			t.Errorf("%s: wider than the page: %q", path, wide)
		}
	}
	browser.Evaluate[bool](b, `(document.querySelector("main h1").style.cssText = "overflow: hidden; height: 3px", true)`)
	if list := browser.Evaluate[[]string](b, clipped); len(list) == 0 {
		t.Error("a title that is cut off is not found")
	}
}

// A browser can enlarge the text alone, to 200%, and leave the width of the page as it is. On every page, nothing is then cut
// off, lies on other text, or is wider than the page, on a wide page and on that of a phone.
func TestTextOf200Percent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	b, origin := w.browser(t)
	_, err := chromedp.Call(b.Context, page.SetFontSizes, page.SetFontSizesParams{FontSizes: &page.FontSizes{Standard: 32, Fixed: 26}})
	must(t, err)
	for _, s := range w.screens(t) {
		b.Do(chromedp.Navigate(origin + "/static/none")) // ends the live streams before the next sign-in
		b.Cookies(origin, map[string]string{"headgate": w.cookies[s.by]})
		for _, width := range []int64{1280, 360} {
			b.Do(chromedp.EmulateViewport(width, 800), chromedp.Navigate(origin+s.path))
			browser.Evaluate[bool](b, settled)
			if size := browser.Evaluate[string](b, `getComputedStyle(document.documentElement).fontSize`); size != "32px" && !strings.HasPrefix(s.name, "display") {
				t.Fatalf("%s: the text has the size %s", s.name, size)
			}
			if list := browser.Evaluate[[]string](b, clipped); len(list) > 0 {
				t.Errorf("%s %d: %q", s.name, width, list)
			}
			if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
				t.Errorf("%s %d: wider than the page: %q", s.name, width, wide)
			}
		}
	}
}

// A printed page has its content on white, without navigation and buttons.
func TestPrintView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pages := w.laidOut(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: "dark"})
	b.Do(chromedp.EmulateViewport(794, 1123)) // A4
	_, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	must(t, err)
	for _, path := range pages {
		b.Do(chromedp.Navigate(origin + path))
		browser.Evaluate[bool](b, settled)
		if shown := browser.Evaluate[[]string](b, `[...document.querySelectorAll(".side, nav:not(.toc), .filter-form, dialog")]
			.filter(e => e.checkVisibility() && e.getBoundingClientRect().height > 0).map(e => e.tagName + "." + e.className)`); len(shown) > 0 {
			t.Errorf("%s: the print has %q", path, shown)
		}
		if title := browser.Evaluate[bool](b, `document.querySelector("main h1").checkVisibility()`); !title {
			t.Errorf("%s: the print has no title", path)
		}
		if ground := browser.Evaluate[string](b, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(255, 255, 255)" && !strings.HasSuffix(ground, ", 0)") {
			t.Errorf("%s: the print of the dark theme has the background %s", path, ground)
		}
		if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
			t.Errorf("%s: wider than the paper: %q", path, wide)
		}
	}
}
