package plans

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web/views"
)

// Plans in words.

func planCount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// listed is "a", "a and b", "a, b and c".
func listed(list []string, last string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " " + last + " " + list[len(list)-1]
}

// appliesTo says what a policy applies to.
func appliesTo(m plans.Match) string {
	text := "requests"
	if len(m.Methods) > 0 {
		text = listed(m.Methods, "and") + " requests"
	}
	if m.Path != "" && m.Path != "*" {
		text += " to " + m.Path
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		parts = append(parts, name+" is "+m.Attributes[name])
	}
	if len(parts) > 0 {
		text += " where " + listed(parts, "and")
	}
	if text == "requests" {
		return "every request"
	}
	return text
}

// countedByWords says what is counted by itself.
func countedByWords(names []string) string {
	switch {
	case len(names) == 0:
		return "the whole tenant together"
	case len(names) == 1 && names[0] == "ip/64":
		return "each ip, IPv6 by its /64 network"
	case len(names) == 1:
		return "each " + names[0]
	}
	return "each combination of " + listed(names, "and")
}

func missingWords(m enforcement.Missing) string {
	switch m {
	case enforcement.MissingSkip:
		return "the policy does not apply"
	case enforcement.MissingDeny:
		return "refused with 403"
	}
	return "such requests share one counter"
}

func failureWords(m enforcement.OnFailure) string {
	switch m {
	case enforcement.OnFailureOpen:
		return "let pass while the counters are away"
	case enforcement.OnFailureClosed:
		return "refused with 503 while the counters are away"
	}
	return "while the counters are away, each node limits by itself, with its share"
}

// consistencyWords says what a policy that is not exact may do; "" if it is exact.
func consistencyWords(c enforcement.Consistency) string {
	if c != enforcement.Leased {
		return ""
	}
	return "leased: each node spends quota that it drew ahead; never more than the limit, and at times about a tenth of it less"
}

func planMode(m enforcement.PolicyMode) views.ModeBadge {
	switch m {
	case enforcement.PolicyShadow:
		return views.ModeBadge{Text: "shadow", Tone: "violet", Title: "counts, and refuses nothing"}
	case enforcement.PolicyOff:
		return views.ModeBadge{Text: "off", Title: "does nothing"}
	case enforcement.PolicyEnforce:
		return views.ModeBadge{Text: "enforced", Tone: "good", Title: "refuses what is beyond its limits"}
	}
	return views.ModeBadge{Text: string(m), Tone: "bad"}
}

func limitWords(limits []enforcement.Limit) []views.LimitWords {
	var out []views.LimitWords
	for _, l := range limits {
		out = append(out, views.LimitWords{Name: l.Name, Words: plans.Describe(l), Algorithm: strings.ReplaceAll(l.Algorithm.String(), "_", " ")})
	}
	return out
}

// policyCards are the policies of a document in words. edit is the address of the
// editor; "" when the visitor may not.
func policyCards(d plans.Document, edit string) []views.PolicyCard {
	var out []views.PolicyCard
	for i, p := range d.Policies() {
		c := views.PolicyCard{
			ID: "policy-" + p.Slug, Slug: p.Slug, Description: p.Description, Matches: appliesTo(p.Match), CountedBy: countedByWords(p.CountBy),
			Limits: limitWords(p.Limits), Mode: planMode(p.Mode), Failure: failureWords(p.OnFailure), Replaces: p.Replaces,
			Consistency: consistencyWords(p.Consistency),
		}
		if len(p.CountBy) > 0 {
			c.Missing = missingWords(p.Missing)
		}
		if edit != "" {
			c.EditURL = edit + "?policy=" + p.Slug + "#policies." + strconv.Itoa(i)
		}
		out = append(out, c)
	}
	return out
}

// diffView shows what turns one document into another.
func diffView(id string, from, to plans.Document) (views.PlanDiff, error) {
	d, err := plans.Compare(from, to)
	if err != nil {
		return views.PlanDiff{}, err
	}
	v := views.PlanDiff{ID: id, Empty: d.Empty(), Order: d.Reordered, Rows: changeRows(d.Fields)}
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

// policyWords says what a whole policy does.
func policyWords(p plans.Policy) []string {
	var out []string
	for _, l := range p.Limits {
		out = append(out, plans.Describe(l))
	}
	text := planMode(p.Mode).Text
	return append(out, "For "+appliesTo(p.Match)+", counted by "+countedByWords(p.CountBy)+"; "+text)
}

// limitRows are the limits that read differently.
func limitRows(from, to plans.Policy) []views.DiffRow {
	var out []views.DiffRow
	for _, l := range to.Limits {
		at := slices.IndexFunc(from.Limits, func(o enforcement.Limit) bool { return o.Name == l.Name })
		if at >= 0 && plans.Describe(from.Limits[at]) != plans.Describe(l) {
			out = append(out, views.DiffRow{Field: "Limit " + l.Name + ", aloud", From: plans.Describe(from.Limits[at]), To: plans.Describe(l)})
		}
	}
	return out
}

var diffWords = map[string]string{
	"/name": "Name", "/description": "Description", "/match/methods": "Methods", "/match/path": "Path", "/count_by": "Counted by",
	"/missing": "Without the attribute", "/replaces": "Replaces", "/mode": "Mode", "/on_failure": "On failure",
	"/consistency": "Consistency", "/limits": "Limits",
}

func changeRows(list []plans.Change) []views.DiffRow {
	var out []views.DiffRow
	for _, c := range list {
		out = append(out, views.DiffRow{Field: fieldName(c.Field), From: valueWords(c.From), To: valueWords(c.To)})
	}
	return out
}

// fieldName is a pointer of plans.Change in words.
func fieldName(pointer string) string {
	if text, known := diffWords[pointer]; known {
		return text
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~").Replace
	if name, is := strings.CutPrefix(pointer, "/match/attributes/"); is {
		return "Attribute " + unescape(name)
	}
	if rest, is := strings.CutPrefix(pointer, "/limits/"); is {
		name, field, _ := strings.Cut(rest, "/")
		return "Limit " + unescape(name) + ", " + field
	}
	return pointer
}

// valueWords is a JSON value without its marks.
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

// policyDiffLines is a whole policy as the lines of its JSON.
func policyDiffLines(sign string, p plans.Policy) []views.DiffLine {
	text, err := enforcement.MarshalJSON(p)
	var b bytes.Buffer
	if err != nil || json.Indent(&b, text, "", "  ") != nil {
		return nil // the store has encoded it before
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
			v.Words, v.Tone = "counts go on", "good"
		case plans.Dropped:
			v.Words, v.Tone = "counted no more", "warn"
		case plans.Fresh:
			v.Words, v.Tone = "counts from nothing", "warn"
			if len(r.Because) > 0 {
				var names []string
				for _, name := range r.Because {
					names = append(names, map[string]string{"count_by": "what it is counted by"}[name]+strings.Replace(name, "count_by", "", 1))
				}
				v.Words += ": " + listed(names, "and") + " changed"
			}
		}
		out = append(out, v)
	}
	return out
}

// documentText is a document as the API's JSON, for people.
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
