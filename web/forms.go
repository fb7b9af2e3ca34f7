package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// Places are the fields of a form where faults can stand.
type Places struct {
	Inputs  []*views.Input
	Choice  *views.Choice
	Choices []*views.Choice // beside choice
	Selects []*views.Select
	Checks  []*views.Checks
	// renamed gives the field of a pointer (without its first slash) whose field
	// has another name.
	Renamed map[string]string
}

// Report puts what is wrong with an input to its fields and into the list above
// the form, and gives the status. Anything but a fault of the input is an error.
func (p Places) Report(err error) ([]views.Fault, int, error) {
	told := (*problem.Problem)(nil)
	if !errors.As(err, &told) || told.Kind != problem.Invalid && told.Kind != problem.Conflict {
		return nil, 0, err
	}
	var list []views.Fault
	for _, f := range told.Fields {
		list = append(list, p.ReportAt(strings.TrimPrefix(f.Pointer, "/"), f.Message))
	}
	if told.Code == "email_taken" && len(list) == 0 {
		list = append(list, p.ReportAt("email", "is taken: somebody already has it"))
	}
	if told.Code == "slug_taken" && len(list) == 0 {
		list = append(list, p.ReportAt("slug", "is taken: choose another one"))
	}
	if len(list) == 0 {
		list = []views.Fault{{Message: Sentence(told.Message)}}
	}
	status := http.StatusUnprocessableEntity
	if told.Kind == problem.Conflict && list[0].Field == "" {
		status = http.StatusConflict
	}
	return list, status, nil
}

// ReportAt notes a fault of one field; that of a field which the form does not have
// concerns the whole form.
func (p Places) ReportAt(name, message string) views.Fault {
	if other, has := p.Renamed[name]; has {
		name = other
	}
	label, fault := p.place(name)
	if fault == nil {
		return views.Fault{Message: Sentence(message)}
	}
	if *fault == "" {
		*fault = Sentence(message)
	}
	return views.Fault{Field: name, Message: label + " " + EndSentence(message)}
}

// place finds the label of a field, and where its fault stands; nil: there is no
// such field.
func (p Places) place(name string) (label string, fault *string) {
	for _, i := range p.Inputs {
		if i.Name == name {
			return i.Label, &i.Error
		}
	}
	for _, s := range p.Selects {
		if s.Name == name {
			return s.Label, &s.Error
		}
	}
	for _, k := range p.Checks {
		if k.Name == name {
			return k.Label, &k.Error
		}
	}
	for _, k := range append(p.Choices, p.Choice) {
		if k != nil && k.Name == name {
			return k.Label, &k.Error
		}
	}
	return "", nil
}
