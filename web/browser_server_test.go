//go:build !quick

package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// A person uses the pages in a real browser, from the first set-up link to signing out. The
// browser reports no errors, and requests nothing from another host.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	w := empty(t)
	w.now.Store(time.Now().UnixMicro()) // the browser has the real time
	token, err := w.people.SetupLink(t.Context())
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", w.handler)
	mux.HandleFunc("/careless", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Security-Policy", policy)
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte(`<!DOCTYPE html><html lang="en"><title>x</title><p style="color:red">x</p><script>document.title = "ran"</script>`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL)

	page := func(title string, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if status, got := b.Follow(steps...), b.Title(); status != http.StatusOK || got != title+" · Headgate" {
			t.Fatalf("%d %q, want %q", status, got, title)
		}
	}
	page("Set up Headgate", chromedp.Navigate(server.URL+"/setup/"+token))
	page("Overview", chromedp.SendKeys("#email", "ada@example.com"), chromedp.SendKeys("#name", "Ada Lovelace"),
		chromedp.SendKeys("#password", password), chromedp.Click("main button[type=submit]"))
	page("People", chromedp.Click(`nav a[href="/people"]`))
	page("Person", chromedp.Click(`main th a`))
	page("Your account", chromedp.Click(`a.side-person`))
	page("Headgate", chromedp.Click(`nav a[href="/docs"]`))
	page("Your account", chromedp.Click(`.who a[href="/account"]`))
	page("Sign in", chromedp.Click(".side-actions form[action=\"/sign-out\"] button"))
	page("Overview", chromedp.SendKeys("#email", "ada@example.com"), chromedp.SendKeys("#password", password), chromedp.Click("main button[type=submit]"))
	page("Sign in", chromedp.Click(".side-actions form[action=\"/sign-out\"] button"))
	page("Sign in", chromedp.Navigate(server.URL+"/account"))

	if list := b.Complaints(); len(list) > 0 || b.Requests() < 10 {
		t.Errorf("%d requests, and the browser complains:\n%s", b.Requests(), strings.Join(list, "\n"))
	}
	// The browser would report the errors of a careless page.
	b.Do(chromedp.Navigate(server.URL + "/careless"))
	if list := b.Complaints(); len(list) < 2 {
		t.Errorf("of a style and a script in the page the browser says %q", list)
	}
}
