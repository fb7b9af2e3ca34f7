//go:build !quick

package web_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/tenants"
)

// Issue 13, 1.5: a reload of the page with a new key creates no second key, and does not show
// the key again.
func TestReloadOfANewKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, origin := w.browser(t)
	bounded, cancel := context.WithTimeout(b.Context, time.Minute)
	t.Cleanup(cancel)
	b.Context = bounded
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	valid := func() int {
		list, err := w.tenants.Keys(t.Context(), w.ids["acme"], tenants.Filter{Limit: 100})
		must(t, err)
		return len(list)
	}
	before := valid()
	b.Open(origin + "/tenants/acme/keys/new")
	status := b.Follow(chromedp.SendKeys("#name", "edge"), chromedp.Click("main form button[type=submit]"))
	token := browser.Evaluate[string](b, `document.getElementById("token").value`)
	if status != http.StatusOK || !tenants.WellFormed(token) || valid() != before+1 {
		t.Fatalf("%d %q, %d keys after %d", status, token, valid(), before)
	}
	if status := b.Follow(chromedp.Reload()); status != http.StatusGone || valid() != before+1 {
		t.Errorf("after a reload: %d, %d keys, %q", status, valid(), b.Text("main"))
	}
	if list := b.Complaints(http.StatusGone); len(list) > 0 {
		t.Errorf("the browser reports %q", list)
	}
}
