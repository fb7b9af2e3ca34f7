package traffic

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A drawing renders the tiles, charts and tables of one page about traffic.
type drawing struct {
	w      *pages
	o      *overview
	s      web.TimeRange
	tenant uint32 // number; 0: all tenants
	member bool   // the visitor is a member of the tenant, and not one of the operator's people
	path   string
	also   url.Values
	// end is the end of the counts that the page has. elapsed is how much of the time range has
	// passed. length is the length of the previous period, with which the tiles compare.
	end             time.Time
	elapsed, length time.Duration
	// points has the counts that the charts show. step is the time between two points.
	points []metrics.Point
	step   time.Duration
	marked views.Events     // the events in the charts
	by     metrics.Grouping // how the charts of requests and denials are grouped, or ""
	// comparing is true if the charts also show the previous period. past has the counts of that
	// period; see pastPoints.
	comparing bool
	past      map[int64]*metrics.Point
}

func (d *drawing) traffic() views.Traffic {
	o, also, tenant := d.o, d.also, d.tenant
	if o.Traffic.Total.Requests == 0 {
		return views.Traffic{Empty: &views.Empty{
			Title: noRequests, Text: "Choose a longer time, or send a check. It appears here within three seconds.",
		}}
	}
	d.end = o.Traffic.To
	if now := d.w.Now(); now.Before(d.end) {
		d.end = now
	}
	d.elapsed, d.length = d.end.Sub(o.Traffic.From), o.Before.To.Sub(o.Before.From)
	d.points, d.step = grouped(o.Traffic.Points, o.Traffic.Step.Duration(), chartPoints)
	d.marked = d.events()
	d.by = groupingOf(tenant, also)
	d.comparing, d.past = also.Get(compareParam) == "1", d.pastPoints()
	quiet := d.quiet(d.points)
	whole := also.Get("policy") == "" && also.Get("route") == ""
	t := views.Traffic{Tiles: d.tiles(whole), Requests: d.requests(quiet), Rate: d.rate(), Split: d.split(quiet), Events: d.marked}
	if d.by != "" && o.groups != nil {
		t.Requests, t.Denied, t.Rate = d.requestsGrouped(), d.deniedGrouped(), d.rateGrouped()
	}
	if also.Get("route") == "" {
		t.Limited = d.keys("limited", "Top limited keys", "Denied", "bad", &o.Limited)
		t.Allowed = d.keys("allowed", "Top allowed keys", "Allowed", "", &o.Allowed)
	}
	if also.Get("policy") == "" {
		t.Routes = d.routes()
	}
	switch {
	case whole:
		t.RetryAfter = d.retryAfter()
		if tenant == 0 {
			t.Latency, t.Tenants = d.latency(), d.tenants()
		}
	case also.Get("route") != "":
		t.Note = "Keys and retry times are counted by tenant and policy, not by route. This page does not show them."
	default:
		t.Note = "Retry times and routes are not counted by policy. This page does not show them."
	}
	return t
}

// chartPoints is the maximum number of points in a chart. stripCells is the maximum number of cells
// in a row of the heat map.
const (
	chartPoints = 190
	stripCells  = 48
)

// multiples lists how many steps of the database can be added up to one step of a chart. The key is
// the length of a step in the database.
var multiples = map[time.Duration][]int{
	time.Minute: {1, 2, 5, 10, 15, 30, 60, 120, 240, 720, 1440},
	time.Hour:   {1, 2, 3, 6, 12, 24, 48, 168},
	web.Day:     {1, 2, 7, 14, 28, 56},
}

// together returns how many steps must be added up to one. As a result, n steps become no more
// than the number most.
func together(step time.Duration, n, most int) int {
	list := multiples[step]
	for _, m := range list {
		if (n+m-1)/m <= most {
			return m
		}
	}
	return list[len(list)-1]
}

// pointOf returns the step of the charts for a preset of the given length. The step is the time
// between two points.
func pointOf(length time.Duration) time.Duration {
	switch {
	case length <= 3*time.Hour:
		return time.Minute
	case length <= 6*time.Hour:
		return 2 * time.Minute
	case length <= web.Day:
		return 10 * time.Minute
	case length <= 7*web.Day:
		return time.Hour
	case length <= 30*web.Day:
		return 6 * time.Hour
	}
	return web.Day
}

// grouped adds up neighboring points until no more than most points remain. It returns the new
// points and their step. Each new point starts at a multiple of this step.
func grouped(points []metrics.Point, step time.Duration, most int) ([]metrics.Point, time.Duration) {
	// The first new point can start before the first old point, which makes one more point.
	m := together(step, len(points), most-1)
	if m == 1 {
		return points, step
	}
	length := step * time.Duration(m)
	var out []metrics.Point
	for i := range points {
		at := points[i].At.Truncate(length)
		if n := len(out); n == 0 || !out[n-1].At.Equal(at) {
			out = append(out, metrics.Point{At: at})
		}
		out[len(out)-1].Add(&points[i].Counts)
	}
	return out, length
}

// quiet returns the number of points before the first request. The charts show a gap for these
// points. If there were requests before the time range, it returns 0.
func (d *drawing) quiet(points []metrics.Point) int {
	if d.o.Before.Total.Requests > 0 {
		return 0
	}
	for i := range points {
		if points[i].Requests > 0 {
			return i
		}
	}
	return len(points)
}

// change returns by how many percent a count per second has changed since the previous period.
// views.ChangeOf describes rise.
func (d *drawing) change(now, before int64, rise int) views.Change {
	if now == before && now == 0 || d.elapsed <= 0 || d.length <= 0 {
		return views.ChangeOf(0, 0, rise)
	}
	return views.ChangeOf(float64(now)/d.elapsed.Seconds(), float64(before)/d.length.Seconds(), rise)
}

// sharesChange returns by how many percentage points a share has changed since the previous period.
// The share now is now/nowOf, and it was before/beforeOf.
func sharesChange(now, nowOf, before, beforeOf int64, rise int) views.Change {
	if beforeOf == 0 || nowOf == 0 {
		return views.Change{Text: "no data before"}
	}
	was, is := 100*float64(before)/float64(beforeOf), 100*float64(now)/float64(nowOf)
	c := views.ChangeOf(is, was, rise)
	if by := is - was; by >= 0.05 || by <= -0.05 {
		c.Text = fmt.Sprintf("%+.1f points", by)
	} else {
		c = views.Change{Text: "about the same"}
	}
	return c
}

// denials returns the URL of the list of denials. The URL has the tenant, policy and route filters
// of the current page, and the filters in of. A filter in of replaces the same filter of the page.
func (d *drawing) denials(of url.Values) string {
	for _, name := range []string{"tenant", "policy", "route"} {
		if v := d.also.Get(name); v != "" && of.Get(name) == "" {
			of.Set(name, v)
		}
	}
	if d.tenant != 0 && d.also.Get("tenant") == "" {
		return d.s.Address("/tenants/"+d.w.names.Slug(d.tenant)+"/denials", of)
	}
	return d.s.Address("/denials", of)
}

// withoutPolicy returns the note with the number of requests to which no policy applied.
func withoutPolicy(n int64) string {
	if n == 0 {
		return ""
	}
	return " · " + views.Count(n).Text + " without a policy"
}

func (d *drawing) tiles(whole bool) []views.Tile {
	now, before := &d.o.Traffic.Total, &d.o.Before.Total
	other := now.Requests - now.Allowed() - now.Limited()
	list := []views.Tile{
		{
			Label: "Requests", Value: views.Count(now.Requests), Change: d.change(now.Requests, before.Requests, 0), URL: "#traffic",
			Note: perSecond(now.Requests, d.elapsed) + ". " + most(d.busiest(), ""),
		},
		{
			Label: "Allowed", Value: views.Count(now.Allowed()), Change: d.change(now.Allowed(), before.Allowed(), 0),
			URL:  d.denials(url.Values{"outcome": {"allowed"}}),
			Note: views.Percent(now.Allowed(), now.Requests).Text + " of requests" + withoutPolicy(now.Unmatched),
		},
		{
			Label: "Denied by limits", Value: views.Count(now.Limited()), Change: d.change(now.Limited(), before.Limited(), -1),
			URL: d.denials(url.Values{"reason": {"limited"}}), Note: views.Quantity(other, "other denial", "other denials"),
		},
		{
			Label: "429 rate", Value: views.Percent(now.Limited(), now.Requests),
			Change: sharesChange(now.Limited(), now.Requests, before.Limited(), before.Requests, -1),
			URL:    d.denials(url.Values{"reason": {"limited"}}), Note: most(d.highestRate(), "No request was over a limit"),
		},
	}
	if whole && d.tenant == 0 {
		l, was := &d.o.Latency, &d.o.before
		change := views.Change{Text: "no data before"}
		if was.Count > 0 && l.Count > 0 {
			rise := 0 // a change below a millisecond has no color
			if max(l.P95, was.P95) >= 1000 {
				rise = -1
			}
			change = views.ChangeOf(float64(l.P95), float64(was.P95), rise)
		}
		list = append(list, views.Tile{
			Label: "Limiter, p95", Value: micros(l.P95), Change: change, URL: "#latency",
			Note: "p50 " + micros(l.P50).Text + " · p99 " + micros(l.P99).Text,
		})
	}
	tile := views.Tile{
		Label: "Degraded", Value: views.Percent(now.Degraded, now.Requests),
		Change: sharesChange(now.Degraded, now.Requests, before.Degraded, before.Requests, -1), URL: d.denials(url.Values{"degraded": {"1"}}),
		Note: d.w.limiterName() + " made all decisions",
	}
	if now.Degraded > 0 {
		tile.Tone = "warn"
		tile.Note = views.Count(now.Local).Text + " decided locally · " + views.Count(now.Degraded-now.Local).Text + " by failure mode"
	}
	return append(list, tile)
}

// limiterName returns the name of the limiter that decides checks when nothing fails.
func (w *pages) limiterName() string {
	if w.cfg.Embedded {
		return "The limiter of this node"
	}
	return "The shared limiter"
}

// maximum returns the index of the point with the largest number. If all numbers are 0, it returns
// -1.
func (d *drawing) maximum(number func(*metrics.Point) float64) int {
	at, most := -1, 0.0
	for i := range d.points {
		if n := number(&d.points[i]); n > most {
			at, most = i, n
		}
	}
	return at
}

func requestsOf(p *metrics.Point) float64 { return float64(p.Requests) }

// rateOf returns the share of requests that limits denied (HTTP status 429), in percent.
func rateOf(p *metrics.Point) float64 {
	return 100 * float64(p.Limited()) / float64(max(1, p.Requests))
}

// busiest returns the highest point in the chart of requests as text, such as "310 per minute at
// 09:31".
func (d *drawing) busiest() string {
	i := d.maximum(requestsOf)
	if i < 0 {
		return ""
	}
	return views.Count(d.points[i].Requests).Text + " " + views.PerStep(d.step) + " " + d.when(d.points[i].At, d.step)
}

// highestRate returns the highest point in the chart of the 429 rate as text, such as "12.5% at
// 09:31". If limits denied no request, it returns "".
func (d *drawing) highestRate() string {
	i := d.maximum(rateOf)
	if i < 0 {
		return ""
	}
	return views.Percent(d.points[i].Limited(), d.points[i].Requests).Text + " " + d.when(d.points[i].At, d.step)
}

// most returns the text "Highest: " followed by peak. If peak is "", it returns the text none.
func most(peak, none string) string {
	if peak == "" {
		return none
	}
	return "Highest: " + peak
}

// unfinished reports whether the counts of a point are incomplete: its step has not ended, or
// the time range ends before the step.
func (d *drawing) unfinished(p *metrics.Point) bool { return p.At.Add(d.step).After(d.end) }

// when returns the time of a point as text, such as "at 09:31" or "on 2 January".
func (d *drawing) when(t time.Time, step time.Duration) string {
	switch {
	case step >= web.Day:
		return "on " + dayOf(d.s.In(t), "2 January")
	case d.s.To.Sub(d.s.From) > web.Day:
		return "on " + d.s.In(t).Format("2 January at 15:04")
	}
	return "at " + d.s.In(t).Format("15:04")
}

// dayOf returns the start of a day in UTC as text. In a time zone where this day does not start at
// midnight, the text includes the time of day.
func dayOf(t time.Time, form string) string {
	if t.Hour() != 0 || t.Minute() != 0 {
		form += " 15:04"
	}
	return t.Format(form)
}

func perSecond(n int64, over time.Duration) string {
	if over <= 0 {
		return ""
	}
	rate := float64(n) / over.Seconds()
	switch {
	case rate >= 100:
		return views.Count(int64(rate+0.5)).Text + " per second"
	case rate >= 1:
		return strconv.FormatFloat(rate, 'f', 1, 64) + " per second"
	}
	return strconv.FormatFloat(rate*60, 'f', 1, 64) + " per minute"
}

func micros(us int64) views.Number {
	if us == 0 {
		return views.Number{Text: "–", Exact: "no data"}
	}
	return views.Duration(time.Duration(us) * time.Microsecond)
}

func (d *drawing) zoom() string {
	return web.TimeRange{Preset: web.DefaultPreset, Zone: d.s.Zone}.Address(d.path, d.also)
}

const deniedSeries = "Denied by limits"

func (d *drawing) requests(quiet int) views.Chart {
	c := views.Chart{
		ID: "traffic", Title: "Requests", Kind: "area", Axis: "requests " + views.PerStep(d.step), Step: d.step, Zoom: d.zoom(),
		Events:  &d.marked,
		Choices: d.choices(), Strip: deniedSeries, Series: []views.Series{
			{Name: "Allowed", Color: "good"}, {Name: deniedSeries, Color: "bad"}, {Name: "Other denials", Color: "warn"},
		},
	}
	for i := range d.points {
		p := &d.points[i]
		other := p.Requests - p.Allowed() - p.Limited()
		c.Points = append(c.Points, views.ChartPoint{
			At: p.At, Values: []float64{float64(p.Allowed()), float64(p.Limited()), float64(other)},
			Gap: i < quiet, Unfinished: d.unfinished(p),
		})
	}
	t := &d.o.Traffic.Total
	other := t.Requests - t.Allowed() - t.Limited()
	c.Summary = fmt.Sprintf("%s: %s allowed, %s denied by limits", views.Quantity(t.Requests, "request", "requests"),
		views.Percent(t.Allowed(), t.Requests).Text, views.Percent(t.Limited(), t.Requests).Text)
	if other > 0 {
		c.Summary += fmt.Sprintf(", %s denied for other reasons", views.Percent(other, t.Requests).Text)
	}
	c.Summary += ". " + most(d.busiest(), "") + "." + d.compared()
	d.compare(&c, "All requests before", "quiet", requestsOf)
	d.compare(&c, "Denied by limits before", "bad", limitedOf)
	return c
}

func (d *drawing) rate() views.Chart {
	c := views.Chart{
		ID: "rate", Events: &d.marked, Title: "429 rate", Kind: "line", Unit: "%", Axis: "% of requests", Step: d.step, Zoom: d.zoom(),
		Series: []views.Series{{Name: "429 rate", Color: "bad"}},
	}
	for i := range d.points {
		p := &d.points[i]
		point := views.ChartPoint{At: p.At, Gap: p.Requests == 0, Unfinished: d.unfinished(p)}
		if !point.Gap {
			point.Values = []float64{rateOf(p)}
		}
		c.Points = append(c.Points, point)
	}
	t := &d.o.Traffic.Total
	c.Summary = "Limits denied no requests."
	if highest := d.highestRate(); highest != "" {
		c.Summary = fmt.Sprintf("Limits denied %s of the requests. %s.", views.Percent(t.Limited(), t.Requests).Text, most(highest, ""))
	}
	c.Summary += d.compared()
	d.compare(&c, "429 rate before", "quiet", rateOrNone)
	return c
}

func (d *drawing) split(quiet int) views.Chart {
	c := views.Chart{
		ID: "split", Title: "Decided by", Kind: "area", Axis: "requests " + views.PerStep(d.step), Step: d.step, Zoom: d.zoom(),
		Events: &d.marked,
		Series: []views.Series{
			{Name: d.w.limiterName(), Color: "accent"},
			{Name: "Local share", Color: "violet"},
			{Name: "Failure mode", Color: "warn"},
		},
	}
	for i := range d.points {
		p := &d.points[i]
		c.Points = append(c.Points, views.ChartPoint{
			At: p.At, Values: []float64{float64(p.Requests - p.Degraded), float64(p.Local), float64(p.Degraded - p.Local)}, Gap: i < quiet,
			Unfinished: d.unfinished(p),
		})
	}
	t := &d.o.Traffic.Total
	if t.Degraded == 0 {
		c.Summary = d.w.limiterName() + " made all decisions."
		return c
	}
	c.Summary = fmt.Sprintf("While the shared limiter was unavailable, nodes decided %s with their local share, and failure modes %s.",
		views.Percent(t.Local, t.Requests).Text, views.Percent(t.Degraded-t.Local, t.Requests).Text)
	return c
}

func (d *drawing) latency() *views.Chart {
	l := &d.o.Latency
	c := &views.Chart{
		ID: "latency", Title: "Limiter latency", Kind: "line", Unit: "µs", Axis: "time per call", Step: l.Step.Duration(), Zoom: d.zoom(),
		Events:  &d.marked,
		Series:  []views.Series{{Name: "p50", Color: "accent"}, {Name: "p95", Color: "violet"}, {Name: "p99", Color: "warn"}},
		Summary: "No check used the limiter in this time.",
	}
	for i := range l.Points {
		p := &l.Points[i]
		point := views.ChartPoint{At: p.At, Gap: p.Count == 0, Unfinished: p.At.Add(c.Step).After(d.end)}
		if !point.Gap {
			point.Values = []float64{float64(p.P50), float64(p.P95), float64(p.P99)}
		}
		c.Points = append(c.Points, point)
	}
	if l.Count > 0 {
		c.Summary = fmt.Sprintf("50%% of the calls took up to %s, 95%% up to %s, and 99%% up to %s.", micros(l.P50).Text, micros(l.P95).Text,
			micros(l.P99).Text)
	}
	return c
}
