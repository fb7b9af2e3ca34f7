package metrics

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A query reads the counts of each decision from exactly one row: of a minute, an hour or a day. If
// the row of an hour is complete, the query reads this row. Otherwise it reads the rows of the
// minutes of the hour. The row of an hour is incomplete until the hour has ended and its roll-up
// has run. If counts arrive later, the row is incomplete again until the next roll-up. The row of a
// day is complete only if neither the day nor one of its hours needs a roll-up. Store.Kept returns
// the hours and days that need a roll-up. In this way, a result includes everything up to the last
// flush.

// bounds are the maximum numbers of points and rows of one query.
type bounds struct {
	points int64 // 0 if the result has no points
	rows   int64 // maximum for one node and one name of a route, policy or sketch
}

// maxPoints is the maximum number of points of a result. maxRows is the maximum number of rows that a query reads.
const (
	maxPoints = 1500
	maxRows   = 5000
)

// maxRange is the longest time range of a query, about 3 years.
const maxRange = 3 * 366 * 24 * time.Hour

// steps are all steps, the finest first.
var steps = [...]Step{Minute, Hour, Day}

func (s Step) seconds() int64 { return int64(s.Duration() / time.Second) }

// floorTo returns the start of the step that contains at. ceilTo returns the first start of a step
// that is at or after at. All times are in seconds since the epoch.
func floorTo(at int64, s Step) int64 { return at - at%s.seconds() }

func ceilTo(at int64, s Step) int64 { return floorTo(at+s.seconds()-1, s) }

// A part is a time range [from, to) for which a query reads rows of one step.
type part struct {
	step     Step
	from, to int64
}

func (p part) query(of CountQuery) CountQuery {
	of.Step, of.From, of.To = p.step, p.from, p.to
	return of
}

// A reading is the plan of a query: the time range and step of the result, and the parts to read.
type reading struct {
	Span
	parts []part // newest first; together, the parts cover the span
	rows  int64  // number of rows that one name has, if it has a row for every step
}

// points returns a list with one point for every step of the result. Each point has its time and no
// counts.
func (r *reading) points() []Point {
	list := make([]Point, r.place(r.To.Unix()))
	for i := range list {
		list[i].At = r.at(i)
	}
	return list
}

// at returns the start time of the point with the index place.
func (r *reading) at(place int) time.Time {
	return r.From.Add(time.Duration(place) * r.Step.Duration())
}

// place returns the index of the point that contains a time in seconds since the epoch.
func (r *reading) place(at int64) int { return int((at - r.From.Unix()) / r.Step.seconds()) }

func notAfter() error { return problem.At("to", "must be after from") }

func (q *Query) limit() int {
	if q.Limit <= 0 {
		return 10
	}
	return min(q.Limit, 100)
}

// whole returns an error if q names a policy or a route. It is for queries of counts that exist
// only for whole tenants.
func (q *Query) whole() error {
	switch {
	case q.Policy != "":
		return notHere("policy")
	case q.Route != "":
		return notHere("route")
	}
	return nil
}

// seconds returns the time range of the query in seconds since the epoch: from is rounded down,
// to is rounded up. The error is problem.Invalid if the range is empty or longer than maxRange.
func (q *Query) seconds() (from, to int64, err error) {
	if !q.To.After(q.From) {
		return 0, 0, notAfter()
	}
	if q.To.Sub(q.From) > maxRange {
		return 0, 0, problem.At("from", "must be at most 3 years before to")
	}
	from, to = q.From.Unix(), q.To.Unix()
	if q.To.Nanosecond() > 0 {
		to++
	}
	return max(0, from), max(0, to), nil
}

// reading returns the plan of the query q. If q has no step, the plan uses the finest step that
// is within the bounds b and whose rows are not deleted. Days are always within the bounds.
func (a *Analytics) reading(ctx context.Context, q Query, b bounds) (reading, error) {
	from, to, err := q.seconds()
	if err != nil {
		return reading{}, err
	}
	kept, err := a.store.Kept(ctx, from, to)
	if err != nil {
		return reading{}, err
	}
	now, held := a.cfg.Now().Unix()+1, newHeld(kept.Due)
	var allowed []string
	for _, step := range steps {
		r, ok := planReading(from, min(to, ceilTo(now, step)), step, kept, held, b)
		if !ok {
			continue
		}
		if q.Step == "" || q.Step == step {
			return r, nil
		}
		allowed = append(allowed, string(step))
	}
	return reading{}, problem.At("step", "must be %s for this time", strings.Join(allowed, " or "))
}

// planReading returns the plan for a time range and a step. The plan says for which parts of the
// range the query reads rows of minutes, of hours or of days. planReading returns false if the
// number of rows or points exceeds the bounds b, or if rows of the step are deleted.
func planReading(from, to int64, step Step, kept Kept, held held, b bounds) (reading, bool) {
	from, to = floorTo(from, step), ceilTo(to, step)
	to = max(from, to)
	r := reading{Span: Span{time.Unix(from, 0).UTC(), time.Unix(to, 0).UTC(), step}}
	if step == Minute && from < kept.Minutes || step == Hour && from < kept.Hours {
		return r, false
	}
	longest := Day
	if b.points > 0 {
		longest = step // a row of a longer step would cover several points
		if (to-from)/step.seconds() > b.points && step != Day {
			return r, false
		}
	}
	for at := from; at < to; r.rows++ {
		s := held.longest(at, to, longest)
		if n := len(r.parts); n > 0 && r.parts[n-1].step == s {
			r.parts[n-1].to += s.seconds()
		} else {
			r.parts = append(r.parts, part{s, at, at + s.seconds()})
		}
		at += s.seconds()
	}
	slices.Reverse(r.parts)
	return r, r.rows <= b.rows || step == Day
}

// held is the set of the hours and days whose row is incomplete. The row of an hour is incomplete
// if the hour needs a roll-up. The row of a day is incomplete if the day or one of its hours needs
// a roll-up.
type held map[RollUp]bool

func newHeld(due []RollUp) held {
	h := make(held, 2*len(due))
	for _, d := range due {
		h[d] = true
		h[RollUp{Day, floorTo(d.At, Day)}] = true
	}
	return h
}

// longest returns the longest step, at most the step most, for which the row that starts at the
// time at is complete and does not end after to. If there is none, it returns Minute.
func (h held) longest(at, to int64, most Step) Step {
	for _, s := range slices.Backward(steps[1:]) {
		fits := at%s.seconds() == 0 && at+s.seconds() <= to && s.seconds() <= most.seconds()
		if fits && !h[RollUp{s, at}] {
			return s
		}
	}
	return Minute
}
