package traffic

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// pastPoints returns the counts of the time before, by the time of the point of the charts that they
// are compared with.
func (d *drawing) pastPoints() map[int64]*metrics.Point {
	points := map[int64]*metrics.Point{}
	for i := range d.o.past.Points {
		p := &d.o.past.Points[i]
		at := p.At.Truncate(d.step).Add(d.o.shift).Unix()
		if points[at] == nil {
			points[at] = new(metrics.Point)
		}
		points[at].Add(&p.Counts)
	}
	return points
}

// compare adds a line for the time before to a chart. number returns the value of a point.
func (d *drawing) compare(c *views.Chart, name, color string, number func(*metrics.Point) float64) {
	if !d.comparing || len(d.past) == 0 {
		return
	}
	c.Series = append(c.Series, views.Series{Name: name, Color: color, Line: true})
	for i := range c.Points {
		point := &c.Points[i]
		if point.Gap {
			point.Gap, point.Values = false, nil
			for range len(c.Series) - 1 {
				point.Values = append(point.Values, math.NaN())
			}
		}
		value := math.NaN()
		if p := d.past[point.At.Unix()]; p != nil {
			value = number(p)
		}
		point.Values = append(point.Values, value)
	}
}

// compared says with which time the lines of a chart compare.
func (d *drawing) compared() string {
	switch {
	case !d.comparing:
		return ""
	case len(d.past) == 0:
		return " The counts of the time before are kept only in longer steps, so that they are not drawn."
	}
	t := &d.o.past
	return " Lines show " + web.SpanWords(t.From, t.From.Add(min(d.o.shift, t.To.Sub(t.From))), d.s.In(time.Time{}).Location()) + "."
}

// rateOrNone returns the 429 rate of a point, or NaN without requests.
func rateOrNone(p *metrics.Point) float64 {
	if p.Requests == 0 {
		return math.NaN()
	}
	return rateOf(p)
}
