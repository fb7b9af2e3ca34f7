// Package browser starts a real browser, Chromium, for tests of pages. It records the problems that
// the browser finds in the pages.
//
// The package does not depend on the product. Package process finds the program of the browser.
package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/process"
)

// A Browser is one browser window without background traffic.
type Browser struct {
	// Context is the context of chromedp's actions. It ends with the test.
	Context context.Context

	t        testing.TB
	cancel   context.CancelFunc // ends Context
	mu       sync.Mutex
	host     string
	list     []string
	requests int
}

// Start opens a window for pages of one address, such as http://127.0.0.1:8080. A request
// to another address is recorded as a complaint.
func Start(t testing.TB, origin string) *Browser {
	t.Helper()
	program, err := process.Program("chromium")
	if err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	u, err := url.Parse(origin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // of a busy machine
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &Browser{Context: ctx, t: t, cancel: cancel, host: u.Host}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

// stepTime is the maximum time of one step. If a step waits for something that does not
// happen, its test fails before the deadline of the package ends all tests.
const stepTime = 4 * time.Minute

// step limits the time of a step. If the step takes longer than stepTime, the window is closed, and
// the step returns an error. At the end of the step, the caller must call the function done.
func (b *Browser) step() (done func() bool) { return time.AfterFunc(stepTime, b.cancel).Stop }

func (b *Browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == "verbose" || e.Entry.Level == "info" {
			return // this entry is not about the page, for example that a field was not focused
		}
		b.list = append(b.list, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
	case *runtime.EventConsoleAPICalled:
		complaint := fmt.Sprintf("console: %s", e.Type)
		for _, arg := range e.Args {
			complaint += fmt.Sprintf(" %s%s", arg.Value, arg.Description)
		}
		b.list = append(b.list, complaint)
	case *runtime.EventExceptionThrown:
		b.list = append(b.list, "exception: "+e.ExceptionDetails.Text)
	case *network.EventRequestWillBeSent:
		b.requests++
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != b.host && u.Scheme != "data" {
			b.list = append(b.list, "request: "+e.Request.URL)
		}
	}
}

// Complaints returns the problems that the browser found since the last call: violations of
// the content security policy, errors in its console, and requests to other hosts. A 4xx
// answer is a problem too, unless its status is expected.
func (b *Browser) Complaints(expected ...int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	var left []string
	for _, complaint := range list {
		known := false
		for _, status := range expected {
			known = known || strings.Contains(complaint, fmt.Sprintf("the server responded with a status of %d", status))
		}
		if !known {
			left = append(left, complaint)
		}
	}
	return left
}

// Requests returns the number of requests of the window.
func (b *Browser) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// Cookies replaces all cookies by the given ones, for an address. It does not set cookies
// without a value.
func (b *Browser) Cookies(origin string, cookies map[string]string) {
	b.t.Helper()
	defer b.step()()
	if _, err := chromedp.Call(b.Context, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
		b.t.Fatal(err)
	}
	for name, value := range cookies {
		if value == "" {
			continue
		}
		if _, err := chromedp.Call(b.Context, network.SetCookie, network.SetCookieParams{Name: name, Value: value, URL: origin}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Do runs actions in order; an error ends the test.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	defer b.step()()
	if err := chromedp.Do(b.Context, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// Open opens an address and returns the status of the response.
func (b *Browser) Open(address string) int {
	b.t.Helper()
	return b.Follow(chromedp.Navigate(address))
}

// Follow runs steps that lead to another page, and returns the status of the response.
func (b *Browser) Follow(steps ...chromedp.Action[chromedp.Void]) int {
	b.t.Helper()
	defer b.step()()
	response, err := chromedp.RunResponse(b.Context, steps...)
	if err != nil {
		b.t.Fatal(err)
	}
	return int(response.Status)
}

// Text returns the visible text of the first element of a selector.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	return Evaluate[string](b, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}

// Title returns the title of the page.
func (b *Browser) Title() string {
	b.t.Helper()
	return Evaluate[string](b, `document.title`)
}

// pictureHeight is the maximum height of a picture in CSS pixels. Chromium cannot capture a very
// high page in one picture; the error is then "Page is too large".
const pictureHeight = 8000

// Pictures returns screenshots of the whole page as PNG, from top to bottom. If the page is higher
// than pictureHeight, there are several.
func (b *Browser) Pictures() [][]byte {
	b.t.Helper()
	size := Evaluate[[2]float64](b, `[document.documentElement.clientWidth, document.documentElement.scrollHeight]`)
	var pictures [][]byte
	for top := 0.0; top < size[1]; top += pictureHeight {
		pictures = append(pictures, b.capture(page.Viewport{Y: top, Width: size[0], Height: min(pictureHeight, size[1]-top), Scale: 1}))
	}
	return pictures
}

func (b *Browser) capture(part page.Viewport) []byte {
	b.t.Helper()
	defer b.step()()
	beyond := true
	picture, err := chromedp.Run(b.Context, func(ctx context.Context, t *chromedp.Target) (page.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, Clip: &part})
	})
	if err != nil {
		b.t.Fatalf("capture %.0f pixels from %.0f: %v", part.Height, part.Y, err)
	}
	return picture.Data
}

// Evaluate returns the value of a JavaScript expression in the page. If the value is a promise,
// Evaluate waits for its result.
func Evaluate[T any](b *Browser, expression string) T {
	b.t.Helper()
	defer b.step()()
	value, err := chromedp.Run(b.Context, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}
