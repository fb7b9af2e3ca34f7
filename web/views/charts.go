package views

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
)

// A Tile shows one number at the top of a page.
type Tile struct {
	Label  string
	Value  Number
	Change Change // comparison with the previous period; no text if there is none
	Note   string
	URL    string // the page with details; "" for none
	Tone   string // "good", "warn", "bad"; "": none
}

// id returns the HTML ID of the tile's link. The ID stays the same when the event stream replaces
// the tile, so the link keeps the focus.
func (t Tile) id() string {
	return "tile-" + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Label)), "-")
}

// A Chart has series of numbers over time. The page contains a table with the numbers. The script
// draws the chart from this table.
type Chart struct {
	// ID is the HTML ID of the chart. The event that updates the chart has the same name.
	ID, Title string
	// Summary describes the numbers.
	Summary string
	// Kind is "area" (stacked series), "line" or "bars".
	Kind string
	// Unit is the unit of the numbers: "" for counts, "%" or "µs". Axis is the title of the y
	// axis, such as "requests per minute".
	Unit, Axis string
	Series     []Series
	Points     []ChartPoint
	// Zoom is the address of the page without its time range. When the visitor selects a part of the
	// chart, the script adds the selected range and opens this address. If Zoom is "", the visitor
	// cannot select a part.
	Zoom string
	// Step is the time between two points.
	Step time.Duration
	// Events are the events that the script marks in the chart.
	Events *Events
	// Choices has links that select what the chart shows. nil means that there are none.
	Choices *ChartChoices
	// Strip is the name of a series whose numbers are too low to be seen in the chart. The script
	// draws this series as a strip above the chart. "" means that there is no strip.
	Strip string
}

// A Series is one line of a chart.
type Series struct {
	Name  string
	Color string // "good", "bad", "warn", "accent", "quiet", "violet", "blue", "pink"
	// Line says that the series is drawn as a line over the stacked areas of a chart. Such series
	// come last.
	Line bool
}

// A ChartChoices has links that select what the charts show. The address of the page has the
// present choice.
type ChartChoices struct {
	Compare []RangeLink
	Groups  []RangeLink // empty if the requests cannot be grouped
	Error   string      // what is wrong with the choice in the address
}

// A ChartPoint has the numbers of one step of a chart.
type ChartPoint struct {
	At time.Time
	// Values has one number for each series. NaN means that there is no number. Gap says that there
	// are no data for this step.
	Values []float64
	Gap    bool
	// Unfinished says that the step has not ended yet, so that its numbers can still grow.
	Unfinished bool
}

// PerStep returns the unit of a count in each step: "per minute", "per 10 minutes".
func PerStep(step time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		switch n := step / unit.length; {
		case n == 1 && step%unit.length == 0:
			return "per " + unit.name
		case n > 1 && step%unit.length == 0:
			return "per " + strconv.Itoa(int(n)) + " " + unit.name + "s"
		}
	}
	return "per " + Duration(step).Text
}

func (c Chart) eventName() string { return c.ID }

// unix formats a time for the script, in seconds since the epoch.
func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// stepLabel formats the start of a step in the time zone of the page. A step of one day starts at
// midnight UTC. In other time zones, its label has a time of day for this reason.
func stepLabel(ctx context.Context, t time.Time, step time.Duration) string {
	t = t.In(Zone(ctx))
	switch {
	case step < 24*time.Hour:
		return t.Format("2 Jan 15:04")
	case t.Hour() == 0 && t.Minute() == 0:
		return t.Format("2 Jan 2006")
	}
	return t.Format("2 Jan 2006 15:04")
}

// timeColumn returns the heading of a column of times, with the time zone.
func timeColumn(ctx context.Context) string { return "Time (" + Zone(ctx).String() + ")" }

// value formats a number for the script.
func value(f float64) string { return strconv.FormatFloat(f, 'g', 12, 64) }

// shown formats a number of a chart for people.
func (c Chart) shown(f float64) string {
	switch c.Unit {
	case "µs":
		return Duration(time.Duration(f * float64(time.Microsecond))).Text
	case "%":
		return short(f) + "%"
	}
	if f == float64(int64(f)) {
		return Count(int64(f)).Exact
	}
	return short(f)
}

// A Bars is a histogram, which the server draws as SVG. The page also has a table with its
// numbers.
type Bars struct {
	ID, Title, Summary string
	// Note says which values the bars include. NoteURL is the address of a page with the details, or
	// "".
	Note, NoteURL string
	// ValueLabel and CountLabel are the column headings of the table, and the titles of the axes.
	ValueLabel, CountLabel string
	Bars                   []Bar
	Empty                  string // shown without bars
}

// A Bar is one bucket.
type Bar struct {
	Label string // "1 s to 2 s"
	Edge  string // below the bar: "≤ 2 s"
	Count int64
	Tone  string // "bad", "quiet"; "": accent
	URL   string // the requests of the bar; "": none
}

// scale returns the numbers beside the axis, from the highest to 0. Their distance is 1, 2 or 5
// times a power of ten. The highest number is at least as high as every bar.
func (b Bars) scale() []int64 {
	most, step := int64(1), int64(1)
	for _, bar := range b.Bars {
		most = max(most, bar.Count)
	}
	for i := 0; step*4 < most; i++ {
		step = step * []int64{2, 5, 10}[i%3] / []int64{1, 2, 5}[i%3]
	}
	var list []int64
	for n := (most + step - 1) / step * step; n >= 0; n -= step {
		list = append(list, n)
	}
	return list
}

// rect returns the position of a bar and its height, in percent of the chart. The position is the
// distance from the top of the chart. A bar that is not empty is high enough to be visible.
func (b Bars) rect(bar Bar) templ.Attributes {
	height := 0.0
	if bar.Count > 0 {
		height = max(2, 100*float64(bar.Count)/float64(b.scale()[0]))
	}
	return templ.Attributes{"y": fixed(100 - height), "height": fixed(height)}
}

// lines returns the SVG path of the lines behind the bars. There is one line for each number
// beside the axis except 0.
func (b Bars) lines() string {
	path, scale := "", b.scale()
	for _, n := range scale[:len(scale)-1] {
		path += "M0 " + fixed(100-100*float64(n)/float64(scale[0])) + "H10"
	}
	return path
}

func fixed(f float64) string { return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") }

// A Strip is one row of a heat map, with a cell for each step of time.
type Strip struct {
	Label string // for screen readers
	Cells []Cell
}

// A Cell is one step of a Strip. Level is 0 to 9. Level 0 stands for the number 0, and level 9
// for the largest number of the heat map.
type Cell struct {
	Level int
	Title string
}

// HeatLevel returns the level of a cell with the number n. The level is 0 if n is 0, otherwise 1
// to 9. most is the largest number of the heat map.
func HeatLevel(n, most int64) int {
	if n <= 0 || most <= 0 {
		return 0
	}
	return max(1, min(9, int(n*9/most)))
}

// A Spark is a small chart of counts beside a number.
type Spark struct {
	Label  string // for screen readers
	Values []int64
}

const sparkHeight = 14

func (s Spark) viewBox() string {
	return "0 0 " + strconv.Itoa(max(1, len(s.Values))*3) + " " + strconv.Itoa(sparkHeight)
}

// height returns the height of the bar for the number n.
func (s Spark) height(n int64) float64 {
	var most int64 = 1
	for _, v := range s.Values {
		most = max(most, v)
	}
	if n <= 0 {
		return 0
	}
	return max(1.5, sparkHeight*float64(n)/float64(most))
}

const cellWidth, cellHeight = 6, 20

func (s Strip) viewBox() string {
	return "0 0 " + strconv.Itoa(max(1, len(s.Cells))*cellWidth) + " " + strconv.Itoa(cellHeight)
}

// share returns n as a percentage of most. It is the width of a bar.
func share(n, most int64) string {
	if most <= 0 {
		return "0"
	}
	return fixed(min(100, 100*float64(n)/float64(most)))
}

// unixSeconds returns a duration as a number of seconds for the script.
func unixSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }

// columns returns the headings of the table that has the numbers of the chart.
func (c Chart) columns(ctx context.Context) []Column {
	list := columns(timeColumn(ctx))
	for _, s := range c.Series {
		list = append(list, Column{Text: s.Name, Number: true, Color: s.Color, Line: s.Line})
	}
	return list
}
