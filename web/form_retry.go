package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// takenWords is for conflicts that mean that a value is already in use. It has the form field
// and the error message for each such conflict, by the code of the conflict.
var takenWords = map[string]problem.Field{
	"email_taken": {Pointer: "/email", Message: "is taken: another person has it"},
	"slug_taken":  {Pointer: "/slug", Message: "is taken: choose another one"},
}

// Retry shows a form again after a write failed with err. If err is not about the input, it
// returns err. form points to the view of the form. Retry stores each error message in the view
// of its field and in list. Then it calls show with the HTTP status. If a field has another
// name in the form than in err, renamed has this name; its keys are JSON pointers without the
// first slash.
func Retry(err error, form any, list *[]views.Fault, renamed map[string]string, show func(status int) error) error {
	p := (*problem.Problem)(nil)
	if !errors.As(err, &p) || p.Kind != problem.Invalid && p.Kind != problem.Conflict {
		return err
	}
	fields := p.Fields
	if taken, known := takenWords[p.Code]; known && len(fields) == 0 {
		fields = problem.Fields{taken}
	}
	*list = nil
	for _, f := range fields {
		*list = append(*list, reportAt(form, f, renamed))
	}
	if len(*list) == 0 {
		*list = []views.Fault{{Message: Sentence(p.Message)}}
	}
	if p.Kind == problem.Conflict && (*list)[0].Field == "" {
		return show(http.StatusConflict)
	}
	return show(http.StatusUnprocessableEntity)
}

// reportAt stores the error message of f in the view of its form field. If the form does not
// have this field, the returned Fault applies to the whole form.
func reportAt(form any, f problem.Field, renamed map[string]string) views.Fault {
	name := strings.TrimPrefix(f.Pointer, "/")
	if other, has := renamed[name]; has {
		name = other
	} else if attribute, is := strings.CutPrefix(name, "key/"); is {
		name = KeyFieldPrefix + problem.Unescape(attribute)
	}
	id, label, fault := views.FindControl(form, name)
	if fault == nil {
		return views.Fault{Message: Sentence(f.Message)}
	}
	if *fault == "" {
		*fault = Sentence(f.Message)
	}
	return views.Fault{Field: id, Message: label + " " + EndSentence(f.Message)}
}
