//go:build !quick

package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/servertest/process"
)

// complaints are what a browser finds wrong with pages: violations of their
// policy, errors in its console, requests to other hosts.
type complaints struct {
	mu       sync.Mutex
	host     string
	list     []string
	requests int
}

func (c *complaints) hear(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		c.list = append(c.list, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
	case *runtime.EventConsoleAPICalled:
		c.list = append(c.list, fmt.Sprintf("console: %s", e.Type))
	case *runtime.EventExceptionThrown:
		c.list = append(c.list, "exception: "+e.ExceptionDetails.Text)
	case *network.EventRequestWillBeSent:
		c.requests++
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != c.host && u.Scheme != "data" {
			c.list = append(c.list, "request: "+e.Request.URL)
		}
	}
}

func (c *complaints) all() (list []string, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.list...), c.requests
}

// browser starts Chromium, which talks to nobody of itself.
func browser(t *testing.T) context.Context {
	t.Helper()
	program, err := process.Program("chromium")
	must(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // of a busy machine
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// A person's way through the pages in a real browser, from the link of the first
// run to signing out: it finds nothing to complain of, and asks no other host.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	w := empty(t)
	w.now.Store(time.Now().UnixMicro()) // the browser has its own clock
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
	heard := &complaints{host: strings.TrimPrefix(server.URL, "http://")}
	ctx := browser(t)
	must(t, chromedp.Listen(ctx, heard.hear))

	page := func(title string, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		response, err := chromedp.RunResponse(ctx, steps...)
		must(t, err)
		got, err := chromedp.Run(ctx, chromedp.Title())
		must(t, err)
		if response.Status != http.StatusOK || got != title+" · Headgate" {
			t.Fatalf("%d %q, want %q", response.Status, got, title)
		}
	}
	page("Set up Headgate", chromedp.Navigate(server.URL+"/setup/"+token))
	page("Sign in", chromedp.SendKeys("#email", "ada@example.com"), chromedp.SendKeys("#name", "Ada Lovelace"),
		chromedp.SendKeys("#password", password), chromedp.Click("main button[type=submit]"))
	page("People", chromedp.SendKeys("#email", "ada@example.com"), chromedp.SendKeys("#password", password), chromedp.Click("main button[type=submit]"))
	page("People", chromedp.Click(`nav a[href="/people"]`))
	page("One of people", chromedp.Click(`main th a`))
	page("Your account", chromedp.Click(`a.side-person`))
	page("Headgate", chromedp.Click(`nav a[href="/docs"]`))
	page("Your account", chromedp.Click(`.who a[href="/account"]`))
	page("Sign in", chromedp.Click(".side-actions form[action=\"/sign-out\"] button"))
	page("Sign in", chromedp.Navigate(server.URL+"/account"))

	list, requests := heard.all()
	if len(list) > 0 || requests < 10 {
		t.Errorf("%d requests, and the browser complains:\n%s", requests, strings.Join(list, "\n"))
	}
	// The same ear hears what a careless page would do.
	must(t, chromedp.Do(ctx, chromedp.Navigate(server.URL+"/careless")))
	if list, _ = heard.all(); len(list) < 2 {
		t.Errorf("of a style and a script in the page the browser says %q", list)
	}
}
