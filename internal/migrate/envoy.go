package migrate

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// envoyUnits maps the unit of a rate limit to a window. In envoyproxy/ratelimit, windows begin
// at multiples of the unit since the epoch. A month has 30 days, and a year has 365.
var envoyUnits = map[string]string{
	"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "7d", "month": "30d", "year": "365d",
}

// An entry is a key and a value in a descriptor. value is "" if the descriptor has no value for the
// key.
type entry struct{ key, value string }

// A descriptor is a descriptor of the Envoy file that has a limit or an exemption from limits. Each
// descriptor becomes a policy.
type descriptor struct {
	path     []entry
	policy   Policy
	line     int
	name     string   // name of the limit, to which the field replaces of other descriptors refers; may be ""
	replaces []string // names of the limits that this limit replaces
}

// envoyDomain reads the descriptors of one domain.
type envoyDomain struct {
	*reader
	slugs slugs
	found []*descriptor
}

// envoy reads the configuration of envoyproxy/ratelimit.
func (r *reader) envoy(content []byte) error {
	roots, err := documents(content)
	if err != nil {
		return err
	}
	names := slugs{}
	for _, root := range roots {
		domain := text(root, "domain")
		if domain == "" {
			return fmt.Errorf("line %d: has no domain: is it a configuration of envoyproxy/ratelimit?", root.Line)
		}
		e := envoyDomain{reader: r, slugs: slugs{}}
		for k := range members(root) {
			if k.Value != "domain" && k.Value != "descriptors" {
				r.note(k.Line, "%s is unknown", k.Value)
			}
		}
		if err := e.descriptors(root, nil); err != nil {
			return err
		}
		r.plans[names.of(domain)] = Plan{
			Name: domain, Description: "Imported from " + r.file + ", domain " + domain + " of envoyproxy/ratelimit.", Policies: e.policies(),
		}
	}
	return nil
}

// descriptors reads the descriptors in the list of parent, and the descriptors below them. path
// contains the entries of parent.
func (e *envoyDomain) descriptors(parent *yaml.Node, path []entry) error {
	for _, n := range items(parent, "descriptors") {
		at := entry{text(n, "key"), text(n, "value")}
		if at.key == "" {
			return fmt.Errorf("line %d: the descriptor has no key", n.Line)
		}
		if strings.HasSuffix(at.value, "*") {
			e.note(line(n, "value"), "value %s: a policy compares whole values, so this descriptor and all below it are left out", at.value)
			continue
		}
		for _, before := range path {
			if before.key == at.key {
				e.note(n.Line, "key %s: a request has one value for each attribute, so this descriptor and all below it are left out", at.key)
				return nil
			}
		}
		here := append(append([]entry(nil), path...), at)
		if err := e.limit(n, here); err != nil {
			return err
		}
		if err := e.descriptors(n, here); err != nil {
			return err
		}
	}
	return nil
}

// limit reads the limit of a descriptor. If a descriptor has neither a limit nor descriptors
// below it, its requests are exempt from other limits.
func (e *envoyDomain) limit(n *yaml.Node, path []entry) error {
	limit := member(n, "rate_limit")
	d := &descriptor{path: path, line: n.Line}
	d.policy = Policy{Description: e.from(n.Line), Missing: "skip", Limits: []Limit{}}
	for k, v := range members(n) {
		switch k.Value {
		case "key", "value", "descriptors", "rate_limit":
		case "shadow_mode":
			if v.Value == "true" {
				d.policy.Mode = "shadow"
			}
		case "detailed_metric", "value_to_metric":
			e.note(k.Line, "%s: the dashboard counts the denials of each key without a setting", k.Value)
		default:
			e.note(k.Line, "%s is not carried over", k.Value)
		}
	}
	if limit == nil && len(items(n, "descriptors")) > 0 {
		return nil
	}
	if limit != nil && text(limit, "unlimited") != "true" {
		l, err := e.numbers(limit)
		if err != nil || l == nil {
			return err
		}
		d.policy.Limits = []Limit{*l}
	}
	for k := range members(limit) {
		switch k.Value {
		case "name", "unit", "requests_per_unit", "unlimited", "replaces":
		default:
			e.note(k.Line, "%s is not carried over", k.Value)
		}
	}
	d.name = text(limit, "name")
	for _, other := range items(limit, "replaces") {
		d.replaces = append(d.replaces, text(other, "name"))
	}
	e.found = append(e.found, d)
	return nil
}

// numbers returns the limit that corresponds to a rate_limit. If no limit can express the
// rate_limit, numbers adds a note and returns nil.
func (e *envoyDomain) numbers(limit *yaml.Node) (*Limit, error) {
	count := member(limit, "requests_per_unit")
	if count == nil {
		return nil, fmt.Errorf("line %d: rate_limit has no requests_per_unit", limit.Line)
	}
	q, err := quota(count)
	if err != nil {
		return nil, err
	}
	unit := strings.ToLower(text(limit, "unit"))
	window, ok := envoyUnits[unit]
	if !ok {
		e.note(line(limit, "unit"), "unit %q is unknown, so this limit is left out", unit)
		return nil, nil //nolint:nilnil // documented
	}
	return &Limit{Name: unit, Algorithm: "fixed_window", Quota: q, Window: window, Anchor: "clock"}, nil
}

// attribute returns the attribute of checks that corresponds to the key of an entry.
func (at entry) attribute() string {
	if at.key == "remote_address" {
		return "ip"
	}
	return at.key
}

// policies converts the descriptors of the domain to policies.
func (e *envoyDomain) policies() []Policy {
	for _, d := range e.found {
		match := Match{Attributes: map[string]string{}}
		parts := []string{d.name}
		for _, at := range d.path {
			if at.value != "" {
				match.Attributes[at.attribute()] = at.value
			} else {
				d.policy.CountBy = append(d.policy.CountBy, at.attribute())
			}
			if d.name == "" {
				parts = append(parts, at.key, at.value)
			}
		}
		if len(d.policy.CountBy) == 0 {
			d.policy.Missing = ""
		}
		d.policy.Match = match.orNil()
		d.policy.Slug = e.slugs.of(parts...)
	}
	var list []Policy
	for _, d := range e.found {
		for _, o := range e.found {
			named := d.replacesName(o.name)
			if o != d && (named || covers(o.path, d.path) && !o.replacesName(d.name)) {
				d.policy.Replaces = append(d.policy.Replaces, o.policy.Slug)
			}
			if len(o.path) > len(d.path) && len(d.policy.Limits) > 0 && samePath(o.path[:len(d.path)], d.path) {
				e.note(d.line, "Envoy applies this limit to descriptors that end with %s; the policy also applies to requests "+
					"with other attributes than those of the descriptors below it",
					d.path[len(d.path)-1].key)
			}
		}
		if len(d.policy.Limits) == 0 && len(d.policy.Replaces) == 0 {
			e.note(d.line, "no limit applies here, which needs no policy")
			continue
		}
		list = append(list, d.policy)
	}
	return withExemptions(list, e.slugs)
}

func samePath(a, b []entry) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// covers reports whether requests that match the path b also match the path a, because a is above b
// or has fewer values. Envoy applies only the limit of b to such requests.
func covers(a, b []entry) bool {
	if len(a) > len(b) {
		return false
	}
	for i := range a {
		if a[i].key != b[i].key || a[i].value != "" && a[i].value != b[i].value {
			return false
		}
	}
	return len(a) < len(b) || !samePath(a, b)
}

// replacesName reports whether the limit of a descriptor replaces the limit with the given name.
func (d *descriptor) replacesName(name string) bool {
	return name != "" && slices.Contains(d.replaces, name)
}
