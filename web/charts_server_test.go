//go:build !quick

package web_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest/browser"
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

// Issue 13, 1.1: the first requests of a new server are all in one minute. Every chart
// shows them.
func TestChartsDrawAnIsolatedMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL)
	b.Cookies(server.URL, map[string]string{"headgate": w.cookies["owner"]})
	b.Open(server.URL + "/overview?live=0")
	if blank := browser.Evaluate[[]string](b, blankCharts); len(blank) > 0 {
		t.Errorf("these charts are blank: %q", blank)
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
}
