//go:build !quick

package browser_test

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// Issue 13: pages of every height are captured. A page of this height was "Page is too large".
func TestPicturesOfHighPages(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><body style="margin: 0"><div style="height: 140000px"></div><p>end</p>`)
	}))
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL)
	b.Do(chromedp.EmulateViewport(360, 900), chromedp.Navigate(server.URL))
	want := browser.Evaluate[int](b, `document.documentElement.scrollHeight`)
	got := 0
	for i, picture := range b.Pictures() {
		c, err := png.DecodeConfig(bytes.NewReader(picture))
		if err != nil {
			t.Fatal(err)
		}
		if c.Width != 360 {
			t.Errorf("picture %d is %d pixels wide", i, c.Width)
		}
		got += c.Height
	}
	if got != want || want < 140000 {
		t.Errorf("the pictures are %d pixels high, the page %d", got, want)
	}
}
