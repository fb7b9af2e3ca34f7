package views

import (
	"slices"
	"strings"

	"github.com/a-h/templ"
)

// A Button is a submit button of a form. If URL is set, it is a link instead.
type Button struct {
	Text, Icon string
	// About names the object of the action, such as a policy. Only screen readers read it.
	About string
	// URL makes the button a link. Download makes this link a download.
	URL      string
	Download bool
	// Name and Value are a form field, which the browser sends if this button submits the form.
	Name, Value string
	// Quiet and Danger select the style of the button. If neither is set, it has the style of
	// the main action.
	Quiet, Danger, Small, Wide bool
	Class                      string // a further class
	Attributes                 templ.Attributes
}

func (b Button) class() string {
	return join("button", b.Class, when(b.Quiet, "button-quiet"), when(b.Danger, "button-bad"),
		when(b.Small, "button-small"), when(b.Wide, "wide"))
}

// A FormField is the label of a control, with a hint and the error of its value.
type FormField struct {
	Name, Label, Hint, Error string
	Subject                  string // a name that a user chose; it follows the label
}

func (f FormField) hintID() string  { return f.Name + "-hint" }
func (f FormField) errorID() string { return f.Name + "-error" }

// describedBy returns the value for the attribute aria-describedby of the control.
func (f FormField) describedBy() string {
	return join(when(f.Error != "", f.errorID()), when(f.Hint != "", f.hintID()))
}

// attributes returns the HTML attributes that every control of a field has.
func (f FormField) attributes() templ.Attributes {
	list := templ.Attributes{}
	if f.Error != "" {
		list["aria-invalid"] = "true"
	}
	if by := f.describedBy(); by != "" {
		list["aria-describedby"] = by
	}
	return list
}

// A Column is the heading of a column of a table.
type Column struct {
	Text   string
	Number bool            // the column is aligned right
	Hidden bool            // the heading is for screen readers only
	Omit   bool            // the table does not have the column
	Head   templ.Component // the heading instead of Text; nil: Text
	Class  string
	Color  string // color of the series in a chart
	Line   bool   // the series is drawn as a line in a chart with areas
	Sort   string // "ascending" or "descending" if the table is sorted by the column
}

func (c Column) class() string { return join(when(c.Number, "figure-cell"), c.Class) }

// columns returns column headings with the given texts.
func columns(names ...string) []Column {
	list := make([]Column, len(names))
	for i, name := range names {
		list[i].Text = name
	}
	return list
}

// figures returns headings for columns of numbers.
func figures(names ...string) []Column {
	list := columns(names...)
	for i := range list {
		list[i].Number = true
	}
	return list
}

// A Table has the properties of a table. Kind "stack" shows each row as a card on a phone. The
// other kinds are "rank", "data", and "" for the API reference.
type Table struct {
	Kind, Class string
	Caption     string
	ShowCaption bool
	Columns     []Column
	// Actions adds a column that has links for changing each row.
	Actions    bool
	Attributes templ.Attributes
	// Scrolls is set if the table is in an element that scrolls. Then the button that saves the table is after that
	// element, and the caller draws it.
	Scrolls bool
}

// A Card is a part of a page with a border. If it has a title or a label, screen readers list
// it as a landmark.
type Card struct {
	// Name is the prefix of the title's HTML id. If Name is "", the card has no title.
	Name, Title string
	Label       string // for a card without a title
	LabelledBy  string // the HTML id of a title inside the content
	ID, Class   string
	// Panel selects the style for cards with a form. Bad selects the style for actions that
	// delete something.
	Panel, Bad bool
	Attributes templ.Attributes
}

func (c Card) class() string {
	look := "card"
	if c.Panel {
		look = "panel"
	}
	return join(look, c.Class, when(c.Bad, "panel-bad"))
}

func (c Card) attributes() templ.Attributes {
	list := templ.Attributes{}
	labelledBy := c.LabelledBy
	if c.Title != "" {
		labelledBy = c.Name + "-title"
	}
	for name, value := range map[string]string{"id": c.ID, "aria-label": c.Label, "aria-labelledby": labelledBy} {
		if value != "" {
			list[name] = value
		}
	}
	return list
}

// A FormCard is a form in a panel.
type FormCard struct {
	Action, Class        string
	Get, Bad, NoValidate bool
}

func (f FormCard) method() string {
	if f.Get {
		return "get"
	}
	return "post"
}

// when returns text if condition is true. Otherwise it returns "".
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// join returns the texts that are not empty, with a space between them.
func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), " ")
}

// An Empty appears in place of an empty list. It says why the list is empty and what to do.
type Empty struct {
	Title, Text string
	// Curl is a command that the visitor can paste; "": none.
	Curl string
	// KeyAction is the address of a form that creates an API key. The page of the new key then
	// shows the command with this key. "" means that there is no form.
	KeyAction string
	// Link leads to the page for the next step. Without a next step, Link.Text is "".
	Link Link
}
