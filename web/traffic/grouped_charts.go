package traffic

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web/views"
)

// groupColors are the colors of the groups in a chart. Each color also has its own texture, for
// readers who cannot tell the colors apart.
var groupColors = [groupsShown]string{"accent", "violet", "warn", "blue", "pink"}

// others is the name of the area that adds up all groups beyond the largest groupsShown.
const others = "Others"

func limitedOf(p *metrics.Point) float64 { return float64(p.Limited()) }

// groupName returns the name of a group for the charts: the slug of a tenant, or the name of a
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

// deniedGrouped returns the chart of requests that limits denied, by tenant, policy or route.
func (d *drawing) deniedGrouped() *views.Chart {
	c := d.grouped("denied", "Denied by limits", "denied requests", limitedOf, (*metrics.Counts).Limited)
	return &c
}

// grouped returns a chart with one area for each of the largest groups, and one for all others.
// number selects the value of one point, total the value of the whole time range.
func (d *drawing) grouped(id, title, axis string, number func(*metrics.Point) float64, total func(*metrics.Counts) int64) views.Chart {
	all := d.o.groups
	largest := slices.Clone(all.Groups)
	slices.SortStableFunc(largest, func(a, b metrics.Group) int { return cmp.Compare(total(&b.Total), total(&a.Total)) })
	largest = slices.DeleteFunc(largest[:min(groupsShown, len(largest))], func(g metrics.Group) bool { return total(&g.Total) == 0 })
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
