//go:build !quick

package web_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// groupedChart returns the series of the chart of requests, the textures in the legend, and the
// number of points at which the top of the stack differs from the sum of the row in the table.
const groupedChart = `new Promise((done) => {
	const until = performance.now() + 20000;
	const look = () => {
		const chart = document.querySelector("#traffic hg-chart");
		if (!chart?.chart) return performance.now() > until ? done({ names: [] }) : requestAnimationFrame(look);
		const parts = [...chart.querySelectorAll(".legend [data-color]")];
		const signs = new Set(parts.map((p) => getComputedStyle(p, "::before").backgroundImage));
		const fills = new Set(chart.chart.series.slice(1).map((s) => typeof s.fill === "function" ? s.fill() : s.fill));
		const rows = [...document.querySelectorAll("#traffic [sse-swap=traffic] tbody tr")];
		const wrong = rows.filter((row, i) => [...row.querySelectorAll("td")].reduce((sum, cell) => sum + Number(cell.dataset.v), 0) !== chart.sums.at(-1)[i]).length;
		done({ names: chart.labels, signs: signs.size, fills: fills.size, rows: rows.length, wrong });
	};
	look();
})`

// Issue 13, 2: of seven routes, the chart draws the five largest and "Others". Each area has another texture. The sum of the
// areas is the number of all requests.
func TestChartsDrawGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := plans.Content{Name: "Pro"}
	for i := range 7 {
		content.Policies = append(content.Policies, plans.Policy{
			Slug: fmt.Sprintf("p%d", i), Match: plans.Match{Path: fmt.Sprintf("/v1/r%d", i)}, Limits: busyPlan().Policies[0].Limits,
		})
	}
	w.publish("routes", content, "acme")
	for i := range 7 {
		for range 9 - i {
			w.decide("acme", enforcement.Check{Method: "GET", Path: fmt.Sprintf("/v1/r%d", i), Cost: 1})
		}
	}
	w.flushNow()
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0&range=15m&by=route")
		got := browser.Evaluate[struct {
			Names                     []string
			Signs, Fills, Rows, Wrong int
		}](b, groupedChart)
		if strings.Join(got.Names, " ") != "/v1/r0 /v1/r1 /v1/r2 /v1/r3 /v1/r4 Others" || got.Signs != 6 || got.Fills != 6 || got.Rows < 15 || got.Wrong > 0 {
			t.Errorf("%v: %+v", look, got)
		}
		if text := b.Text("#denied .summary"); !strings.Contains(text, "/v1/r0 has the most: 4, 40.0% of all.") {
			t.Errorf("%v: the chart of denials says %q", look, text)
		}
		keep(t, b, "groups "+look.theme+" "+strconv.FormatInt(look.width, 10))
		if list := b.Complaints(); len(list) > 0 {
			t.Errorf("%v: the browser complains:\n%s", look, strings.Join(list, "\n"))
		}
	}
}
