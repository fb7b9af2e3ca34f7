package plans

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// A draftForm is a draft as the visitor typed it into the form. It may contain values that a
// plans.Document cannot contain, such as a quota that is not a number.
type draftForm struct {
	name, description string
	policies          []policyForm
	removed           url.Values // the fields of the policy that was deleted last; their names contain its row
}

// A policyForm is one policy as the visitor typed it into the form.
type policyForm struct {
	fields                     map[string]string // by the names in policyFields
	methods, countBy, replaces []string          // methods and replaces have the checked boxes
	attributes                 []attributeForm
	limits                     []limitForm
}

type attributeForm struct{ name, value string }

// A limitForm has the texts that the visitor typed for one limit, by the names in limitFields.
type limitForm map[string]string

// policyFields are the form fields of a policy with a single value. "was" has the slug that the policy had
// when the form was rendered; it is used to update references to a renamed policy. "other_methods" and
// "other_replaces" are lists, separated by spaces or commas.
var policyFields = func() []string {
	list := []string{
		"was", "slug", "description", "path", "other_methods", "other_replaces", "cost", "cost_from", "delay_ms",
		"reservation_expiry", "reservation_estimate",
	}
	for _, c := range new(plans.Policy).Choices() {
		list = append(list, c.Field)
	}
	return list
}()

var (
	policyLists = []string{"methods", "count_by", "replaces"} // lists of values
	limitFields = []string{"name", "algorithm", "quota", "window", "burst", "anchor", "warn_at", "durable", "carry_over", "max_rollover"}
)

// maxRows is the maximum number of rows in each list of a policy. It is higher than the maximum
// of a document, so that a list that is too long gets an error message instead of being cut.
const maxRows = 300

// formOf returns the form of a document.
func formOf(d plans.Document) draftForm {
	f := draftForm{name: d.Name(), description: d.Description()}
	for _, p := range d.Policies() {
		f.policies = append(f.policies, policyFormOf(p))
	}
	return f
}

func policyFormOf(p plans.Policy) policyForm {
	f := policyForm{
		fields:  map[string]string{"was": p.Slug, "slug": p.Slug, "description": p.Description, "path": p.Match.Path},
		methods: slices.Clone(p.Match.Methods), countBy: slices.Clone(p.CountBy), replaces: slices.Clone(p.Replaces),
	}
	f.fields["cost_from"] = p.CostFrom
	f.fields["reservation_expiry"] = cmp.Or(string(p.ReservationExpiry), string(enforcement.KeepExpired))
	f.fields["reservation_estimate"] = cmp.Or(string(p.ReservationEstimate), string(enforcement.DenyEstimate))
	if p.Cost != nil {
		f.fields["cost"] = strconv.FormatInt(*p.Cost, 10)
	}
	if p.DelayMS != 0 {
		f.fields["delay_ms"] = strconv.FormatInt(p.DelayMS, 10)
	}
	for _, c := range p.Choices() {
		f.fields[c.Field] = *c.Value
	}
	for _, name := range slices.Sorted(maps.Keys(p.Match.Attributes)) {
		f.attributes = append(f.attributes, attributeForm{name, lineOfValue(p.Match.Attributes[name])})
	}
	for _, l := range p.Limits {
		f.limits = append(f.limits, limitFormOf(l))
	}
	return f
}

func limitFormOf(l enforcement.Limit) limitForm {
	f := limitForm{
		"name": l.Name, "algorithm": l.Algorithm.String(), "quota": strconv.FormatInt(l.Quota, 10),
		"window": l.WindowText(), "anchor": l.Anchor.String(), "warn_at": l.WarnAt.String(),
		"durable": durabilityNames[l.Durability], "carry_over": l.CarryOver.String(),
	}
	if l.Burst != 0 {
		f["burst"] = strconv.FormatInt(l.Burst, 10)
	}
	if l.MaxRollover != 0 {
		f["max_rollover"] = strconv.FormatInt(l.MaxRollover, 10)
	}
	return f
}

// newPolicy returns a new policy in mode shadow. In this mode, the visitor can see the effect of the policy
// before it denies requests.
func newPolicy() policyForm {
	f := policyFormOf(plans.Policy{Match: plans.Match{Path: "*"}, Mode: enforcement.PolicyShadow}.Canonical())
	f.limits = []limitForm{newLimit()}
	return f
}

func newLimit() limitForm {
	return limitForm{
		"algorithm": enforcement.SlidingWindowCounter.String(), "window": "1m", "anchor": enforcement.FirstHit.String(),
		"carry_over": enforcement.CarryKeep.String(),
	}
}

// lineOfValue formats the value of an attribute as one line for the form. If the value has
// control characters or begins with a quotation mark, the result is a JSON string.
func lineOfValue(value string) string {
	if !strings.HasPrefix(value, `"`) && !strings.ContainsFunc(value, unicode.IsControl) {
		return value
	}
	text, _ := json.Marshal(value) // a string: no error
	return string(text)
}

// valueOfLine is the reverse of lineOfValue: it returns the value for a line of the form. It returns false if
// the line is an invalid JSON string.
func valueOfLine(line string) (string, bool) {
	if !strings.HasPrefix(line, `"`) {
		return line, true
	}
	var value string
	err := json.Unmarshal([]byte(line), &value)
	return value, err == nil
}

// readDraft reads a draft from a form. draftField must accept the names of all fields. Rows are ordered by the
// numbers in their names, which may have gaps.
func readDraft(values url.Values) draftForm {
	f := draftForm{name: values.Get("name"), description: values.Get("description")}
	for _, at := range rowsOf(values, "policies") {
		p := policyForm{
			fields: fieldsAt(values, at, policyFields), methods: column(values, at+".methods"), countBy: column(values, at+".count_by"),
			replaces: column(values, at+".replaces"),
		}
		for _, row := range rowsOf(values, at+".attributes") {
			p.attributes = append(p.attributes, attributeForm{values.Get(row + ".name"), values.Get(row + ".value")})
		}
		for _, row := range rowsOf(values, at+".limits") {
			p.limits = append(p.limits, fieldsAt(values, row, limitFields))
		}
		f.policies = append(f.policies, p)
	}
	f.follow()
	return f
}

// rowsOf returns the prefix of the field names for each row of a list, such as "limits.0.", ordered by the
// numbers.
func rowsOf(values url.Values, list string) []string {
	seen := map[int]bool{}
	for name := range values {
		if rest, below := strings.CutPrefix(name, list+"."); below {
			number, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(number); err == nil {
				seen[n] = true
			}
		}
	}
	var rows []string
	for _, n := range slices.Sorted(maps.Keys(seen)) {
		rows = append(rows, list+"."+strconv.Itoa(n))
	}
	return rows
}

// column returns the values of a list whose rows have one field each.
func column(values url.Values, list string) []string {
	var out []string
	for _, row := range rowsOf(values, list) {
		out = append(out, values.Get(row))
	}
	return out
}

func fieldsAt(values url.Values, at string, names []string) map[string]string {
	out := make(map[string]string, len(names))
	for _, name := range names {
		out[name] = values.Get(at + "." + name)
	}
	return out
}

// follow updates the field replaces of all policies. If this field names a policy that the visitor has
// renamed, follow puts in the new slug.
func (f *draftForm) follow() {
	renamed, twice := map[string]string{}, map[string]bool{}
	for _, p := range f.policies {
		was := p.fields["was"]
		if was == "" {
			continue
		}
		_, twice[was] = renamed[was]
		renamed[was] = p.fields["slug"]
	}
	for _, p := range f.policies {
		for k, slug := range p.replaces {
			if now, known := renamed[slug]; known && !twice[slug] && now != "" {
				p.replaces[k] = now
			}
		}
	}
}

// draftField reports whether a name is a field of the form:
//
//	name, description
//	policies.N. and one of policyFields
//	policies.N. and one of policyLists, .N
//	policies.N.attributes.N. name, value
//	policies.N.limits.N. and one of limitFields
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
	case "attributes":
		return len(parts) == 5 && (parts[4] == "name" || parts[4] == "value")
	case "limits":
		return len(parts) == 5 && slices.Contains(limitFields, parts[4])
	}
	return len(parts) == 4 && slices.Contains(policyLists, parts[2])
}

func rowNumber(s string, below int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n < below && strconv.Itoa(n) == s
}

// A reading is the document that was read from a form, with the faults in the form.
type reading struct {
	document plans.Document
	faults   problem.Fields    // faults of values that a document cannot contain
	fields   map[string]string // the form field for a JSON pointer, if fieldAt does not find it
}

// read returns the document in the form. It leaves out empty rows.
func (f draftForm) read() reading {
	r := reading{fields: map[string]string{}}
	content := plans.Content{Name: f.name, Description: f.description}
	for i, p := range f.policies {
		content.Policies = append(content.Policies, r.policy(i, p))
	}
	r.document = plans.New(content)
	return r
}

// validated returns the document in the form, with the faults of the form and those of the document.
func (f draftForm) validated() reading {
	r := f.read()
	for _, fault := range faultsOf(r.document.Validate()) {
		if !slices.ContainsFunc(r.faults, func(f problem.Field) bool { return f.Pointer == fault.Pointer }) {
			r.faults = append(r.faults, fault)
		}
	}
	slices.SortStableFunc(r.faults, func(a, b problem.Field) int { return cmp.Compare(policyOf(a.Pointer), policyOf(b.Pointer)) })
	return r
}

// policyOf returns the index of the policy to which a JSON pointer leads, or -1 if the pointer does not lead
// to or into a policy.
func policyOf(pointer string) int {
	rest, in := strings.CutPrefix(pointer, "/policies/")
	number, _, _ := strings.Cut(rest, "/")
	if n, err := strconv.Atoi(number); in && err == nil {
		return n
	}
	return -1
}

func (r *reading) policy(i int, f policyForm) plans.Policy {
	at, in := "/policies/"+strconv.Itoa(i), "policies."+strconv.Itoa(i)
	p := plans.Policy{
		Slug: f.fields["slug"], Description: f.fields["description"], CostFrom: f.fields["cost_from"],
		ReservationExpiry:   enforcement.ReservationExpiry(f.fields["reservation_expiry"]),
		ReservationEstimate: enforcement.ReservationEstimate(f.fields["reservation_estimate"]),
	}
	if text := f.fields["cost"]; strings.TrimSpace(text) != "" {
		cost, fault := wholeNumber(text)
		if p.Cost = &cost; fault != "" {
			r.faults.Add(at+"/cost", "%s", fault)
		}
	}
	if text := f.fields["delay_ms"]; strings.TrimSpace(text) != "" {
		delay, fault := wholeNumber(text)
		if p.DelayMS = delay; fault != "" || delay == 0 {
			r.faults.Add(at+"/delay_ms", "%s", cmp.Or(fault, "must be from 1 to 60000 milliseconds"))
		}
	}
	for _, c := range p.Choices() {
		*c.Value = f.fields[c.Field]
	}
	p.Match.Path = f.fields["path"]
	p.Match.Methods = append(slices.Clone(f.methods), words(f.fields["other_methods"])...)
	p.Replaces = append(slices.Clone(f.replaces), words(f.fields["other_replaces"])...)
	for k, name := range f.countBy {
		if name != "" {
			r.fields[at+"/count_by/"+strconv.Itoa(len(p.CountBy))] = in + ".count_by." + strconv.Itoa(k)
			p.CountBy = append(p.CountBy, name)
		}
	}
	p.Match.Attributes = r.attributes(at+"/match/attributes/", in+".attributes.", f.attributes)
	for k, l := range f.limits {
		p.Limits = append(p.Limits, r.limit(at+"/limits/"+strconv.Itoa(k), l))
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
		value, readable := valueOfLine(a.value)
		if _, twice := out[a.name]; twice {
			pointer, field = at+strconv.Itoa(k)+"/twice", in+strconv.Itoa(k)+".name"
			r.faults.Add(pointer, "is named twice")
		} else {
			out[a.name] = value
		}
		if !readable {
			r.faults.Add(pointer, `starts with a quotation mark, but is not a JSON string: write "a\nb" for a value with a line break`)
		}
		r.fields[pointer] = field
	}
	return out
}

// maxAttributeName is the maximum length of an attribute name in bytes. Package plans checks it.
const maxAttributeName = 64

// durabilityNames are the values of the field durable.
var durabilityNames = map[enforcement.Durability]string{
	enforcement.DurableByWindow: "", enforcement.Durable: "true", enforcement.NotDurable: "false",
}

func (r *reading) limit(at string, f limitForm) enforcement.Limit {
	l := enforcement.Limit{Name: f["name"]}
	var known bool
	if l.Algorithm, known = enforcement.ParseAlgorithm(f["algorithm"]); !known {
		r.faults.Add(at+"/algorithm", "must be one of the list")
	}
	var fault string
	if l.Quota, fault = wholeNumber(f["quota"]); fault != "" {
		r.faults.Add(at+"/quota", "%s", fault)
	}
	if fault := l.ReadWindow(strings.TrimSpace(f["window"])); fault != "" {
		r.faults.Add(at+"/window", "%s", fault)
	}
	l.Burst = r.optional(at+"/burst", f["burst"], "for the quota")
	l.MaxRollover = r.optional(at+"/max_rollover", f["max_rollover"], "if nothing rolls over")
	if l.WarnAt, fault = readWarnAt(f["warn_at"]); fault != "" {
		r.faults.Add(at+"/warn_at", "%s", fault)
	}
	switch f["durable"] {
	case "":
	case "true":
		l.Durability = enforcement.Durable
	case "false":
		l.Durability = enforcement.NotDurable
	default:
		r.faults.Add(at+"/durable", "must be one of the list")
	}
	if f["carry_over"] != "" {
		if l.CarryOver, known = enforcement.ParseCarryOver(f["carry_over"]); !known {
			r.faults.Add(at+"/carry_over", "must be one of the list")
		}
	}
	if f["anchor"] != "" {
		if l.Anchor, known = enforcement.ParseAnchor(f["anchor"]); !known {
			r.faults.Add(at+"/anchor", "must be one of the list")
		}
	}
	// The form always sends an anchor. If the window was changed to a period that cannot have this anchor, the
	// limit gets the default anchor of the period.
	if l.Period != enforcement.NoPeriod && (l.Anchor <= enforcement.Clock || l.Anchor.Weekday() != (l.Period == enforcement.Week)) {
		l.Anchor = l.Period.DefaultAnchor()
	}
	return l
}

// optional parses a number of at least 1. It returns 0 if the text is empty. The parameter empty says, for the
// error message, what an empty text means.
func (r *reading) optional(at, text, empty string) int64 {
	if strings.TrimSpace(text) == "" {
		return 0
	}
	n, fault := wholeNumber(text)
	if fault == "" && n == 0 {
		fault = "must be at least 1; leave it empty " + empty
	}
	if fault != "" {
		r.faults.Add(at, "%s", fault)
	}
	return n
}

// readWarnAt parses a list of percentages, such as "80 95" or "80%, 95%".
func readWarnAt(text string) (enforcement.WarnAt, string) {
	var list []int64
	for _, word := range words(text) {
		n, err := strconv.ParseInt(strings.TrimSuffix(word, "%"), 10, 64)
		if err != nil {
			return enforcement.WarnAt{}, "must be percentages, such as 80, 95"
		}
		list = append(list, n)
	}
	return enforcement.NewWarnAt(list)
}

// wholeNumber parses a number with or without commas, such as 120 or 1,200.
func wholeNumber(text string) (n int64, fault string) {
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

// words returns the parts of a text between spaces and commas.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// field returns the name of the form field for a JSON pointer. If there is none, it returns the name of the
// field for the closest enclosing value.
func (r *reading) field(pointer string) string {
	for pointer != "" {
		if field, known := r.fields[pointer]; known {
			return field
		}
		if field := fieldAt(pointer); field != "" {
			return field
		}
		pointer = pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
	}
	return "draft"
}

// fieldAt returns the name of the form field, or group of fields, for a JSON pointer. It returns "" if there
// is none.
func fieldAt(pointer string) string {
	name := strings.ReplaceAll(strings.Replace(pointer, "/match/", "/", 1)[1:], "/", ".")
	parts := strings.Split(name, ".")
	switch {
	case name == "policies", len(parts) == 2 && parts[0] == "policies":
	case len(parts) == 3 && (slices.Contains(policyLists, parts[2]) || parts[2] == "attributes" || parts[2] == "limits"):
	case len(parts) == 4 && parts[2] == "limits":
	case len(parts) != 4 && draftField(name):
	default:
		return ""
	}
	return name
}

// describe returns the words with which the list of faults names a form field: "Policy 3 (search), limit 1,
// requests". It returns "" for the whole draft.
func (f draftForm) describe(field string) string {
	parts := strings.Split(field, ".")
	if len(parts) < 2 {
		return fieldNames[field]
	}
	i, _ := strconv.Atoi(parts[1])
	text := "Policy " + strconv.Itoa(i+1)
	if i < len(f.policies) && f.policies[i].fields["slug"] != "" {
		text += " (" + f.policies[i].fields["slug"] + ")"
	}
	for k := 2; k < len(parts); k++ {
		if n, err := strconv.Atoi(parts[k]); err == nil {
			text = strings.TrimSuffix(text, "s") + " " + strconv.Itoa(n+1)
			continue
		}
		text += ", " + strings.ToLower(fieldName(parts[k]))
	}
	return text
}

// message returns an error message, preceded by the words for its field.
func (f draftForm) message(field, text string) string {
	if name := f.describe(field); name != "" {
		return name + ": " + web.EndSentence(text)
	}
	return web.Sentence(text)
}
