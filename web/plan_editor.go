package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

// The editor of drafts: a form, and the same draft as JSON. What is sent comes
// back as it was typed until it is saved; nothing is kept between.

// editDraft is GET /plans/:plan/edit: the saved draft. ?policy= opens one policy.
func (w *Web) editDraft(c echo.Context) error {
	p, err := w.planOf(c)
	if err != nil {
		return err
	}
	e := editor{plan: p, form: formOf(p.Draft), revision: p.DraftRevision, open: -1}
	if slug := c.QueryParam("policy"); slug != "" {
		e.open = slices.IndexFunc(e.form.policies, func(f policyForm) bool { return f.slug == slug })
	}
	return w.showEditor(c, http.StatusOK, e)
}

// An editor is the form as it is to be drawn.
type editor struct {
	plan     plans.Plan
	form     draftForm
	revision int64 // of the draft that it began with
	faults   problem.Fields
	unsaved  bool
	next     string // the field that comes next
	open     int    // the policy that is open; -1: none in particular
}

// postDraft is POST /plans/:plan/edit.
func (w *Web) postDraft(c echo.Context) error {
	f, err := wideForm(c, func(name string) bool { return name == "revision" || name == "do" || draftField(name) })
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
	e := editor{plan: p, form: readDraft(f), revision: revision, unsaved: true, open: -1}
	switch do := f.Get("do"); do {
	case "save", "":
		r := e.form.judged()
		if e.faults = r.faults; len(e.faults) > 0 {
			return w.showEditor(c, http.StatusUnprocessableEntity, e)
		}
		return w.saveDraft(c, p, r.document, revision)
	case "json":
		r := e.form.read()
		if e.faults = r.faults; len(e.faults) > 0 {
			return w.showEditor(c, http.StatusUnprocessableEntity, e)
		}
		text, err := documentText(r.document)
		if err != nil {
			return err
		}
		return w.showText(c, http.StatusOK, p, revision, text, nil, true)
	default:
		next, open, known := e.form.do(do)
		if !known {
			return problem.New(problem.Malformed, "the form has a button that the page does not")
		}
		e.next, e.open = next, open
		return w.showEditor(c, http.StatusOK, e)
	}
}

// saveDraft saves, or shows both drafts when somebody else was quicker. Who sends
// the same form twice has saved it once.
func (w *Web) saveDraft(c echo.Context, p plans.Plan, d plans.Document, revision int64) error {
	ctx := c.Request().Context()
	_, err := w.cfg.Plans.SaveDraft(ctx, p.ID, d, revision)
	if problem.Is(err, problem.Stale) {
		now, failed := w.cfg.Plans.Plan(ctx, p.ID)
		if failed != nil {
			return failed
		}
		apart, failed := plans.Compare(now.Draft, d)
		if failed != nil {
			return failed
		}
		if !apart.Empty() {
			return w.showConflict(c, now, d, revision)
		}
		err = nil
	}
	if err != nil {
		return err
	}
	w.cfg.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, planPath(p)+"/diff?done=draft-saved")
}

// showConflict answers a stale save with both drafts.
func (w *Web) showConflict(c echo.Context, p plans.Plan, mine plans.Document, revision int64) error {
	head, err := w.planHead(c, p, "/edit")
	if err != nil {
		return err
	}
	v := views.Conflict{
		PlanHead: head, Revision: strconv.FormatInt(p.DraftRevision, 10), Action: planPath(p) + "/edit/json", EditURL: planPath(p) + "/edit",
		When: views.NewMoment(p.UpdatedAt, w.cfg.Now()),
	}
	if v.Mine, err = documentText(mine); err != nil {
		return err
	}
	if v.Apart, err = diffView("apart", p.Draft, mine); err != nil {
		return err
	}
	base, last, err := w.draftsBefore(c.Request().Context(), p, revision)
	if err != nil {
		return err
	}
	if last != nil {
		v.Who, v.When = last.Actor.Name, views.NewMoment(last.At, w.cfg.Now())
	}
	if base != nil {
		theirs, err1 := diffView("theirs", *base, p.Draft)
		yours, err2 := diffView("yours", *base, mine)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		v.TheirChanges, v.MyChanges = &theirs, &yours
	}
	return w.render(c, http.StatusConflict, views.DraftConflictPage(w.planPage(c, p, "Two drafts"), v))
}

// draftsBefore looks the audit log through for the draft of a revision and for
// the line that made the one of now; nil for what it does not tell.
func (w *Web) draftsBefore(ctx context.Context, p plans.Plan, revision int64) (base *plans.Document, last *audit.Entry, err error) {
	const most = 100
	lines, err := w.cfg.Audit.AuditEntries(ctx, audit.Filter{Object: p.ID, Limit: most})
	if err != nil {
		return nil, nil, err
	}
	for i := range lines {
		l := &lines[i]
		draft, is := plans.DraftOf(*l)
		if !is {
			continue
		}
		if l.Revision == p.DraftRevision {
			last = l
		}
		if l.Revision == revision {
			base = &draft
		}
	}
	return base, last, nil
}

// editDraftText is GET /plans/:plan/edit/json.
func (w *Web) editDraftText(c echo.Context) error {
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
func (w *Web) postDraftText(c echo.Context) error {
	f, err := strictForm(c, maxPlanForm, 3, func(name string) bool { return name == "revision" || name == "do" || name == "json" })
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
		out = append(out, views.Fault{Field: "json", Message: where + ": " + stop(f.Message)})
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

func (w *Web) showText(c echo.Context, status int, p plans.Plan, revision int64, text string, list []views.Fault, unsaved bool) error {
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
	return w.render(c, status, views.DraftTextPage(w.planPage(c, p, "Edit as JSON"), v))
}

func (w *Web) showEditor(c echo.Context, status int, e editor) error {
	head, err := w.planHead(c, e.plan, "/edit")
	if err != nil {
		return err
	}
	v := views.DraftForm{
		PlanHead: head, Action: planPath(e.plan) + "/edit", JSONURL: planPath(e.plan) + "/edit/json", Revision: strconv.FormatInt(e.revision, 10),
		Unsaved: e.unsaved, Algorithms: algorithmChoices(true),
	}
	r := e.form.read()
	m := marker{errors: map[string]string{}, next: e.next}
	for _, f := range e.faults {
		field := r.field(f.Pointer)
		if _, twice := m.errors[field]; !twice {
			m.errors[field] = sentence(f.Message)
		}
		message := sentence(f.Message)
		if whose := e.form.whose(field); whose != "" {
			message = whose + ": " + stop(f.Message)
		}
		v.Faults = append(v.Faults, views.Fault{Field: field, Message: message})
	}
	if len(r.faults) == 0 && len(e.faults) == 0 {
		for _, f := range w.cfg.Plans.Inspect(r.document).Warnings {
			message := sentence(f.Message)
			if whose := e.form.whose(r.field(f.Pointer)); whose != "" {
				message = whose + ": " + stop(f.Message)
			}
			v.Warnings = append(v.Warnings, views.Fault{Message: message})
		}
	}
	v.Name = m.input("name", "Name", e.form.name)
	v.Description = m.lines("description", "Description", e.form.description)
	fields, read := 4, r.document.Policies()
	for i := range e.form.policies {
		pf := m.policy(&e.form, i, read)
		pf.Open = len(e.form.policies) <= 2 || i == e.open || m.within(pf.ID)
		fields += 24 + 6*len(pf.Limits) + 2*len(pf.Attributes) + len(pf.CountBy) + len(pf.Methods.List) + len(pf.Replaces.List)
		v.Policies = append(v.Policies, pf)
	}
	if fields > maxWideFields {
		v.Policies, v.TooLarge = nil, "This plan is too large for a form."
	}
	return w.render(c, status, views.DraftFormPage(w.planPage(c, e.plan, "Edit draft"), v))
}

// A marker makes the fields of a form, with the faults at them.
type marker struct {
	errors map[string]string // of each field
	next   string            // the field that comes next
}

// within reports whether a fault stands in a policy.
func (m *marker) within(id string) bool {
	for field := range m.errors {
		if field == id || strings.HasPrefix(field, id+".") {
			return true
		}
	}
	return false
}

func (m *marker) input(name, label, value string) views.Input {
	return views.Input{Name: name, Label: label, Value: value, Error: m.errors[name], Type: "text", Autocomplete: "off", Optional: true, Autofocus: name == m.next}
}

func (m *marker) hinted(name, label, value, hint string) views.Input {
	i := m.input(name, label, value)
	i.Hint = hint
	return i
}

func (m *marker) lines(name, label, value string) views.Text {
	return views.Text{Name: name, Label: label, Value: value, Error: m.errors[name], Rows: 2, Optional: true}
}

// choose is a choice from a list. A value that is not in it was typed by other
// means, and stays.
func (m *marker) choose(name, label, value string, options []views.Option) views.Select {
	if !slices.ContainsFunc(options, func(o views.Option) bool { return o.Value == value }) {
		options = append(slices.Clone(options), views.Option{Value: value, Label: value})
	}
	return views.Select{Name: name, Label: label, Value: value, Error: m.errors[name], Options: options, Optional: true}
}

var (
	modeChoices = []views.Option{
		{Value: string(enforcement.PolicyEnforce), Label: "Enforce: refuse what is beyond the limits"},
		{Value: string(enforcement.PolicyShadow), Label: "Shadow: count, and refuse nothing"},
		{Value: string(enforcement.PolicyOff), Label: "Off: do nothing"},
	}
	missingChoices = []views.Option{
		{Value: string(enforcement.MissingShared), Label: "Share one counter among such requests"},
		{Value: string(enforcement.MissingSkip), Label: "Skip: the policy does not apply"},
		{Value: string(enforcement.MissingDeny), Label: "Deny: refuse with 403"},
	}
	failureChoices = []views.Option{
		{Value: string(enforcement.OnFailureLocal), Label: "Local: each node limits by itself, with its share"},
		{Value: string(enforcement.OnFailureOpen), Label: "Open: let requests pass"},
		{Value: string(enforcement.OnFailureClosed), Label: "Closed: refuse with 503"},
	}
	consistencyChoices = []views.Option{
		{Value: string(enforcement.Exact), Label: "Exact: every request is counted where all nodes see it"},
		{Value: string(enforcement.Leased), Label: "Leased: nodes draw quota ahead, and answer without Redis"},
	}
	anchorChoices = []views.Option{
		{Value: enforcement.FirstHit.String(), Label: "At the first request"},
		{Value: enforcement.Clock.String(), Label: "By the clock (UTC)"},
	}
	commonMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// algorithmChoices are the algorithms; with their hints for the list that explains
// them.
func algorithmChoices(explained bool) []views.Option {
	list := []struct {
		of          enforcement.Algorithm
		label, hint string
	}{
		{enforcement.SlidingWindowCounter, "Sliding window counter", "Two counters, weighed by time. Cheap, smooth, off by little: the one to begin with."},
		{enforcement.FixedWindow, "Fixed window", "One counter a window. The cheapest; around the edge of two windows twice the quota may pass."},
		{enforcement.SlidingWindowLog, "Sliding window log", "Remembers every request of the window. Exact, for small quotas: sign-ins, codes by mail."},
		{enforcement.TokenBucket, "Token bucket", "Fills at a steady rate up to the burst. For APIs where a pause may be made up for."},
		{enforcement.GCRA, "GCRA", "As a token bucket, in one number: the steadiest spacing, with a burst on top."},
	}
	var out []views.Option
	for _, a := range list {
		o := views.Option{Value: a.of.String(), Label: a.label}
		if explained {
			o.Hint = a.hint
		}
		out = append(out, o)
	}
	return out
}

// consistencyHint says what a leased policy promises, and its bound.
const consistencyHint = "Leased never allows more than the limit. It may deny early by what other nodes hold, together about a tenth of it. " +
	"Limits below 100 stay exact; a log cannot be leased. Without Redis both are the same."

func (m *marker) policy(f *draftForm, i int, policies []plans.Policy) views.PolicyFields {
	p, id := &f.policies[i], "policies."+strconv.Itoa(i)
	v := views.PolicyFields{
		ID: id, Was: p.slug, Number: strconv.Itoa(i + 1), Title: p.slug, Mode: planMode(enforcement.PolicyMode(p.mode)),
		First: i == 0, Last: i == len(f.policies)-1, Error: m.errors[id], AttributesError: m.errors[id+".attributes"],
		CountByError: m.errors[id+".count_by"], LimitsError: m.errors[id+".limits"],
		Slug:         m.hinted(id+".slug", "Slug", p.slug, "As answers and charts name it. With another slug it counts from nothing."),
		Description:  m.lines(id+".description", "Description", p.description),
		Path:         m.hinted(id+".path", "Path", p.path, "/v1/login, /users/{id}, /api/* for all below; * for every request."),
		OtherMethods: m.hinted(id+".other_methods", "Other methods", p.otherMethods, "With spaces between, like PURGE REPORT."),
		Missing:      m.choose(id+".missing", "When a request does not have the attribute", p.missing, missingChoices),
		ModeField:    m.choose(id+".mode", "Mode", p.mode, modeChoices),
		Failure:      m.choose(id+".on_failure", "While the counters are away", p.onFailure, failureChoices),
		Consistency:  m.choose(id+".consistency", "Counting", p.consistency, consistencyChoices),
	}
	v.Consistency.Hint = consistencyHint
	if v.Title == "" {
		v.Title = "a new policy"
	}
	v.Methods = m.boxes(id+".methods", "Methods", "None ticked: all methods.", p.methods, commonMethods)
	m.replaces(&v, f, i)
	m.rows(&v, p)
	var told []string
	for k := range p.limits {
		l := m.limit(id+".limits."+strconv.Itoa(k), k, p, i, policies)
		if v.Limits = append(v.Limits, l); l.Aloud != "" {
			told = append(told, l.Aloud)
		}
	}
	v.Aloud = strings.Join(told, " · ")
	return v
}

// rows are the attributes and what is counted by, each with an empty row.
func (m *marker) rows(v *views.PolicyFields, p *policyForm) {
	attributes, countBy := p.attributes, p.countBy
	if len(attributes) == 0 {
		attributes = []attributeForm{{}}
	}
	if len(countBy) == 0 {
		countBy = []string{""}
	}
	for k, a := range attributes {
		at, n := v.ID+".attributes."+strconv.Itoa(k)+".", strconv.Itoa(k+1)
		v.Attributes = append(v.Attributes, views.AttributeFields{
			Name:  m.input(at+"name", "Attribute "+n, a.name),
			Value: m.input(at+"value", "Value "+n, a.value),
		})
	}
	for k, name := range countBy {
		i := m.input(v.ID+".count_by."+strconv.Itoa(k), "Attribute "+strconv.Itoa(k+1), name)
		if k == 0 {
			i.Hint = "user, ip, ip/64, api_key, …"
		}
		v.CountBy = append(v.CountBy, i)
	}
}

// maxReplaceBoxes is up to how many policies each has a box in every other.
const maxReplaceBoxes = 40

func (m *marker) replaces(v *views.PolicyFields, f *draftForm, i int) {
	p := &f.policies[i]
	if len(f.policies) > maxReplaceBoxes {
		field := m.hinted(v.ID+".other_replaces", "Replaces", strings.TrimSpace(strings.Join(p.replaces, " ")+" "+p.otherReplaces),
			"Slugs of policies that do not apply where this one does, with spaces between.")
		if e := m.errors[v.ID+".replaces"]; e != "" {
			field.Error = e
		}
		v.OtherReplaces = &field
		return
	}
	var others []string
	for k, o := range f.policies {
		if k != i && o.slug != "" && o.slug != p.slug && !slices.Contains(others, o.slug) {
			others = append(others, o.slug)
		}
	}
	v.Replaces = m.boxes(v.ID+".replaces", "Replaces", "Where this policy applies, those do not.", append(slices.Clone(p.replaces), spaced(p.otherReplaces)...), others)
}

// boxes ticks what is chosen. Where the chosen ones stand in the order of the
// known ones, the boxes have that order; otherwise the chosen ones come first, in
// theirs.
func (m *marker) boxes(id, label, hint string, chosen, known []string) views.Boxes {
	b := views.Boxes{ID: id, Label: label, Hint: hint, Error: m.errors[id]}
	list := append([]string{}, known...)
	for _, value := range chosen {
		if !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	var ordered []string
	for _, value := range list {
		if slices.Contains(chosen, value) {
			ordered = append(ordered, value)
		}
	}
	if !slices.Equal(ordered, chosen) {
		list = append([]string{}, chosen...)
		for _, value := range known {
			if !slices.Contains(chosen, value) {
				list = append(list, value)
			}
		}
	}
	for k, value := range list {
		b.List = append(b.List, views.Box{Name: id + "." + strconv.Itoa(k), Value: value, Checked: slices.Contains(chosen, value)})
	}
	return b
}

func (m *marker) limit(id string, k int, p *policyForm, i int, policies []plans.Policy) views.LimitFields {
	l := p.limits[k]
	v := views.LimitFields{
		ID: id, Number: strconv.Itoa(k + 1),
		Quota:     m.input(id+".quota", "Requests", l.quota),
		Window:    m.hinted(id+".window", "Per", l.window, "A number and a unit: 10s, 1m, 1h, 1d, 30d."),
		Algorithm: m.choose(id+".algorithm", "Algorithm", l.algorithm, algorithmChoices(false)),
		Burst:     m.hinted(id+".burst", "Burst", l.burst, "Empty: as many as the quota."),
		Anchor:    m.choose(id+".anchor", "Windows begin", l.anchor, anchorChoices),
		Name:      m.hinted(id+".name", "Name", l.name, "Empty: l1, l2, … Counts stay with the name."),
	}
	if i < len(policies) && k < len(policies[i].Limits) {
		if known := policies[i].Limits[k]; known.Algorithm != 0 && known.Window != 0 && strings.TrimSpace(l.quota) != "" {
			v.Aloud = plans.Describe(known)
			// What cannot be read is not 0.
			if _, fault := wholeNumber(l.quota); fault != "" {
				v.Aloud = "not readable yet: requests " + fault
			} else if _, fault := wholeNumber(l.burst); fault != "" && strings.TrimSpace(l.burst) != "" {
				v.Aloud = "not readable yet: burst " + fault
			}
		}
	}
	return v
}
