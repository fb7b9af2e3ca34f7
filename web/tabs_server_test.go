//go:build !quick

package web_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// Issue 13, 1.9: on a phone, the row of tabs shows that there are more. It never scrolls down, and a wide screen shows all tabs.
func TestTabsShowThatThereAreMore(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	b.Do(chromedp.EmulateViewport(360, 800))
	b.Open(origin + "/tenants/acme")
	const edges = `((row) => row.scrollWidth > row.clientWidth ? getComputedStyle(row).backgroundAttachment : "all tabs fit")(document.querySelector(".tabs"))`
	if got := browser.Evaluate[string](b, edges); got != "local, local, scroll, scroll" {
		t.Errorf("the edges of the tabs are %q", got)
	}
	const scrolls = `((row) => [row.scrollWidth > row.clientWidth, row.scrollHeight > row.clientHeight].join())(document.querySelector(".tabs"))`
	if got := browser.Evaluate[string](b, scrolls); got != "true,false" {
		t.Errorf("on a phone, the tabs scroll sideways and down: %s", got)
	}
	b.Do(chromedp.EmulateViewport(1280, 800))
	if got := browser.Evaluate[string](b, scrolls); got != "false,false" {
		t.Errorf("on a wide screen, the tabs scroll sideways and down: %s", got)
	}
}
