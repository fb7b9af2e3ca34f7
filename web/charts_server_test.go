//go:build !quick

package web_test

import (
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/internal/servertest/browser"
	"github.com/headgate/headgate/web"
)

// blankCharts returns the titles of the charts of counts whose canvas has no colored
// pixel. It waits at most 20 seconds for the drawing. Axes and grid are gray.
const blankCharts = `new Promise((done) => {
	const until = performance.now() + 20000;
	const colored = (canvas) => {
		const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(canvas, 0, 0);
		const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
		for (let i = 0; i < data.length; i += 4) {
			if (data[i + 3] > 100 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) return true;
		}
		return false;
	};
	const look = () => {
		const figures = ["Requests", "429 rate", "Decided by"].filter((title) => {
			const figure = [...document.querySelectorAll("figure")].find((f) => f.querySelector("h2")?.textContent === title);
			const canvas = figure?.querySelector("hg-chart canvas");
			return !canvas || !colored(canvas);
		});
		if (figures.length === 0 || performance.now() > until) done(figures);
		else requestAnimationFrame(look);
	};
	look();
})`

// browser serves w on a loopback address until the end of t. It returns a browser and that origin.
func (w *world) browser(t *testing.T) (b *browser.Browser, origin string) {
	t.Helper()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	return browser.Start(t, server.URL), server.URL
}

// Issue 13, 1.1: the first requests of a new server are all in one minute. Every chart
// shows them.
func TestChartsDrawAnIsolatedMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	b, origin := w.browser(t)
	b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"]})
	b.Open(origin + "/overview?live=0")
	if blank := browser.Evaluate[[]string](b, blankCharts); len(blank) > 0 {
		t.Errorf("these charts are blank: %q", blank)
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
}

// unfinishedStep returns what the chart of requests shows of its axes and of its last step: the titles of the axes,
// the share of the rows between the last two values that are colored at the start of the last step (a texture colors a third, a line all), and whether
// the last step has colored pixels.
const unfinishedStep = `new Promise((done) => {
	const until = performance.now() + 20000;
	const look = () => {
		const element = document.querySelector("#traffic hg-chart");
		const u = element?.chart;
		if (!u) return performance.now() > until ? done({}) : requestAnimationFrame(look);
		const rows = [...document.querySelectorAll("#traffic [sse-swap=traffic] tbody tr")].slice(-2);
		const sums = rows.map((row) => [...row.querySelectorAll("td")].reduce((sum, cell) => sum + Number(cell.dataset.v), 0));
		const context = u.ctx.canvas.getContext("2d");
		const colored = (x, y) => {
			const [r, g, b, a] = context.getImageData(Math.round(x), Math.round(y), 1, 1).data;
			return a > 100 && Math.max(r, g, b) - Math.min(r, g, b) > 40;
		};
		const x = (at) => u.valToPos(at, "x", true), y = (value) => u.valToPos(value, "y", true);
		const start = x(Number(rows[1].dataset.x)), end = x(Number(rows[1].dataset.x) + 60);
		let falling = 0, between = 0, drawn = 0;
		for (let at = y(sums[0]) + 4; at < y(sums[1]) - 4; at++, between++) {
			if ([0, 1].some((by) => colored(start + by, at))) falling++;
		}
		for (let at = start; at < end; at++) if ([-1, 0, 1].some((by) => colored(at, y(sums[1]) + by))) drawn++;
		done({ x: u.axes[0].label ?? "", y: u.axes[1].label ?? "", falling: falling / Math.max(1, between), between, drawn,
			marked: rows.map((row) => row.dataset.unfinished !== undefined).join(), rates: document.querySelector("#rate hg-chart").chart.axes[1].label ?? "" });
	};
	look();
})`

// Issue 13, 1.1: the step that has not ended is drawn with dashes and not as a fall. The axes have titles with their unit
// and their time zone. The tiles name the same maximum as the charts.
func TestChartsShowTheUnfinishedStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	for _, n := range []int{31, 40, 40, 9} {
		w.now.Add(time.Minute.Microseconds())
		w.login("acme", "203.0.113.9", n)
	}
	w.flushNow()
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0&range=15m")
		got := browser.Evaluate[struct {
			X, Y, Marked, Rates     string
			Falling, Between, Drawn float64
		}](b, unfinishedStep)
		if !strings.Contains(got.X, "Time (UTC)") || got.Y != "requests per minute" || got.Rates != "% of requests" {
			t.Errorf("%v: the axes have the titles %q, %q and %q", look, got.X, got.Y, got.Rates)
		}
		if got.Marked != "false,true" || got.Between < 20 || got.Falling > 0.5 || got.Drawn < 2 {
			t.Errorf("%v: the last step is drawn as %+v", look, got)
		}
		for _, id := range []string{"traffic", "rate"} {
			summary := b.Text("#" + id + " .summary")
			_, peak, found := strings.Cut(strings.TrimSuffix(summary, "."), "Highest: ")
			if tiles := strings.ReplaceAll(b.Text(".tiles"), "\n", " "); !found || !strings.Contains(tiles, "Highest: "+peak) {
				t.Errorf("%v: the chart says %q, and the tiles %q", look, summary, tiles)
			}
		}
	}
}

// chartLooks are the widths and the themes in which the tests look at charts.
var chartLooks = []struct {
	width int64
	theme string
}{{1280, "light"}, {1280, "dark"}, {360, "light"}, {360, "dark"}}

// zonedChart returns what the chart of requests shows of its times: the title of its axis, the ticks that are full hours
// of the zone, and for each step with a request its time in the table and at the cursor.
const zonedChart = `new Promise((done) => {
	const until = performance.now() + 20000;
	const look = () => {
		const chart = document.querySelector("#traffic hg-chart");
		if (!chart?.chart) return performance.now() > until ? done({ steps: [] }) : requestAnimationFrame(look);
		const u = chart.chart;
		const rows = [...document.querySelectorAll("#traffic [sse-swap=traffic] tbody tr")];
		const steps = rows.flatMap((row, at) => {
			if (![...row.querySelectorAll("td")].some((cell) => Number(cell.dataset.v) > 0)) return [];
			chart.point(at);
			return [row.querySelector("th").textContent.trim() + " | " + chart.querySelector(".legend b").textContent];
		});
		done({ axis: u.axes[0].label, ticks: u.axes[0]._values, steps });
	};
	look();
})`

// Issue 13, 1.7: charts show the time zone of the page, with half hours and on a day on which the clock is set back.
func TestChartsShowTheTimeZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	now := w.now.Load()
	for _, at := range []string{"2026-10-25T00:45:00Z", "2026-10-25T01:45:00Z"} {
		then, err := time.Parse(time.RFC3339, at)
		must(t, err)
		w.now.Store(then.UnixMicro())
		w.login("acme", "203.0.113.9", 3)
		w.flushNow()
	}
	w.now.Store(now)
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Do(chromedp.EmulateViewport(look.width, 800))
		for _, test := range []struct{ zone, span, tick, steps string }{
			{"UTC", "from=2026-10-25T00:00&to=2026-10-25T02:00", "01:00", "25 Oct 00:45 | 25 Oct, 00:45 UTC; 25 Oct 01:45 | 25 Oct, 01:45 UTC"},
			{
				"Asia/Kolkata", "from=2026-10-25T05:30&to=2026-10-25T07:30&tz=Asia/Kolkata", "06:00",
				"25 Oct 06:15 | 25 Oct, 06:15 Asia/Kolkata; 25 Oct 07:15 | 25 Oct, 07:15 Asia/Kolkata",
			},
			{
				"Europe/Berlin", "from=2026-10-25T02:00%2B02:00&to=2026-10-25T03:00&tz=Europe/Berlin", "02:00",
				"25 Oct 02:45 | 25 Oct, 02:45 Europe/Berlin; 25 Oct 02:45 | 25 Oct, 02:45 Europe/Berlin",
			},
		} {
			b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme, web.ZoneCookie: url.QueryEscape(test.zone)})
			b.Open(origin + "/overview?live=0&" + test.span)
			got := browser.Evaluate[struct {
				Axis         string
				Ticks, Steps []string
			}](b, zonedChart)
			if got.Axis != "Time ("+test.zone+")" || !slices.Contains(got.Ticks, test.tick) || strings.Join(got.Steps, "; ") != test.steps {
				t.Errorf("%v, %s: %+v", look, test.zone, got)
			}
			if zones := b.Text("[data-zones]"); !strings.Contains(strings.ToLower(zones), "browser") {
				t.Errorf("the zone of the browser is not among %q", zones)
			}
		}
	}
}

// legendColors returns for each series of the chart of requests the color and the texture of its sign in the legend, and
// whether the strip above the chart has a label.
const legendColors = `new Promise((done) => {
	const until = performance.now() + 20000;
	const look = () => {
		const chart = document.querySelector("#traffic hg-chart");
		if (!chart?.chart) return performance.now() > until ? done({ signs: [] }) : requestAnimationFrame(look);
		const signs = [...chart.querySelectorAll(".legend [data-color]")].map((sign) => {
			const style = getComputedStyle(sign, "::before");
			const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
			const context = canvas.getContext("2d");
			context.fillStyle = style.backgroundColor;
			context.fillRect(0, 0, 1, 1);
			return { name: sign.textContent, color: [...context.getImageData(0, 0, 1, 1).data].slice(0, 3), texture: style.backgroundImage };
		});
		const fills = chart.chart.series.slice(1).map((s) => (typeof s.fill === "function" ? s.fill() : s.fill) instanceof CanvasPattern);
		done({ signs, patterns: fills.filter((pattern) => pattern).length, strip: chart.few ? chart.fewLabel() : "" });
	};
	look();
})`

// leastContrast is the least contrast between the colors of allowed, denied, and other requests.
const leastContrast = 1.75

// contrast returns the contrast of two colors as WCAG defines it. deuteranopia simulates that deficiency with the matrix of
// Machado, Oliveira and Fernandes (2009).
func contrast(a, b [3]float64, deuteranopia bool) float64 {
	luminance := func(c [3]float64) float64 {
		var linear [3]float64
		for i, v := range c {
			if linear[i] = v / 255 / 12.92; v/255 > 0.04045 {
				linear[i] = math.Pow((v/255+0.055)/1.055, 2.4)
			}
		}
		if deuteranopia {
			r, g, b := linear[0], linear[1], linear[2]
			linear = [3]float64{0.367322*r + 0.860646*g - 0.227968*b, 0.280085*r + 0.672501*g + 0.047413*b, -0.011820*r + 0.042940*g + 0.968881*b}
		}
		return 0.2126*max(0, linear[0]) + 0.7152*max(0, linear[1]) + 0.0722*max(0, linear[2])
	}
	x, y := luminance(a)+0.05, luminance(b)+0.05
	return max(x, y) / min(x, y)
}

// Issue 13, 1.6: allowed, denied, and other requests differ in lightness and in texture, also in gray, with deuteranopia and
// in forced colors. A few denials among many requests have a strip above the chart.
func TestChartsDoNotDependOnHue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	for i := range 60 {
		w.login("acme", fmt.Sprintf("203.0.113.%d", i), 5)
	}
	w.login("acme", "203.0.113.9", 3)
	w.flushNow()
	b, origin := w.browser(t)
	for _, forced := range []string{"none", "active"} {
		_, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: forced}},
		})
		must(t, err)
		for _, look := range chartLooks {
			b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
			b.Do(chromedp.EmulateViewport(look.width, 800))
			b.Open(origin + "/overview?live=0&range=15m")
			got := browser.Evaluate[struct {
				Signs []struct {
					Name, Texture string
					Color         [3]float64
				}
				Patterns int
				Strip    string
			}](b, legendColors)
			if len(got.Signs) != 3 || got.Patterns != 2 || got.Strip != "Denied by limits, up to 3" {
				t.Fatalf("%v, forced colors %s: %+v", look, forced, got)
			}
			for i, a := range got.Signs {
				for _, b := range got.Signs[:i] {
					gray, blind := contrast(a.Color, b.Color, false), contrast(a.Color, b.Color, true)
					if gray < leastContrast || blind < leastContrast || a.Texture == b.Texture {
						t.Errorf("%v, forced colors %s: %s and %s have the contrast %.2f, with deuteranopia %.2f, and the textures %s and %s",
							look, forced, a.Name, b.Name, gray, blind, a.Texture, b.Texture)
					}
				}
			}
		}
	}
}

// firstPlaces returns the top and the bottom of the three charts that come first: their figures without the table. For the
// keys, the bottom is that of the first row.
const firstPlaces = `(() => {
	const box = (selector) => {
		const r = document.querySelector(selector)?.getBoundingClientRect();
		return r ? [Math.round(r.top + scrollY), Math.round(r.bottom + scrollY)] : [0, 1e6];
	};
	return { rate: box("#rate hg-chart"), retry: box("#retry-after .histogram"), keys: box("[aria-labelledby=limited-title] tbody tr") };
})()`

// beside reports whether the ranking of allowed keys is on the same height as that of limited keys, and at another side.
const beside = `(() => {
	const [limited, allowed] = ["limited", "allowed"].map((name) => document.querySelector("[aria-labelledby=" + name + "-title]").getBoundingClientRect());
	return allowed.height > 100 && allowed.top < limited.bottom && allowed.right <= limited.left;
})()`

// Issue 13, 2: the 429 rate, the retry times and the top limited keys are in the first screen, and on a phone within two
// swipes. On a wide page, the top allowed keys are beside the limited ones.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	b, origin := w.browser(t)
	for _, look := range chartLooks {
		b.Cookies(origin, map[string]string{"headgate": w.cookies["owner"], web.ThemeCookie: look.theme})
		b.Do(chromedp.EmulateViewport(look.width, 800))
		b.Open(origin + "/overview?live=0")
		b.Do(chromedp.WaitVisible("#rate canvas"))
		bottom := 800
		if look.width == 360 {
			bottom += 2 * 640 // a swipe scrolls four fifths of the screen
		}
		for name, place := range browser.Evaluate[map[string][2]int](b, firstPlaces) {
			if place[0] <= 0 || place[1] > bottom {
				t.Errorf("%v: %s is at %v, below %d", look, name, place, bottom)
			}
		}
		if look.width == 360 {
			continue
		}
		for _, path := range []string{"/overview?live=0", "/overview?live=0&policy=api", "/tenants/acme?live=0"} {
			b.Open(origin + path)
			if !browser.Evaluate[bool](b, beside) {
				t.Errorf("%v: %s: the allowed keys are not beside the limited ones", look, path)
			}
		}
	}
}
