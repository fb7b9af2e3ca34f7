package plans

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// MaxBytes is the size of the largest document in JSON, as a caller sends it.
const MaxBytes = 1 << 20

// Bounds of a document.
const (
	MaxName        = 200   // characters
	MaxDescription = 2_000 // characters
	MaxPolicies    = enforcement.MaxRules
	MaxLimits      = 10    // a policy
	MaxMethods     = 16    // a policy
	MaxCountBy     = 8     // a policy
	MaxAttributes  = 16    // a policy's match, and a request
	maxAttrName    = 64    // bytes
	maxAttrValue   = 1024  // bytes
	maxMethod      = 32    // bytes
	maxPath        = 2_048 // bytes
	maxLimitName   = 32    // bytes
)

// Validate reports all faults of a normalised document, as an Invalid problem
// with JSON pointers into the form that EncodeDocument writes. Publishing asks
// more: see Service.Publish.
func Validate(d Document) error {
	var f problem.Fields
	faults(&f, d)
	return f.Err()
}

func faults(f *problem.Fields, d Document) {
	f.Line("/name", d.Name, 1, MaxName)
	f.Text("/description", d.Description, MaxDescription)
	if len(d.Policies) > MaxPolicies {
		f.Add("/policies", "must be at most %d policies", MaxPolicies)
		return // each of them could be at fault: that helps nobody
	}
	place := make(map[string]int, len(d.Policies))
	for i, p := range d.Policies {
		at := "/policies/" + strconv.Itoa(i)
		f.Slug(at+"/slug", p.Slug)
		if first, twice := place[p.Slug]; twice {
			f.Add(at+"/slug", "is the slug of policy %d already", first)
		} else {
			place[p.Slug] = i
		}
		policyFaults(f, at, p)
	}
	for i, p := range d.Policies {
		replacesFaults(f, "/policies/"+strconv.Itoa(i)+"/replaces", p, place)
	}
	cycleFaults(f, d.Policies, place)
}

func policyFaults(f *problem.Fields, at string, p Policy) {
	f.Text(at+"/description", p.Description, MaxDescription)
	matchFaults(f, at+"/match", p.Match)
	countByFaults(f, at+"/count_by", p.CountBy)
	switch p.Missing {
	case enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny:
	default:
		f.Add(at+"/missing", "must be shared, skip or deny")
	}
	switch p.Mode {
	case enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff:
	default:
		f.Add(at+"/mode", "must be enforce, shadow or off")
	}
	switch p.OnFailure {
	case enforcement.OnFailureLocal, enforcement.OnFailureOpen, enforcement.OnFailureClosed:
	default:
		f.Add(at+"/on_failure", "must be local, open or closed")
	}
	switch p.Consistency {
	case enforcement.Exact:
	case enforcement.Leased:
		for _, l := range p.Limits {
			if l.Algorithm == enforcement.SlidingWindowLog {
				f.Add(at+"/consistency", "must be exact: limit %s is a sliding_window_log, which cannot be leased", l.Name)
				break
			}
		}
	default:
		f.Add(at+"/consistency", "must be exact or leased")
	}
	switch {
	case len(p.Limits) == 0 && len(p.Replaces) == 0:
		f.Add(at+"/limits", "needs at least one limit, unless the policy replaces others")
	case len(p.Limits) > MaxLimits:
		f.Add(at+"/limits", "must be at most %d limits", MaxLimits)
		return
	}
	for i, l := range p.Limits {
		here := at + "/limits/" + strconv.Itoa(i)
		if first := slices.IndexFunc(p.Limits, func(o enforcement.Limit) bool { return o.Name == l.Name }); first < i {
			f.Add(here+"/name", "is the name of limit %d already", first)
		}
		limitFaults(f, here, l)
	}
}

func matchFaults(f *problem.Fields, at string, m Match) {
	if len(m.Methods) > MaxMethods {
		f.Add(at+"/methods", "must be at most %d methods", MaxMethods)
	} else {
		for i, name := range m.Methods {
			here := at + "/methods/" + strconv.Itoa(i)
			switch {
			case !methodToken(name):
				f.Add(here, "must be an HTTP method of 1 to %d characters, like GET", maxMethod)
			case slices.Index(m.Methods, name) < i:
				f.Add(here, "%s is named twice", name)
			}
		}
	}
	if len(m.Path) > maxPath {
		f.Add(at+"/path", "must be at most %d bytes", maxPath)
	} else if _, err := enforcement.ParsePattern(m.Path); err != nil {
		f.Add(at+"/path", "%v", err)
	}
	if len(m.Attributes) > MaxAttributes {
		f.Add(at+"/attributes", "must be at most %d attributes", MaxAttributes)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		here := at + "/attributes/" + problem.Escape(name)
		if fault := attributeNameFault(name); fault != "" {
			f.Add(here, "%s", fault)
			continue
		}
		value := m.Attributes[name]
		_, isIP := canonicalIP(value)
		switch {
		case name == countByIPNet:
			f.Add(here, "ip/64 is for count_by; a match on ip takes one whole address")
		case value == "" || len(value) > maxAttrValue:
			f.Add(here, "must be 1 to %d bytes; an empty value is a missing one", maxAttrValue)
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			f.Add(here, "must be valid UTF-8 without NUL")
		case name == attributeIP && !isIP:
			f.Add(here, "must be an IP address without port, prefix length or zone")
		}
	}
}

func countByFaults(f *problem.Fields, at string, names []string) {
	if len(names) > MaxCountBy {
		f.Add(at, "must be at most %d attributes", MaxCountBy)
		return
	}
	for i, name := range names {
		here := at + "/" + strconv.Itoa(i)
		fault := attributeNameFault(name)
		switch {
		case fault != "":
			f.Add(here, "%s", fault)
		case slices.Index(names, name) < i:
			f.Add(here, "is named twice")
		case name == countByIPNet && slices.Contains(names, attributeIP):
			f.Add(here, "must be ip or ip/64, not both")
		case strings.HasPrefix(name, "ip/") && name != countByIPNet:
			f.Add(here, "must be ip or ip/64: other prefix lengths are not supported")
		}
	}
}

func attributeNameFault(name string) string {
	switch {
	case name == "" || len(name) > maxAttrName:
		return "an attribute's name must be 1 to " + strconv.Itoa(maxAttrName) + " bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "an attribute's name must be valid UTF-8 without control characters"
	}
	return ""
}

func limitFaults(f *problem.Fields, at string, l enforcement.Limit) {
	if !limitName(l.Name) {
		f.Add(at+"/name", "must be 1 to %d lower-case letters, digits and hyphens", maxLimitName)
	}
	known := l.Algorithm >= enforcement.FixedWindow && l.Algorithm <= enforcement.GCRA
	if !known {
		f.Add(at+"/algorithm", "%s", algorithmFault(""))
	}
	if l.Quota < 0 || l.Quota > enforcement.MaxQuota {
		f.Add(at+"/quota", "must be 0 to %d", int64(enforcement.MaxQuota))
	} else if l.Algorithm == enforcement.SlidingWindowLog && l.Quota > enforcement.MaxLog {
		f.Add(at+"/quota", "a sliding_window_log keeps every request and takes at most %d; use sliding_window_counter for more", enforcement.MaxLog)
	}
	if text := enforcement.FormatWindow(l.Window); l.Window < enforcement.MinWindow || l.Window > enforcement.MaxWindow {
		f.Add(at+"/window", "must be from %s to %s", enforcement.FormatWindow(enforcement.MinWindow), enforcement.FormatWindow(enforcement.MaxWindow))
	} else if exact, err := enforcement.ParseWindow(text); err != nil || exact != l.Window {
		f.Add(at+"/window", "must be a whole number of ms, s, m, h or d, of at most ten digits")
	}
	if !known {
		return // whether burst and anchor fit depends on it
	}
	switch {
	case l.Burst != 0 && !l.Algorithm.Bucket():
		f.Add(at+"/burst", "%s", burstMisplaced)
	case l.Burst < 0 || l.Burst > enforcement.MaxQuota:
		f.Add(at+"/burst", "%s", burstRange)
	}
	switch {
	case l.Anchor != enforcement.FirstHit && !l.Algorithm.Windowed():
		f.Add(at+"/anchor", "%s", anchorMisplaced)
	case l.Anchor > enforcement.Clock:
		f.Add(at+"/anchor", "%s", anchorUnknown)
	}
}

const (
	burstMisplaced  = "only token_bucket and gcra have a burst"
	burstRange      = "must be 1 to 1000000000000; without it, it is the quota"
	anchorMisplaced = "only fixed_window and sliding_window_counter have an anchor"
	anchorUnknown   = "must be first_hit or clock"
)

// algorithmFault says what is wrong with the name of an unknown algorithm.
func algorithmFault(name string) string {
	const known = "must be fixed_window, sliding_window_log, sliding_window_counter, token_bucket or gcra"
	if name == "leaky_bucket" || name == "concurrency" {
		return name + " is not supported yet: " + known
	}
	return known
}

func replacesFaults(f *problem.Fields, at string, p Policy, place map[string]int) {
	if len(p.Replaces) > MaxPolicies {
		f.Add(at, "must be at most %d slugs", MaxPolicies)
		return
	}
	seen := make(map[string]bool, len(p.Replaces))
	for i, slug := range p.Replaces {
		here := at + "/" + strconv.Itoa(i)
		_, known := place[slug]
		switch {
		case slug == p.Slug:
			f.Add(here, "a policy cannot replace itself")
		case !known:
			f.Add(here, "there is no policy with this slug in the plan")
		case seen[slug]:
			f.Add(here, "is named twice")
		}
		seen[slug] = true
	}
}

// cycleFaults notes each cycle of replaces once, at the policy where it closes
// in the order of the plan. Self-references are replacesFaults' matter.
func cycleFaults(f *problem.Fields, policies []Policy, place map[string]int) {
	const fresh, open, done = 0, 1, 2
	state := make([]int, len(policies))
	var path []string
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		path = append(path, policies[i].Slug)
		closed := false
		for _, slug := range policies[i].Replaces {
			next, known := place[slug]
			if !known || next == i {
				continue
			}
			switch state[next] {
			case fresh:
				visit(next)
			case open:
				cycle := append(path[slices.Index(path, slug):len(path):len(path)], slug)
				f.Add("/policies/"+strconv.Itoa(i)+"/replaces", "the policies replace one another in a circle: %s", strings.Join(cycle, " → "))
				closed = true
			}
			if closed { // one circle a policy is enough to see
				break
			}
		}
		path = path[:len(path)-1]
		state[i] = done
	}
	for i, p := range policies {
		if state[i] == fresh && place[p.Slug] == i {
			visit(i)
		}
	}
}

// limitName reports whether s is of the form [a-z0-9-]{1,32}.
func limitName(s string) bool {
	return s != "" && len(s) <= maxLimitName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// methodToken reports whether s is a token of RFC 9110 without lower-case
// letters: methods are case-sensitive, and all that exist are upper case.
func methodToken(s string) bool {
	if s == "" || len(s) > maxMethod {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}
