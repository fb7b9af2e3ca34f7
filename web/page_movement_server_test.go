//go:build !quick

package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// A slowServer serves the pages. On demand, scripts and fonts wait, and live streams end.
type slowServer struct {
	pages http.Handler
	mu    sync.Mutex
	late  chan struct{} // if it is set, scripts and fonts are sent after it is closed
	away  bool          // streams are rejected
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	late, away := s.late, s.away
	s.mu.Unlock()
	if ext := path.Ext(r.URL.Path); late != nil && (ext == ".js" || ext == ".woff2") {
		select {
		case <-late:
		case <-r.Context().Done():
		}
	}
	if away && r.Header.Get("Accept") == "text/event-stream" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.pages.ServeHTTP(w, r)
}

// hold makes later requests of scripts and fonts wait until the returned function is called.
func (s *slowServer) hold() (send func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := make(chan struct{})
	s.late = late
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(late)
		s.late = nil
	}
}

func (s *slowServer) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// spots records where everything is that can be read or clicked. It returns the number of places. A live part or a legend that is
// drawn again has new elements, so that each is found by its tag, its text and its number. A part that the page loads (hx-trigger) may
// change.
const spots = `(() => {
	window.spot = () => {
		const numbers = new Map();
		return new Map([...document.querySelectorAll("a, button, summary, input, select, label, h1, h2, h3, th, td, .tile")]
			.filter((e) => e.getClientRects().length && !e.closest("[hx-trigger], #in-shadow")).map((e) => {
				const name = e.tagName + " " + (e.getAttribute("aria-label") ?? (e.tagName === "SELECT" ? e.name : e.textContent)).trim().replace(/\s+/g, " ").slice(0, 40);
				numbers.set(name, (numbers.get(name) ?? 0) + 1);
				const r = e.getBoundingClientRect();
				return [name + " #" + numbers.get(name), [r.left, r.top]];
			}));
	};
	window.spots = window.spot();
	window.spotsAt = performance.now();
	return window.spots.size;
})()`

// moved returns what is elsewhere now, or gone.
const moved = `(() => {
	const now = window.spot();
	return [...window.spots].filter(([name, [left, top]]) => {
		const is = now.get(name) ?? [-1, -1];
		return Math.abs(is[0] - left) > 1 || Math.abs(is[1] - top) > 1;
	}).map(([name, was]) => name + ": " + was + " -> " + (now.get(name) ?? "gone")).slice(0, 5);
})()`

// shifts returns the layout shifts since spots was evaluated, or of the whole page, and what they moved.
const shifts = `(() => {
	const o = new PerformanceObserver(() => {});
	o.observe({ type: "layout-shift", buffered: true });
	const at = (r) => [r.left, r.top, r.width, r.height].map(Math.round).join(",");
	return o.takeRecords().filter((e) => e.startTime > (window.spotsAt ?? 0)).map((e) => e.value.toFixed(4) + " at " + Math.round(e.startTime) + " ms: " +
		e.sources.map((s) => (s.node?.outerHTML ?? s.node?.data ?? "").slice(0, 60) + " " + at(s.previousRect) + " -> " + at(s.currentRect)).join("; "));
})()`

// holdsStill fails the test if something moved since spots was evaluated.
func holdsStill(t *testing.T, b *browser.Browser, when string) {
	t.Helper()
	if list := browser.Evaluate[[]string](b, moved); len(list) > 0 {
		t.Errorf("%s: moved:\n%s", when, strings.Join(list, "\n"))
	}
	if list := browser.Evaluate[[]string](b, shifts); len(list) > 0 {
		t.Errorf("%s: layout shifts:\n%s", when, strings.Join(list, "\n"))
	}
}

func (w *world) slow(t *testing.T) (s *slowServer, b *browser.Browser, origin string) {
	t.Helper()
	s = &slowServer{pages: w.handler}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	b = browser.Start(t, server.URL)
	b.Cookies(server.URL, map[string]string{"headgate": w.cookies["owner"]})
	// Otherwise, scripts and fonts come from the cache of the browser at once.
	if _, err := chromedp.Call(b.Context, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true}); err != nil {
		t.Fatal(err)
	}
	// The browser has the clock of the server, so that the script says the same times.
	_, err := chromedp.Call(b.Context, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: fmt.Sprintf(`Date.now = () => %d`, w.clock().UnixMilli()),
	})
	must(t, err)
	return s, b, server.URL
}

// painted opens a page, and returns when it is painted. It does not wait for scripts and fonts.
func painted(t *testing.T, b *browser.Browser, url string) {
	t.Helper()
	_, err := chromedp.Call(b.Context, page.Navigate, page.NavigateParams{URL: url})
	must(t, err)
	for {
		// While the page changes, an evaluation fails.
		is, err := chromedp.Run(b.Context, chromedp.Evaluate[bool](fmt.Sprintf(
			`location.href === %q && document.readyState !== "loading" && performance.getEntriesByName("first-contentful-paint").length > 0`, url)))
		if err == nil && is {
			return
		}
		if b.Context.Err() != nil {
			t.Fatalf("%s is not painted: %v", url, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A page that is painted does not move any more: not when its scripts and its font come late.
func TestLateScriptsMoveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pages := append(w.laidOut(t), "/tenants/acme/keys", "/tenants/acme/overrides", "/people", "/account")
	s, b, origin := w.slow(t)
	for _, width := range []int64{1280, 360} {
		b.Do(chromedp.EmulateViewport(width, 800))
		for _, path := range pages {
			send := s.hold()
			painted(t, b, origin+path)
			if n := browser.Evaluate[int](b, spots); n < 5 {
				t.Errorf("%s: %d places", path, n)
			}
			if script := browser.Evaluate[bool](b, `!!window.htmx`); script {
				t.Fatalf("%s: the scripts are not late", path)
			}
			send()
			browser.Evaluate[bool](b, until(`document.readyState === "complete" && (!document.querySelector("[data-live]") || document.documentElement.dataset.stream)`))
			browser.Evaluate[bool](b, settled)
			holdsStill(t, b, fmt.Sprintf("%s at %d px", path, width))
		}
	}
}

// A person can scroll a row of tabs before the scripts of the page arrive. The scripts then do not scroll the row. If no one
// scrolls it, the row shows the open tab from the first paint on.
func TestTabsStayWhereTheyAreScrolled(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	s, b, origin := w.slow(t)
	const row = `document.querySelector(".tabs")`
	for _, width := range []int64{900, 360} { // on a wider screen, the tabs have a second row
		b.Do(chromedp.EmulateViewport(width, 800))
		send := s.hold()
		painted(t, b, origin+"/tenants/acme/settings")
		if hidden := browser.Evaluate[float64](b, row+`.scrollWidth - `+row+`.clientWidth`); hidden <= 0 {
			t.Fatalf("at %d px, the row of tabs is not wider than the page", width)
		}
		if beside := browser.Evaluate[float64](b, row+`.querySelector("[aria-current]").getBoundingClientRect().right - `+row+`.getBoundingClientRect().right`); beside > 1 {
			t.Errorf("at %d px, the open tab is %v px beside the row before the scripts came", width, beside)
		}
		b.Do(chromedp.Evaluate[chromedp.Void](row + `.scrollTo({ left: 0, behavior: "instant" })`))
		browser.Evaluate[int](b, spots)
		const at = `((r) => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector(".tabs a").getBoundingClientRect())`
		aim := browser.Evaluate[[2]float64](b, at)
		send()
		browser.Evaluate[bool](b, until(`document.readyState === "complete" && !!window.htmx`))
		browser.Evaluate[bool](b, settled)
		holdsStill(t, b, fmt.Sprintf("at %d px", width))
		b.Follow(chromedp.MouseClickXY(aim[0], aim[1]))
		if where := browser.Evaluate[string](b, `location.pathname`); where != "/tenants/acme" {
			t.Errorf("at %d px, a click on the first tab leads to %s", width, where)
		}
	}
}

// A page of which only a part has arrived is not painted yet, because the grids of its cards depend on what follows.
func TestAHalfPageIsNotPainted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.laidOut(t)
	rest := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/tenants/acme" {
			w.handler.ServeHTTP(rw, r)
			return
		}
		r.Header.Del("Accept-Encoding")
		page := httptest.NewRecorder()
		w.handler.ServeHTTP(page, r)
		first, second, found := strings.Cut(page.Body.String(), "</figure>")
		if !found {
			t.Error("the page has no figure")
		}
		for name, values := range page.Header() {
			rw.Header()[name] = values
		}
		rw.Header().Del("Content-Length")
		_, _ = rw.Write([]byte(first + "</figure>"))
		_ = http.NewResponseController(rw).Flush()
		<-rest
		_, _ = rw.Write([]byte(second))
	}))
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL)
	b.Cookies(server.URL, map[string]string{"headgate": w.cookies["owner"]})
	b.Do(chromedp.EmulateViewport(1280, 800))
	_, err := chromedp.Call(b.Context, page.Navigate, page.NavigateParams{URL: server.URL + "/tenants/acme"})
	must(t, err)
	// Enough time to paint what has arrived.
	browser.Evaluate[bool](b, `new Promise((done) => {
		const look = () => (document.querySelector("main figure") ? setTimeout(() => done(true), 1000) : setTimeout(look, 20));
		look();
	})`)
	close(rest)
	browser.Evaluate[bool](b, until(`document.readyState === "complete"`))
	browser.Evaluate[bool](b, settled)
	if list := browser.Evaluate[[]string](b, shifts); len(list) > 0 {
		t.Errorf("layout shifts:\n%s", strings.Join(list, "\n"))
	}
}

// The message about a lost connection moves nothing, and a click through it hits what is below it.
func TestLostConnectionMovesNothing(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	s, b, origin := w.slow(t)
	for _, width := range []int64{1280, 360} {
		b.Do(chromedp.EmulateViewport(width, 800))
		for _, path := range []string{"/overview", "/denials", "/tenants/acme"} {
			when := fmt.Sprintf("%s at %d px", path, width)
			s.setAway(false)
			b.Open(origin + path)
			browser.Evaluate[bool](b, settled)
			browser.Evaluate[bool](b, until(`document.documentElement.dataset.stream === "open"`))
			browser.Evaluate[int](b, spots)
			s.setAway(true)
			// A real stream that ends: the browser reports an error, and connects again in vain.
			b.Do(chromedp.Evaluate[chromedp.Void](`dispatchEvent(new Event("pagehide")), dispatchEvent(new Event("pageshow"))`))
			browser.Evaluate[bool](b, until(`document.querySelector("[data-lost]").innerText.startsWith("Connection lost at ")`))
			browser.Evaluate[bool](b, settled)
			holdsStill(t, b, when)
			if in := browser.Evaluate[bool](b, `((r) => r.height > 20 && r.top >= 0 && r.bottom <= innerHeight + 1)(document.querySelector("[data-lost]").getBoundingClientRect())`); !in {
				t.Errorf("%s: the message is not in the window", when)
			}
			if hit := browser.Evaluate[bool](b, `((r) => document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2).closest("[data-lost]") === null)(document.querySelector("[data-lost]").getBoundingClientRect())`); !hit {
				t.Errorf("%s: the message takes clicks", when)
			}
			b.Complaints() // the browser reports the rejected streams
		}
	}
}

// While the pointer is on a control, live parts above it that change their height wait, and so does a part that would replace it.
func TestLiveUpdatesMoveNothingUnderThePointer(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	_, b, origin := w.slow(t)
	b.Do(chromedp.EmulateViewport(1280, 800))
	b.Open(origin + "/overview")
	browser.Evaluate[bool](b, settled)
	browser.Evaluate[bool](b, until(`document.documentElement.dataset.stream === "open"`))
	// A live part above the charts, whose content the test sends as the stream would.
	send := func(html string) {
		t.Helper()
		b.Do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`((place) => {
			const come = new CustomEvent("htmx:sseBeforeMessage", { bubbles: true, cancelable: true, detail: { data: %q } });
			if (!place.dispatchEvent(come)) return;
			window.htmx.swap(place, %q, { swapStyle: "innerHTML", swapDelay: 0, settleDelay: 0 });
		})(document.querySelector('[sse-swap="tiles"]'))`, html, html)))
	}
	const control = `document.querySelector(".chart-choices a")`
	const tiles = `document.querySelector('[sse-swap="tiles"]').innerText.trim()`
	const aim = `(` + control + `.scrollIntoView({ block: "center", behavior: "instant" }), ((r) => [r.left + r.width / 2, r.top + r.height / 2])(` + control + `.getBoundingClientRect()))`
	at := browser.Evaluate[[2]float64](b, aim)
	move := func(x, y float64) { b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y)) }
	move(at[0], at[1])
	browser.Evaluate[bool](b, until(control+`.matches(":hover")`))
	browser.Evaluate[int](b, spots)
	send(`<p style="height: 400px">higher</p>`)
	send(`<div style="height: 500px">even higher</div>`)
	time.Sleep(700 * time.Millisecond) // longer than the pointer counts as moving, so that the control alone holds the part
	if top := browser.Evaluate[bool](b, `document.elementFromPoint(`+fmt.Sprint(at[0], ",", at[1])+`) === `+control); !top {
		t.Error("the control moved away under the pointer")
	}
	holdsStill(t, b, "with the pointer on a control")
	// The part has its newest content when the pointer left.
	move(1270, 5)
	browser.Evaluate[bool](b, until(tiles+` === "even higher"`))
	// A change that moves nothing does not wait.
	at = browser.Evaluate[[2]float64](b, aim)
	move(at[0], at[1])
	browser.Evaluate[bool](b, until(control+`.matches(":hover")`))
	send(`<div style="height: 500px">as high</div>`)
	browser.Evaluate[bool](b, until(tiles+` === "as high"`))
	// A part that would replace the control under the pointer waits.
	send(`<div style="height: 500px"><a href="/plans">plans</a></div>`)
	browser.Evaluate[bool](b, until(tiles+` === "plans"`))
	at = browser.Evaluate[[2]float64](b, `((e) => (e.scrollIntoView({ block: "center", behavior: "instant" }), ((r) => [r.left + r.width / 2, r.top + r.height / 2])(e.getBoundingClientRect())))(document.querySelector('[sse-swap="tiles"] a'))`)
	move(at[0], at[1])
	browser.Evaluate[bool](b, until(`document.querySelector('[sse-swap="tiles"] a').matches(":hover")`))
	send(`<div style="height: 500px"><a href="/audit">audit</a></div>`)
	if text := browser.Evaluate[string](b, tiles); text != "plans" {
		t.Errorf("the link under the pointer became %q", text)
	}
}
