package views

import (
	"strconv"
	"time"
)

var sampleTones = []string{"", "good", "warn", "bad", "violet"}

const sampleText = "All requests of the last hour were allowed."

// sampleInputs returns text fields, one in each state that a text field can have.
func sampleInputs() []Input {
	return []Input{
		{Name: "sample-plain", Label: "Plain", Type: "text", Optional: true},
		{Name: "sample-hint", Label: "With a hint", Type: "text", Value: "acme", Hint: "Lowercase letters, digits, and hyphens."},
		{
			Name: "sample-error", Label: "With an error", Type: "text", Value: "Acme!",
			Error: "Use lowercase letters, digits, and hyphens.", Hint: "Example: acme-inc.",
		},
		{Name: "sample-fixed", Label: "Read-only", Type: "email", Value: "ada@example.com", ReadOnly: true},
	}
}

func sampleOptions() []Option {
	return []Option{{"one", "First option", "What the first option does."}, {"two", "Second option", "What the second option does."}}
}

// sampleName returns the name of a sample field. A field with an error message has a
// different name than a field without one.
func sampleName(kind, message string) string {
	return "sample-" + kind + when(message != "", "-wrong")
}

func sampleSelect(message string) Select {
	s := Select{Name: sampleName("select", message), Label: "Select", Value: "two", Hint: "Choose one.", Error: message}
	s.Options = sampleOptions()
	return s
}

func sampleLines(message string) Text {
	t := Text{Name: sampleName("lines", message), Label: "Several lines", Mono: true, Error: message, Hint: "A JSON document."}
	t.Value = "{\n\t\"slug\": \"api\"\n}"
	return t
}

func sampleChoice(message string) Choice {
	return Choice{Name: sampleName("choice", message), Label: "Choice", Value: "one", Options: sampleOptions(), Error: message}
}

func sampleChecks() Checks {
	return Checks{Name: "sample-checks", Label: "Check boxes", Options: []CheckBox{
		{"sample-check-1", "Checked", "The box is checked.", true}, {"sample-check-2", "Not checked", "The box is not checked.", false},
	}}
}

func sampleBoxes() Boxes {
	return Boxes{ID: "sample-boxes", Label: "Small check boxes", Hint: "Choose any.", List: []Box{
		{"sample-box-1", "GET", true}, {"sample-box-2", "POST", false}, {"sample-box-3", "DELETE", true},
	}}
}

func sampleTiles() []Tile {
	return []Tile{
		{Label: "Requests", Value: Count(1234567), URL: "#tiles", Change: Change{Text: "+12%", Up: true}},
		{Label: "Allowed", Value: Count(1204000), Tone: "good", Change: Change{Text: "+9%", Up: true, Good: true}},
		{Label: "Denied", Value: Count(30567), Tone: "bad", Change: Change{Text: "+80%", Up: true, Bad: true}},
		{Label: "Slow", Value: Count(42), Tone: "warn", Change: Change{Text: "-3%", Down: true, Good: true}},
		{Label: "Nodes", Value: Count(3), Note: "All nodes run the same version."},
		{Label: "Tenants", Value: Count(0), Change: Change{Text: "same as before"}},
	}
}

func sampleStart() time.Time { return time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC) }

// sampleChart returns a sample chart of two hours with a gap in the data.
func sampleChart(kind string) Chart {
	c := Chart{
		ID: "sample-" + kind, Title: "Chart (" + kind + ")", Summary: sampleText, Kind: kind, Step: 10 * time.Minute,
		Series: []Series{{Name: "allowed", Color: "good"}, {Name: "denied", Color: "bad"}, {Name: "not checked", Color: "quiet"}},
	}
	for i := range 13 {
		v := float64(i % 5)
		at := sampleStart().Add(time.Duration(i) * c.Step)
		c.Points = append(c.Points, ChartPoint{At: at, Values: []float64{40 + 9*v, 4 * v, 2}, Gap: i == 7})
	}
	return c
}

func sampleBars() Bars {
	b := Bars{ID: "sample-histogram", Title: "Histogram", Summary: sampleText, ValueLabel: "Retry after", CountLabel: "Denied"}
	for i, tone := range []string{"", "", "bad", "quiet"} {
		b.Bars = append(b.Bars, Bar{Label: strconv.Itoa(i) + " s", Edge: "≤ " + strconv.Itoa(i) + " s", Count: int64(10 * (i + 1)), Tone: tone})
	}
	return b
}

func sampleStrip() Strip {
	s := Strip{Label: "Denied requests over time"}
	for i := range 40 {
		s.Cells = append(s.Cells, Cell{Level: i / 4})
	}
	return s
}

func sampleRanges(live bool, message string) Ranges {
	r := Ranges{
		Presets: []RangeLink{{"1h", "The last hour", "#ranges", true}, {"24h", "The last 24 hours", "#ranges", false}},
		From:    "2026-03-02T09:00", To: "2026-03-02T10:00", Action: "#ranges", Shown: "The last hour", Error: message,
	}
	if live {
		r.PauseURL = "#ranges"
	} else {
		r.LiveURL = "#ranges"
	}
	return r
}

func sampleFilters() Filters {
	return Filters{
		Action: "#filters", ClearURL: "#filters",
		Chips: []Chip{{"Tenant", "acme", "#filters"}, {"Route", "/v1/search", "#filters"}},
		Fields: []FilterField{
			{Name: "tenant", Label: "Tenant", Value: "acme", List: []string{"acme"}},
			{Name: "status", Label: "Status", Options: sampleOptions()},
			{Name: "ip", Label: "Address", Value: "300.1.1.1", Error: "Enter an IP address."},
			{Name: "shadow", Label: "In shadow", Value: "1", Check: true},
		},
	}
}
