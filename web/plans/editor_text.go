package plans

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// editDraftText is GET /plans/:plan/edit/json.
func (w *pages) editDraftText(c echo.Context) error {
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	text, err := documentText(p.Draft)
	if err != nil {
		return err
	}
	return w.showText(c, http.StatusOK, p, p.DraftRevision, text, nil, false)
}

// postDraftText is POST /plans/:plan/edit/json.
func (w *pages) postDraftText(c echo.Context) error {
	f, err := web.StrictForm(c, web.MaxPlanForm, 3, func(name string) bool { return name == "revision" || name == "do" || name == "json" })
	if err != nil {
		return err
	}
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	revision, err := formRevision(f.Get("revision"))
	if err != nil {
		return err
	}
	text := f.Get("json")
	d, err := plans.Parse([]byte(text))
	toForm := f.Get("do") == "form"
	if !toForm && f.Get("do") != "save" && f.Get("do") != "" {
		return problem.New(problem.Malformed, "the form has a button that the page does not")
	}
	if err == nil && !toForm {
		err = d.Validate()
	}
	if faults := faultsOf(err); len(faults) > 0 {
		return w.showText(c, http.StatusUnprocessableEntity, p, revision, text, textFaults(text, faults, toForm), true)
	}
	if err != nil {
		return err
	}
	if !toForm {
		return w.saveDraft(c, p, d, revision)
	}
	return w.showEditor(c, http.StatusOK, editor{plan: p, form: formOf(d), revision: revision, unsaved: true, open: -1})
}

// shownFaults is how many faults of a text are shown: to find the line of one
// reads the text.
const shownFaults = 50

// textFaults names the lines of faults.
func textFaults(text string, list problem.Fields, toForm bool) []views.Fault {
	more := len(list) - shownFaults
	list = list[:min(len(list), shownFaults)]
	var out []views.Fault
	if toForm {
		out = append(out, views.Fault{Message: "This cannot be shown as a form before it is right:"})
	}
	for _, f := range list {
		where := "Line " + strconv.Itoa(lineOf(text, f.Pointer))
		if f.Pointer != "" {
			where += ", " + f.Pointer
		}
		out = append(out, views.Fault{Field: "json", Message: where + ": " + web.EndSentence(f.Message)})
	}
	if more > 0 {
		out = append(out, views.Fault{Field: "json", Message: "And " + strconv.Itoa(more) + " more."})
	}
	return out
}

// lineOf gives the line of a place in a JSON text, from 1: of the value that the
// pointer names, or of the last one above it that is there; of what breaks the
// syntax if that comes first.
func lineOf(text, pointer string) int {
	d := json.NewDecoder(strings.NewReader(text))
	want := strings.Split(pointer, "/")[1:]
	if pointer == "" {
		want = nil
	}
	at := offsetOf(d, want)
	if at < 0 {
		if fault := (*json.SyntaxError)(nil); errors.As(json.Unmarshal([]byte(text), new(any)), &fault) {
			at = int(fault.Offset) - 1
		}
	}
	at = max(0, min(at, len(text)))
	at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t\r\n,:"))
	return 1 + strings.Count(text[:min(at, len(text))], "\n")
}

// offsetOf reads on to the value that the rest of a pointer names and gives the
// offset before it, or before the last one above it; -1 when the text breaks off.
func offsetOf(d *json.Decoder, want []string) int {
	start := int(d.InputOffset())
	if len(want) == 0 {
		return start
	}
	open, err := d.Token()
	if err != nil {
		return -1
	}
	bracket, is := open.(json.Delim)
	if !is {
		return start
	}
	for n := 0; d.More(); n++ {
		name := strconv.Itoa(n)
		if bracket == '{' {
			key, err := d.Token()
			if err != nil {
				return -1
			}
			name, _ = key.(string)
		}
		if problem.Escape(name) == want[0] {
			return offsetOf(d, want[1:])
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return -1
		}
	}
	if _, err := d.Token(); err != nil && !errors.Is(err, io.EOF) {
		return -1
	}
	return start
}

func (w *pages) showText(c echo.Context, status int, p plans.Plan, revision int64, text string, list []views.Fault, unsaved bool) error {
	head, err := w.planHead(c, p, "/edit")
	if err != nil {
		return err
	}
	v := views.DraftText{
		PlanHead: head, Action: planPath(p) + "/edit/json", FormURL: planPath(p) + "/edit", Revision: strconv.FormatInt(revision, 10),
		Faults: list, Unsaved: unsaved,
		JSON: views.Text{
			Name: "json", Label: "The draft as the API has it", Value: text, Rows: min(40, max(12, strings.Count(text, "\n")+3)), Mono: true,
			Hint: "What PUT /v1/plans/" + p.Slug + "/draft takes. Defaults may be left out.",
		},
	}
	if len(list) > 0 {
		v.JSON.Error = list[len(list)-1].Message
		if len(list) > 1 {
			v.JSON.Error = "See the list above."
		}
	}
	return w.Render(c, status, views.DraftTextPage(w.planPage(c, p, "Edit as JSON"), v))
}
