//go:build !quick

package web_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/web"
)

// comparedChart returns how the series of two charts are drawn: dashes and fills, and the sum that the stack ends at.
const comparedChart = `new Promise((done) => {
	const until = performance.now() + 20000;
	const look = () => {
		const charts = ["#traffic", "#rate"].map((id) => document.querySelector(id + " hg-chart"));
		if (charts.some((c) => !c?.chart)) return performance.now() > until ? done({}) : requestAnimationFrame(look);
		const series = (c) => c.chart.series.slice(1).map((s) => s.label + ((typeof s.fill === "function" ? s.fill() : s.fill) ? " filled" : "") + (s.dash ? " " + s.dash.join("-") : "")).join(", ");
		done({ traffic: series(charts[0]), rate: series(charts[1]), top: Math.max(...charts[0].sums[3]), legend: [...document.querySelectorAll("#traffic .legend [data-line]")].map((p) => getComputedStyle(p, "::before").borderTopStyle).join() });
	};
	look();
})`

// Issue 13, 2: the previous period is drawn as lines over the areas. Each line has another pattern of dashes. The lines are not stacked.
func TestChartsDrawThePreviousPeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 40)
	w.now.Add((16 * time.Minute).Microseconds())
	w.login("acme", "203.0.113.9", 12)
	w.flushNow()
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0&range=15m&compare=1")
		got := browser.Evaluate[struct {
			Traffic, Rate, Legend string
			Top                   float64
		}](b, comparedChart)
		if got.Traffic != "Other denials filled, Denied by limits filled, Allowed filled, All requests before 6-3, Denied by limits before 2-3" ||
			got.Rate != "429 rate, 429 rate before 6-3" || got.Top != 12 || got.Legend != "dashed,dotted" {
			t.Errorf("%v: %+v", look, got)
		}
		keep(t, b, "compare "+look.theme+" "+strconv.FormatInt(look.width, 10))
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%v: the browser complains:\n%s", look, strings.Join(list, "\n"))
		}
	}
}
