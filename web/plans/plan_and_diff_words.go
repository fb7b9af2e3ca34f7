package plans

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func limitWords(limits []enforcement.Limit) []views.LimitWords {
	var out []views.LimitWords
	for _, l := range limits {
		out = append(out, views.LimitWords{Name: l.Name, Words: plans.Describe(l), Algorithm: strings.ReplaceAll(l.Algorithm.String(), "_", " ")})
	}
	return out
}

// policyCards returns a view for each policy in a document. edit is the address of the
// editor, or "" if the visitor may not edit the plan.
func policyCards(d plans.Document, edit string) []views.PolicyCard {
	var out []views.PolicyCard
	for i, p := range d.Policies() {
		c := views.PolicyCard{
			ID: "policy-" + p.Slug, Slug: p.Slug, Description: p.Description, Matches: web.MatchWords(p.Match),
			CountedBy: web.CountByWords(p.CountBy), Limits: limitWords(p.Limits),
			Mode: planMode(p.Mode), Facts: policyFacts(p), Replaces: p.Replaces,
		}
		if edit != "" {
			c.EditURL = edit + "?policy=" + p.Slug + "#policies." + strconv.Itoa(i)
		}
		out = append(out, c)
	}
	return out
}

// diffView returns the differences between two documents.
func diffView(from, to plans.Document) (views.PlanDiff, error) {
	d, err := plans.Compare(from, to)
	if err != nil {
		return views.PlanDiff{}, err
	}
	v := views.PlanDiff{Empty: d.Empty(), Order: d.Reordered, Rows: changeRows(d.Fields)}
	v.Lines = append(v.Lines, changeLines("", d.Fields)...)
	for _, p := range d.Removed {
		v.Policies = append(v.Policies, views.DiffPolicy{Slug: p.Slug, Kind: "removed", Tone: "bad", Words: policyWords(p)})
		v.Lines = append(v.Lines, policyDiffLines("-", p)...)
	}
	before, changed := from.Policies(), map[string]plans.PolicyChange{}
	for _, c := range d.Changed {
		changed[c.Slug] = c
	}
	for _, p := range to.Policies() {
		if slices.ContainsFunc(d.Added, func(a plans.Policy) bool { return a.Slug == p.Slug }) {
			v.Policies = append(v.Policies, views.DiffPolicy{Slug: p.Slug, Kind: "added", Tone: "good", Words: policyWords(p)})
			v.Lines = append(v.Lines, policyDiffLines("+", p)...)
		}
		if c, is := changed[p.Slug]; is {
			was := before[slices.IndexFunc(before, func(o plans.Policy) bool { return o.Slug == p.Slug })]
			v.Policies = append(v.Policies, views.DiffPolicy{
				Slug: p.Slug, Kind: "changed", Tone: "violet", Rows: append(limitRows(was, p), changeRows(c.Fields)...),
			})
			v.Lines = append(v.Lines, changeLines("/policies/"+p.Slug, c.Fields)...)
		}
	}
	v.Counts = recountViews(from, to)
	return v, nil
}

// policyWords describes a policy.
func policyWords(p plans.Policy) []string {
	var out []string
	for _, l := range p.Limits {
		out = append(out, plans.Describe(l))
	}
	return append(out, "For "+web.AppliesWords(p)+"; "+planMode(p.Mode).Text)
}

// limitRows returns a row for each limit that is described differently in the two policies.
func limitRows(from, to plans.Policy) []views.DiffRow {
	var out []views.DiffRow
	for _, l := range to.Limits {
		at := slices.IndexFunc(from.Limits, func(o enforcement.Limit) bool { return o.Name == l.Name })
		if at >= 0 && plans.Describe(from.Limits[at]) != plans.Describe(l) {
			out = append(out, views.DiffRow{Field: "Limit " + l.Name, From: plans.Describe(from.Limits[at]), To: plans.Describe(l)})
		}
	}
	return out
}

func changeRows(list []plans.Change) []views.DiffRow {
	var out []views.DiffRow
	for _, c := range list {
		out = append(out, views.DiffRow{Field: changeName(c.Field), From: valueWords(c.From), To: valueWords(c.To)})
	}
	return out
}

// changeName returns the label of the field to which the JSON pointer in a plans.Change
// leads.
func changeName(pointer string) string {
	if name, is := strings.CutPrefix(pointer, "/match/attributes/"); is {
		return "Attribute " + problem.Unescape(name)
	}
	if rest, is := strings.CutPrefix(pointer, "/limits/"); is {
		name, field, _ := strings.Cut(rest, "/")
		return "Limit " + problem.Unescape(name) + ", " + field
	}
	return fieldName(strings.TrimPrefix(strings.TrimPrefix(pointer, "/match"), "/"))
}

// valueWords returns a JSON value as text.
func valueWords(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "–"
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return "empty"
		}
		return text
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		if len(list) == 0 {
			return "none"
		}
		return strings.Join(list, ", ")
	}
	var number int64
	if json.Unmarshal(raw, &number) == nil {
		return views.Count(number).Exact
	}
	return string(raw)
}

func changeLines(at string, list []plans.Change) []views.DiffLine {
	var out []views.DiffLine
	for _, c := range list {
		if len(c.From) > 0 {
			out = append(out, views.DiffLine{Sign: "-", Text: at + c.Field + ": " + string(c.From)})
		}
		if len(c.To) > 0 {
			out = append(out, views.DiffLine{Sign: "+", Text: at + c.Field + ": " + string(c.To)})
		}
	}
	return out
}

// policyDiffLines returns the JSON of a policy as lines of a diff with the given sign.
func policyDiffLines(sign string, p plans.Policy) []views.DiffLine {
	text, err := enforcement.MarshalJSON(p)
	var b bytes.Buffer
	if err != nil || json.Indent(&b, text, "", "  ") != nil {
		return nil // does not happen: the store has encoded this policy before
	}
	var out []views.DiffLine
	for line := range strings.Lines(b.String()) {
		out = append(out, views.DiffLine{Sign: sign, Text: strings.TrimRight(line, "\n")})
	}
	return out
}

func recountViews(from, to plans.Document) []views.DiffCount {
	var out []views.DiffCount
	for _, r := range plans.Recounts(from, to) {
		v := views.DiffCount{Policy: r.Policy, Limit: r.Limit}
		switch r.Fate {
		case plans.Kept:
			v.Words, v.Tone = carryOverWords[r.CarryOver].effect, carryOverWords[r.CarryOver].tone
		case plans.Dropped:
			v.Words, v.Tone = "no longer counted", "warn"
		case plans.Fresh:
			v.Words, v.Tone = "counters start at zero", "warn"
			if len(r.Because) > 0 {
				v.Words += ": " + strings.ReplaceAll(web.ListWords(r.Because), "_", " ") + " changed"
			}
		}
		out = append(out, v)
	}
	return out
}

// documentText returns a document as indented JSON.
func documentText(d plans.Document) (string, error) {
	text, err := d.MarshalJSON()
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return "", err
	}
	return b.String(), nil
}
