package migrate

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kongPeriods are the periods of the plugin rate-limiting. Each has the window and the anchor that
// correspond to it. Periods of a second, minute or hour begin at multiples of the period. The other
// periods begin with the day, month or year of the UTC calendar.
var kongPeriods = []struct{ name, window, anchor string }{
	{"second", "1s", "clock"},
	{"minute", "1m", "clock"},
	{"hour", "1h", "clock"},
	{"day", "day", "calendar"},
	{"month", "month", "calendar"},
	{"year", "year", "calendar"},
}

// A scope says to which requests a plugin applies. A field that is "" does not restrict the
// requests.
type scope struct{ service, route, consumer, group string }

// rank returns the position of the scope in Kong's order of precedence. If several plugins
// apply to a request, Kong runs the one with the lowest rank.
func (s scope) rank() int {
	type parts struct{ consumer, group, route, service bool }
	order := []parts{
		{consumer: true, route: true, service: true},
		{group: true, route: true, service: true},
		{consumer: true, route: true},
		{consumer: true, service: true},
		{group: true, route: true},
		{group: true, service: true},
		{route: true, service: true},
		{consumer: true},
		{group: true},
		{route: true},
		{service: true},
	}
	for i, p := range order {
		if p == (parts{s.consumer != "", s.group != "", s.route != "", s.service != ""}) {
			return i
		}
	}
	return len(order)
}

// A plugin is one use of a rate-limiting plugin in a Kong configuration.
type plugin struct {
	node   *yaml.Node
	name   string
	scope  scope
	policy Policy
}

// A route is a route of Kong.
type route struct {
	node           *yaml.Node
	service        string
	paths, methods []string
}

// kongFile reads one declarative configuration of Kong.
type kongFile struct {
	*reader
	slugs   slugs
	configs *yaml.Node // _plugin_configs
	routes  map[string]route
	plugins []*plugin
}

// kong reads a declarative configuration of Kong, such as decK writes.
func (r *reader) kong(content []byte) error {
	roots, err := documents(content)
	if err != nil {
		return err
	}
	k := kongFile{reader: r, slugs: slugs{}, routes: map[string]route{}}
	for _, root := range roots {
		if text(root, "_format_version") == "" {
			return fmt.Errorf("line %d: has no _format_version: is it a declarative configuration of Kong?", root.Line)
		}
		k.configs = member(root, "_plugin_configs")
		k.collect(root)
	}
	for _, p := range k.plugins {
		if err := k.convert(p); err != nil {
			return err
		}
	}
	r.plans["kong"] = Plan{Name: "Kong", Description: "Imported from " + r.file + ".", Policies: k.policies()}
	return nil
}

// collect finds the routes and the plugins of a file.
func (k *kongFile) collect(root *yaml.Node) {
	for _, s := range items(root, "services") {
		name := text(s, "name")
		k.addPlugins(s, scope{service: name})
		for _, r := range items(s, "routes") {
			k.addRoute(r, name)
		}
	}
	for _, r := range items(root, "routes") {
		k.addRoute(r, reference(r, "service"))
	}
	for _, c := range items(root, "consumers") {
		k.addPlugins(c, scope{consumer: text(c, "username")})
	}
	for _, g := range items(root, "consumer_groups") {
		k.addPlugins(g, scope{group: text(g, "name")})
	}
	k.addPlugins(root, scope{})
}

func (k *kongFile) addRoute(n *yaml.Node, service string) {
	r := route{node: n, service: service}
	for _, p := range items(n, "paths") {
		r.paths = append(r.paths, p.Value)
	}
	for _, m := range items(n, "methods") {
		r.methods = append(r.methods, m.Value)
	}
	name := text(n, "name")
	if name == "" {
		name = fmt.Sprintf("route-%d", n.Line)
	}
	k.routes[name] = r
	k.addPlugins(n, scope{route: name})
}

// reference returns the name of the object to which a member of n refers. The member is a text,
// or an object with a name, a username or an ID.
func reference(n *yaml.Node, name string) string {
	v := member(n, name)
	for _, field := range []string{"name", "username", "id"} {
		if s := text(v, field); s != "" {
			return s
		}
	}
	return text(n, name)
}

// addPlugins adds the rate-limiting plugins of the object n. s is the scope of the object. A plugin
// can restrict its own scope further.
func (k *kongFile) addPlugins(n *yaml.Node, s scope) {
	for _, p := range items(n, "plugins") {
		at := s
		for field, target := range map[string]*string{
			"service": &at.service, "route": &at.route, "consumer": &at.consumer, "consumer_group": &at.group,
		} {
			if name := reference(p, field); name != "" {
				*target = name
			}
		}
		name := text(p, "name")
		if name != "rate-limiting" && name != "rate-limiting-advanced" {
			k.note(p.Line, "plugin %s is not a rate limit that a plan can express", name)
			continue
		}
		k.plugins = append(k.plugins, &plugin{node: p, name: name, scope: at})
	}
}

// config returns the settings of a plugin. The field _config of a plugin may name shared settings.
// The plugin's own settings have precedence over shared settings.
func (k *kongFile) config(p *plugin) map[string]*yaml.Node {
	settings := map[string]*yaml.Node{}
	for _, from := range []*yaml.Node{member(k.configs, text(p.node, "_config")), member(p.node, "config")} {
		for name, value := range members(from) {
			if value.Tag != "!!null" {
				settings[name.Value] = value
			}
		}
	}
	return settings
}

// kongElsewhere contains settings of Kong that no policy can express. For each of them, it says
// what Headgate has instead.
var kongElsewhere = map[string]string{
	"hide_client_headers":     "the setting HEADGATE_HEADERS selects the headers",
	"error_code":              "the gateway selects the status of a denied request",
	"error_message":           "the gateway writes the answer to a denied request",
	"sync_rate":               "nodes share counters in Redis at once",
	"retry_after_jitter_max":  "Retry-After is exact",
	"disable_penalty":         "a denied request is never counted",
	"enforce_consumer_groups": "put the plugin on the consumer group",
	"consumer_groups":         "put the plugin on the consumer group",
}

// kongCarried contains the settings of Kong that need no note: those that convert reads, and those
// of Kong's own storage.
var kongCarried = map[string]bool{
	"second": true, "minute": true, "hour": true, "day": true, "month": true, "year": true, "limit": true, "window_size": true,
	"window_type": true, "limit_by": true, "identifier": true, "header_name": true, "path": true, "fault_tolerant": true,
	"policy": true, "strategy": true, "redis": true, "namespace": true, "dictionary_name": true, "lock_dictionary_name": true,
}

// convert sets the policy that corresponds to a plugin.
func (k *kongFile) convert(p *plugin) error {
	settings := k.config(p)
	p.policy = Policy{Description: k.from(p.node.Line), Match: k.match(p), Limits: []Limit{}}
	if text(p.node, "enabled") == "false" {
		p.policy.Mode = "off"
	}
	for name, v := range settings {
		why, known := kongElsewhere[name]
		switch {
		case known && !(name == "hide_client_headers" && v.Value == "false"):
			k.note(v.Line, "%s is not carried over: %s", name, why)
		case !known && !kongCarried[name] && !strings.HasPrefix(name, "redis_"):
			k.note(v.Line, "%s is not carried over", name)
		}
	}
	k.countBy(p, settings)
	parts := []string{p.scope.consumer, p.scope.group, p.scope.service, p.scope.route}
	if strings.Join(parts, "") == "" {
		parts = []string{"global"}
	}
	p.policy.Slug = k.slugs.of(parts...)
	if p.name == "rate-limiting" {
		p.policy.OnFailure = "open" // the default of Kong, where fault_tolerant is true
		if v := settings["fault_tolerant"]; v != nil && v.Value == "false" {
			p.policy.OnFailure = "closed"
		}
		return k.periods(p, settings)
	}
	return k.windows(p, settings)
}

// countBy sets the attribute by which the policy of a plugin counts.
func (k *kongFile) countBy(p *plugin, settings map[string]*yaml.Node) {
	value := func(name string) string {
		if v := settings[name]; v != nil {
			return v.Value
		}
		return ""
	}
	by, line := value("limit_by"), p.node.Line
	if p.name == "rate-limiting-advanced" {
		by = value("identifier")
	}
	switch by {
	case "", "consumer", "credential":
		if by == "" {
			by = "consumer"
		}
		p.policy.CountBy = []string{by}
		if p.scope.consumer == "" {
			k.note(line, "requests without a %s share one counter; Kong counts them by address", by)
		}
	case "consumer-group":
		p.policy.CountBy = []string{"consumer_group"}
	case "ip":
		p.policy.CountBy = []string{"ip"}
	case "service":
		if p.scope.service == "" {
			p.policy.CountBy = []string{"service"}
		}
	case "header":
		p.policy.CountBy = []string{strings.ToLower(value("header_name"))}
	case "path":
		if p.policy.Match == nil {
			p.policy.Match = &Match{}
		}
		if p.policy.Match.Path != "" && p.policy.Match.Path != value("path") {
			k.note(line, "path %s replaces the path %s of the route", value("path"), p.policy.Match.Path)
		}
		p.policy.Match.Path = value("path")
	default:
		p.policy.CountBy = []string{by}
		k.note(line, "counting by %s is unknown: checks must have the attribute %s", by, by)
	}
}

// match returns the requests to which a plugin applies, as the Match of its policy. If a route has
// one literal path, the Match has this path. For another route or a service, the Match has an
// attribute, so that all requests of the route or service share counters.
func (k *kongFile) match(p *plugin) *Match {
	m := Match{Attributes: map[string]string{}}
	if p.scope.consumer != "" {
		m.Attributes["consumer"] = p.scope.consumer
	}
	if p.scope.group != "" {
		m.Attributes["consumer_group"] = p.scope.group
	}
	var only []route
	for name, r := range k.routes {
		if p.scope.route != "" && name == p.scope.route || p.scope.route == "" && p.scope.service != "" && r.service == p.scope.service {
			only = append(only, r)
		}
	}
	switch {
	case p.scope.route == "" && p.scope.service == "":
	case len(only) == 1 && len(only[0].paths) == 1 && strings.HasPrefix(only[0].paths[0], "/") &&
		!strings.ContainsAny(only[0].paths[0], patternCharacters):
		r := only[0]
		m.Path, m.Methods = prefixed(r.paths[0]), r.methods
		for _, condition := range []string{"hosts", "headers", "snis", "sources", "destinations"} {
			if len(items(r.node, condition)) > 0 {
				k.note(line(r.node, condition), "%s: the policy %s compares the path and the methods only", condition, m.Path)
			}
		}
	case p.scope.route != "":
		m.Attributes["route"] = p.scope.route
		k.note(p.node.Line, "route %s has no single literal path: checks must have the attribute route", p.scope.route)
	default:
		m.Attributes["service"] = p.scope.service
		k.note(p.node.Line, "service %s has several paths: checks must have the attribute service", p.scope.service)
	}
	return m.orNil()
}

// periods sets the limits for a plugin rate-limiting.
func (k *kongFile) periods(p *plugin, settings map[string]*yaml.Node) error {
	for _, period := range kongPeriods {
		v := settings[period.name]
		if v == nil {
			continue
		}
		q, err := quota(v)
		if err != nil {
			return err
		}
		p.policy.Limits = append(p.policy.Limits, Limit{
			Name: period.name, Algorithm: "fixed_window", Quota: q, Window: period.window, Anchor: period.anchor,
		})
	}
	return nil
}

// windows sets the limits for a plugin rate-limiting-advanced.
func (k *kongFile) windows(p *plugin, settings map[string]*yaml.Node) error {
	list := func(name string) []*yaml.Node {
		v := settings[name]
		if v != nil && v.Kind == yaml.SequenceNode {
			return v.Content
		}
		if v != nil {
			return []*yaml.Node{v}
		}
		return nil
	}
	limits, sizes := list("limit"), list("window_size")
	if len(limits) != len(sizes) {
		return fmt.Errorf("line %d: limit has %d numbers, and window_size has %d", p.node.Line, len(limits), len(sizes))
	}
	algorithm := "sliding_window_counter"
	if v := settings["window_type"]; v != nil && v.Value == "fixed" {
		algorithm = "fixed_window"
	}
	for i := range limits {
		q, err := quota(limits[i])
		if err != nil {
			return err
		}
		seconds, err := strconv.Atoi(sizes[i].Value)
		if err != nil || seconds < 1 {
			return fmt.Errorf("line %d: window_size must be a number of seconds", sizes[i].Line)
		}
		p.policy.Limits = append(p.policy.Limits, Limit{Algorithm: algorithm, Quota: q, Window: fmt.Sprintf("%ds", seconds), Anchor: "clock"})
	}
	return nil
}

// policies returns the policies of all plugins. If several plugins with the same name apply to a
// request, Kong runs only the one with the most specific scope. Therefore the policy of this plugin
// replaces the policies of the others.
func (k *kongFile) policies() []Policy {
	var list []Policy
	for _, p := range k.plugins {
		if len(p.policy.Limits) == 0 {
			k.note(p.node.Line, "the plugin has no limit, so it is left out")
			continue
		}
		for _, o := range k.plugins {
			if o.name == p.name && len(o.policy.Limits) > 0 && p.policy.Mode == "" && o.policy.Mode == "" &&
				p.scope.rank() < o.scope.rank() && k.meet(p.scope, o.scope) {
				p.policy.Replaces = append(p.policy.Replaces, o.policy.Slug)
			}
		}
		list = append(list, p.policy)
	}
	return list
}

// meet reports whether a request can belong to both scopes.
func (k *kongFile) meet(a, b scope) bool {
	for _, s := range []*scope{&a, &b} {
		if s.service == "" {
			s.service = k.routes[s.route].service
		}
	}
	same := func(x, y string) bool { return x == "" || y == "" || x == y }
	return same(a.service, b.service) && same(a.route, b.route) && same(a.consumer, b.consumer) && same(a.group, b.group)
}
