package plans

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// editDraftText is GET /plans/:plan/edit/json.
func (w *pages) editDraftText(c echo.Context, p plans.Plan) error {
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
	return w.atRevision(w.changeDraftText)(c, f)
}

func (w *pages) changeDraftText(c echo.Context, p plans.Plan, f url.Values, revision int64) error {
	text := f.Get("json")
	if f.Get("do") == "redraw" { // the script restores a text that was not saved
		return w.showText(c, http.StatusOK, p, revision, text, nil, true)
	}
	d, err := plans.Parse([]byte(text))
	toForm := f.Get("do") == "form"
	if !toForm && f.Get("do") != "save" && f.Get("do") != "" {
		return errNoButton
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

// shownFaults is the maximum number of error messages on the page. It is bounded because the
// whole text must be parsed to find the line of each message.
const shownFaults = 50

// textFaults converts faults to views with the numbers of their lines in the text.
func textFaults(text string, list problem.Fields, toForm bool) []views.Fault {
	more := len(list) - shownFaults
	list = list[:min(len(list), shownFaults)]
	var out []views.Fault
	if toForm {
		out = append(out, views.Fault{Message: "Correct the JSON to show it as a form:"})
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

// lineOf returns the number of the line on which a value begins in a text. pointer is the JSON
// pointer of the value. If there is no such value, it returns the line of the closest enclosing
// value. If the text has a syntax error before the value, it returns the line of the error.
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

// offsetOf reads d up to the value to which the names in want lead. It returns the offset of
// this value. If there is no such value, it returns the offset of the closest enclosing value.
// If the text ends before, it returns -1.
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
		PlanHead: head, Action: planPath(p) + "/edit/json", Revision: strconv.FormatInt(revision, 10),
		Faults: list, Unsaved: unsaved,
		JSON: views.Text{
			Name: "json", Label: "The draft as in the API", Value: text, Rows: min(40, max(12, strings.Count(text, "\n")+3)), Mono: true,
			Hint: "The body of PUT /v1/plans/" + p.Slug + "/draft. You can leave out defaults.",
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
