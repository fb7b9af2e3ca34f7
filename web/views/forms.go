package views

import (
	"reflect"
	"strings"
	"time"
)

// An Input is a field of one line.
type Input struct {
	Name, Label, Value, Hint, Error string
	Type                            string // type of the input element
	Autocomplete                    string // what a browser or password manager may fill in
	ReadOnly, Autofocus, Optional   bool
	List                            string // the HTML id of a datalist with suggestions; "": none
}

// TextInput returns a text field that browsers do not fill in.
func TextInput(name, label, value, hint string) Input {
	return Input{Name: name, Label: label, Value: value, Hint: hint, Type: "text", Autocomplete: "off"}
}

// OptionalInput returns a TextInput that can stay empty.
func OptionalInput(name, label, value, hint string) Input {
	i := TextInput(name, label, value, hint)
	i.Optional = true
	return i
}

// A Select is a choice from a list.
type Select struct {
	Name, Label, Value, Hint, Error string
	Options                         []Option
	Optional                        bool
}

// A Choice is a set of radio buttons.
type Choice struct {
	Name, Label, Value, Error string
	Options                   []Option
}

// Choose selects the option that has the given value. If there is no such option, it does
// nothing.
func (c *Choice) Choose(value string) {
	for _, o := range c.Options {
		if o.Value == value {
			c.Value = value
		}
	}
}

// An Option is a value of a Select or a Choice.
type Option struct{ Value, Label, Hint string }

// A Checks is a set of check boxes under one label. Each box is a separate form field.
type Checks struct {
	Name, Label, Error string
	Options            []CheckBox
}

// A CheckBox is one box of a Checks. If it is checked, its form field has the value "on".
type CheckBox struct {
	Name, Label, Hint string
	Checked           bool
}

// A Text is a field of several lines.
type Text struct {
	Name, Label, Value, Hint, Error string
	Rows                            int
	Mono, Optional                  bool
}

// inside returns the content of the textarea. If the text starts with a line break, it adds
// another line break, because browsers remove the first one.
func (t Text) inside() string { return when(strings.HasPrefix(t.Value, "\n"), "\n") + t.Value }

// An Ending is the form field for an expiry time. The visitor enters a duration or a time.
type Ending struct {
	Life  Select
	Until Input
	Zone  *time.Location // the time zone of Until
}

// Hidden is a hidden field of a form.
type Hidden struct{ Name, Value string }

// A Fault is one entry in the error list above a form. If it applies to the whole form, Field
// is "".
type Fault struct{ Field, Message string }

func (i Input) formField() FormField {
	return FormField{Name: i.Name, Label: i.Label, Hint: i.Hint, Error: i.Error}
}

func (s Select) formField() FormField {
	return FormField{Name: s.Name, Label: s.Label, Hint: s.Hint, Error: s.Error}
}

func (t Text) formField() FormField {
	return FormField{Name: t.Name, Label: t.Label, Hint: t.Hint, Error: t.Error}
}
func (c Choice) formField() FormField { return FormField{Name: c.Name, Error: c.Error} }
func (c Checks) formField() FormField { return FormField{Name: c.Name, Error: c.Error} }

// A Control is a form field that can show an error.
type Control interface {
	// control returns the ID and the label of the control, and a pointer to its error text. If no
	// form field of the control has this name, the pointer is nil.
	control(name string) (id, label string, fault *string)
}

func (i *Input) control(name string) (id, label string, fault *string) {
	return found(name == i.Name, i.Name, i.Label, &i.Error)
}

func (s *Select) control(name string) (id, label string, fault *string) {
	return found(name == s.Name, s.Name, s.Label, &s.Error)
}

func (t *Text) control(name string) (id, label string, fault *string) {
	return found(name == t.Name, t.Name, t.Label, &t.Error)
}

func (c *Choice) control(name string) (id, label string, fault *string) {
	return found(name == c.Name, c.Name, c.Label, &c.Error)
}

func (c *Checks) control(name string) (id, label string, fault *string) {
	return found(name == c.Name || strings.HasPrefix(name, c.Name+"/"), c.Name, c.Label, &c.Error)
}

func (e *Ending) control(name string) (id, label string, fault *string) {
	if name == "expires_at" {
		if name = e.Life.Name; e.Life.Value == "at" {
			name = e.Until.Name
		}
	}
	if id, label, fault = e.Life.control(name); fault == nil {
		id, label, fault = e.Until.control(name)
	}
	return id, label, fault
}

func found(is bool, id, label string, fault *string) (string, string, *string) {
	if !is {
		return "", "", nil
	}
	return id, label, fault
}

// FindControl finds the control whose form field has this name. form points to the view of a
// form. fault points to the error text of the control. If the form has no such control, fault
// is nil.
func FindControl(form any, name string) (id, label string, fault *string) {
	return findControl(reflect.ValueOf(form).Elem(), name)
}

func findControl(v reflect.Value, name string) (id, label string, fault *string) {
	if c, is := v.Addr().Interface().(Control); is {
		return c.control(name)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); fault == nil && f.CanInterface() {
				id, label, fault = findControl(f, name)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if fault == nil {
				id, label, fault = findControl(v.Index(i), name)
			}
		}
	}
	return id, label, fault
}

// Options returns the values of options.
func Options(list []Option) []string {
	values := make([]string, len(list))
	for i, o := range list {
		values[i] = o.Value
	}
	return values
}
