package plans

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

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
	return views.Input{
		Name: name, Label: label, Value: value, Error: m.errors[name], Type: "text", Autocomplete: "off", Optional: true,
		Autofocus: name == m.next,
	}
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

// algorithmChoices are the algorithms; with their hints for the list that explains
// them.
func algorithmChoices(explained bool) []views.Option {
	list := []struct {
		of          enforcement.Algorithm
		label, hint string
	}{
		{
			enforcement.SlidingWindowCounter, "Sliding window counter",
			"Two counters, weighed by time. Cheap, smooth, off by little: the one to begin with.",
		},
		{enforcement.FixedWindow, "Fixed window", "One counter a window. The cheapest; around the edge of two windows twice the quota may pass."},
		{
			enforcement.SlidingWindowLog, "Sliding window log",
			"Remembers every request of the window. Exact, for small quotas: sign-ins, codes by mail.",
		},
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
const consistencyHint = "Leased never allows more than the limit. It may deny early by what other nodes hold, " +
	"together about a tenth of it. " +
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
	v.Replaces = m.boxes(v.ID+".replaces", "Replaces", "Where this policy applies, those do not.",
		append(slices.Clone(p.replaces), spaced(p.otherReplaces)...), others)
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
