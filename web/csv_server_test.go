//go:build !quick

package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
)

// saved records the files that a page saves.
const saved = `(() => {
	window.saved = [];
	const create = URL.createObjectURL;
	URL.createObjectURL = (blob) => { window.saved.push(blob.text()); return create(blob); };
	HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); };
})()`

// Issue 13, 3: every table and every chart can be saved as CSV.
func TestTablesAreSaved(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	w.login("acme", "203.0.113.9", 8)
	w.furnish(t)
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	for _, path := range []string{"/overview?live=0", "/denials?live=0", "/tenants", "/tenants/acme", "/tenants/acme/overrides", "/audit", "/people"} {
		b.Open(origin + path)
		tables := browser.Evaluate[int](b, `document.querySelectorAll("main table.stack, main table.data, main table.rank").length`)
		if buttons := browser.Evaluate[int](b, `document.querySelectorAll("main [data-csv]").length`); tables == 0 || buttons != tables {
			t.Errorf("%s: %d buttons for %d tables", path, buttons, tables)
		}
	}
	b.Open(origin + "/denials?live=0&range=24h&k.ip=203.0.113.9")
	b.Do(chromedp.Evaluate[chromedp.Void](saved), chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-csv]").click()`))
	if text := browser.Evaluate[string](b, `Promise.all(saved).then((list) => list.join("\n"))`); !strings.Contains(text, "Time (UTC),Tenant,Request") ||
		!strings.Contains(text, ids["login"]) || !strings.Contains(text, "2026-11-21T09:00:00Z,acme,POST /v1/login,") || !strings.HasSuffix(text, "denials.csv") {
		t.Errorf("the file is %s", text)
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
}
