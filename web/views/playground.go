package views

import (
	"strconv"
	"strings"
	"time"
)

// A Playground compares how different algorithms decide the same simulated traffic.
type Playground struct {
	Faults []Fault
	// The limit.
	Quota, Window, Burst  Input
	Rollover, Hold, Grant Input
	Zone, Day             Input // of calendar windows
	Anchor, Mode          Select
	Delay                 Input // delay of requests over the limit
	Algorithms            []PlayedAlgorithm
	// The traffic.
	Pattern                                      Select
	Requests, Every, Seed, Cost, Duration, Times Input
	// Reservations, and requests that are sent again.
	Request, Finish, Expiry, Again                  Select
	Life, Extend, FinishAfter, RealCost, AgainAfter Input
	CallsOpen                                       bool // the form shows these fields
	Examples                                        []Tab
	Said                                            string // the pattern, in a sentence
	// Lanes are the results of the simulations. They are empty if the form has faults.
	Lanes []Lane
	// Command is a shell command that simulates the same traffic. It is "" if the command is too
	// long. ScenariosURL is the address that downloads the input of the command.
	Command, ScenariosURL string
	PlansURL              string // address of the form for a new plan; "" if the visitor must not open it
}

// A PlayedAlgorithm is an algorithm that the visitor can select in the form.
type PlayedAlgorithm struct {
	Name, Label string
	Chosen      bool
}

// LaneWords has the words for requests within the limit ("Allows", "allowed"), and for requests
// over the limit ("Denies", "denied", "denial"). PassedColumn and DidColumn are the names of
// columns.
type LaneWords struct{ Passes, Passed, PassedColumn, Verb, Did, DidColumn, One string }

// A Lane is the result for one algorithm. The page draws it as one row.
type Lane struct {
	Algorithm, Title, Aloud string
	Sentence                string // the result in words
	Limit                   string // the limit as JSON, to paste it into a plan
	Quota, Holds            int64
	Duration, Window        time.Duration
	Words                   LaneWords
	Allowed, Denied         int64 // requests within the limit, and over it
	// Run is the number of requests in the longest sequence of denials. This sequence starts at
	// RunAt. Most is the largest number of units that were allowed within the length of one window.
	// This period starts at MostFrom. Times are in milliseconds from the start.
	Run, RunAt     int64
	Most, MostFrom int64
	Marks          []LaneMark  // by time
	Queues         bool        // allowed requests wait; the marks have Waits
	Calls          []LaneCall  // by time; empty if requests have no numbers
	Repeated       int64       // requests that got the answer of an earlier one
	Points         []LanePoint // the remaining units, by time
}

// A LaneMark has the requests that come at one time. The time is in milliseconds from the start.
type LaneMark struct {
	At, Allowed, Denied, Left int64
	Again                     string // time until the next request would be allowed; "" if all were allowed
	Waits                     string // longest delay of the allowed requests; "" if none waits
}

// A LaneCall is a request with a number, its repetition, or what happens to its reservation.
type LaneCall struct {
	At           int64
	Call, Answer string
	Left         string // the units left after the call; "" if the answer does not have them
	Again, Waits string // as in LaneMark
}

// A LanePoint has the number of units that are left at a time.
type LanePoint struct{ At, Left int64 }

const (
	laneWidth, laneHeight  = 720, 120
	laneMiddle             = 38.0 // marks of allowed requests are above this line, those of denied requests below it
	laneReach              = 32.0
	leftFoot, leftReach    = 117.0, 36.0
	laneBins               = 120
	laneTicks, laneRows    = 160, 200
	laneEdges, laneColumns = 24, 4
)

// Elapsed formats a duration since the start, without rounding: "59.5s", "1m9.5s", "2h".
func Elapsed(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func elapsed(ms int64) string { return Elapsed(time.Duration(ms) * time.Millisecond) }

// x returns the horizontal position in the picture for a time.
func (l *Lane) x(ms int64) float64 {
	return float64(ms) / float64(l.Duration.Milliseconds()) * laneWidth
}

// dense reports whether there are too many requests to draw a mark for each of them. The picture
// then has bars instead of marks.
func (l *Lane) dense() bool {
	for _, m := range l.Marks {
		if m.Allowed+m.Denied > 1 {
			return true
		}
	}
	return len(l.Marks) > laneTicks
}

// columns returns the names of the columns of the table, except the first column.
func (l *Lane) columns() []string {
	names := []string{l.Words.PassedColumn, l.Words.DidColumn, "Left", "Next one passes in"}
	if len(l.Calls) > 0 {
		names = []string{"Left", "Next one passes in"}
	}
	if l.Queues {
		names = append(names, "Allowed ones wait up to")
	}
	return names
}

// bins divides the time into equal parts, and returns the requests in each part. If the lane is
// dense, the picture has one bar for each part.
func (l *Lane) bins() []LaneMark {
	bins := make([]LaneMark, laneBins)
	length := l.Duration.Milliseconds()
	for i := range bins {
		bins[i].At = length * int64(i) / laneBins
	}
	for _, m := range l.Marks {
		b := &bins[min(laneBins-1, m.At*laneBins/length)]
		b.Allowed += m.Allowed
		b.Denied += m.Denied
		b.Left, b.Again = m.Left, m.Again
	}
	return bins
}

// highest returns the number of requests for which a bar has the full height. It is the same
// for all lanes, so that bars of different lanes can be compared.
func (l *Lane) highest(bins []LaneMark) int64 {
	most := int64(1)
	for _, b := range bins {
		most = max(most, b.Allowed+b.Denied)
	}
	return most
}

// passed returns the SVG path for the allowed requests. denied returns the path for the denied
// requests.
func (l *Lane) passed() string {
	return l.path(-laneReach, func(m LaneMark) int64 { return m.Allowed }, func(x float64) string {
		return "M" + exact(x) + " " + exact(laneMiddle-laneReach) + "V" + exact(laneMiddle-2)
	})
}

func (l *Lane) denied() string {
	return l.path(laneReach, func(m LaneMark) int64 { return m.Denied }, func(x float64) string {
		return "M" + exact(x-2) + " " + exact(laneMiddle+8) + "l4 10m-4 0l4 -10"
	})
}

// path returns the SVG path for all times at which number is not 0. The path has a mark for each
// of these times. If the lane is dense, it has a bar for each part of the time instead.
func (l *Lane) path(reach float64, number func(LaneMark) int64, mark func(x float64) string) string {
	var b strings.Builder
	if l.dense() {
		bins := l.bins()
		most := l.highest(bins)
		for _, bin := range bins {
			l.bar(&b, bin.At, reach*float64(number(bin))/float64(most))
		}
		return b.String()
	}
	for _, m := range l.Marks {
		if number(m) > 0 {
			b.WriteString(mark(l.x(m.At)))
		}
	}
	return b.String()
}

// bar appends a bar above or below the middle line.
func (l *Lane) bar(b *strings.Builder, at int64, height float64) {
	const width = laneWidth / laneBins * 0.8
	if height == 0 {
		return
	}
	if height > 0 {
		height = max(height, 1.5)
	} else {
		height = min(height, -1.5)
	}
	b.WriteString("M" + exact(l.x(at)+0.6) + " " + exact(laneMiddle) + "v" + exact(height) + "h" + exact(width) + "v" + exact(-height) + "z")
}

// leftLine returns the SVG path of the line that shows the remaining units over time. leftArea
// returns the path of the area below this line.
func (l *Lane) leftLine() string {
	var b strings.Builder
	for i, p := range l.Points {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		share := 0.0
		if l.Holds > 0 {
			share = min(1, max(0, float64(p.Left)/float64(l.Holds)))
		}
		b.WriteString(letter + exact(l.x(p.At)) + " " + exact(leftFoot-leftReach*share))
	}
	return b.String()
}

func (l *Lane) leftArea() string {
	if len(l.Points) == 0 {
		return ""
	}
	first, last := l.Points[0], l.Points[len(l.Points)-1]
	return l.leftLine() + "L" + exact(l.x(last.At)) + " " + exact(leftFoot) + "L" + exact(l.x(first.At)) + " " + exact(leftFoot) + "z"
}

// edges returns an SVG path that marks the starts of windows. If windows do not start at fixed
// times, the path is empty.
func (l *Lane) edges() string {
	var b strings.Builder
	length, window := l.Duration.Milliseconds(), l.Window.Milliseconds()
	if window == 0 || length/window > laneEdges {
		return ""
	}
	for at := window; at < length; at += window {
		b.WriteString("M" + exact(l.x(at)) + " 0V" + exact(laneHeight))
	}
	return b.String()
}

// mostX and mostWidth return the position and the width of a period in the picture: the period as
// long as one window in which the most units were allowed.
func (l *Lane) mostX() string { return exact(l.x(l.MostFrom)) }

func (l *Lane) mostWidth() string {
	end := min(l.MostFrom+l.Window.Milliseconds(), l.Duration.Milliseconds())
	return exact(l.x(end) - l.x(l.MostFrom))
}

// label returns a text that describes the picture for screen readers.
func (l *Lane) label() string {
	return l.Title + ": " + grouped(l.Allowed) + " requests are " + l.Words.Passed + ", " + grouped(l.Denied) + " are " + l.Words.Did +
		". The table lists the times."
}

// axis returns the labels of the time axis below a lane.
func (l *Lane) axis() []string {
	var list []string
	for i := range int64(laneColumns + 1) {
		at := l.Duration * time.Duration(i) / laneColumns
		if at > time.Second {
			at = at.Round(100 * time.Millisecond)
		}
		list = append(list, Elapsed(at))
	}
	return list
}

// rows returns the rows of the table of a lane. These are the marks. If there are too many marks,
// they are the bins.
func (l *Lane) rows() []LaneMark {
	if len(l.Marks) <= laneRows {
		return l.Marks
	}
	var list []LaneMark
	for _, b := range l.bins() {
		if b.Allowed+b.Denied > 0 {
			list = append(list, b)
		}
	}
	return list
}

// tone returns "over" if more units than the quota were allowed within the length of one window.
func (l *Lane) tone() string {
	if l.Most > l.Quota {
		return "over"
	}
	return ""
}

// exact returns a coordinate with two decimals.
func exact(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

// rowsCaption is the caption of the table of a lane.
func (l *Lane) rowsCaption() string {
	switch {
	case len(l.Calls) > laneRows:
		return "The first " + Count(laneRows).Exact + " of " + Count(int64(len(l.Calls))).Exact + " calls."
	case len(l.Calls) > 0:
		return "Each call."
	}
	if len(l.rows()) != len(l.Marks) {
		return "Totals for each part of the duration, which has " + Count(int64(len(l.Marks))).Exact + " instants."
	}
	return "Each instant at which requests arrive."
}
