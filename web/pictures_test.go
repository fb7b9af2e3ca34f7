//go:build screenshots && !quick

package web_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/web"
)

// make pictures saves pictures of every page, in two widths and two themes, in the folder of
// HEADGATE_SCREENSHOTS.
func TestPictures(t *testing.T) {
	if os.Getenv("HEADGATE_SCREENSHOTS") == "" {
		t.Fatal("HEADGATE_SCREENSHOTS is not set: it names the folder of the pictures")
	}
	w := newWorld(t)
	w.furnish(t)
	b, origin := w.browser(t)
	for _, s := range w.screens(t) {
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.Navigate(origin + "/static/none")) // ends the live streams before the next sign-in
			b.Cookies(origin, map[string]string{web.ThemeCookie: theme, "headgate": w.cookies[s.by]})
			for _, width := range []int64{1280, 360} {
				b.Do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(origin+s.path))
				keep(t, b, fmt.Sprintf("%s %s %d", s.name, theme, width))
			}
		}
	}
}
