package plans

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const (
	// looks is how often what is left is looked at, besides at the edges of
	// windows: often enough for a line.
	looks = 120
	// maxEdges is how many edges of windows are looked at.
	maxEdges = 60
	// maxArrivals leaves a simulation room for the looks.
	maxArrivals = simulation.MaxOneRepetitions - looks - 2*maxEdges - 2
	// shownScenarios is how many bytes of scenarios stand on the page; more is to
	// be downloaded.
	shownScenarios = 6 << 10
)

// playground is GET /playground.
func (w *pages) playground(c echo.Context) error {
	g := readGame(c.QueryParams())
	v := g.form()
	status := http.StatusOK
	var list []*played
	err := g.faults.Err()
	for _, l := range lanes {
		if err != nil || !slices.Contains(g.chosen, l.algorithm) {
			continue
		}
		var p *played
		if p, err = w.play(c.Request().Context(), g, l.algorithm); err == nil {
			list = append(list, p)
		}
	}
	if err != nil {
		at := web.Places{
			Inputs:  []*views.Input{&v.Quota, &v.Window, &v.Burst, &v.Requests, &v.Every, &v.Seed, &v.Cost, &v.Duration, &v.Times},
			Selects: []*views.Select{&v.Anchor, &v.Pattern},
			Renamed: map[string]string{
				"limits/0/quota": "quota", "limits/0/window": "window", "limits/0/burst": "burst",
				"limits/0/anchor": "anchor",
			},
		}
		if v.Faults, status, err = at.Report(err); err != nil {
			return err
		}
		return w.Render(c, status, views.PlaygroundPage(w.Page(c, "Playground"), v))
	}
	for _, p := range list {
		v.Lanes = append(v.Lanes, p.lane(g))
	}
	if w.CanOpen(c, "/plans/new") {
		v.PlansURL = "/plans/new"
	}
	scenarios, err := g.scenarios()
	if err != nil {
		return err
	}
	v.ScenariosURL = "/playground/scenarios?" + g.values().Encode()
	if len(scenarios) <= shownScenarios {
		v.Command = "headgate simulate <<'END'\n" + scenarios + "END"
	}
	return w.Render(c, status, views.PlaygroundPage(w.Page(c, "Playground"), v))
}

// playedScenarios is GET /playground/scenarios: what the page plays, one scenario
// a line, for headgate simulate.
func (w *pages) playedScenarios(c echo.Context) error {
	g := readGame(c.QueryParams())
	if err := g.faults.Err(); err != nil {
		return err
	}
	text, err := g.scenarios()
	if err != nil {
		return err
	}
	c.Response().Header().Set("Content-Disposition", `attachment; filename="scenarios.jsonl"`)
	return c.Blob(http.StatusOK, "application/x-ndjson", []byte(text))
}

// lengthWords are milliseconds as "59.5s", "1m9.5s".
func lengthWords(ms int64) string { return views.Elapsed(time.Duration(ms) * time.Millisecond) }

// perUnit is how long a bucket takes for one unit, about.
func perUnit(l enforcement.Limit) time.Duration {
	if l.Quota == 0 {
		return 0
	}
	return (l.Window / time.Duration(l.Quota)).Round(time.Microsecond)
}

// ratio is a/b with two digits behind the point, but for zeros.
func ratio(a, b int64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(float64(a)/float64(b), 'f', 2, 64), "0"), ".")
}
