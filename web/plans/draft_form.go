package plans

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// A draftForm is a draft as the form of the editor has it: what was typed, also
// where no document could hold it.
type draftForm struct {
	name, description string
	policies          []policyForm
}

type policyForm struct {
	// was is the slug that the form was drawn with: what replaces the policy
	// follows it when it is renamed.
	was                      string
	slug, description, path  string
	methods                  []string // the boxes that are ticked
	otherMethods             string   // more of them, with spaces or commas between
	attributes               []attributeForm
	countBy                  []string
	missing, mode, onFailure string
	consistency              string
	replaces                 []string
	otherReplaces            string
	limits                   []limitForm
}

type attributeForm struct{ name, value string }

type limitForm struct{ name, algorithm, quota, window, burst, anchor string }

// maxRows bounds each list within a policy. It is above what documents may have,
// so that what is too much is told at its place.
const maxRows = 300

// formOf shows a document.
func formOf(d plans.Document) draftForm {
	f := draftForm{name: d.Name(), description: d.Description()}
	for _, p := range d.Policies() {
		f.policies = append(f.policies, policyFormOf(p))
	}
	return f
}

func policyFormOf(p plans.Policy) policyForm {
	f := policyForm{
		was: p.Slug, slug: p.Slug, description: p.Description, path: p.Match.Path, methods: slices.Clone(p.Match.Methods),
		countBy: slices.Clone(p.CountBy), missing: string(p.Missing), mode: string(p.Mode), onFailure: string(p.OnFailure),
		consistency: string(p.Consistency), replaces: slices.Clone(p.Replaces),
	}
	for _, name := range slices.Sorted(maps.Keys(p.Match.Attributes)) {
		f.attributes = append(f.attributes, attributeForm{name, writable(p.Match.Attributes[name])})
	}
	for _, l := range p.Limits {
		f.limits = append(f.limits, limitFormOf(l))
	}
	return f
}

func limitFormOf(l enforcement.Limit) limitForm {
	f := limitForm{
		name: l.Name, algorithm: l.Algorithm.String(), quota: strconv.FormatInt(l.Quota, 10),
		window: enforcement.FormatWindow(l.Window), anchor: l.Anchor.String(),
	}
	if l.Burst != 0 {
		f.burst = strconv.FormatInt(l.Burst, 10)
	}
	return f
}

// writable is a value as a field of one line can hold it: one with control
// characters, or with a quotation mark in front, is written as JSON writes it.
func writable(value string) string {
	if !strings.HasPrefix(value, `"`) && !strings.ContainsFunc(value, unicode.IsControl) {
		return value
	}
	text, _ := json.Marshal(value) // a string: no error
	return string(text)
}

// written reads what writable wrote.
func written(text string) (string, bool) {
	if !strings.HasPrefix(text, `"`) {
		return text, true
	}
	var value string
	err := json.Unmarshal([]byte(text), &value)
	return value, err == nil
}

// readDraft takes the fields of a draft out of a form whose names are the
// grammar's: see draftField. Lists may have gaps; rows come in the order of their
// numbers.
func readDraft(values map[string][]string) draftForm {
	get := func(name string) string {
		if v := values[name]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	f := draftForm{name: get("name"), description: get("description")}
	for _, i := range rowsOf(values, "policies.") {
		at := "policies." + strconv.Itoa(i) + "."
		p := policyForm{
			was: get(at + "was"), slug: get(at + "slug"), description: get(at + "description"), path: get(at + "path"),
			otherMethods: get(at + "other_methods"), missing: get(at + "missing"), mode: get(at + "mode"),
			onFailure: get(at + "on_failure"), consistency: get(at + "consistency"), otherReplaces: get(at + "other_replaces"),
		}
		for _, k := range rowsOf(values, at+"methods.") {
			p.methods = append(p.methods, get(at+"methods."+strconv.Itoa(k)))
		}
		for _, k := range rowsOf(values, at+"count_by.") {
			p.countBy = append(p.countBy, get(at+"count_by."+strconv.Itoa(k)))
		}
		for _, k := range rowsOf(values, at+"replaces.") {
			p.replaces = append(p.replaces, get(at+"replaces."+strconv.Itoa(k)))
		}
		for _, k := range rowsOf(values, at+"attributes.") {
			here := at + "attributes." + strconv.Itoa(k) + "."
			p.attributes = append(p.attributes, attributeForm{get(here + "name"), get(here + "value")})
		}
		for _, k := range rowsOf(values, at+"limits.") {
			here := at + "limits." + strconv.Itoa(k) + "."
			p.limits = append(p.limits, limitForm{
				name: get(here + "name"), algorithm: get(here + "algorithm"), quota: get(here + "quota"),
				window: get(here + "window"), burst: get(here + "burst"), anchor: get(here + "anchor"),
			})
		}
		f.policies = append(f.policies, p)
	}
	f.follow()
	return f
}

// rowsOf gives the numbers of the rows that stand below a prefix.
func rowsOf(values map[string][]string, prefix string) []int {
	seen := map[int]bool{}
	for name := range values {
		if rest, below := strings.CutPrefix(name, prefix); below {
			number, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(number); err == nil {
				seen[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// follow renames what policies replace when the slugs were changed in the form.
func (f *draftForm) follow() {
	renamed, twice := map[string]string{}, map[string]bool{}
	for _, p := range f.policies {
		if p.was == "" {
			continue
		}
		_, known := renamed[p.was]
		twice[p.was] = known
		renamed[p.was] = p.slug
	}
	for i := range f.policies {
		for k, slug := range f.policies[i].replaces {
			if now, known := renamed[slug]; known && !twice[slug] && now != "" {
				f.policies[i].replaces[k] = now
			}
		}
	}
}

var policyFields = []string{
	"was", "slug", "description", "path", "other_methods", "missing", "mode", "on_failure", "consistency",
	"other_replaces",
}

// draftField is the grammar of the form's names, beside those of the form itself:
//
//	name, description
//	policies.N. was, slug, description, path, other_methods, missing, mode,
//	            on_failure, consistency, other_replaces
//	policies.N. methods.N, count_by.N, replaces.N
//	policies.N.attributes.N. name, value
//	policies.N.limits.N. name, algorithm, quota, window, burst, anchor
func draftField(name string) bool {
	if name == "name" || name == "description" {
		return true
	}
	parts := strings.Split(name, ".")
	if parts[0] != "policies" || len(parts) < 3 || !rowNumber(parts[1], plans.MaxPolicies+1) {
		return false
	}
	if len(parts) == 3 {
		return slices.Contains(policyFields, parts[2])
	}
	if !rowNumber(parts[3], maxRows) {
		return false
	}
	switch parts[2] {
	case "methods", "count_by", "replaces":
		return len(parts) == 4
	case "attributes":
		return len(parts) == 5 && (parts[4] == "name" || parts[4] == "value")
	case "limits":
		return len(parts) == 5 && slices.Contains([]string{"name", "algorithm", "quota", "window", "burst", "anchor"}, parts[4])
	}
	return false
}

func rowNumber(s string, below int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n < below && strconv.Itoa(n) == s
}

// A reading is what a form says: a document, what cannot be in one, and which
// field stands for which place of it.
type reading struct {
	document plans.Document
	faults   problem.Fields
	fields   map[string]string // JSON pointer to the name of a field or group
}

// read makes the document. Rows that were left empty are left out.
func (f draftForm) read() reading {
	r := reading{fields: map[string]string{"": "draft", "/name": "name", "/description": "description", "/policies": "policies"}}
	content := plans.Content{Name: f.name, Description: f.description}
	for i, p := range f.policies {
		content.Policies = append(content.Policies, r.policy(i, p))
	}
	r.document = plans.New(content)
	return r
}

// judged is read with all faults of the document.
func (f draftForm) judged() reading {
	r := f.read()
	r.faults = withFaults(r.faults, r.document.Validate())
	slices.SortStableFunc(r.faults, func(a, b problem.Field) int { return cmp.Compare(policyOf(a.Pointer), policyOf(b.Pointer)) })
	return r
}

// policyOf gives the number of the policy that a pointer is in; -1: in none.
func policyOf(pointer string) int {
	rest, in := strings.CutPrefix(pointer, "/policies/")
	number, _, _ := strings.Cut(rest, "/")
	if n, err := strconv.Atoi(number); in && err == nil {
		return n
	}
	return -1
}

// withFaults adds the faults of an Invalid problem to those that are told
// already; where both tell of one place the first does.
func withFaults(told problem.Fields, err error) problem.Fields {
	for _, fault := range faultsOf(err) {
		if !slices.ContainsFunc(told, func(f problem.Field) bool { return f.Pointer == fault.Pointer }) {
			told = append(told, fault)
		}
	}
	return told
}

func (r *reading) policy(i int, f policyForm) plans.Policy {
	at, in := "/policies/"+strconv.Itoa(i), "policies."+strconv.Itoa(i)
	for pointer, field := range map[string]string{
		"": "", "/slug": ".slug", "/description": ".description", "/match": ".match", "/match/path": ".path", "/match/methods": ".methods",
		"/match/attributes": ".attributes", "/count_by": ".count_by", "/missing": ".missing", "/mode": ".mode",
		"/on_failure": ".on_failure", "/replaces": ".replaces", "/limits": ".limits", "/consistency": ".consistency",
	} {
		r.fields[at+pointer] = in + field
	}
	r.fields[at+"/match"] = in
	p := plans.Policy{
		Slug: f.slug, Description: f.description, Missing: enforcement.Missing(f.missing), Mode: enforcement.PolicyMode(f.mode),
		OnFailure: enforcement.OnFailure(f.onFailure), Consistency: enforcement.Consistency(f.consistency),
	}
	p.Match.Path = f.path
	p.Match.Methods = append(slices.Clone(f.methods), spaced(f.otherMethods)...)
	p.Replaces = append(slices.Clone(f.replaces), spaced(f.otherReplaces)...)
	for k, name := range f.countBy {
		if name != "" {
			r.fields[at+"/count_by/"+strconv.Itoa(len(p.CountBy))] = in + ".count_by." + strconv.Itoa(k)
			p.CountBy = append(p.CountBy, name)
		}
	}
	p.Match.Attributes = r.attributes(at+"/match/attributes/", in+".attributes.", f.attributes)
	for k, l := range f.limits {
		p.Limits = append(p.Limits, r.limit(at+"/limits/"+strconv.Itoa(k), in+".limits."+strconv.Itoa(k), l))
	}
	return p
}

func (r *reading) attributes(at, in string, list []attributeForm) map[string]string {
	out := map[string]string{}
	for k, a := range list {
		if a == (attributeForm{}) {
			continue
		}
		pointer, field := at+problem.Escape(a.name), in+strconv.Itoa(k)+".value"
		if a.name == "" || len(a.name) > maxAttributeName {
			field = in + strconv.Itoa(k) + ".name"
		}
		value, readable := written(a.value)
		if _, twice := out[a.name]; twice {
			pointer = at + strconv.Itoa(k) + "/twice"
			r.faults.Add(pointer, "is named twice")
			field = in + strconv.Itoa(k) + ".name"
		} else {
			out[a.name] = value
		}
		if !readable {
			r.faults.Add(pointer, `begins with a quotation mark, so it is read as JSON, and is none: write "a\nb" for a value with a line break`)
		}
		r.fields[pointer] = field
	}
	return out
}

// maxAttributeName is the longest name of an attribute, in bytes; plans says so.
const maxAttributeName = 64

func (r *reading) limit(at, in string, f limitForm) enforcement.Limit {
	r.fields[at] = in
	for _, name := range []string{"name", "algorithm", "quota", "window", "burst", "anchor"} {
		r.fields[at+"/"+name] = in + "." + name
	}
	l := enforcement.Limit{Name: f.name}
	var known bool
	if l.Algorithm, known = enforcement.ParseAlgorithm(f.algorithm); !known {
		r.faults.Add(at+"/algorithm", "must be one of the list")
	}
	var fault string
	if l.Quota, fault = wholeNumber(f.quota); fault != "" {
		r.faults.Add(at+"/quota", "%s", fault)
	}
	var err error
	if l.Window, err = enforcement.ParseWindow(strings.TrimSpace(f.window)); err != nil {
		r.faults.Add(at+"/window", "%v", err)
	}
	if strings.TrimSpace(f.burst) != "" {
		if l.Burst, fault = wholeNumber(f.burst); fault == "" && l.Burst == 0 {
			fault = "must be at least 1; leave it empty for the quota"
		}
		if fault != "" {
			r.faults.Add(at+"/burst", "%s", fault)
		}
	}
	if f.anchor != "" {
		if l.Anchor, known = enforcement.ParseAnchor(f.anchor); !known {
			r.faults.Add(at+"/anchor", "must be one of the list")
		}
	}
	return l
}

// wholeNumber reads a number as people write it: 120, 1,200.
func wholeNumber(text string) (int64, string) {
	text = strings.TrimSpace(text)
	if groups := strings.Split(text, ","); len(groups) > 1 && groups[0] != "" && len(groups[0]) <= 3 &&
		!slices.ContainsFunc(groups[1:], func(g string) bool { return len(g) != 3 }) {
		text = strings.Join(groups, "")
	}
	if text == "" {
		return 0, "is required"
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, "must be a whole number, like 120 or 1,200"
	}
	return n, ""
}

// spaced are the parts of a text between spaces and commas.
func spaced(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// do changes the form as a button says: "add-policy", "policies.N." and
// "duplicate", "delete", "up", "down", "add-limit", "add-attribute", "add-count-by"
// or "limits.N.delete". It gives the field that comes next, which is in the
// policy open; false for what no button says.
func (f *draftForm) do(what string) (next string, open int, ok bool) {
	if what == "add-policy" {
		f.policies = append(f.policies, newPolicy())
		open = len(f.policies) - 1
		return "policies." + strconv.Itoa(open) + ".slug", open, len(f.policies) <= plans.MaxPolicies
	}
	parts := strings.Split(what, ".")
	if len(parts) < 3 || parts[0] != "policies" || !rowNumber(parts[1], len(f.policies)) {
		return "", 0, false
	}
	i, _ := strconv.Atoi(parts[1])
	in := func(n int) string { return "policies." + strconv.Itoa(n) }
	p := &f.policies[i]
	if len(parts) == 5 && parts[2] == "limits" && parts[4] == "delete" && rowNumber(parts[3], len(p.limits)) {
		k, _ := strconv.Atoi(parts[3])
		p.limits = slices.Delete(p.limits, k, k+1)
		return in(i) + ".limits", i, true
	}
	if len(parts) != 3 {
		return "", 0, false
	}
	switch parts[2] {
	case "duplicate":
		f.policies = slices.Insert(f.policies, i+1, f.copyOf(*p))
		return in(i+1) + ".slug", i + 1, len(f.policies) <= plans.MaxPolicies
	case "delete":
		f.policies = slices.Delete(f.policies, i, i+1)
		return "policies", -1, true
	case "up", "down":
		to := i - 1
		if parts[2] == "down" {
			to = i + 1
		}
		if to < 0 || to >= len(f.policies) {
			return "", 0, false
		}
		f.policies[i], f.policies[to] = f.policies[to], f.policies[i]
		return in(to), to, true
	case "add-limit":
		p.limits = append(p.limits, newLimit())
		return in(i) + ".limits." + strconv.Itoa(len(p.limits)-1) + ".quota", i, len(p.limits) <= maxRows
	case "add-attribute":
		p.attributes = append(p.attributes, attributeForm{})
		return in(i) + ".attributes." + strconv.Itoa(len(p.attributes)-1) + ".name", i, len(p.attributes) <= maxRows
	case "add-count-by":
		p.countBy = append(p.countBy, "")
		return in(i) + ".count_by." + strconv.Itoa(len(p.countBy)-1), i, len(p.countBy) <= maxRows
	}
	return "", 0, false
}

// newPolicy begins in shadow: it is seen to be right before it refuses.
func newPolicy() policyForm {
	return policyForm{
		path: "*", missing: string(enforcement.MissingShared), mode: string(enforcement.PolicyShadow),
		onFailure: string(enforcement.OnFailureLocal), consistency: string(enforcement.Exact), limits: []limitForm{newLimit()},
	}
}

func newLimit() limitForm {
	return limitForm{algorithm: enforcement.SlidingWindowCounter.String(), window: "1m", anchor: enforcement.FirstHit.String()}
}

// copyOf is a policy again, with a slug of its own.
func (f *draftForm) copyOf(p policyForm) policyForm {
	out := p
	out.was = ""
	out.methods, out.attributes, out.countBy = slices.Clone(p.methods), slices.Clone(p.attributes), slices.Clone(p.countBy)
	out.replaces, out.limits = slices.Clone(p.replaces), slices.Clone(p.limits)
	stem := strings.TrimSuffix(p.slug[:min(len(p.slug), problem.MaxSlug-8)], "-")
	for n := 1; ; n++ {
		out.slug = stem + "-copy"
		if n > 1 {
			out.slug += "-" + strconv.Itoa(n)
		}
		if !slices.ContainsFunc(f.policies, func(o policyForm) bool { return o.slug == out.slug }) {
			return out
		}
	}
}

// field finds the field of a fault: that of its place, or of the nearest above.
func (r *reading) field(pointer string) string {
	for {
		if field, there := r.fields[pointer]; there {
			return field
		}
		cut := strings.LastIndexByte(pointer, '/')
		if cut < 0 {
			return "draft"
		}
		pointer = pointer[:cut]
	}
}

// whose names a field in words, for the list of faults: "Policy 3 (search), limit
// 1, quota".
func (f draftForm) whose(field string) string {
	parts := strings.Split(field, ".")
	if parts[0] != "policies" || len(parts) < 2 {
		return map[string]string{"name": "Name", "description": "Description", "policies": "Policies"}[field]
	}
	i, _ := strconv.Atoi(parts[1])
	text := "Policy " + strconv.Itoa(i+1)
	if i < len(f.policies) && f.policies[i].slug != "" {
		text += " (" + f.policies[i].slug + ")"
	}
	for k := 2; k < len(parts); k++ {
		if n, err := strconv.Atoi(parts[k]); err == nil {
			text += " " + strconv.Itoa(n+1)
			continue
		}
		text += ", " + cmp.Or(fieldWords[parts[k]], parts[k])
	}
	return text
}

var fieldWords = map[string]string{
	"limits": "limit", "count_by": "counted by", "on_failure": "while the counters are away", "missing": "without the attribute",
	"attributes": "attribute", "path": "path", "quota": "requests", "window": "window",
}
