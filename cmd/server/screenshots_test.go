//go:build screenshots

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	chromium "github.com/headgate/headgate/internal/servertest/browser"
)

// make screenshots takes the pictures of the README again, from the demo.
func TestScreenshots(t *testing.T) {
	folder, err := filepath.Abs("../../docs/images")
	if err != nil {
		t.Fatal(err)
	}
	node := launchIn(t, t.TempDir(), map[string]string{"HEADGATE_BOOTSTRAP_KEY": ""}, "demo").serving()
	w := walk(t, node.origin)
	w.open(node.await(node.out, setupLink)[1])
	w.fill("email", "ada@example.com", "name", "Ada Lovelace", "password", ownerPassword)
	w.press("Create the first account", http.StatusOK)
	for _, picture := range []struct {
		name, path, theme string
		height            int64
	}{
		{"overview-light", "/overview?range=24h", "light", 900},
		{"overview-dark", "/overview?range=24h", "dark", 900},
		{"denial", "", "light", 760},
		{"preview", "/plans/demo-pro/preview", "light", 900},
		{"playground", "/playground", "light", 900},
	} {
		w.Do(chromedp.EmulateViewport(1280, picture.height))
		w.Follow(chromedp.Evaluate[chromedp.Void](`document.querySelector(".themes [value=` + picture.theme + `]").click()`))
		if picture.path == "" {
			w.open("/denials?reason=over_limit&live=0")
			w.Do(chromedp.Click(`main a[href^="/denials/"]`))
			w.Do(chromedp.WaitVisible(`.split, .denial, main h1`))
		} else {
			w.open(picture.path)
		}
		chromium.Evaluate[bool](w.Browser, `document.fonts.ready.then(() => new Promise(done => setTimeout(() => done(true), 400)))`)
		quality := int64(82)
		taken, err := chromedp.Call(w.Context, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "webp", Quality: &quality})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, picture.name+".webp"), taken.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d KB", picture.name, len(taken.Data)/1024)
	}
}
