package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A Process describes the process that serves the pages. The pages omit empty fields.
type Process struct {
	// Node is its id among the nodes.
	Node string
	// Database is the engine: "SQLite", "PostgreSQL".
	Database string
	// Schema returns the version of the database's schema and the newest version that this
	// release supports.
	Schema func(context.Context) (version, latest int, err error)
	// Limiter is the limiter in use, as in nodes.Node.
	Limiter string
	// Retention is how long data are kept.
	Retention []Retention
	// GoVersion and Build describe the binary: the Go version, and the Git commit.
	GoVersion, Build string
}

// A Retention is how long one kind of data is kept.
type Retention struct {
	What string
	Kept time.Duration // 0: forever
	Most int           // maximum number of rows; 0: any number
	// Setting is the environment variable that changes the retention. It is "" if the retention
	// is fixed.
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
	if v.Unlimited, err = w.unlimited(ctx); err != nil {
		return err
	}
	p := w.Page(c, "System")
	p.Live = "/system/live"
	return w.Render(c, http.StatusOK, views.SystemPage(p, v))
}

// unlimited returns the number of tenants without a plan, and the number of checks that no
// policy matched.
func (w *pages) unlimited(ctx context.Context) ([]views.Fact, error) {
	var list []views.Fact
	if current := w.cfg.Snapshot(); current != nil {
		list = append(list, views.Fact{Name: "Tenants without a plan", Value: views.Count(int64(current.Counts().Planless)).Exact})
	}
	now := w.Now()
	day, err := w.cfg.Analytics.Total(ctx, metrics.Query{From: now.Add(-web.Day), To: now})
	if err != nil {
		return nil, err
	}
	return append(list,
		views.Fact{Name: "Allowed without a policy, 24 h", Value: views.Count(day.Total.Unmatched).Exact},
		views.Fact{Name: "Denied without a policy, 24 h", Value: views.Count(day.Total.DeniedUnmatched).Exact}), nil
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
	var list views.AuditFacts
	process := w.cfg.Process
	list.Add("Version", w.Version())
	list.Add("Go", process.GoVersion)
	list.Add("Database", process.Database)
	if process.Schema != nil {
		version, latest, err := process.Schema(ctx)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("migration %d, the newest", version)
		if version != latest {
			text = fmt.Sprintf("migration %d; this release knows %d", version, latest)
		}
		list.Add("Schema", text)
	}
	list.Add("Limiter", limiterWords(process.Limiter))
	for _, r := range process.Retention {
		list.Add(r.What, keptWords(r))
	}
	return list, nil
}

func limiterWords(kind string) string {
	switch kind {
	case nodes.LimiterRedis:
		return "Redis, shared by all nodes"
	case nodes.LimiterInProcess:
		return "in this process"
	}
	return kind
}

// keptWords returns English words that say how long a kind of data is stored.
func keptWords(r Retention) string {
	text := "kept forever"
	if r.Kept > 0 {
		text = "kept " + views.Duration(r.Kept).Text
	}
	if r.Most > 0 {
		text += ", at most " + views.Count(int64(r.Most)).Exact
	}
	return text
}

// repairs contains instructions, by the kind of object, for repairing a stored object that
// the node cannot use.
var repairs = map[string]string{
	"plan":          "Open the plan, correct its draft and publish it.",
	"policy_change": "Open the plan, correct the policy and publish it.",
	"tenant":        "Open the tenant's settings, correct them and save.",
	"key":           "Revoke the key and create a new one.",
	"operator_key":  "Revoke the key and create a new one.",
	"override":      "End the override and create it again.",
	"list_entry":    "Remove the entry from the list and add it again.",
	"block":         "End the block and create it again.",
	"grant":         "Void the grant and create it again with the units that are left.",
	"steering":      "Check the tenant's overrides, lists, blocks, and grants, and end those that are wrong.",
}

// mostProblems is the maximum number of problems on the page.
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
		What: cmp.Or(repairs[p.Kind], "Check the log of this node."),
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
