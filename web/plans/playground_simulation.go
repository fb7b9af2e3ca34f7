package plans

import (
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
func (w *pages) play(ctx context.Context, g *game, a enforcement.Algorithm) (*played, error) {
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
		return nil, problem.At("/"+field,
			"come at %s different instants, which is more than one simulation takes: ask for fewer, or for a shorter duration",
			views.Count(int64(len(g.arrivals))).Exact)
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

// lane is what was decided, as the page draws it.
func (p *played) lane(g *game) views.Lane {
	v := views.Lane{
		Algorithm: p.limit.Algorithm.String(), Aloud: plans.Describe(p.limit), Quota: g.quota, Duration: g.duration, Window: g.window,
		Holds: web.Capacity(&enforcement.RuleLimit{Limit: p.limit}), Points: p.left,
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
	v.Limit = web.JSONText(wireOf(p.limit))
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
		parts = append(parts, fmt.Sprintf("Refuses %s of %s, the first at %s.", count(v.Refused), count(v.Allowed+v.Refused),
			lengthWords(p.answers[first].at)))
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
		parts = append(parts,
			fmt.Sprintf("At that first refusal it counts %s, the window before in proportion, and the next would pass %s later.",
				count(v.Holds-a.remaining), lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.SlidingWindowLog:
		parts = append(parts,
			fmt.Sprintf("At that first refusal it remembers %s, and the next would pass when enough of them are %s old, %s later.",
				count(v.Holds-a.remaining), window, lengthWords(*a.retry)))
	case p.limit.Algorithm == enforcement.FixedWindow:
		parts = append(parts, fmt.Sprintf("At that first refusal its window has %s left, and the next would pass %s later.",
			lengthWords(a.reset), lengthWords(*a.retry)))
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
