package views

import "github.com/a-h/templ"

// A Ranges is where the reader chooses the time that a page is about.
type Ranges struct {
	Presets []RangeLink
	// From and To fill the form of an own time, as "2006-01-02T15:04" in UTC;
	// Action is where it goes, Hidden what else the address holds.
	From, To string
	Action   string
	Hidden   []Hidden
	Error    string // what is wrong with the time that was asked for
	Shown    string // the time that is shown, in words
	// LiveURL turns the stream on, PauseURL off; the one that would change nothing
	// is "".
	LiveURL, PauseURL string
}

// A RangeLink is a time to choose.
type RangeLink struct {
	Text, Label, URL string
	Current          bool
}

// An Empty says why there is nothing, and what to do.
type Empty struct {
	Title, Text string
	// Curl is a command to paste; "": none.
	Curl string
	// Link leads to what to do; its Text is "" for none.
	Link Link
}

// rangeError are the attributes of the field that a wrong time belongs to.
func rangeError(message string) templ.Attributes {
	return FormField{Name: "range", Error: message}.attributes()
}
