package views

import "github.com/a-h/templ"

// A Ranges is the choice of the time of a page.
type Ranges struct {
	Presets []RangeLink
	// From and To are the form of a custom time, as "2006-01-02T15:04" in UTC. Hidden are
	// the other parameters of the address.
	From, To string
	Action   string
	Hidden   []Hidden
	Error    string // what is wrong with the time in the address
	Shown    string // the time that is shown, in words
	// LiveURL starts the stream, and PauseURL stops it. One of them is "".
	LiveURL, PauseURL string
}

// A RangeLink is a time to choose.
type RangeLink struct {
	Text, Label, URL string
	Current          bool
}

// An Empty says why a list is empty and what to do.
type Empty struct {
	Title, Text string
	// Curl is a command to paste; "": none.
	Curl string
	// Link leads to what to do; its Text is "" for none.
	Link Link
}

// rangeError returns the attributes of a field with a wrong time.
func rangeError(message string) templ.Attributes {
	return FormField{Name: "range", Error: message}.attributes()
}
