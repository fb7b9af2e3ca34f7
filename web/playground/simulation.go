package playground

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// wireStep and wireScenario are the JSON form of a scenario, which internal/simulation reads.
type wireStep struct {
	At     int64  `json:"at_ms"`
	Op     string `json:"op,omitempty"`
	Cost   *int64 `json:"cost,omitempty"`
	Repeat int64  `json:"repeat,omitempty"`
	TTL    int64  `json:"ttl_ms,omitempty"`
	Units  int64  `json:"units,omitempty"`

	Reservation    string `json:"reservation,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

type wireScenario struct {
	ID     string              `json:"id"`
	Start  int64               `json:"start_ms"`
	Zone   string              `json:"time_zone,omitempty"`
	Day    int64               `json:"billing_anchor_day,omitempty"`
	Mode   string              `json:"mode,omitempty"`
	Delay  int64               `json:"delay_ms,omitempty"`
	Expiry string              `json:"reservation_expiry,omitempty"`
	Limits []enforcement.Limit `json:"limits"`
	Steps  []wireStep          `json:"steps"`
}

// scenario returns the input of headgate simulate for one algorithm. If withLooks is true, the
// scenario has peeks between the requests. From their results, the page draws the line of the
// remaining units.
func (g *playForm) scenario(a enforcement.Algorithm, withLooks bool) wireScenario {
	s := wireScenario{ID: a.String(), Start: g.start, Limits: []enforcement.Limit{g.limit(a)}}
	if s.Limits[0].Period != enforcement.NoPeriod {
		s.Zone, s.Day = g.zone, g.day
	}
	if g.mode.Soft() {
		s.Mode = string(g.mode)
	}
	if g.mode == enforcement.PolicyDelay {
		s.Delay = g.delay
	}
	if g.reservation.made && g.reservation.expiry != enforcement.KeepExpired {
		s.Expiry = string(g.reservation.expiry)
	}
	if g.grant > 0 && a == enforcement.FixedWindow {
		s.Steps = append(s.Steps, wireStep{Op: opGrant, Units: g.grant, TTL: g.duration.Milliseconds()})
	}
	var peeks []int64
	if withLooks {
		peeks = g.looks()
	}
	calls := g.calls()
	for i := range calls {
		c := &calls[i]
		for len(peeks) > 0 && peeks[0] <= c.at {
			s.Steps = append(s.Steps, wireStep{At: peeks[0], Op: opPeek})
			peeks = peeks[1:]
		}
		s.Steps = append(s.Steps, g.step(c, a))
	}
	for _, at := range peeks {
		s.Steps = append(s.Steps, wireStep{At: at, Op: opPeek})
	}
	return s
}

// looks returns the times of the peeks, in milliseconds from the start of the scenario.
func (g *playForm) looks() []int64 {
	duration, window := g.duration.Milliseconds(), g.window.Milliseconds()
	var at []int64
	for i := range int64(looks + 1) {
		at = append(at, min(duration*i/looks, duration-1)) // the end belongs to the next window
	}
	if duration/window <= maxEdges {
		for edge := window; edge < duration; edge += window {
			at = append(at, edge-1, edge)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// play runs the simulation for one algorithm.
func (w *pages) play(ctx context.Context, g *playForm, a enforcement.Algorithm) (*played, error) {
	scenario := g.scenario(a, true)
	text, err := json.Marshal(scenario)
	if err == nil && len(text) > simulation.MaxOneBytes {
		scenario = g.scenario(a, false) // leave out the peeks: with so many requests, the line does not need them
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
		return nil, problem.At("/"+field,
			"make %s steps, which is too many for one simulation: use fewer requests or a shorter duration",
			views.Count(int64(len(scenario.Steps))).Exact)
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
		Steps []stepAnswer `json:"steps"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("read the answer of a simulation: %w", err)
	}
	if len(answer.Steps) != len(scenario.Steps) {
		return nil, fmt.Errorf("a simulation answered %d of %d steps", len(answer.Steps), len(scenario.Steps))
	}
	p, calls := newPlayed(g, a), g.calls()
	for i := range answer.Steps {
		step := &answer.Steps[i]
		switch op := scenario.Steps[i].Op; {
		case op == opGrant:
			continue
		case len(step.Limits) == 0 && !step.Replayed:
			return nil, fmt.Errorf("a simulation answered step %d without its limit", i)
		case !step.Replayed: // the answer to a repetition has what was left before
			p.left = append(p.left, views.LanePoint{At: step.At, Left: step.Limits[0].Remaining})
		}
		if scenario.Steps[i].Op != opPeek {
			p.add(&calls[0], step)
			calls = calls[1:]
		}
	}
	p.end()
	return p, nil
}

// scenarios returns the input of headgate simulate for all selected algorithms.
func (g *playForm) scenarios() (string, error) {
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

// laneWords has, for each mode, the words for requests within the limit and for requests over the
// limit.
var laneWords = map[enforcement.PolicyMode]views.LaneWords{
	enforcement.PolicyEnforce: {
		Passes: "Allows", Passed: "allowed", PassedColumn: "Allowed", Verb: "Denies", Did: "denied", DidColumn: "Denied", One: "denial",
	},
	enforcement.PolicyDegrade: {
		Passes: "Serves in full", Passed: "served in full", PassedColumn: "Served in full",
		Verb: "Degrades", Did: "degraded", DidColumn: "Degraded", One: "degraded request",
	},
	enforcement.PolicyDelay: {
		Passes: "Serves at once", Passed: "served at once", PassedColumn: "Served at once",
		Verb: "Delays", Did: "delayed", DidColumn: "Delayed", One: "delayed request",
	},
}

// lane returns the view of the result of one simulation.
func (p *played) lane(g *playForm) views.Lane {
	v := views.Lane{
		Algorithm: p.limit.Algorithm.String(), Aloud: plans.Describe(p.limit), Quota: g.quota, Duration: g.duration, Window: g.window,
		Holds: p.limit.Capacity(), Points: p.left, Queues: p.limit.Algorithm == enforcement.LeakyBucket, Words: laneWords[g.mode],
	}
	for _, l := range lanes {
		if l.algorithm == p.limit.Algorithm {
			v.Title = l.title
		}
	}
	if p.limit.Algorithm == enforcement.FixedWindow {
		v.Holds += g.grant + p.limit.MaxRollover
	}
	if p.limit.Algorithm == enforcement.Concurrency && g.hold > 0 {
		v.Title = fmt.Sprintf("Concurrency (each request holds its place for %s)", views.Elapsed(g.hold))
	}
	for _, a := range p.answers {
		d := views.LaneMark{At: a.at, Allowed: a.allowed, Denied: a.n - a.allowed, Left: a.remaining}
		if d.Denied > 0 {
			d.Again = passesIn(a.retry)
		}
		d.Waits = waits(a.delay)
		v.Marks = append(v.Marks, d)
		v.Allowed += d.Allowed
		v.Denied += d.Denied
	}
	v.Calls, v.Repeated = p.calls, p.repeated
	v.Run, v.RunAt = p.longestRun()
	v.Most, v.MostFrom = p.most(g)
	v.Limit = web.JSONText(p.limit)
	v.Sentence = p.sentence(g, &v)
	return v
}

// longestRun returns the number of requests in the longest sequence of denials, and the time at
// which the sequence starts.
func (p *played) longestRun() (longest, from int64) {
	run, began := int64(0), int64(0)
	for _, a := range p.answers {
		if a.allowed > 0 { // if several requests come at the same time, the allowed ones are first
			run = 0
		}
		if denied := a.n - a.allowed; denied > 0 {
			if run == 0 {
				began = a.at
			}
			if run += denied; run > longest {
				longest, from = run, began
			}
		}
	}
	return longest, from
}

// most returns the largest number of units that were allowed within the length of one window, and the
// time at which this period starts. It tries each period that starts with an allowed request. The end
// of a period does not belong to it.
func (p *played) most(g *playForm) (most, from int64) {
	window, units, last := g.window.Milliseconds(), int64(0), 0
	for i := range p.answers {
		for last < len(p.answers) && p.answers[last].at < p.answers[i].at+window {
			units += p.answers[last].units(g)
			last++
		}
		if p.answers[i].allowed > 0 && units > most {
			most, from = units, p.answers[i].at
		}
		units -= p.answers[i].units(g)
	}
	return most, from
}

// sentence describes the result.
func (p *played) sentence(g *playForm, v *views.Lane) string {
	count := func(n int64) string { return views.Count(n).Exact }
	window, units := views.Elapsed(g.window), "requests"
	if g.cost != 1 {
		units = "units"
	}
	var parts []string
	first := slices.IndexFunc(p.answers, func(a playedAnswer) bool { return a.allowed < a.n })
	if first < 0 {
		parts = append(parts, v.Words.Verb+" nothing.")
	} else {
		parts = append(parts, fmt.Sprintf("%s %s of %s requests, the first at %s%s.", v.Words.Verb, count(v.Denied),
			count(v.Allowed+v.Denied), lengthWords(p.answers[first].at), delayed(g)))
	}
	parts = append(parts, p.ends()...)
	switch {
	case v.Most > g.quota && g.quota > 0:
		parts = append(parts, fmt.Sprintf("%s %s %s in the %s from %s: %s times the quota of %s%s.", v.Words.Passes,
			count(v.Most), units, window, lengthWords(v.MostFrom), ratio(v.Most, g.quota), count(g.quota), p.because(g, v)))
	case v.Most > 0:
		parts = append(parts, fmt.Sprintf("%s at most %s %s in any %s; the quota is %s.", v.Words.Passes,
			count(v.Most), units, window, count(g.quota)))
	}
	if v.Queues && len(p.answers) > 0 && g.quota > 0 {
		longest := slices.MaxFunc(p.answers, func(a, b playedAnswer) int { return cmp.Compare(a.delay, b.delay) })
		parts = append(parts, fmt.Sprintf("It serves one every %s; the longest wait is %s.",
			views.Elapsed(perUnit(p.limit)), lengthWords(longest.delay)))
		return strings.Join(parts, " ")
	}
	if first < 0 {
		return strings.Join(parts, " ")
	}
	a := p.answers[first]
	switch {
	case a.retry == nil:
		parts = append(parts, "The limit can never hold the cost of one request.")
	case p.limit.Algorithm == enforcement.SlidingWindowCounter:
		parts = append(parts,
			fmt.Sprintf("At the first %s it counts %s, with the previous window in proportion. The next request would pass %s later.",
				v.Words.One, count(v.Holds-a.remaining), lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.SlidingWindowLog:
		parts = append(parts,
			fmt.Sprintf("At the first %s it stores %s. The next request would pass when enough of them are %s old, %s later.",
				v.Words.One, count(v.Holds-a.remaining), window, lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.FixedWindow:
		parts = append(parts, fmt.Sprintf("At the first %s the window ends in %s. The next request would pass %s later.",
			v.Words.One, lengthWords(a.reset), lengthWords(*a.retry)))
	default:
		parts = append(parts, fmt.Sprintf("It starts with %s and gains one every %s: of the %s %s that pass, it gained %s.",
			count(v.Holds), views.Elapsed(perUnit(p.limit)), count(p.units(g)), units, count(max(0, p.units(g)-v.Holds))))
	}
	return strings.Join(parts, " ")
}

// delayed returns words that say how long the requests over the limit wait, if the mode is delay.
func delayed(g *playForm) string {
	if g.mode != enforcement.PolicyDelay {
		return ""
	}
	return ", each by " + lengthWords(g.delay)
}

// because returns the part of a sentence that says why more units than the quota were allowed within
// the length of one window.
func (p *played) because(g *playForm, v *views.Lane) string {
	i := slices.IndexFunc(p.answers, func(a playedAnswer) bool { return a.at == v.MostFrom })
	switch {
	case p.limit.Algorithm == enforcement.FixedWindow && g.grant > 0:
		return fmt.Sprintf(", with the %s granted units", views.Count(g.grant).Exact)
	case p.limit.Algorithm == enforcement.FixedWindow && i >= 0:
		return ", because its count starts at zero at " + lengthWords(p.answers[i].at+p.answers[i].reset)
	case p.limit.Algorithm == enforcement.SlidingWindowCounter:
		return ", because it assumes that the previous window was even"
	case p.limit.Algorithm.Bucket():
		return fmt.Sprintf(": the units in the bucket, up to %s, and those that it gained", views.Count(v.Holds).Exact)
	}
	return ""
}
