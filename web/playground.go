package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

func (w *Web) playgroundRoutes() []row {
	return []row{
		{http.MethodGet, "/playground", accounts.Simulate, w.playground, dear},
		{http.MethodGet, "/playground/scenarios", accounts.Simulate, w.playedScenarios, dear},
	}
}

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

// epoch is near where scenarios begin: at the first edge of a window after it, so
// that windows by the clock begin with the scenario.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// patterns of traffic, as the form offers them.
var patterns = []views.Option{
	{Value: "edge", Label: "Attack at a window's edge", Hint: "the requests in the last sixth of the first window, and as many in the first sixth of the next; windows that begin at the first request are opened by one at 0"},
	{Value: "steady", Label: "Steady", Hint: "the requests spread evenly over each period"},
	{Value: "bursts", Label: "Bursts", Hint: "the requests all at once, at the beginning of each period"},
	{Value: "ramp", Label: "Ramp", Hint: "from none, growing evenly up to the requests in each period at the end"},
	{Value: "random", Label: "Random", Hint: "as many on average, each independent of the others (Poisson); the same seed gives the same times"},
	{Value: "own", Label: "Own times", Hint: "the times below"},
}

// lanes are the algorithms in the order of the page, and whether they are chosen
// if nobody chooses.
var lanes = []struct {
	algorithm enforcement.Algorithm
	first     bool
	title     string
}{
	{enforcement.FixedWindow, true, "Fixed window"},
	{enforcement.SlidingWindowCounter, true, "Sliding window counter"},
	{enforcement.SlidingWindowLog, true, "Sliding window log"},
	{enforcement.TokenBucket, true, "Token bucket"},
	{enforcement.GCRA, false, "GCRA (decides as the token bucket)"},
}

// An arrival is requests of one instant.
type arrival struct {
	at int64 // milliseconds from the beginning
	n  int64
}

// A game is what the form of the playground says.
type game struct {
	text     map[string]string // as typed, by field
	chosen   []enforcement.Algorithm
	quota    int64
	window   time.Duration
	burst    int64
	anchor   enforcement.Anchor
	pattern  string
	requests int64
	every    time.Duration
	seed     uint64
	cost     int64
	duration time.Duration
	arrivals []arrival
	faults   problem.Fields
}

// gameDefaults show at first sight what the algorithms differ in.
var gameDefaults = map[string]string{
	"quota": "10", "window": "1m", "burst": "", "anchor": "clock", "pattern": "edge", "requests": "10", "every": "1m",
	"seed": "1", "times": "", "cost": "1", "duration": "2m",
}

// readGame reads an address; what is not in it is as it is by default.
func readGame(params url.Values) *game {
	g := &game{text: map[string]string{}}
	for name, value := range gameDefaults {
		if params.Has(name) {
			value = strings.ToValidUTF8(strings.TrimSpace(params.Get(name)), "\ufffd")
		}
		if len(params[name]) > 1 {
			g.faults.Add("/"+name, "is given more than once")
		}
		g.text[name] = value
	}
	g.readAlgorithms(params["algorithm"])
	g.quota = g.number("quota", 0, enforcement.MaxQuota)
	g.window = g.length("window")
	if g.text["burst"] != "" {
		g.burst = g.number("burst", 1, enforcement.MaxQuota)
	}
	var known bool
	if g.anchor, known = enforcement.ParseAnchor(g.text["anchor"]); !known {
		g.faults.Add("/anchor", "must be first_hit or clock")
	}
	if g.pattern = g.text["pattern"]; !slices.ContainsFunc(patterns, func(o views.Option) bool { return o.Value == g.pattern }) {
		g.faults.Add("/pattern", "is none of those in the list")
	}
	g.requests = g.number("requests", 1, maxArrivals)
	g.every = g.length("every")
	g.seed = uint64(g.number("seed", 0, 1<<53))
	g.cost = g.number("cost", 0, enforcement.MaxCost)
	g.duration = g.length("duration")
	if len(g.faults) == 0 {
		g.arrive()
	}
	return g
}

func (g *game) readAlgorithms(names []string) {
	for _, name := range names {
		a, known := enforcement.ParseAlgorithm(name)
		if !known {
			g.faults.Add("/algorithm", "has one that is not known")
			return
		}
		if !slices.Contains(g.chosen, a) {
			g.chosen = append(g.chosen, a)
		}
	}
	for _, l := range lanes {
		if len(names) == 0 && l.first {
			g.chosen = append(g.chosen, l.algorithm)
		}
	}
}

// number reads a whole number; commas at the thousands are no matter.
func (g *game) number(field string, least, most int64) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(g.text[field], ",", ""), 10, 64)
	if err != nil || n < least || n > most {
		g.faults.Add("/"+field, "must be a whole number from %s to %s", views.Count(least).Exact, views.Count(most).Exact)
	}
	return n
}

func (g *game) length(field string) time.Duration {
	d, err := enforcement.ParseWindow(g.text[field])
	if err != nil {
		g.faults.Add("/"+field, "%v", err)
	}
	return d
}

// arrive makes the times of the pattern.
func (g *game) arrive() {
	duration, every := g.duration.Milliseconds(), g.every.Milliseconds()
	field := "requests"
	total := int64(0)
	// add tells whether there may be more.
	add := func(at, n int64) bool {
		if at >= duration || total > maxArrivals {
			return false
		}
		if last := len(g.arrivals) - 1; last >= 0 && g.arrivals[last].at == at {
			g.arrivals[last].n += n
		} else {
			g.arrivals = append(g.arrivals, arrival{at, n})
		}
		total += n
		return true
	}
	switch g.pattern {
	case "edge":
		g.edge(add)
	case "steady":
		for i := int64(0); add(i/g.requests*every+i%g.requests*every/g.requests, 1); i++ {
		}
	case "bursts":
		for i := int64(0); add(i*every, g.requests); i++ {
		}
	case "ramp":
		// After t there were requests·t²/(2·every·duration).
		for i := int64(1); add(int64(math.Sqrt(2*float64(every)*float64(duration)*float64(i)/float64(g.requests))), 1); i++ {
		}
	case "random":
		gap, at := float64(every)/float64(g.requests), 0.0
		dice := rand.New(rand.NewPCG(g.seed, 0)) //nolint:gosec // the same seed gives the same times
		for at += gap * dice.ExpFloat64(); add(int64(at), 1); at += gap * dice.ExpFloat64() {
		}
	case "own":
		field = "times"
		for _, a := range g.own(duration) {
			add(a.at, a.n)
		}
	}
	switch {
	case len(g.faults) > 0:
	case total > maxArrivals:
		g.faults.Add("/"+field, "come to more than %s requests in this duration: one simulation takes no more", views.Count(maxArrivals).Exact)
	case total == 0:
		g.faults.Add("/"+field, "come to no request in this duration")
	}
}

// edge is the requests just before the first window ends, and as many just after.
func (g *game) edge(add func(at, n int64) bool) {
	window := g.window.Milliseconds()
	part := max(1, window/6)
	if g.duration.Milliseconds() < window+part {
		g.faults.Add("/duration", "must be a window and a sixth at least, for an attack at its edge")
		return
	}
	if g.anchor == enforcement.FirstHit {
		add(0, 1)
	}
	for _, from := range []int64{window - part, window} {
		for i := range g.requests {
			add(from+i*part/g.requests, 1)
		}
	}
}

var ownTime = regexp.MustCompile(`^([0-9]{1,9})(?:\.([0-9]{1,3}))?(ms|s|m|h)?(?:x([1-9][0-9]{0,4}))?$`)

// own reads times like 0 0.5 59.9s 1mx10: seconds if no unit is said, and behind
// an x how many come at once.
func (g *game) own(duration int64) []arrival {
	var list []arrival
	for text := range strings.FieldsFuncSeq(g.text["times"], func(r rune) bool { return strings.ContainsRune(" ,;\t\r\n", r) }) {
		m := ownTime.FindStringSubmatch(text)
		if m == nil || m[2] != "" && m[3] == "ms" {
			g.faults.Add("/times", "has %.40q, which is no time like 0, 0.5, 500ms, 2m or 60x10", text)
			return nil
		}
		units, _ := strconv.ParseInt(m[1], 10, 64) // at most nine digits
		parts, _ := strconv.ParseInt((m[2] + "000")[:3], 10, 64)
		size := map[string]int64{"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000}[m[3]]
		a := arrival{at: units*size + parts*size/1000, n: 1}
		if m[4] != "" {
			a.n, _ = strconv.ParseInt(m[4], 10, 64) // at most five digits
		}
		if a.at >= duration {
			g.faults.Add("/times", "has %.40q, which is not before the duration ends", text)
			return nil
		}
		if list = append(list, a); len(list) > maxArrivals {
			g.faults.Add("/times", "are more than one simulation takes")
			return nil
		}
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return int(a.at - b.at) })
	return list
}

// limit is that of a lane.
func (g *game) limit(a enforcement.Algorithm) enforcement.Limit {
	l := enforcement.Limit{Name: "l1", Algorithm: a, Quota: g.quota, Window: g.window}
	if a.Bucket() {
		l.Burst = g.burst
	}
	if a.Windowed() {
		l.Anchor = g.anchor
	}
	return l
}

// wireLimit and the others are a scenario as simulation reads it.
type wireLimit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Quota     int64  `json:"quota"`
	Window    string `json:"window"`
	Burst     int64  `json:"burst,omitempty"`
	Anchor    string `json:"anchor,omitempty"`
}

type wireStep struct {
	At     int64  `json:"at_ms"`
	Op     string `json:"op,omitempty"`
	Cost   *int64 `json:"cost,omitempty"`
	Repeat int64  `json:"repeat,omitempty"`
}

type wireScenario struct {
	ID     string      `json:"id"`
	Start  int64       `json:"start_ms"`
	Limits []wireLimit `json:"limits"`
	Steps  []wireStep  `json:"steps"`
}

func wireOf(l enforcement.Limit) wireLimit {
	out := wireLimit{Name: l.Name, Algorithm: l.Algorithm.String(), Quota: l.Quota, Window: enforcement.FormatWindow(l.Window), Burst: l.Burst}
	if l.Algorithm.Windowed() {
		out.Anchor = l.Anchor.String()
	}
	return out
}

// scenario is a lane for headgate simulate. With looks it also asks, charging
// nothing, what is left in between.
func (g *game) scenario(a enforcement.Algorithm, withLooks bool) wireScenario {
	window := g.window.Milliseconds()
	s := wireScenario{ID: a.String(), Start: (epoch + window - 1) / window * window, Limits: []wireLimit{wireOf(g.limit(a))}}
	var peeks []int64
	if withLooks {
		peeks = g.looks()
	}
	for _, arrived := range g.arrivals {
		for len(peeks) > 0 && peeks[0] <= arrived.at {
			s.Steps = append(s.Steps, wireStep{At: peeks[0], Op: "peek"})
			peeks = peeks[1:]
		}
		step := wireStep{At: arrived.at}
		if g.cost != 1 {
			step.Cost = &g.cost
		}
		if arrived.n > 1 {
			step.Repeat = arrived.n
		}
		s.Steps = append(s.Steps, step)
	}
	for _, at := range peeks {
		s.Steps = append(s.Steps, wireStep{At: at, Op: "peek"})
	}
	return s
}

// looks are the instants at which what is left is looked at.
func (g *game) looks() []int64 {
	duration, window := g.duration.Milliseconds(), g.window.Milliseconds()
	var at []int64
	for i := range int64(looks + 1) {
		at = append(at, min(duration*i/looks, duration-1)) // at the end is already the next window
	}
	if duration/window <= maxEdges {
		for edge := window; edge < duration; edge += window {
			at = append(at, edge-1, edge)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// A played lane is what the simulation answered.
type played struct {
	limit enforcement.Limit
	// Of each arrival: how many passed, what was left, and when it would pass again.
	answers []playedAnswer
	left    []views.LanePoint
}

type playedAnswer struct {
	arrival
	allowed, remaining, reset int64
	retry                     *int64 // nil: never
}

// play has the simulation decide a lane. What is wrong with the limit is told as
// the form names it.
func (w *Web) play(ctx context.Context, g *game, a enforcement.Algorithm) (*played, error) {
	scenario := g.scenario(a, true)
	text, err := json.Marshal(scenario)
	if err == nil && len(text) > simulation.MaxOneBytes {
		scenario = g.scenario(a, false) // so many requests draw the line themselves
		text, err = json.Marshal(scenario)
	}
	if err != nil {
		return nil, fmt.Errorf("write a scenario: %w", err)
	}
	if len(text) > simulation.MaxOneBytes {
		field := "requests"
		if g.pattern == "own" {
			field = "times"
		}
		return nil, problem.At("/"+field, "come at %s different instants, which is more than one simulation takes: ask for fewer, or for a shorter duration", views.Count(int64(len(g.arrivals))).Exact)
	}
	line, err := w.cfg.Simulate(ctx, text)
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Kind == problem.Malformed {
		told := *p
		told.Kind = problem.Invalid
		return nil, &told
	}
	if err != nil {
		return nil, err
	}
	var answer struct {
		Steps []struct {
			At      int64 `json:"at_ms"`
			Allowed int64 `json:"allowed_count"`
			Limits  []struct {
				Remaining int64  `json:"remaining"`
				Reset     int64  `json:"reset_after_ms"`
				Retry     *int64 `json:"retry_after_ms"`
			} `json:"limits"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("read the answer of a simulation: %w", err)
	}
	p, asked := &played{limit: g.limit(a)}, 0
	if len(answer.Steps) != len(scenario.Steps) {
		return nil, fmt.Errorf("a simulation answered %d of %d steps", len(answer.Steps), len(scenario.Steps))
	}
	for i, step := range answer.Steps {
		if len(step.Limits) == 0 {
			return nil, fmt.Errorf("a simulation answered step %d without its limit", i)
		}
		l := step.Limits[0]
		p.left = append(p.left, views.LanePoint{At: step.At, Left: l.Remaining})
		if scenario.Steps[i].Op == "peek" {
			continue
		}
		p.answers = append(p.answers, playedAnswer{g.arrivals[asked], step.Allowed, l.Remaining, l.Reset, l.Retry})
		asked++
	}
	return p, nil
}

// playground is GET /playground.
func (w *Web) playground(c echo.Context) error {
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
		at := places{
			inputs:  []*views.Input{&v.Quota, &v.Window, &v.Burst, &v.Requests, &v.Every, &v.Seed, &v.Cost, &v.Duration, &v.Times},
			selects: []*views.Select{&v.Anchor, &v.Pattern},
			renamed: map[string]string{"limits/0/quota": "quota", "limits/0/window": "window", "limits/0/burst": "burst", "limits/0/anchor": "anchor"},
		}
		if v.Faults, status, err = at.tell(err); err != nil {
			return err
		}
		return w.render(c, status, views.PlaygroundPage(w.page(c, "Playground"), v))
	}
	for _, p := range list {
		v.Lanes = append(v.Lanes, p.lane(g))
	}
	if _, there := w.readable["/plans/new"]; there && may(c, accounts.PlansWrite) {
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
	return w.render(c, status, views.PlaygroundPage(w.page(c, "Playground"), v))
}

// playedScenarios is GET /playground/scenarios: what the page plays, one scenario
// a line, for headgate simulate.
func (w *Web) playedScenarios(c echo.Context) error {
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

// scenarios are the lanes as headgate simulate reads them.
func (g *game) scenarios() (string, error) {
	var b strings.Builder
	for _, l := range lanes {
		if !slices.Contains(g.chosen, l.algorithm) {
			continue
		}
		line, err := json.Marshal(g.scenario(l.algorithm, false))
		if err != nil {
			return "", fmt.Errorf("write a scenario: %w", err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// values are the game as an address.
func (g *game) values() url.Values {
	v := url.Values{}
	for name, text := range g.text {
		if text != "" {
			v.Set(name, text)
		}
	}
	for _, a := range g.chosen {
		v.Add("algorithm", a.String())
	}
	return v
}

// form is what was typed.
func (g *game) form() views.Playground {
	in := func(name, label, hint string) views.Input {
		return views.Input{Name: name, Label: label, Hint: hint, Type: "text", Autocomplete: "off", Value: g.text[name], Optional: true}
	}
	v := views.Playground{
		Quota: in("quota", "Quota", ""), Window: in("window", "Window", "like 1s, 1m, 24h"), Burst: in("burst", "Burst", "Of buckets. Empty: the quota."),
		Anchor: views.Select{Name: "anchor", Label: "Windows begin", Value: g.text["anchor"], Options: []views.Option{
			{Value: "clock", Label: "by the clock"}, {Value: "first_hit", Label: "at the first request"},
		}},
		Pattern:  views.Select{Name: "pattern", Label: "Pattern", Value: g.text["pattern"], Options: patterns},
		Requests: in("requests", "Requests", ""), Every: in("every", "In each period of", "Not for the attack."), Seed: in("seed", "Seed", "Of random."),
		Cost: in("cost", "Cost of each", ""), Duration: in("duration", "Duration", ""),
		Times: in("times", "Own times", "In seconds: 0 0.5 59.9, or with ms, s, m, h; x10 for ten at once: 1mx10."),
	}
	for _, o := range patterns {
		if o.Value == g.pattern {
			v.Said = o.Label + ": " + o.Hint + "."
		}
	}
	for _, l := range lanes {
		v.Algorithms = append(v.Algorithms, views.PlayedAlgorithm{Name: l.algorithm.String(), Label: l.title, Chosen: slices.Contains(g.chosen, l.algorithm)})
	}
	for _, e := range []struct{ text, pattern, requests, every, duration string }{
		{"Attack at the edge", "edge", "10", "1m", "2m"},
		{"A little too fast", "steady", "15", "1m", "4m"},
		{"Bursts", "bursts", "15", "30s", "4m"},
		{"Ramp", "ramp", "30", "1m", "4m"},
		{"Random", "random", "10", "1m", "6m"},
	} {
		q := url.Values{"pattern": {e.pattern}, "requests": {e.requests}, "every": {e.every}, "duration": {e.duration}}
		v.Examples = append(v.Examples, views.Tab{Text: e.text, URL: "/playground?" + q.Encode(), Current: g.isExample(q)})
	}
	return v
}

// isExample reports whether the game is the one of an example.
func (g *game) isExample(q url.Values) bool {
	for name, value := range gameDefaults {
		if q.Has(name) {
			value = q.Get(name)
		}
		if g.text[name] != value {
			return false
		}
	}
	return true
}

// lane is what was decided, as the page draws it.
func (p *played) lane(g *game) views.Lane {
	v := views.Lane{
		Algorithm: p.limit.Algorithm.String(), Aloud: plans.Describe(p.limit), Quota: g.quota, Duration: g.duration, Window: g.window,
		Holds: holds(&enforcement.RuleLimit{Limit: p.limit}), Points: p.left,
	}
	for _, l := range lanes {
		if l.algorithm == p.limit.Algorithm {
			v.Title = l.title
		}
	}
	for _, a := range p.answers {
		d := views.LaneMark{At: a.at, Allowed: a.allowed, Refused: a.n - a.allowed, Left: a.remaining}
		if d.Refused > 0 {
			d.Again = "never"
			if a.retry != nil {
				d.Again = lengthWords(*a.retry)
			}
		}
		v.Marks = append(v.Marks, d)
		v.Allowed += d.Allowed
		v.Refused += d.Refused
	}
	v.Run, v.RunAt = p.longestRun()
	v.Most, v.MostFrom = p.most(g)
	v.Limit = jsonText(wireOf(p.limit))
	v.Sentence = p.sentence(g, &v)
	return v
}

// longestRun is the most requests in a row that were refused, and when the first
// of them came.
func (p *played) longestRun() (longest, from int64) {
	run, began := int64(0), int64(0)
	for _, a := range p.answers {
		if a.allowed > 0 { // of one instant the first pass
			run = 0
		}
		if refused := a.n - a.allowed; refused > 0 {
			if run == 0 {
				began = a.at
			}
			if run += refused; run > longest {
				longest, from = run, began
			}
		}
	}
	return longest, from
}

// most is the most units that passed in any one window, wherever it begins: the
// windows that begin with a request that passed are enough. A window has its
// beginning and not its end.
func (p *played) most(g *game) (most, from int64) {
	window, units, last := g.window.Milliseconds(), int64(0), 0
	for i := range p.answers {
		for last < len(p.answers) && p.answers[last].at < p.answers[i].at+window {
			units += p.answers[last].allowed * g.cost
			last++
		}
		if p.answers[i].allowed > 0 && units > most {
			most, from = units, p.answers[i].at
		}
		units -= p.answers[i].allowed * g.cost
	}
	return most, from
}

// lengthWords are milliseconds as "59.5s", "1m9.5s".
func lengthWords(ms int64) string { return views.Elapsed(time.Duration(ms) * time.Millisecond) }

// sentence says what the algorithm does with the pattern, from its numbers.
func (p *played) sentence(g *game, v *views.Lane) string {
	count := func(n int64) string { return views.Count(n).Exact }
	window, units := views.Elapsed(g.window), "requests"
	if g.cost != 1 {
		units = "units"
	}
	var parts []string
	first := slices.IndexFunc(p.answers, func(a playedAnswer) bool { return a.allowed < a.n })
	if first < 0 {
		parts = append(parts, "Refuses nothing.")
	} else {
		parts = append(parts, fmt.Sprintf("Refuses %s of %s, the first at %s.", count(v.Refused), count(v.Allowed+v.Refused), lengthWords(p.answers[first].at)))
	}
	switch {
	case v.Most > g.quota && g.quota > 0:
		parts = append(parts, fmt.Sprintf("Lets %s %s pass in the %s from %s, %s times the quota of %s%s.",
			count(v.Most), units, window, lengthWords(v.MostFrom), ratio(v.Most, g.quota), count(g.quota), p.because(g, v)))
	case v.Most > 0:
		parts = append(parts, fmt.Sprintf("In no %s do more than %s %s pass, of a quota of %s.", window, count(v.Most), units, count(g.quota)))
	}
	if first < 0 {
		return strings.Join(parts, " ")
	}
	a := p.answers[first]
	switch {
	case a.retry == nil:
		parts = append(parts, "It never holds as many as one request takes.")
	case p.limit.Algorithm == enforcement.SlidingWindowCounter:
		parts = append(parts, fmt.Sprintf("At that first refusal it counts %s, the window before in proportion, and the next would pass %s later.", count(v.Holds-a.remaining), lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.SlidingWindowLog:
		parts = append(parts, fmt.Sprintf("At that first refusal it remembers %s, and the next would pass when enough of them are %s old, %s later.", count(v.Holds-a.remaining), window, lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.FixedWindow:
		parts = append(parts, fmt.Sprintf("At that first refusal its window has %s left, and the next would pass %s later.", lengthWords(a.reset), lengthWords(*a.retry)))
	default:
		parts = append(parts, fmt.Sprintf("It begins with %s and gains one each %s: of the %s %s that pass, %s are of what it gained.",
			count(v.Holds), views.Elapsed(perUnit(p.limit)), count(v.Allowed*g.cost), units, count(max(0, v.Allowed*g.cost-v.Holds))))
	}
	return strings.Join(parts, " ")
}

// because says why more than the quota pass in one window.
func (p *played) because(g *game, v *views.Lane) string {
	i := slices.IndexFunc(p.answers, func(a playedAnswer) bool { return a.at == v.MostFrom })
	switch {
	case p.limit.Algorithm == enforcement.FixedWindow && i >= 0:
		return ", as its count begins anew at " + lengthWords(p.answers[i].at+p.answers[i].reset)
	case p.limit.Algorithm == enforcement.SlidingWindowCounter:
		return ", as it takes the window before for spread evenly"
	case p.limit.Algorithm.Bucket():
		return fmt.Sprintf(": what the bucket held, up to %s, and what it gained meanwhile", views.Count(v.Holds).Exact)
	}
	return ""
}

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
