//go:build !quick

package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/internal/sharing"
)

// Issue 13, 3: an open display whose link is revoked says that the link has ended, and shows no figures. After a reload
// it says the same.
func TestARevokedDisplayEndsInTheBrowser(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.shell.RecheckSessionsEvery(50 * time.Millisecond)
	for page, owner := range map[string]string{"/overview": "", "/tenants/acme": "acme"} {
		path := w.share(page, "owner", shareForm(sharing.Display, "range=15m"))
		b, origin := w.browser(t)
		b.Do(chromedp.EmulateViewport(1920, 1080))
		b.Open(origin + path)
		browser.Evaluate[bool](b, until(`document.documentElement.dataset.stream === "open" && document.querySelector("#traffic canvas")`))
		before := browser.Evaluate[string](b, `document.querySelector("main").innerText`)
		if !strings.Contains(before, "203.0.113.9") {
			t.Errorf("%s: the display does not show the limited key: %s", page, before)
		}
		list, err := w.sharing.Links(t.Context(), w.ids[owner], sharing.Filter{Limit: 1})
		must(t, err)
		must(t, w.sharing.Revoke(t.Context(), w.ids[owner], list[0].ID))
		browser.Evaluate[bool](b, until(`document.querySelector(".shared-ended")`))
		const shown = `document.body.innerText.trim().split("\n").filter(line => line.trim() && line !== "Skip to the content").join("|")`
		const want = "This link has ended|It has expired or was revoked. Ask the person who sent it for a new one."
		if got := browser.Evaluate[string](b, shown); got != want {
			t.Errorf("%s: after the revocation, the display shows %q", page, got)
		}
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%s: the browser complains:\n%s", page, strings.Join(list, "\n"))
		}
		b.Do(chromedp.Navigate(origin + path))
		if got := browser.Evaluate[string](b, shown); got != want {
			t.Errorf("%s: after a reload, the display shows %q", page, got)
		}
		if list := b.Complaints(http.StatusNotFound); len(list) > 0 {
			t.Errorf("%s: after a reload, the browser complains:\n%s", page, strings.Join(list, "\n"))
		}
	}
}
