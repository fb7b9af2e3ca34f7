package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/web/views"
)

// places are the fields of a form where faults can stand.
type places struct {
	inputs []*views.Input
	choice *views.Choice
}

// tell puts what is wrong with an input to its fields and into the list above
// the form, and gives the status. Anything but a fault of the input is an error.
func (p places) tell(err error) ([]views.Fault, int, error) {
	told := (*problem.Problem)(nil)
	if !errors.As(err, &told) || told.Kind != problem.Invalid && told.Kind != problem.Conflict {
		return nil, 0, err
	}
	var list []views.Fault
	for _, f := range told.Fields {
		list = append(list, p.at(strings.TrimPrefix(f.Pointer, "/"), f.Message))
	}
	if told.Code == "email_taken" && len(list) == 0 {
		list = append(list, p.at("email", "is taken: somebody already has it"))
	}
	if len(list) == 0 {
		list = []views.Fault{{Message: sentence(told.Message)}}
	}
	status := http.StatusUnprocessableEntity
	if told.Kind == problem.Conflict && list[0].Field == "" {
		status = http.StatusConflict
	}
	return list, status, nil
}

// at notes a fault of one field; that of a field which the form does not have
// concerns the whole form.
func (p places) at(name, message string) views.Fault {
	for _, i := range p.inputs {
		if i.Name == name {
			if i.Error == "" {
				i.Error = sentence(message)
			}
			return views.Fault{Field: name, Message: i.Label + " " + stop(message)}
		}
	}
	if p.choice != nil && p.choice.Name == name {
		p.choice.Error = sentence(message)
		return views.Fault{Field: name, Message: p.choice.Label + " " + stop(message)}
	}
	return views.Fault{Message: sentence(message)}
}
