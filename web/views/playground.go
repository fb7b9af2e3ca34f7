package views

import (
	"strconv"
	"strings"
	"time"
)

// A Playground is limits and a traffic pattern, and what each algorithm does.
type Playground struct {
	Faults []Fault
	// The limit.
	Quota, Window, Burst Input
	Anchor               Select
	Algorithms           []PlayedAlgorithm
	// The traffic.
	Pattern                                      Select
	Requests, Every, Seed, Cost, Duration, Times Input
	Examples                                     []Tab
	Said                                         string // the pattern, in a sentence
	// Lanes are what was played; none when the form has faults.
	Lanes []Lane
	// Command plays the same; "": it is too long, and ScenariosURL has it.
	Command, ScenariosURL string
	PlansURL              string // where a plan is made; "": nowhere
}

// A PlayedAlgorithm can be chosen.
type PlayedAlgorithm struct {
	Name, Label string
	Chosen      bool
}

// A Lane is what one algorithm did with the traffic.
type Lane struct {
	Algorithm, Title, Aloud string
	Sentence                string // what is to be seen, from the numbers
	Limit                   string // as JSON, for a plan
	Quota, Holds            int64
	Duration, Window        time.Duration
	Allowed, Refused        int64 // requests
	// Run is the most refused in a row, from RunAt on; Most the most units that
	// passed in any one window, which begins at MostFrom. In milliseconds.
	Run, RunAt     int64
	Most, MostFrom int64
	Marks          []LaneMark  // in the order of time
	Points         []LanePoint // what is left, in the order of time
}

// A LaneMark is the requests of one instant, in milliseconds from the beginning.
type LaneMark struct {
	At, Allowed, Refused, Left int64
	Again                      string // in how long the next would pass; "": it passed
}

// A LanePoint is what is left at an instant.
type LanePoint struct{ At, Left int64 }

const (
	laneWidth, laneHeight  = 720, 120
	laneMiddle             = 38.0 // what passes stands above it, what is refused hangs below
	laneReach              = 32.0
	leftFoot, leftReach    = 117.0, 36.0
	laneBins               = 120
	laneTicks, laneRows    = 160, 200
	laneEdges, laneColumns = 24, 4
)

// Elapsed words a time from the beginning, exactly: "59.5s", "1m9.5s", "2h".
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

// x is where an instant is.
func (l *Lane) x(ms int64) float64 {
	return float64(ms) / float64(l.Duration.Milliseconds()) * laneWidth
}

// dense tells that single requests would not be seen.
func (l *Lane) dense() bool {
	for _, m := range l.Marks {
		if m.Allowed+m.Refused > 1 {
			return true
		}
	}
	return len(l.Marks) > laneTicks
}

// bins are the marks by equal parts of the time.
func (l *Lane) bins() []LaneMark {
	bins := make([]LaneMark, laneBins)
	length := l.Duration.Milliseconds()
	for i := range bins {
		bins[i].At = length * int64(i) / laneBins
	}
	for _, m := range l.Marks {
		b := &bins[min(laneBins-1, m.At*laneBins/length)]
		b.Allowed += m.Allowed
		b.Refused += m.Refused
		b.Left, b.Again = m.Left, m.Again
	}
	return bins
}

// highest is the most of a bin: the same in every lane, as all have the same
// requests.
func (l *Lane) highest(bins []LaneMark) int64 {
	most := int64(1)
	for _, b := range bins {
		most = max(most, b.Allowed+b.Refused)
	}
	return most
}

// passed and refused are the paths of what passed and of what did not.
func (l *Lane) passed() string {
	var b strings.Builder
	if l.dense() {
		bins := l.bins()
		most := l.highest(bins)
		for _, bin := range bins {
			l.bar(&b, bin.At, -laneReach*float64(bin.Allowed)/float64(most))
		}
		return b.String()
	}
	for _, m := range l.Marks {
		if m.Allowed > 0 {
			b.WriteString("M" + exact(l.x(m.At)) + " " + exact(laneMiddle-laneReach) + "V" + exact(laneMiddle-2))
		}
	}
	return b.String()
}

func (l *Lane) refused() string {
	var b strings.Builder
	if l.dense() {
		bins := l.bins()
		most := l.highest(bins)
		for _, bin := range bins {
			l.bar(&b, bin.At, laneReach*float64(bin.Refused)/float64(most))
		}
		return b.String()
	}
	for _, m := range l.Marks {
		if m.Refused > 0 {
			b.WriteString("M" + exact(l.x(m.At)-2) + " " + exact(laneMiddle+8) + "l4 10m-4 0l4 -10")
		}
	}
	return b.String()
}

// bar appends a bar that stands on the middle, or hangs from it.
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

// leftLine is what is left over the time; leftArea the same down to nothing.
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

// edges are where windows by the clock begin.
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

// mostX and mostWidth are the window in which most passed.
func (l *Lane) mostX() string { return exact(l.x(l.MostFrom)) }

func (l *Lane) mostWidth() string {
	end := min(l.MostFrom+l.Window.Milliseconds(), l.Duration.Milliseconds())
	return exact(l.x(end) - l.x(l.MostFrom))
}

// label is the picture in a sentence.
func (l *Lane) label() string {
	return l.Title + ": " + grouped(l.Allowed) + " requests pass, " + grouped(l.Refused) + " are denied. The table lists the times."
}

// axis are the times below a lane.
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

// rows are the marks as a table: by parts of the time when there are many.
func (l *Lane) rows() []LaneMark {
	if len(l.Marks) <= laneRows {
		return l.Marks
	}
	var list []LaneMark
	for _, b := range l.bins() {
		if b.Allowed+b.Refused > 0 {
			list = append(list, b)
		}
	}
	return list
}

// tone of the most that passed in one window.
func (l *Lane) tone() string {
	if l.Most > l.Quota {
		return "over"
	}
	return ""
}

// exact is a place in a picture: windows differ by less than a tenth.
func exact(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

// rowsCaption is the caption of the table of a lane.
func (l *Lane) rowsCaption() string {
	if len(l.rows()) != len(l.Marks) {
		return "Totals for each part of the duration, which has " + Count(int64(len(l.Marks))).Exact + " instants."
	}
	return "Each instant at which requests arrive."
}
