package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/snapshot"
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

func (w *Web) systemRoutes() []row {
	return []row{
		{http.MethodGet, "/system", accounts.TenantsList, w.showSystem, bounded},
		{http.MethodGet, "/system/live", accounts.TenantsList, w.liveSystem, slow},
	}
}

func (w *Web) showSystem(c echo.Context) error {
	ctx := c.Request().Context()
	f, err := w.fleetView(ctx)
	if err != nil {
		return err
	}
	v := views.System{Fleet: f, Problems: w.systemProblems(c)}
	if v.Facts, err = w.processFacts(ctx); err != nil {
		return err
	}
	p := w.page(c, "System")
	p.Live = "/system/live"
	return w.render(c, http.StatusOK, views.SystemPage(p, v))
}

func (w *Web) liveSystem(c echo.Context) error {
	return w.stream(c, nodes.Every, func(ctx context.Context) ([]fragment, error) {
		f, err := w.fleetView(ctx)
		if err != nil {
			return nil, err
		}
		return []fragment{{"fleet", views.FleetBody(f)}}, nil
	})
}

func (w *Web) processFacts(ctx context.Context) ([]views.AuditFact, error) {
	var list []views.AuditFact
	add := func(name, text string) {
		if text != "" {
			list = append(list, views.AuditFact{Name: name, Text: text})
		}
	}
	process := w.cfg.Process
	add("Version", w.cfg.Version)
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

// fleetView is the nodes as a page shows them.
func (w *Web) fleetView(ctx context.Context) (views.Fleet, error) {
	o, err := w.cfg.Fleet.Overview(ctx)
	if err != nil {
		return views.Fleet{}, err
	}
	f := views.Fleet{Headline: headline(&o), Tone: "good"}
	switch {
	case len(o.Nodes) == 0:
		f.Tone, f.Hint = "warn", "A node tells of itself some seconds after its start."
	case o.Unwell > 0:
		f.Tone = "bad"
		for i := range o.Nodes {
			if o.Nodes[i].Level() == nodes.Warning && f.Tone != "bad" {
				f.Tone = "warn"
			}
		}
	}
	if !o.OneVersion() {
		f.Hint = "Different versions run: " + versionWords(o.Versions) + ". That is usual during an upgrade, and works; finish it."
	} else if len(o.Nodes) == 1 && o.Nodes[0].Limiter == nodes.LimiterInProcess {
		f.Hint = "One node that counts by itself is a whole Headgate. Before a second one is started, give both a Redis and a PostgreSQL."
	}
	for i := range o.Nodes {
		f.Nodes = append(f.Nodes, w.nodeView(&o.Nodes[i], &o))
	}
	return f, nil
}

// headline says in one line how all nodes are.
func headline(o *nodes.Overview) string {
	if len(o.Nodes) == 0 {
		return "No node has told of itself yet"
	}
	parts := []string{counted(len(o.Nodes), "node", "nodes")}
	switch {
	case o.Unwell == 0 && len(o.Nodes) == 1:
		parts = append(parts, "well")
	case o.Unwell == 0:
		parts = append(parts, "all well")
	default:
		parts = append(parts, fmt.Sprintf("%d not well", o.Unwell))
	}
	if o.Silent > 0 {
		parts = append(parts, fmt.Sprintf("%d silent", o.Silent))
	}
	if o.OneVersion() {
		if len(o.Nodes) > 1 {
			parts = append(parts, "one version")
		}
	} else {
		parts = append(parts, fmt.Sprintf("%d versions", len(o.Versions)))
	}
	return strings.Join(append(parts, "revision "+strconv.FormatInt(o.Revision, 10)), ", ")
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func versionWords(list []nodes.Release) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = cmp.Or(r.Version, "unknown") + " on " + counted(r.Nodes, "node", "nodes")
	}
	return strings.Join(words, ", ")
}

// toneOf a level.
func toneOf(l nodes.Level) string {
	switch l {
	case nodes.Alarm:
		return "bad"
	case nodes.Warning:
		return "warn"
	case nodes.Note:
		return "quiet"
	}
	return "good"
}

// nodeView is one node. Of a silent one only what is true for long is shown.
func (w *Web) nodeView(r *nodes.Report, o *nodes.Overview) views.FleetNode {
	n := views.FleetNode{
		ID: r.ID, Name: r.Name, This: r.ID == w.cfg.Process.Node && r.ID != "", Silent: r.Silent,
		Level: r.Level().String(), Tone: toneOf(r.Level()),
	}
	for _, v := range r.Verdicts {
		n.Verdicts = append(n.Verdicts, views.FleetVerdict{Level: v.Level.String(), Tone: toneOf(v.Level), Text: v.Text})
	}
	add := func(name string, value views.Number, note, tone string) {
		n.Facts = append(n.Facts, views.FleetFact{Name: name, Value: value, Note: note, Tone: tone})
	}
	word := func(text string) views.Number { return views.Number{Text: text, Exact: text} }
	seen := views.Duration(r.SilentFor.Truncate(time.Second))
	if r.Unreadable {
		add("Seen", views.Number{Text: seen.Text + " ago", Exact: seen.Exact}, "", "")
		return n
	}
	tone := ""
	if len(o.Versions) > 1 && r.Version != o.Versions[0].Version {
		tone = "warn"
	}
	add("Version", word(r.Version), r.GoVersion, tone)
	if r.Silent {
		add("Last seen", views.Number{Text: seen.Text + " ago", Exact: seen.Exact}, "", "bad")
		add("Was up", views.Duration(r.Up.Truncate(time.Second)), "", "")
		add("Revision", word(strconv.FormatInt(r.Snapshot.Revision, 10)), "when it was last seen", "")
		return n
	}
	add("Up", views.Duration(r.Up.Truncate(time.Second)), "since "+r.StartedAt.UTC().Format("2 Jan 15:04 UTC"), "")
	note, tone := "the newest", ""
	if r.Behind > 0 {
		note, tone = fmt.Sprintf("%d behind", r.Behind), "warn"
	}
	add("Revision", word(strconv.FormatInt(r.Snapshot.Revision, 10)), note, tone)
	add("Confirmed", views.Number{Text: views.Duration(r.Confirmed.Truncate(time.Second)).Text + " ago", Exact: r.Confirmed.String()}, "by the database", "")
	if r.Snapshot.Problems > 0 {
		add("Problems", views.Count(int64(r.Snapshot.Problems)), "objects that it cannot use", "warn")
	}
	redisFacts(r, o.At, add)
	if l := r.Database.Polls; l.Calls > 0 {
		add("Database", views.Duration(l.P50), "median, "+views.Duration(l.P99).Text+" p99 of a read", "")
	}
	if d := r.Database.Report; d > 0 {
		add("Write", views.Duration(d), "of its last report", "")
	}
	add("Decisions", views.Number{Text: views.Count(int64(r.Counts.Rate()+0.5)).Text + " / s", Exact: strconv.FormatFloat(r.Counts.Rate(), 'f', 2, 64)}, "", "")
	add("Waiting", views.Count(r.Counts.WaitingRows), "rows of counts, "+views.Count(r.Counts.WaitingRefusals).Text+" refusals", "")
	if !r.Counts.FailingSince.IsZero() {
		add("Counts", word("not written"), "for "+views.Duration(max(0, r.Ago(r.Counts.FailingSince, o.At)).Truncate(time.Second)).Text, "bad")
	}
	if r.Counts.Folded+r.Counts.NotKept > 0 {
		add("Left out", views.Count(r.Counts.Folded), "counts folded, "+views.Count(r.Counts.NotKept).Text+" refusals not kept", "warn")
	}
	add("Heap", bytesNumber(r.Process.Heap), views.Count(r.Process.Goroutines).Text+" goroutines", "")
	return n
}

// redisFacts are what a node says of its limiter.
func redisFacts(r *nodes.Report, now time.Time, add func(name string, value views.Number, note, tone string)) {
	if r.Limiter != nodes.LimiterRedis {
		add("Limiter", views.Number{Text: "in this process", Exact: r.Limiter}, "", "")
		return
	}
	since := views.Duration(max(0, r.Ago(r.Redis.Since, now)).Truncate(time.Second))
	name := strings.TrimSpace("Redis " + r.Redis.Version)
	if !r.Redis.Reachable {
		add(name, views.Number{Text: "away", Exact: "away for " + since.Exact}, "breaker open for "+since.Text, "bad")
		return
	}
	add(name, views.Number{Text: "reachable", Exact: "for " + since.Exact}, "for "+since.Text, "")
	if l := r.Redis.RoundTrips; l.Calls > 0 {
		add("Round trip", views.Duration(l.P50), "median, "+views.Duration(l.P99).Text+" p99", "")
	}
	if n := r.Redis.BreakerOpened; n > 0 {
		add("Breaker", views.Count(n), "times opened since the start", "")
	}
}

// bytesNumber words a size.
func bytesNumber(n int64) views.Number {
	exact := views.Count(n).Exact + " bytes"
	size := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if size < 1000 {
			return views.Number{Text: strconv.FormatFloat(size, 'f', 0, 64) + " " + unit, Exact: exact}
		}
		size /= 1024
	}
	return views.Number{Text: strconv.FormatFloat(size, 'f', 1, 64) + " GiB", Exact: exact}
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

func (w *Web) systemProblems(c echo.Context) []views.SystemProblem {
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

func (w *Web) systemProblem(c echo.Context, p snapshot.Problem) views.SystemProblem {
	v := views.SystemProblem{
		Kind: strings.ReplaceAll(p.Kind, "_", " "), Name: cmp.Or(p.Name, p.ID), Since: views.NewMoment(p.Since, w.cfg.Now()), Kept: p.Kept,
		What: cmp.Or(toMend[p.Kind], "Look at the log of this node."),
	}
	if p.Err != nil {
		v.Why = sentence(p.Err.Error())
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
	if action, there := w.readable[route]; there && may(c, action) {
		v.URL = route + end
	}
	return v
}
