package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A Process is what pages tell of the process that serves them. Every field may
// be empty: then nothing is said of it.
type Process struct {
	// Node is its id in the fleet.
	Node string
	// Database is the engine: "SQLite", "PostgreSQL".
	Database string
	// Schema gives the version of the database's schema, and the newest that this
	// release knows.
	Schema func(context.Context) (version, latest int, err error)
	// Limiter that counts, as nodes.Node has it.
	Limiter string
	// Retention is how long things are kept.
	Retention []Retention
	// GoVersion and Build say how the binary was made.
	GoVersion, Build string
}

// A Retention is how long one kind of thing is kept.
type Retention struct {
	What string
	Kept time.Duration // 0: for ever
	Most int           // of them at the same time; 0: any number
	// Setting is the environment variable that changes it; "": it is fixed.
	Setting string
}

func (w *pages) showSystem(c echo.Context) error {
	ctx := c.Request().Context()
	f, err := w.fleetView(ctx)
	if err != nil {
		return err
	}
	v := views.System{Fleet: f, Problems: w.systemProblems(c)}
	if v.Facts, err = w.processFacts(ctx); err != nil {
		return err
	}
	p := w.Page(c, "System")
	p.Live = "/system/live"
	return w.Render(c, http.StatusOK, views.SystemPage(p, v))
}

func (w *pages) liveSystem(c echo.Context) error {
	return w.Stream(c, nodes.Every, func(ctx context.Context) ([]web.Fragment, error) {
		f, err := w.fleetView(ctx)
		if err != nil {
			return nil, err
		}
		return []web.Fragment{{Event: "fleet", Body: views.FleetBody(f)}}, nil
	})
}

func (w *pages) processFacts(ctx context.Context) ([]views.AuditFact, error) {
	var list []views.AuditFact
	add := func(name, text string) {
		if text != "" {
			list = append(list, views.AuditFact{Name: name, Text: text})
		}
	}
	process := w.cfg.Process
	add("Version", w.Version())
	add("Go", process.GoVersion)
	add("Database", process.Database)
	if process.Schema != nil {
		version, latest, err := process.Schema(ctx)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("migration %d, the newest", version)
		if version != latest {
			text = fmt.Sprintf("migration %d; this release knows %d", version, latest)
		}
		add("Schema", text)
	}
	add("Limiter", limiterWords(process.Limiter))
	for _, r := range process.Retention {
		add(r.What, keptWords(r))
	}
	return list, nil
}

func limiterWords(kind string) string {
	switch kind {
	case nodes.LimiterRedis:
		return "counts in Redis, shared by all nodes"
	case nodes.LimiterInProcess:
		return "counts in this process"
	}
	return kind
}

// keptWords says how long something is kept.
func keptWords(r Retention) string {
	text := "kept for ever"
	if r.Kept > 0 {
		text = "kept " + views.Duration(r.Kept).Text
	}
	if r.Most > 0 {
		text += ", at most " + views.Count(int64(r.Most)).Exact
	}
	return text
}

// toMend says what to do about an object that cannot be used.
var toMend = map[string]string{
	"plan":          "Open the plan, correct its draft and publish it.",
	"policy_change": "Open the plan, correct the policy and publish it.",
	"tenant":        "Open the tenant's settings, correct them and save.",
	"key":           "Revoke the key and make a new one.",
	"operator_key":  "Revoke the key and make a new one.",
	"override":      "End the override and set it anew.",
	"list_entry":    "Take the entry off the list and put it there anew.",
	"block":         "End the block and set it anew.",
	"steering":      "Look at the tenant's overrides, lists and blocks, and end those that are wrong.",
}

// mostProblems is how many are shown.
const mostProblems = 100

func (w *pages) systemProblems(c echo.Context) []views.SystemProblem {
	current := w.cfg.Snapshot()
	if current == nil {
		return nil
	}
	var list []views.SystemProblem
	for _, p := range current.Problems() {
		if len(list) == mostProblems {
			break
		}
		list = append(list, w.systemProblem(c, p))
	}
	return list
}

func (w *pages) systemProblem(c echo.Context, p snapshot.Problem) views.SystemProblem {
	v := views.SystemProblem{
		Kind: strings.ReplaceAll(p.Kind, "_", " "), Name: cmp.Or(p.Name, p.ID), Since: views.NewMoment(p.Since, w.Now()), Kept: p.Kept,
		What: cmp.Or(toMend[p.Kind], "Look at the log of this node."),
	}
	if p.Err != nil {
		v.Why = web.Sentence(p.Err.Error())
	}
	route, end := "", ""
	switch p.Kind {
	case "plan":
		route, end = "/plans", "/"+p.Name
	case "tenant", "steering":
		route, end = "/tenants", "/"+p.ID
	case "operator_key":
		route = "/settings/keys"
	}
	if w.CanOpen(c, route) {
		v.URL = route + end
	}
	return v
}
