// Package playground serves the playground, which plays traffic against limits on a
// simulated clock.
package playground

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
	// looks is the number of evenly spaced peeks (checks without a charge) in a simulation.
	// From their results, the page draws the line of the remaining quota. There are more
	// peeks at the starts of windows.
	looks = 120
	// maxEdges is the maximum number of window starts at which a simulation makes peeks.
	maxEdges = 60
	// maxArrivals is the maximum number of requests in a simulation. It is below the maximum
	// of the simulation, which also counts the peeks.
	maxArrivals = simulation.MaxOneRepetitions - looks - 2*maxEdges - 2
	// shownScenarios is the maximum size in bytes of scenarios that the page shows. Larger
	// scenarios can only be downloaded.
	shownScenarios = 6 << 10
)

// playground is GET /playground.
func (w *pages) playground(c echo.Context) error {
	g := readPlayForm(c.QueryParams())
	v := g.form()
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
		renamed := map[string]string{
			"limits/0/quota": "quota", "limits/0/window": "window", "limits/0/burst": "burst", "limits/0/anchor": "anchor",
			"limits/0/max_rollover": "max_rollover",
		}
		return web.Retry(err, &v, &v.Faults, renamed, func(status int) error {
			return w.Render(c, status, views.PlaygroundPage(w.Page(c, "Playground"), v))
		})
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
	return w.Render(c, http.StatusOK, views.PlaygroundPage(w.Page(c, "Playground"), v))
}

// playedScenarios is GET /playground/scenarios. It returns the scenarios of the page as
// input for headgate simulate, one scenario on each line.
func (w *pages) playedScenarios(c echo.Context) error {
	g := readPlayForm(c.QueryParams())
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

// lengthWords returns milliseconds as "59.5s", "1m9.5s".
func lengthWords(ms int64) string { return views.Elapsed(time.Duration(ms) * time.Millisecond) }

// perUnit returns the approximate time in which a bucket refills one unit.
func perUnit(l enforcement.Limit) time.Duration {
	if l.Quota == 0 {
		return 0
	}
	return (l.Window / time.Duration(l.Quota)).Round(time.Microsecond)
}

// ratio returns a/b with at most two decimals.
func ratio(a, b int64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(float64(a)/float64(b), 'f', 2, 64), "0"), ".")
}
