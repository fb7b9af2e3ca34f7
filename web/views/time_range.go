package views

import "github.com/a-h/templ"

// A Ranges is the part of a page on which the visitor selects the time range of the page.
type Ranges struct {
	Presets []RangeLink
	// From and To are the values of the form fields for a time range, such as
	// "2006-01-02T15:04". They are in the time zone Zone. Hidden has the other parameters of
	// the address.
	From, To string
	Zone     string
	Action   string
	Hidden   []Hidden
	Error    string // what is wrong with the times in the address
	Note     string // why the page shows a shorter range than the address selects, or ""
	Shown    string // the time that is shown, in words
	// LiveURL is the address of this page with live updates. PauseURL is the address without
	// live updates. One of them is "".
	LiveURL, PauseURL string
}

// A RangeLink is a link that selects a time range, such as the last hour.
type RangeLink struct {
	Text, Label, URL string
	Current          bool
}

// rangeError returns the HTML attributes of a time range field. message is the error of the
// field, or "".
func rangeError(message string) templ.Attributes {
	return FormField{Name: "range", Error: message}.attributes()
}
