package views

import "github.com/a-h/templ"

// A Ranges is the view in which the visitor selects the period of a page.
type Ranges struct {
	Presets []RangeLink
	// From and To are the texts of the form for a custom period, as "2006-01-02T15:04" in the
	// time zone Zone.
	// Hidden contains the other parameters of the address.
	From, To string
	Zone     string
	Action   string
	Hidden   []Hidden
	Error    string // what is wrong with the time in the address
	Note     string // why the page shows less than the address asks for, or ""
	Shown    string // the time that is shown, in words
	// LiveURL is the same page with live updates, and PauseURL without them. One of them is "".
	LiveURL, PauseURL string
}

// A RangeLink is a time to choose.
type RangeLink struct {
	Text, Label, URL string
	Current          bool
}

// rangeError returns the HTML attributes of a period field with an error.
func rangeError(message string) templ.Attributes {
	return FormField{Name: "range", Error: message}.attributes()
}
