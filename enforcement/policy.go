package enforcement

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/problem"
)

// A Policy says which requests of a tenant are limited, and how. A plan is a list of
// policies. The plan document, the database, the API and the compiler all use this
// type. policy_json.go reads its JSON form.
//
// To add a field with a fixed set of values, add it here and in choices. To add any
// other field, add it here, in Canonical, in Validate and in ReadPolicy. If the engine
// reads the field, add it to RuleSpec too.
type Policy struct {
	Slug        string `json:"slug"`
	Description string `json:"description"`
	Match       Match  `json:"match"`
	// CountBy lists attribute names, or "ip/64". Each combination of their values has a
	// separate counter. An empty list means one counter for the whole tenant.
	CountBy  []string   `json:"count_by"`
	Missing  Missing    `json:"missing"`
	Replaces []string   `json:"replaces"` // slugs of policies of the same plan
	Mode     PolicyMode `json:"mode"`
	// DelayMS is how long a request that is over a limit waits, in milliseconds, if the mode is delay:
	// 1 to MaxPolicyDelay. 0 stands for DefaultPolicyDelay. In other modes DelayMS has no effect; see
	// UselessDelay.
	DelayMS     int64       `json:"delay_ms,omitempty"`
	OnFailure   OnFailure   `json:"on_failure"`
	Consistency Consistency `json:"consistency"`
	// Cost is the number of units that a request is charged if it does not state its cost:
	// 0 to MaxCost. nil stands for 1.
	Cost *int64 `json:"cost,omitempty"`
	// CostFrom is the name of an attribute whose value is the number of units that a
	// request is charged. It has precedence over the cost of the request. A request
	// without the attribute is charged as if CostFrom were empty.
	CostFrom string `json:"cost_from,omitempty"`
	// ReservationExpiry says what happens to the cost of a reservation that expires. "" stands
	// for keep.
	ReservationExpiry ReservationExpiry `json:"reservation_expiry,omitempty"`
	// ReservationEstimate says what happens to a reservation whose cost is more than a limit
	// can ever allow. "" stands for deny.
	ReservationEstimate ReservationEstimate `json:"reservation_estimate,omitempty"`
	Limits              []Limit             `json:"limits"`
}

// A ReservationExpiry says what a policy does with the cost of a reservation that expires. A
// reservation expires if it is neither settled nor released before its end.
type ReservationExpiry string

// The values of reservation_expiry. KeepExpired is the default, and is stored as "".
const (
	KeepExpired   ReservationExpiry = "keep"
	RefundExpired ReservationExpiry = "refund" // returns the cost to the counters
)

// A ReservationEstimate says what a policy does with a reservation whose cost is above the
// quota or the burst of one of its limits.
type ReservationEstimate string

// The values of reservation_estimate. DenyEstimate is the default, and is stored as "".
const (
	DenyEstimate  ReservationEstimate = "deny"
	ClampEstimate ReservationEstimate = "clamp" // charges each such limit its quota or its burst instead
)

// validateReservations returns the errors of the fields for reservations.
func (p *Policy) validateReservations() (f problem.Fields) {
	if e := p.ReservationExpiry; e != "" && e != KeepExpired && e != RefundExpired {
		f.Add("/reservation_expiry", "must be keep or refund")
	}
	if e := p.ReservationEstimate; e != "" && e != DenyEstimate && e != ClampEstimate {
		f.Add("/reservation_estimate", "must be deny or clamp")
	}
	return f
}

// A RuleSpec is a policy whose limits are compiled. CompilePlan makes a Rule from it.
type RuleSpec struct {
	Policy      string // slug
	Methods     []string
	Path        string
	Attributes  map[string]string
	CountBy     []string
	Missing     Missing
	Replaces    []string
	Mode        PolicyMode
	DelayMS     int64
	OnFailure   OnFailure
	Consistency Consistency
	Cost        *int64
	CostFrom    string

	ReservationExpiry   ReservationExpiry
	ReservationEstimate ReservationEstimate
	Limits              []RuleLimit
}

// RuleSpec returns the policy as the input of CompilePlan, with limits that are already
// compiled.
func (p *Policy) RuleSpec(limits []RuleLimit) RuleSpec {
	return RuleSpec{
		Policy: p.Slug, Methods: p.Match.Methods, Path: p.Match.Path, Attributes: p.Match.Attributes, CountBy: p.CountBy,
		Missing: p.Missing, Replaces: p.Replaces, Mode: p.Mode, DelayMS: p.DelayMS, OnFailure: p.OnFailure, Consistency: p.Consistency,
		Cost: p.Cost, CostFrom: p.CostFrom,
		ReservationExpiry: p.ReservationExpiry, ReservationEstimate: p.ReservationEstimate, Limits: limits,
	}
}

// A Match selects the requests that a policy applies to. The zero value selects
// every request.
type Match struct {
	Methods    []string          `json:"methods"` // an empty list matches all methods
	Path       string            `json:"path"`    // a pattern; "" and "*" match all paths
	Attributes map[string]string `json:"attributes"`
}

// A Missing says what a policy does with a request that lacks an attribute of count_by.
type Missing string

const (
	// MissingShared counts all such requests together, as if missing were one more value of the
	// attribute.
	MissingShared Missing = "shared"
	// MissingSkip does not apply the policy to such requests.
	MissingSkip Missing = "skip"
	// MissingDeny denies such requests with 403.
	MissingDeny Missing = "deny"
)

// An OnFailure is the failure mode of a policy: how it decides while the shared limiter
// is unavailable.
type OnFailure string

const (
	// OnFailureLocal lets the in-process limiter decide, with this node's share of the
	// quota.
	OnFailureLocal OnFailure = "local"
	// OnFailureOpen allows all requests.
	OnFailureOpen OnFailure = "open"
	// OnFailureClosed denies all requests with 503.
	OnFailureClosed OnFailure = "closed"
)

// A Consistency says where a policy counts requests: each one in the shared store, or in quota that
// each node leases.
type Consistency string

const (
	// Exact counts each charge in the shared store, which all nodes use.
	Exact Consistency = "exact"
	// Leased lets each node draw quota in advance, and charge requests to it locally. A
	// leased policy never allows more than an exact one. It may deny requests although
	// other nodes still have unused quota.
	Leased Consistency = "leased"
)

// Upper bounds of the fields of a policy.
const (
	MaxPolicyDescription = 2_000 // characters
	MaxPolicyLimits      = 10
	MaxPolicyMethods     = 16
	MaxCountBy           = 8
	maxPatternBytes      = 2_048 // of match.path
)

// A Choice is a field of a policy that has a fixed set of values.
type Choice struct {
	Field  string   // JSON name
	Value  *string  // points into the policy
	Values []string // all values; the first one is the default
}

// Choices returns the fields of p that have a fixed set of values. Canonical, Validate,
// ReadPolicy and the policy form in the web interface use this list.
func (p *Policy) Choices() []Choice {
	return choices(&p.Missing, &p.Mode, &p.OnFailure, &p.Consistency)
}

func choices(m *Missing, mode *PolicyMode, f *OnFailure, c *Consistency) []Choice {
	return []Choice{
		{"missing", (*string)(m), []string{string(MissingShared), string(MissingSkip), string(MissingDeny)}},
		{"mode", (*string)(mode), policyModes},
		{"on_failure", (*string)(f), []string{string(OnFailureLocal), string(OnFailureOpen), string(OnFailureClosed)}},
		{"consistency", (*string)(c), []string{string(Exact), string(Leased)}},
	}
}

// fillDefault sets an empty value to the default.
func (c Choice) fillDefault() {
	if *c.Value == "" {
		*c.Value = c.Values[0]
	}
}

// fault returns an error message if the value is not one of Values, otherwise "".
func (c Choice) fault() string {
	if slices.Contains(c.Values, *c.Value) {
		return ""
	}
	last := len(c.Values) - 1
	return "must be " + strings.Join(c.Values[:last], ", ") + " or " + c.Values[last]
}

// Canonical returns a deep copy of p with all defaults filled in. Patterns, methods and
// addresses are in their canonical form. Invalid values stay unchanged. The canonical
// form of a canonical policy is the same policy.
func (p Policy) Canonical() Policy {
	p.Description = strings.ReplaceAll(p.Description, "\r\n", "\n")
	p.Match = p.Match.canonical()
	p.CountBy = append([]string{}, p.CountBy...)
	p.Replaces = append([]string{}, p.Replaces...)
	for _, c := range p.Choices() {
		c.fillDefault()
	}
	if p.Cost = clonePointer(p.Cost); p.Cost != nil && *p.Cost == defaultCost {
		p.Cost = nil
	}
	if p.DelayMS == DefaultPolicyDelay && !p.UselessDelay() {
		p.DelayMS = 0
	}
	if p.ReservationExpiry == KeepExpired {
		p.ReservationExpiry = ""
	}
	if p.ReservationEstimate == DenyEstimate {
		p.ReservationEstimate = ""
	}
	p.Limits = nameLimits(p.Limits)
	return p
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func (m Match) canonical() Match {
	methods := make([]string, len(m.Methods))
	for i, name := range m.Methods {
		methods[i] = upperASCII(name)
	}
	m.Methods = methods
	if pattern, err := ParsePattern(m.Path); err == nil {
		m.Path = pattern.String()
	}
	attributes := make(map[string]string, len(m.Attributes))
	for name, value := range m.Attributes {
		if name == ipAttribute {
			if _, canonical, err := CanonicalIP(value); err == nil {
				value = canonical
			}
		}
		attributes[name] = value
	}
	m.Attributes = attributes
	return m
}

// nameLimits returns a copy of the limits with a name for each limit. A limit without a
// name is assigned the first free name of l1, l2, and so on. The plan document stores
// these names, so a limit keeps its name when the limits are reordered.
func nameLimits(given []Limit) []Limit {
	limits := append([]Limit{}, given...)
	used := make(map[string]bool, len(limits))
	for _, l := range limits {
		used[l.Name] = true
	}
	n := 1
	for i := range limits {
		if limits[i].Name != "" {
			continue
		}
		for used["l"+strconv.Itoa(n)] {
			n++
		}
		limits[i].Name = "l" + strconv.Itoa(n)
		used[limits[i].Name] = true
	}
	return limits
}

// IPNetwork is an entry of count_by. It counts IPv6 addresses by their /64 network, and
// each IPv4 address separately.
const IPNetwork = ipPrefix

// CountedAttribute returns the name of the attribute that an entry of count_by uses: ip
// for ip/64, otherwise the entry itself.
func CountedAttribute(entry string) string {
	if entry == ipPrefix {
		return ipAttribute
	}
	return entry
}

// upperASCII converts ASCII letters to upper case. It leaves other letters unchanged,
// so that an error of Validate shows them as they were entered.
func upperASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, s)
}

// ValidatePolicies returns all errors of the policies of one plan. The policies must be
// canonical. The JSON pointers in the errors are relative to the list, for example
// "/0/limits/1/quota".
func ValidatePolicies(policies []Policy) problem.Fields {
	var f problem.Fields
	if len(policies) > MaxRules {
		f.Add("", "must be at most %d policies", MaxRules)
		return f
	}
	places := make(map[string]int, len(policies))
	for i := range policies {
		p, at := &policies[i], "/"+strconv.Itoa(i)
		f.Slug(at+"/slug", p.Slug)
		if first, used := places[p.Slug]; used {
			f.Add(at+"/slug", "policy %d has the same slug", first)
		} else {
			places[p.Slug] = i
		}
		f.AddAll(at, p.validate())
	}
	for i := range policies {
		f.AddAll("/"+strconv.Itoa(i)+"/replaces", policies[i].validateReplaces(places))
	}
	validateCycles(&f, policies, places)
	return f
}

// validate returns the errors of p that do not depend on the other policies of the
// plan.
func (p *Policy) validate() problem.Fields {
	var f problem.Fields
	f.Text("/description", p.Description, MaxPolicyDescription)
	f.AddAll("/match", p.Match.validate())
	f.AddAll("/count_by", validateCountBy(p.CountBy))
	for _, c := range p.Choices() {
		if fault := c.fault(); fault != "" {
			f.Add("/"+c.Field, "%s", fault)
		}
	}
	f.AddAll("", p.validateDelay())
	f.AddAll("", p.validateCost())
	f.AddAll("", p.validateReservations())
	if p.Consistency == Leased {
		unleased := func(l Limit) bool {
			return l.Algorithm == SlidingWindowLog || l.Algorithm == Concurrency || l.Algorithm == LeakyBucket
		}
		if i := slices.IndexFunc(p.Limits, unleased); i >= 0 {
			f.Add("/consistency", "must be exact: limit %s is a %s, which cannot be leased", p.Limits[i].Name, p.Limits[i].Algorithm)
		}
	}
	if p.Consistency == Leased {
		if i := slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Period != NoPeriod }); i >= 0 {
			f.Add("/consistency", "must be exact: limit %s has a calendar window, which cannot be leased", p.Limits[i].Name)
		}
	}
	switch {
	case len(p.Limits) == 0 && len(p.Replaces) == 0:
		f.Add("/limits", "must have at least one limit, unless the policy replaces others")
	case len(p.Limits) > MaxPolicyLimits:
		f.Add("/limits", "must be at most %d limits", MaxPolicyLimits)
	default:
		f.AddAll("/limits", validateLimits(p.Limits))
	}
	return f
}

func (m *Match) validate() problem.Fields {
	var f problem.Fields
	if len(m.Methods) > MaxPolicyMethods {
		f.Add("/methods", "must be at most %d methods", MaxPolicyMethods)
	} else {
		for i, name := range m.Methods {
			at := "/methods/" + strconv.Itoa(i)
			switch {
			case !methodToken(name):
				f.Add(at, "must be an HTTP method of 1 to %d characters, such as GET", maxMethod)
			case slices.Index(m.Methods, name) < i:
				f.Add(at, "%s is named twice", name)
			}
		}
	}
	if len(m.Path) > maxPatternBytes {
		f.Add("/path", "must be at most %d bytes", maxPatternBytes)
	} else if _, err := ParsePattern(m.Path); err != nil {
		f.Add("/path", "%v", err)
	}
	if len(m.Attributes) > MaxAttributes {
		f.Add("/attributes", "must be at most %d attributes", MaxAttributes)
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		at, value := "/attributes/"+problem.Escape(name), m.Attributes[name]
		if fault := AttributeNameFault(name); fault != "" {
			f.Add(at, "the attribute name %s", fault)
		} else if name == ipPrefix {
			f.Add(at, "ip/64 is for count_by; use ip with one whole address here")
		} else if _, fault := CanonicalValue(name, value); fault != "" {
			f.Add(at, "%s", fault)
		}
	}
	return f
}

func validateCountBy(names []string) problem.Fields {
	var f problem.Fields
	if len(names) > MaxCountBy {
		f.Add("", "must be at most %d attributes", MaxCountBy)
		return f
	}
	for i, name := range names {
		at, fault := "/"+strconv.Itoa(i), AttributeNameFault(name)
		switch {
		case fault != "":
			f.Add(at, "the attribute name %s", fault)
		case slices.Index(names, name) < i:
			f.Add(at, "is named twice")
		case name == ipPrefix && slices.Contains(names, ipAttribute):
			f.Add(at, "must be ip or ip/64, not both")
		case strings.HasPrefix(name, "ip/") && name != ipPrefix:
			f.Add(at, "must be ip or ip/64: other prefix lengths are not supported")
		}
	}
	return f
}

// AttributeNameFault returns an error message if name is not a valid attribute name,
// otherwise "".
func AttributeNameFault(name string) string {
	switch {
	case name == "" || len(name) > MaxAttributeName:
		return "must be 1 to " + strconv.Itoa(MaxAttributeName) + " bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "must be valid UTF-8 without control characters"
	}
	return ""
}

// CanonicalValue returns the canonical form of an attribute value. For ip, that is the
// canonical address; otherwise it is the value itself. fault is an error message if no
// request can have the value, otherwise "".
func CanonicalValue(name, value string) (canonical, fault string) {
	if name == ipAttribute {
		_, canonical, err := CanonicalIP(value)
		if err != nil {
			return value, err.Error()
		}
		return canonical, ""
	}
	switch {
	case value == "" || len(value) > MaxAttributeValue:
		return value, "must be 1 to " + strconv.Itoa(MaxAttributeValue) + " bytes; an empty value counts as missing"
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return value, "must be valid UTF-8 without NUL"
	}
	return value, ""
}

func (p *Policy) validateReplaces(places map[string]int) problem.Fields {
	var f problem.Fields
	if len(p.Replaces) > MaxRules {
		f.Add("", "must be at most %d slugs", MaxRules)
		return f
	}
	seen := make(map[string]bool, len(p.Replaces))
	for i, slug := range p.Replaces {
		at := "/" + strconv.Itoa(i)
		_, known := places[slug]
		switch {
		case slug == p.Slug:
			f.Add(at, "a policy cannot replace itself")
		case !known:
			f.Add(at, "the plan has no policy with this slug")
		case seen[slug]:
			f.Add(at, "is named twice")
		}
		seen[slug] = true
	}
	return f
}

// validateCycles adds an error for each cycle of policies that replace one another. It follows
// replaces from each policy, in the order of the plan, and reports the policy that closes the
// cycle. A policy that replaces itself is not a cycle here; validateReplaces reports it.
func validateCycles(f *problem.Fields, policies []Policy, places map[string]int) {
	const open, done = 1, 2
	state := make([]int, len(policies))
	var path []string
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		path = append(path, policies[i].Slug)
		for _, slug := range policies[i].Replaces {
			next, known := places[slug]
			if !known || next == i || state[next] == done {
				continue
			}
			if state[next] == open {
				cycle := append(path[slices.Index(path, slug):len(path):len(path)], slug)
				f.Add("/"+strconv.Itoa(i)+"/replaces", "the policies replace one another in a cycle: %s", strings.Join(cycle, " → "))
				break // reports one cycle for each policy
			}
			visit(next)
		}
		path = path[:len(path)-1]
		state[i] = done
	}
	for i, p := range policies {
		if state[i] == 0 && places[p.Slug] == i {
			visit(i)
		}
	}
}
