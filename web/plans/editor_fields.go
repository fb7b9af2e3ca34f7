package plans

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

var commonMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// A marker creates the views of form fields. It adds the error message and the warning of each field.
type marker struct {
	errors map[string]string // by field
	notes  map[string]string // warnings by field
	next   string            // the field that gets the focus
	// saved has the slugs of the policies in the saved draft. Every other policy is new.
	saved map[string]bool
	// literal is the index of the first policy whose path has a literal segment. Only the path of
	// this policy shows the warning of pathHint.
	literal int
}

// within reports whether any field of a policy has an error message. id is the prefix of the names of the policy's
// fields.
func (m *marker) within(id string) bool {
	for field := range m.errors {
		if field == id || strings.HasPrefix(field, id+".") {
			return true
		}
	}
	return false
}

func (m *marker) input(name, label, value, hint string) views.Input {
	i := views.OptionalInput(name, label, value, hint)
	i.Error, i.Autofocus = m.errors[name], name == m.next
	i.Hint = m.hint(name, hint)
	return i
}

// hint returns the hint of a field, followed by the warning of the field if there is one.
func (m *marker) hint(name, hint string) string {
	return strings.TrimSpace(hint + " " + m.notes[name])
}

func (m *marker) lines(name, label, value string) views.Text {
	return views.Text{Name: name, Label: label, Value: value, Error: m.errors[name], Rows: 2, Optional: true}
}

// choose returns a select field. If value is not one of the options, choose adds it as an option. This can happen
// after an edit of the JSON.
func (m *marker) choose(name, label, value string, options []views.Option) views.Select {
	if !slices.ContainsFunc(options, func(o views.Option) bool { return o.Value == value }) {
		options = append(slices.Clone(options), views.Option{Value: value, Label: value})
	}
	return views.Select{
		Name: name, Label: label, Value: value, Error: m.errors[name], Options: options, Optional: true, Hint: m.hint(name, ""),
	}
}

// reservations returns the form fields with which a policy is set up for reservations.
func (m *marker) reservations(id string, p *policyForm) []views.Select {
	choose := func(field string, standard string, options []views.Option) views.Select {
		return m.choose(id+"."+field, fieldName(field), cmp.Or(p.fields[field], standard), options)
	}
	expiry := choose("reservation_expiry", string(enforcement.KeepExpired), []views.Option{
		{Value: string(enforcement.KeepExpired), Label: "Keep their cost"},
		{Value: string(enforcement.RefundExpired), Label: "Give their cost back"},
	})
	expiry.Hint = m.hint(expiry.Name, "Of reservations that were neither settled nor given back.")
	estimate := choose("reservation_estimate", string(enforcement.DenyEstimate), []views.Option{
		{Value: string(enforcement.DenyEstimate), Label: "Deny the reservation"},
		{Value: string(enforcement.ClampEstimate), Label: "Charge the whole limit"},
	})
	estimate.Hint = m.hint(estimate.Name, "If the estimate of a reservation is above the quota or the burst.")
	return []views.Select{expiry, estimate}
}

func (m *marker) policy(f *draftForm, i int, policies []plans.Policy) views.PolicyFields {
	p, id := &f.policies[i], "policies."+strconv.Itoa(i)
	slug := p.fields["slug"]
	v := views.PolicyFields{
		ID: id, Was: slug, Number: strconv.Itoa(i + 1), Title: slug, Mode: planMode(enforcement.PolicyMode(p.fields["mode"])),
		First: i == 0, Error: m.errors[id], AttributesError: m.errors[id+".attributes"],
		CountByError: m.errors[id+".count_by"], LimitsError: m.errors[id+".limits"],
		Slug:         m.input(id+".slug", "Slug", slug, "The name in answers and charts. A new slug starts new counters."),
		Description:  m.lines(id+".description", "Description", p.fields["description"]),
		Path:         m.input(id+".path", "Path", p.fields["path"], m.pathHint(i)),
		OtherMethods: m.input(id+".other_methods", "Other methods", p.fields["other_methods"], "Separated by spaces: PURGE REPORT."),
		Cost:         m.input(id+".cost", "Cost", p.fields["cost"], "Units that a request is charged if it states no cost. Empty: 1."),
		CostFrom: m.input(id+".cost_from", "Cost from attribute", p.fields["cost_from"],
			"An attribute with the number of units, such as tokens. Requests without it are charged as usual."),
		Delay: m.input(id+".delay_ms", "Delay", p.fields["delay_ms"],
			"Milliseconds that requests over the limits wait in mode delay, at most 60000. Empty: 1000."),
		Methods: m.boxes(id+".methods", "Methods", "None checked: all methods.", p.methods, commonMethods),
	}
	v.Title = cmp.Or(v.Title, "a new policy")
	for _, c := range new(plans.Policy).Choices() {
		s := m.choose(id+"."+c.Field, fieldName(c.Field), p.fields[c.Field], choiceOptions(c))
		if s.Hint = m.hint(s.Name, choiceFields[c.Field].hint); c.Field == "mode" {
			if s.Value == string(enforcement.PolicyShadow) && !m.saved[slug] {
				s.Hint = m.hint(s.Name,
					"A new policy starts in shadow, so that you see its effect first: it denies nothing. Choose Enforce to deny requests.")
			}
			v.ModeField = s
		} else {
			v.Choices = append(v.Choices, s)
		}
	}
	v.Choices = append(v.Choices, m.reservations(id, p)...)
	m.replaces(&v, f, i)
	m.rows(&v, p)
	var limits []string
	for k := range p.limits {
		l := m.limit(id+".limits."+strconv.Itoa(k), k, p, i, policies)
		if v.Limits = append(v.Limits, l); l.Aloud != "" {
			limits = append(limits, l.Aloud)
		}
	}
	v.Aloud = strings.Join(limits, " · ")
	return v
}

// firstLiteral returns the index of the first policy whose path has a literal segment.
func firstLiteral(policies []policyForm) int {
	return slices.IndexFunc(policies, func(p policyForm) bool {
		pattern, err := enforcement.ParsePattern(p.fields["path"])
		return err == nil && pattern.HasLiterals()
	})
}

// pathHint returns the hint for the path of policy i. For the first path with a literal segment, it adds a
// warning: a back end may accept other spellings of this segment, and requests with such spellings are not
// limited.
func (m *marker) pathHint(i int) string {
	const forms = "/v1/login, /users/{id}, /api/* for all paths below; * for every request."
	if i != m.literal {
		return forms
	}
	return forms + " Case and ; count: if your back end serves /LOGIN or /login;x like /login, callers can avoid this policy. " +
		"Reject such spellings, or limit them with a policy for *."
}

// rows adds the rows for attributes and for count_by. An empty list gets one empty row.
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
			Name: m.input(at+"name", "Attribute "+n, a.name, ""), Value: m.input(at+"value", "Value "+n, a.value, ""),
		})
	}
	for k, name := range countBy {
		hint := ""
		if k == 0 {
			hint = "user, ip, " + enforcement.IPNetwork + ", api_key, …"
		}
		v.CountBy = append(v.CountBy, m.input(v.ID+".count_by."+strconv.Itoa(k), "Attribute "+strconv.Itoa(k+1), name, hint))
	}
}

// maxReplaceBoxes is the maximum number of policies for which the form has check boxes for the
// field replaces: one for each other policy.
const maxReplaceBoxes = 40

func (m *marker) replaces(v *views.PolicyFields, f *draftForm, i int) {
	p := &f.policies[i]
	if len(f.policies) > maxReplaceBoxes {
		chosen := strings.TrimSpace(strings.Join(p.replaces, " ") + " " + p.fields["other_replaces"])
		field := m.input(v.ID+".other_replaces", "Replaces", chosen,
			"Slugs of policies that do not apply where this policy applies, separated by spaces.")
		if e := m.errors[v.ID+".replaces"]; e != "" {
			field.Error = e
		}
		v.OtherReplaces = &field
		return
	}
	var others []string
	for k, o := range f.policies {
		if slug := o.fields["slug"]; k != i && slug != "" && slug != p.fields["slug"] && !slices.Contains(others, slug) {
			others = append(others, slug)
		}
	}
	v.Replaces = m.boxes(v.ID+".replaces", "Replaces", "These policies do not apply where this policy applies.",
		append(slices.Clone(p.replaces), words(p.fields["other_replaces"])...), others)
}

// boxes returns a check box for each value in known and chosen. The boxes of values in chosen are checked. If the
// two lists have different orders, the values in chosen come first.
func (m *marker) boxes(id, label, hint string, chosen, known []string) views.Boxes {
	list := union(known, chosen)
	checked := slices.DeleteFunc(slices.Clone(list), func(v string) bool { return !slices.Contains(chosen, v) })
	if !slices.Equal(checked, chosen) {
		list = append(slices.Clone(chosen), slices.DeleteFunc(slices.Clone(known), func(v string) bool { return slices.Contains(chosen, v) })...)
	}
	b := views.Boxes{ID: id, Label: label, Hint: hint, Error: m.errors[id]}
	for k, value := range list {
		b.List = append(b.List, views.Box{Name: id + "." + strconv.Itoa(k), Value: value, Checked: slices.Contains(chosen, value)})
	}
	return b
}

// union returns the values of a, followed by the values of b that are not in a.
func union(a, b []string) []string {
	list := slices.Clone(a)
	for _, value := range b {
		if !slices.Contains(list, value) {
			list = append(list, value)
		}
	}
	return list
}

func (m *marker) limit(id string, k int, p *policyForm, i int, policies []plans.Policy) views.LimitFields {
	l := p.limits[k]
	v := views.LimitFields{
		ID: id, Number: strconv.Itoa(k + 1),
		Quota: m.input(id+".quota", "Requests", l["quota"], ""),
		Window: m.input(id+".window", "Per", l["window"],
			"A number and a unit: 10s, 1m, 1h, 1d, 30d. Or by the calendar, with Fixed window: day, week, month, quarter, year."),
		Algorithm: m.choose(id+".algorithm", "Algorithm", l["algorithm"], withoutHints(algorithmOptions)),
		Burst:     m.input(id+".burst", "Burst", l["burst"], "Empty: the quota."),
		Anchor:    m.choose(id+".anchor", "Windows start", l["anchor"], anchorOptions),
		WarnAt:    m.input(id+".warn_at", "Warn at", l["warn_at"], "Percentages: 80, 95. Answers say when they are reached."),
		Durable:   m.choose(id+".durable", "Durable", l["durable"], durableOptions),
		Rollover: m.input(id+".max_rollover", "Rolls over at most", l["max_rollover"],
			"For calendar windows: how much of what is left is added to the next window. Empty: nothing."),
		CarryOver: m.choose(id+".carry_over", "When numbers change", l["carry_over"], carryOverOptions()),
		Name:      m.input(id+".name", "Name", l["name"], "Empty: l1, l2, … Counters belong to the name."),
	}
	if i >= len(policies) || k >= len(policies[i].Limits) || strings.TrimSpace(l["quota"]) == "" {
		return v
	}
	if known := policies[i].Limits[k]; known.Algorithm != 0 && known.Window != 0 {
		v.Aloud = plans.Describe(known)
		if known.Durability == enforcement.DurableByWindow && known.IsDurable() {
			v.Aloud += ", durable"
		}
		// If the quota cannot be parsed, do not describe it as 0.
		if _, fault := wholeNumber(l["quota"]); fault != "" {
			v.Aloud = "not readable yet: requests " + fault
		} else if _, fault := wholeNumber(l["burst"]); fault != "" && strings.TrimSpace(l["burst"]) != "" {
			v.Aloud = "not readable yet: burst " + fault
		} else if fault := limitFault(known); fault != "" {
			v.Aloud = "not valid yet: " + fault
		}
	}
	return v
}

// limitFault returns the first fault of a limit, or "". A missing name is not a fault, because the limit gets a
// name later.
func limitFault(l enforcement.Limit) string {
	l.Name = cmp.Or(l.Name, "l1")
	if faults := l.Validate(); len(faults) > 0 {
		return faults[0].Message
	}
	return ""
}
