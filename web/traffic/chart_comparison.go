package traffic

import (
	"math"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// pastPoints returns the counts of the previous period. The key of the map is the Unix time of
// the point to compare with, which is a point of the present period in the charts.
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

// compare adds a line for the previous period to a chart. number returns the value that the
// chart shows for a point.
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

// compared returns a sentence for the summary of a chart. It says which period the lines show,
// or why there are no lines. If the page does not compare, it returns "".
func (d *drawing) compared() string {
	switch {
	case !d.comparing:
		return ""
	case len(d.past) == 0:
		return " The counts of the previous period are stored only in longer steps, so they are not drawn."
	}
	t := &d.o.past
	return " Lines show " + web.SpanWords(t.From, t.From.Add(min(d.o.shift, t.To.Sub(t.From))), d.s.In(time.Time{}).Location()) + "."
}

// rateOrNone returns the share of requests that limits denied, in percent. For a point without
// requests, it returns NaN.
func rateOrNone(p *metrics.Point) float64 {
	if p.Requests == 0 {
		return math.NaN()
	}
	return rateOf(p)
}
