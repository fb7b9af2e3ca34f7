package traffic

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web/views"
)

// groupColors are the colors of the groups in a chart. The style sheet gives each color a different
// texture, for readers who cannot distinguish the colors.
var groupColors = [groupsShown]string{"accent", "violet", "warn", "blue", "pink"}

// others is the name of the area for all groups that are not among the largest groupsShown.
const others = "Others"

func limitedOf(p *metrics.Point) float64 { return float64(p.Limited()) }

// groupName returns the name of a group in the charts: the slug of a tenant, or the name of a
// policy or route.
func (d *drawing) groupName(g *metrics.Group) string {
	if d.by == metrics.ByTenant {
		return cmp.Or(d.w.names.Slug(g.Tenant), "deleted tenant")
	}
	return g.Name
}

// requestsGrouped returns the chart of requests by tenant, policy or route.
func (d *drawing) requestsGrouped() views.Chart {
	c := d.grouped("traffic", "Requests", "requests", requestsOf, func(n *metrics.Counts) int64 { return n.Requests })
	c.Choices = d.choices()
	if d.by == metrics.ByPolicy {
		c.Summary += " A request counts for each policy that applies to it."
	}
	if d.comparing {
		c.Summary += " The chart of the 429 rate shows the previous period."
	}
	return c
}

// rateGrouped returns the chart of the 429 rate by tenant, policy or route. It has one line for
// each of the groups with the most requests.
func (d *drawing) rateGrouped() views.Chart {
	all := d.o.groups
	largest := d.largest(func(n *metrics.Counts) int64 { return n.Requests })
	points, step := grouped(all.Total.Points, all.Step.Duration(), chartPoints)
	c := views.Chart{
		ID: "rate", Events: &d.marked, Title: "429 rate by " + string(d.by), Kind: "line", Unit: "%", Axis: "% of requests", Step: step,
		Zoom: d.zoom(), Summary: "Limits denied no requests.",
	}
	for i := range points {
		at := points[i].At
		c.Points = append(c.Points, views.ChartPoint{At: at, Gap: len(largest) == 0, Unfinished: at.Add(step).After(d.end)})
	}
	worst, highest := "", 0.0
	for i := range largest {
		g := &largest[i]
		c.Series = append(c.Series, views.Series{Name: d.groupName(g), Color: groupColors[i]})
		own, _ := grouped(g.Points, all.Step.Duration(), chartPoints)
		for at := range own {
			c.Points[at].Values = append(c.Points[at].Values, rateOrNone(&own[at]))
		}
		if rate := rateOf(&metrics.Point{Counts: g.Total}); rate > highest {
			highest, worst = rate, d.groupName(g)+" has the highest rate: "+views.Percent(g.Total.Limited(), g.Total.Requests).Text+"."
		}
	}
	if worst != "" {
		c.Summary = worst
	}
	if step == d.step {
		c.Summary += d.compared()
		d.compare(&c, "429 rate of all before", "quiet", rateOrNone)
	}
	return c
}

// largest returns the groups with the highest totals, at most groupsShown. It leaves out groups
// with the total 0.
func (d *drawing) largest(total func(*metrics.Counts) int64) []metrics.Group {
	list := slices.Clone(d.o.groups.Groups)
	slices.SortStableFunc(list, func(a, b metrics.Group) int { return cmp.Compare(total(&b.Total), total(&a.Total)) })
	return slices.DeleteFunc(list[:min(groupsShown, len(list))], func(g metrics.Group) bool { return total(&g.Total) == 0 })
}

// deniedGrouped returns the chart of requests that limits denied, by tenant, policy or route.
func (d *drawing) deniedGrouped() *views.Chart {
	c := d.grouped("denied", "Denied by limits", "denied requests", limitedOf, (*metrics.Counts).Limited)
	return &c
}

// grouped returns a chart with one area for each of the largest groups, and one area for all
// others. number returns the value of one point, and total the value of a group in the whole time
// range.
func (d *drawing) grouped(id, title, axis string, number func(*metrics.Point) float64, total func(*metrics.Counts) int64) views.Chart {
	all := d.o.groups
	largest := d.largest(total)
	points, step := grouped(all.Total.Points, all.Step.Duration(), chartPoints)
	c := views.Chart{
		ID: id, Title: title + " by " + string(d.by), Kind: "area", Axis: axis + " " + views.PerStep(step), Step: step, Zoom: d.zoom(),
		Events: &d.marked, Summary: "Limits denied no request.",
	}
	for i := range points {
		p := &points[i]
		c.Points = append(c.Points, views.ChartPoint{At: p.At, Unfinished: p.At.Add(step).After(d.end)})
	}
	rest, sum := make([]float64, len(points)), total(&all.Total.Total)
	for i := range points {
		rest[i] = number(&points[i])
	}
	for i := range largest {
		g := &largest[i]
		sum -= total(&g.Total)
		c.Series = append(c.Series, views.Series{Name: d.groupName(g), Color: groupColors[i]})
		own, _ := grouped(g.Points, all.Step.Duration(), chartPoints)
		for at := range own {
			value := number(&own[at])
			rest[at] -= value
			c.Points[at].Values = append(c.Points[at].Values, value)
		}
	}
	if sum > 0 || len(largest) == 0 {
		c.Series = append(c.Series, views.Series{Name: others, Color: "quiet"})
		for at := range rest {
			c.Points[at].Values = append(c.Points[at].Values, rest[at])
		}
	}
	if len(largest) > 0 {
		n, of := total(&largest[0].Total), total(&all.Total.Total)
		c.Summary = d.groupName(&largest[0]) + " has the most: " + views.Count(n).Text + ", " + views.Percent(n, of).Text + " of all."
	}
	return c
}
