//go:build !quick

package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// axe-core finds what people with disabilities could not use; testdata/axe has
// its licence.
//
//go:embed testdata/axe/axe-4.14.1.min.js.gz
var axePacked []byte

func axeSource(t *testing.T) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(axePacked))
	must(t, err)
	source, err := io.ReadAll(z)
	must(t, err)
	return string(source)
}

// A screen is a page as somebody sees it.
type screen struct{ name, path, by string }

// screens are all pages of the route table, each by the first of those who may
// see it; what is no page (files, streams, downloads, ways on) is left out.
func (w *world) screens(t *testing.T) []screen {
	t.Helper()
	var list []screen
	for _, r := range w.table(t) {
		if r.method != http.MethodGet || notAPage.MatchString(r.path) {
			continue
		}
		viewers := []string{"owner", "acme-admin"}
		if !r.needsSession() {
			viewers = []string{""}
		}
		for _, by := range viewers {
			if expected(r, by) != "" {
				continue
			}
			page := w.get(w.at(r.path), by)
			if page.Code == http.StatusOK && strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
				name := strings.Trim(strings.NewReplacer("/", "_", ":", "").Replace(r.path), "_")
				list = append(list, screen{name + "-" + cmp.Or(by, "nobody"), w.at(r.path), by})
			}
		}
	}
	if !slices.ContainsFunc(list, func(s screen) bool { return s.by == "acme-admin" }) || !slices.ContainsFunc(list, func(s screen) bool { return s.by == "owner" }) {
		t.Fatal("there is no page for those who are signed in")
	}
	// Those without a route of their own.
	return append(list,
		screen{"not-found", "/none", "owner"}, screen{"not-found-nobody", "/none", ""}, screen{"forbidden", "/people", "acme-admin"},
		screen{"invited", "/invite/none", ""})
}

// notAPage are routes that answer with no page of their own.
var notAPage = regexp.MustCompile(`^/$|/static/|/live$|\.csv$|/jump/found$|/oidc`)

// in signs somebody in, in the browser; "" is nobody.
func (w *world) in(ctx context.Context, t *testing.T, server, by, theme string) {
	t.Helper()
	_, err := chromedp.Call(ctx, network.ClearBrowserCookies, cdp.Empty{})
	must(t, err)
	cookies := map[string]string{themeCookie: theme, "headgate": w.cookies[by]}
	for name, value := range cookies {
		if value != "" {
			_, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: name, Value: value, URL: server})
			must(t, err)
		}
	}
}

// A violation is what axe says of a page.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		Target []any  `json:"target"`
		HTML   string `json:"html"`
		Why    string `json:"failureSummary"`
	} `json:"nodes"`
}

const (
	everyRule    = `axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations)`
	contrastOnly = `axe.run(document, {resultTypes: ["violations"], runOnly: {type: "rule", values: ["color-contrast"]}}).then(r => r.violations)`
)

// Every page, in both themes, is without a fault that axe-core finds; nothing
// sticks out at 360 px; the browser has nothing to complain of. With
// HEADGATE_SCREENSHOTS=folder the test also keeps what it saw, to be looked at.
func TestEveryScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	heard := &complaints{host: strings.TrimPrefix(server.URL, "http://")}
	ctx := browser(t)
	axe := axeSource(t)
	must(t, chromedp.Listen(ctx, heard.hear))
	known := 0
	for _, s := range w.screens(t) {
		for _, theme := range []string{"light", "dark"} {
			w.in(ctx, t, server.URL, s.by, theme)
			for _, width := range []int64{1280, 360} {
				name := fmt.Sprintf("%s %s %d", s.name, theme, width)
				must(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(server.URL+s.path)))
				w.keep(ctx, t, name)
				if wide, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](sticksOut)); err != nil || len(wide) > 0 {
					t.Errorf("%s: wider than the page: %q %v", name, wide, err)
				}
				rules := everyRule
				if theme == "dark" {
					rules = contrastOnly // all else is the same page
				}
				if width == 360 {
					continue // and so is this
				}
				must(t, chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](axe)))
				found, err := chromedp.Run(ctx, chromedp.Evaluate[[]violation](rules, chromedp.EvalAwaitPromise))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, v := range found {
					for _, n := range v.Nodes {
						t.Errorf("%s: %s (%s)\n%v %s\n%s", name, v.ID, v.Help, n.Target, n.HTML, n.Why)
					}
				}
			}
		}
		// A page that says no is an error in the browser's own log.
		list, _ := heard.all()
		list = slices.DeleteFunc(list[known:], func(s string) bool {
			return strings.Contains(s, "Failed to load resource: the server responded with a status of 40")
		})
		if len(list) > 0 {
			t.Errorf("%s: the browser complains:\n%s", s.name, strings.Join(list, "\n"))
		}
		all, _ := heard.all()
		known = len(all)
	}
}

// sticksOut names the elements that make a page wider than its window.
const sticksOut = `(() => {
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth <= width + 1) return [];
	return [...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, .tabs, pre"))
		.slice(0, 5).map(e => e.tagName + "." + e.className + " " + Math.round(e.getBoundingClientRect().right));
})()`

// keep takes a picture of the page, if somebody wants to look.
func (w *world) keep(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("HEADGATE_SCREENSHOTS")
	if folder == "" {
		return
	}
	time.Sleep(150 * time.Millisecond) // for the eye: charts are drawn by then; nothing is asserted of it
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	must(t, err)
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".png"), picture, 0o644))
}
