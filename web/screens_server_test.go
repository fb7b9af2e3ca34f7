//go:build !quick

package web_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/web"
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

// A screen is a page as one visitor sees it.
type screen struct{ name, path, by string }

// screens returns all pages of the route table, each with the first person who may see it.
// Routes that are not pages (files, streams, downloads, redirects) are left out.
func (w *world) screens(t *testing.T) []screen {
	t.Helper()
	var list []screen
	for _, r := range w.table(t) {
		if r.Method != http.MethodGet || notAPage.MatchString(r.Path) {
			continue
		}
		viewers := []string{"owner", "acme-admin"}
		if !(r.Action != accounts.Public) {
			viewers = []string{""}
		}
		for _, by := range viewers {
			if expected(r, by) != "" {
				continue
			}
			page := w.get(w.at(r.Path), by)
			if page.Code == http.StatusOK && strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
				name := strings.Trim(strings.NewReplacer("/", "_", ":", "").Replace(r.Path), "_")
				list = append(list, screen{name + "-" + cmp.Or(by, "nobody"), w.at(r.Path), by})
			}
		}
	}
	if !slices.ContainsFunc(list, func(s screen) bool { return s.by == "acme-admin" }) || !slices.ContainsFunc(list, func(s screen) bool { return s.by == "owner" }) {
		t.Fatal("there is no page for those who are signed in")
	}
	// Pages that have no route of their own.
	return append(list,
		screen{"not-found", "/none", "owner"}, screen{"not-found-nobody", "/none", ""}, screen{"forbidden", "/people", "acme-admin"},
		screen{"invited", "/invite/none", ""},
		screen{"display", "/shared/" + w.ids[":shared"], ""}, screen{"display-tenant", "/shared/" + w.ids["acme:shared"], ""},
		screen{"display-ended", "/shared/none", ""},
		screen{"snapshot", w.share("/overview", "owner", shareForm(sharing.Snapshot, "by=policy")), ""},
		screen{"snapshot-denials", w.share("/denials", "owner", shareForm(sharing.Snapshot, "")), ""},
		screen{"explained", "/explain?tenant=acme&method=POST&path=/v1/login/&k.user=u7&k.ip=2001:db8::1", "owner"},
		screen{"explained-blocked", "/tenants/acme/explain?path=/v1/search/all&k.user=u9&cost=2", "acme-viewer"},
		screen{"explain-faults", "/tenants/acme/explain?method=get&path=v1&k.ip=x&cost=-1", "acme-admin"},
		screen{"played-bursts", "/playground?pattern=bursts&requests=15&every=30s&duration=4m&algorithm=gcra&algorithm=sliding_window_log", "viewer"},
		screen{"played-reservations", "/playground?pattern=steady&request=reserve&cost=3&real_cost=1&again=key&algorithm=gcra&algorithm=leaky_bucket", "viewer"},
		screen{"playground-faults", "/playground?quota=x&window=1&pattern=none", "acme-viewer"})
}

// notAPage matches routes whose responses are not pages.
var notAPage = regexp.MustCompile(`^/$|/static/|/live$|\.csv$|/jump/found$|/oidc`)

// A violation is a problem that axe-core found on a page.
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

// On every page, in both themes, axe-core finds no problem, no element is wider than 360 px,
// and the browser reports no error.
func TestEveryScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	b, origin := w.browser(t)
	axe := axeSource(t)
	for _, s := range w.screens(t) {
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.Navigate(origin + "/static/none")) // ends the live streams before the next sign-in
			b.Cookies(origin, map[string]string{web.ThemeCookie: theme, "headgate": w.cookies[s.by]})
			for _, width := range []int64{1280, 360} {
				if (width == 360) != (theme == "dark") {
					continue // wide in the light theme, narrow in the dark theme
				}
				name := fmt.Sprintf("%s %s %d", s.name, theme, width)
				b.Do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(origin+s.path))
				if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
					t.Errorf("%s: wider than the page: %q", name, wide)
				}
				if width == 1280 {
					b.Do(chromedp.EmulateViewport(1920, 1080))
					if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
						t.Errorf("%s: wider than a page of 1920: %q", name, wide)
					}
					b.Do(chromedp.EmulateViewport(width, 900))
				}
				rules := everyRule
				if theme == "dark" {
					rules = contrastOnly // the rest of the page is the same
				}
				b.Do(chromedp.Evaluate[chromedp.Void](axe))
				for _, v := range browser.Evaluate[[]violation](b, rules) {
					for _, n := range v.Nodes {
						t.Errorf("%s: %s (%s)\n%v %s\n%s", name, v.ID, v.Help, n.Target, n.HTML, n.Why)
					}
				}
			}
		}
		if list := b.Complaints(http.StatusNotFound, http.StatusForbidden, http.StatusUnprocessableEntity); len(list) > 0 {
			t.Errorf("%s: the browser complains:\n%s", s.name, strings.Join(list, "\n"))
		}
	}
}

// sticksOut returns the elements that are wider than the window.
const sticksOut = `(() => {
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth <= width + 1) return [];
	return [...document.body.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, .tabs, pre"))
		.slice(0, 5).map(e => e.tagName + "." + e.className + " " + Math.round(e.getBoundingClientRect().right));
})()`

// keep saves pictures of the page in the folder of HEADGATE_SCREENSHOTS, if it is set.
func keep(t *testing.T, b *browser.Browser, name string) {
	t.Helper()
	folder := os.Getenv("HEADGATE_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.Do(chromedp.Sleep(150 * time.Millisecond)) // wait until the charts are drawn; only the pictures need this
	must(t, os.MkdirAll(folder, 0o755))
	for i, picture := range b.Pictures() {
		part := ""
		if i > 0 {
			part = fmt.Sprintf("-part-%d", i+1)
		}
		must(t, os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+part+".png"), picture, 0o644))
	}
}
