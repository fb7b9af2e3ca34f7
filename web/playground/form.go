package playground

import (
	"math"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// epoch is the earliest start of a scenario. A scenario starts at the first start of a window at
// or after epoch, so that windows with the anchor clock start together with the scenario.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

var anchorOptions = []views.Option{
	{Value: enforcement.FirstHit.String(), Label: "At the first request"},
	{Value: enforcement.Clock.String(), Label: "By the clock (UTC)"},
}

// playModes are the modes of a policy that the form offers.
var playModes = []views.Option{
	{Value: string(enforcement.PolicyEnforce), Label: "Are denied"},
	{Value: string(enforcement.PolicyDegrade), Label: "Get the cheap answer"},
	{Value: string(enforcement.PolicyDelay), Label: "Wait"},
}

// patterns are the traffic patterns of the form.
var patterns = []views.Option{
	{
		Value: "edge", Label: "Attack at a window's edge",
		Hint: "the requests in the last sixth of the first window, and again in the first sixth of the next one; " +
			"one request at 0 starts windows that start at the first request",
	},
	{Value: "steady", Label: "Steady", Hint: "the requests spread evenly over each period"},
	{Value: "bursts", Label: "Bursts", Hint: "all requests at once, at the start of each period"},
	{Value: "ramp", Label: "Ramp", Hint: "from zero, growing evenly up to the requests of a period at the end"},
	{
		Value: "random", Label: "Random",
		Hint: "the same number on average, each independent of the others (Poisson); the same seed gives the same times",
	},
	{Value: "own", Label: "Custom times", Hint: "the times below"},
}

// lanes are the algorithms in the order of the page. If first is set, the algorithm is selected
// when the page is opened.
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
	{enforcement.LeakyBucket, false, "Leaky bucket (requests that pass wait in a queue)"},
	{enforcement.Concurrency, false, "Concurrency (each request holds its place for the window)"},
}

// An arrival is a number of requests that come at the same time.
type arrival struct {
	at int64 // milliseconds from the start
	n  int64
}

// A playForm is the content of the form in the playground.
type playForm struct {
	text     map[string]string // the texts as the visitor typed them, by field
	chosen   []enforcement.Algorithm
	quota    int64
	period   enforcement.Period // period of the fixed window; NoPeriod: its length is fixed
	zone     string             // time zone of a calendar window; "" is UTC
	day      int64              // on which calendar months begin
	window   time.Duration      // for a calendar window, the length of the first window
	start    int64              // start of the scenario and of a window, in milliseconds since 1970
	rollover int64
	burst    int64
	hold     time.Duration // how long a request holds its places of a concurrency limit; 0: for the length of the window
	grant    int64         // granted units, which the fixed window has beyond the quota from the start; 0: none
	anchor   enforcement.Anchor
	mode     enforcement.PolicyMode
	delay    int64 // how long requests over the limit wait in mode delay, in milliseconds
	pattern  string
	requests int64
	every    time.Duration
	seed     uint64
	cost     int64
	duration time.Duration
	arrivals []arrival
	faults   problem.Fields

	reservation reservationForm
	again       repetitionForm
}

// playDefaults are the default values of the form. With them, the page shows the differences
// between the algorithms.
var playDefaults = map[string]string{
	"quota": "10", "window": "1m", "time_zone": "", "billing_anchor_day": "1",
	"max_rollover": "", "burst": "", "hold": "", "grant": "", "anchor": "clock",
	"pattern": "edge", "requests": "10", "every": "1m",
	"mode": "enforce", "delay_ms": "1000",
	"seed": "1", "times": "", "cost": "1", "duration": "2m",
	"request": charges, "ttl": "1m", "extend_after": "", "finish": opSettle, "finish_after": "10s", "real_cost": "",
	"reservation_expiry": string(enforcement.KeepExpired), "again": never, "again_after": "5s",
}

// readPlayForm reads the form from the parameters of an address. If a parameter is missing, it
// uses the default.
func readPlayForm(params url.Values) *playForm {
	g := &playForm{text: map[string]string{}}
	for name, value := range playDefaults {
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
	g.readWindow()
	g.rollover = g.optional("max_rollover", enforcement.MaxRollover)
	g.burst = g.optional("burst", enforcement.MaxQuota)
	g.hold = g.optionalLength("hold")
	g.grant = g.optional("grant", enforcement.MaxGrantUnits)
	var known bool
	if g.anchor, known = enforcement.ParseAnchor(g.text["anchor"]); !known || g.anchor > enforcement.Clock {
		g.faults.Add("/anchor", "must be first_hit or clock")
	}
	if g.mode = enforcement.PolicyMode(g.text["mode"]); !g.mode.InForce() {
		g.faults.Add("/mode", "must be enforce, degrade or delay")
	}
	g.delay = g.number("delay_ms", 1, enforcement.MaxPolicyDelay)
	g.readReservation()
	g.readRepetition()
	g.checkUnused()
	if g.pattern = g.text["pattern"]; !slices.ContainsFunc(patterns, func(o views.Option) bool { return o.Value == g.pattern }) {
		g.faults.Add("/pattern", "must be one of the list")
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

// readWindow reads the window. It selects the first window that starts at or after the epoch.
func (g *playForm) readWindow() {
	g.zone, g.day = g.text["time_zone"], g.number("billing_anchor_day", 1, 31)
	var calendar bool
	if g.period, calendar = enforcement.ParsePeriod(g.text["window"]); !calendar {
		g.window = g.length("window")
		if window := g.window.Milliseconds(); window > 0 {
			g.start = (epoch + window - 1) / window * window
		}
		return
	}
	c, err := enforcement.NewCalendar(g.zone, int(g.day))
	if err != nil || g.zone != "" && !problem.ValidTimeZone(g.zone) {
		g.faults.Add("/time_zone", problem.TimeZoneForm)
		return
	}
	from := time.UnixMilli(epoch)
	start, end := c.Window(g.period, time.Monday, from)
	if start.Before(from) {
		start, end = c.Window(g.period, time.Monday, end)
	}
	g.start, g.window = start.UnixMilli(), end.Sub(start)
}

// checkUnused adds a fault for each optional field that is filled in, but that no selected
// algorithm uses.
func (g *playForm) checkUnused() {
	uses := func(a enforcement.Algorithm) bool { return slices.Contains(g.chosen, a) }
	switch {
	case g.grant > 0 && (g.mode != enforcement.PolicyEnforce || g.quota == 0):
		g.faults.Add("/grant", "must be empty, unless requests over a quota above 0 are denied")
	case g.grant > 0 && !uses(enforcement.FixedWindow):
		g.faults.Add("/grant", "must be empty, unless the fixed window is selected: only its limits can have grants")
	}
	if g.rollover > 0 && (g.period == enforcement.NoPeriod || !uses(enforcement.FixedWindow)) {
		g.faults.Add("/max_rollover", "must be empty, unless the fixed window is selected, with the window day, week, month, quarter or year")
	}
	if g.period == enforcement.NoPeriod || !uses(enforcement.FixedWindow) {
		for _, field := range []string{"time_zone", "billing_anchor_day"} {
			if g.text[field] != playDefaults[field] {
				g.faults.Add("/"+field, "is for the fixed window with the window day, week, month, quarter or year")
			}
		}
	}
	if g.hold > 0 && !uses(enforcement.Concurrency) {
		g.faults.Add("/hold", "must be empty, unless concurrency is selected")
	}
}

func (g *playForm) readAlgorithms(names []string) {
	for _, name := range names {
		a, known := enforcement.ParseAlgorithm(name)
		if !known {
			g.faults.Add("/algorithm", "has an unknown algorithm")
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

// number parses a whole number that may have commas. It adds a fault if the number is not from
// least to most.
func (g *playForm) number(field string, least, most int64) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(g.text[field], ",", ""), 10, 64)
	if err != nil || n < least || n > most {
		g.faults.Add("/"+field, "must be a whole number from %s to %s", views.Count(least).Exact, views.Count(most).Exact)
	}
	return n
}

// optional does the same as number for an optional field: the number is from 1 to most, and an
// empty field stands for 0.
func (g *playForm) optional(field string, most int64) int64 {
	if g.text[field] == "" {
		return 0
	}
	return g.number(field, 1, most)
}

func (g *playForm) length(field string) time.Duration {
	d, err := enforcement.ParseWindow(g.text[field])
	if err != nil {
		g.faults.Add("/"+field, "%v", err)
	}
	return d
}

// arrive computes the arrivals of the selected traffic pattern.
func (g *playForm) arrive() {
	duration, every := g.duration.Milliseconds(), g.every.Milliseconds()
	field := "requests"
	total := int64(0)
	// add adds n requests at the time at. It returns false if no more requests fit.
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
		// Up to the time t, there are requests·t²/(2·every·duration) requests.
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
		g.faults.Add("/"+field, "give more than %s requests in this duration, the maximum of one simulation", views.Count(maxArrivals).Exact)
	case total == 0:
		g.faults.Add("/"+field, "give no request in this duration")
	}
}

// edge adds the requests of the pattern edge: some just before the end of the first window, and
// some just after its end.
func (g *playForm) edge(add func(at, n int64) bool) {
	window := g.window.Milliseconds()
	part := max(1, window/6)
	if g.duration.Milliseconds() < window+part {
		g.faults.Add("/duration", "must be at least a window and a sixth for an attack at the edge")
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

// own parses the times that the visitor entered, such as "0 0.5 59.9s 1mx10". A number without
// a unit is in seconds. The number after an x is the number of requests at that time.
func (g *playForm) own(duration int64) []arrival {
	var list []arrival
	for text := range strings.FieldsFuncSeq(g.text["times"], func(r rune) bool { return strings.ContainsRune(" ,;\t\r\n", r) }) {
		m := ownTime.FindStringSubmatch(text)
		if m == nil || m[2] != "" && m[3] == "ms" {
			g.faults.Add("/times", "has %.40q, which is not a time like 0, 0.5, 500ms, 2m or 60x10", text)
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
			g.faults.Add("/times", "has %.40q, which is after the end of the duration", text)
			return nil
		}
		if list = append(list, a); len(list) > maxArrivals {
			g.faults.Add("/times", "are too many for one simulation")
			return nil
		}
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return int(a.at - b.at) })
	return list
}

// limit returns the limit that the form describes, with the algorithm a.
func (g *playForm) limit(a enforcement.Algorithm) enforcement.Limit {
	l := enforcement.Limit{Name: "l1", Algorithm: a, Quota: g.quota, Window: g.window}
	if a.Bucket() {
		l.Burst = g.burst
	}
	if a.Windowed() {
		l.Anchor = g.anchor
	}
	if g.period != enforcement.NoPeriod && a == enforcement.FixedWindow { // other algorithms have windows of a fixed length
		l.Period, l.Window, l.Anchor, l.MaxRollover = g.period, g.period.Longest(), g.period.DefaultAnchor(), g.rollover
	}
	return l
}

// values returns the content of the form as the parameters of an address.
func (g *playForm) values() url.Values {
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

// form returns the view of the form with the values that the visitor entered.
func (g *playForm) form() views.Playground {
	in := func(name, label, hint string) views.Input {
		return views.OptionalInput(name, label, g.text[name], hint)
	}
	v := views.Playground{
		Quota: in("quota", "Quota", ""), Window: in("window", "Window", "like 1s, 1m, 24h; a fixed window also day, week, month, quarter, year"),
		Rollover: in("max_rollover", "Rolls over at most", "For a window by the calendar. Empty: nothing."),
		Zone:     in("time_zone", "Time zone", "For a window by the calendar, like Europe/Berlin. Empty: UTC."),
		Day:      in("billing_anchor_day", "Months begin on day", "For a window by the calendar: 1 to 31."),
		Hold:     in("hold", "A place is held for", "For concurrency, like 5s. Empty: the window."),
		Grant:    in("grant", "Granted units", "For the fixed window, once, from the start. Empty: none."),
		Burst:    in("burst", "Burst", "For buckets. Empty: the quota."),
		Anchor:   views.Select{Name: "anchor", Label: "Windows start", Value: g.text["anchor"], Options: anchorOptions},
		Mode:     views.Select{Name: "mode", Label: "Requests over it", Value: g.text["mode"], Options: playModes},
		Delay:    in("delay_ms", "Delay in ms", "Only if they wait."),
		Pattern:  views.Select{Name: "pattern", Label: "Pattern", Value: g.text["pattern"], Options: patterns},
		Requests: in("requests", "Requests", ""), Every: in("every", "Per", "Not used for the attack."),
		Seed: in("seed", "Seed", "For the random pattern."),
		Cost: in("cost", "Cost of each request", ""), Duration: in("duration", "Duration", ""),
		Times: in("times", "Custom times", "In seconds: 0 0.5 59.9, or with ms, s, m, h. x10 means ten requests: 1mx10."),
	}
	g.callsForm(&v)
	for _, o := range patterns {
		if o.Value == g.pattern {
			v.Said = o.Label + ": " + o.Hint + "."
		}
	}
	for _, l := range lanes {
		v.Algorithms = append(v.Algorithms, views.PlayedAlgorithm{
			Name: l.algorithm.String(), Label: l.title,
			Chosen: slices.Contains(g.chosen, l.algorithm),
		})
	}
	for _, e := range []struct{ text, pattern, requests, every, duration string }{
		{"Attack at the edge", "edge", "10", "1m", "2m"},
		{"Slightly too fast", "steady", "15", "1m", "4m"},
		{"Bursts", "bursts", "15", "30s", "4m"},
		{"Ramp", "ramp", "30", "1m", "4m"},
		{"Random", "random", "10", "1m", "6m"},
	} {
		q := url.Values{"pattern": {e.pattern}, "requests": {e.requests}, "every": {e.every}, "duration": {e.duration}}
		v.Examples = append(v.Examples, views.Tab{Text: e.text, URL: "/playground?" + q.Encode(), Current: g.isExample(q)})
	}
	return v
}

// isExample reports whether the form has exactly the values of the example q.
func (g *playForm) isExample(q url.Values) bool {
	for name, value := range playDefaults {
		if q.Has(name) {
			value = q.Get(name)
		}
		if g.text[name] != value {
			return false
		}
	}
	return true
}
