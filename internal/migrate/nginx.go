package migrate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A directive is one directive of an nginx configuration. block contains the directives in its
// braces, if it has any.
type directive struct {
	name  string
	args  []string
	file  string
	line  int
	block []directive
}

// A zone contains the parameters of a limit_req_zone directive.
type zone struct {
	countBy []string
	quota   int64
	window  string
}

// A place is a block that can contain limit_req directives: http, a server, or a location.
type place struct {
	prefix string // "" outside of locations
	exact  bool
	host   string
	limits []directive
	dryRun bool
}

// nginxFile reads a configuration of nginx.
type nginxFile struct {
	*reader
	slugs  slugs
	zones  map[string]zone
	used   map[string]int // number of limit_req directives that use a zone, by zone
	hosts  int            // number of server blocks that have a limit
	places []placed
	free   []freeLocation
}

// A freeLocation is a location without its own limit_req directive.
type freeLocation struct {
	place
	directive
}

// A placed contains the policies that were made from a place.
type placed struct {
	place
	policies []Policy
}

// nginx reads a configuration file of nginx, or the output of nginx -T.
func (r *reader) nginx(content []byte) error {
	file := r.file
	p := nginxParser{file: file, line: 1, text: string(content)}
	top, err := p.directives(false)
	if err != nil {
		r.file = p.file
		return fmt.Errorf("line %d: %w", p.line, err)
	}
	n := nginxFile{reader: r, slugs: slugs{}, zones: map[string]zone{}, used: map[string]int{}}
	err = walk(top, func(d directive) error {
		r.file = d.file
		if !slices.Contains(r.files, d.file) {
			r.files = append(r.files, d.file)
		}
		switch {
		case d.name == "limit_req_zone":
			return n.zone(d)
		case d.name == "limit_req":
			n.used[parameter(d, "zone")]++
		case d.name == "server" && len(d.block) > 0 && limited(d):
			n.hosts++
		case strings.HasPrefix(d.name, "limit_conn"):
			n.note(d.line, "%s: the number of concurrent connections is not a limit of a plan", d.name)
		case strings.HasPrefix(d.name, "limit_rate"):
			n.note(d.line, "%s: bandwidth is not a limit of a plan", d.name)
		case d.name == "limit_req_status", d.name == "limit_req_log_level":
			n.note(d.line, "%s is not carried over: the gateway selects the answer to a denied request", d.name)
		case d.name == "include" && !p.dump:
			n.note(d.line, "include %s is not read: nginx -T prints the whole configuration", strings.Join(d.args, " "))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := n.block(top, place{}); err != nil {
		return err
	}
	policies := n.policies()
	r.file = file
	r.plans["nginx"] = Plan{Name: "nginx", Description: "Imported from " + file + ".", Policies: policies}
	return nil
}

// walk calls visit for each directive in list and in the blocks of these directives. It stops
// at the first error.
func walk(list []directive, visit func(directive) error) error {
	for _, d := range list {
		if err := errors.Join(visit(d), walk(d.block, visit)); err != nil {
			return err
		}
	}
	return nil
}

// limited reports whether the block of d, or a block in it, has a limit_req directive.
func limited(d directive) bool {
	found := false
	_ = walk(d.block, func(d directive) error {
		found = found || d.name == "limit_req"
		return nil
	})
	return found
}

// parameter returns the value of the argument name=value of a directive, or "" if there is
// none.
func parameter(d directive, name string) string {
	for _, a := range d.args {
		if value, ok := strings.CutPrefix(a, name+"="); ok {
			return value
		}
	}
	return ""
}

var (
	rateForm     = regexp.MustCompile(`^(\d+)r/([sm])$`)
	variableForm = regexp.MustCompile(`\$\{?(\w+)\}?`)
)

// zone reads a directive of the form limit_req_zone KEY zone=NAME:SIZE rate=RATE.
func (n *nginxFile) zone(d directive) error {
	name, _, _ := strings.Cut(parameter(d, "zone"), ":")
	rate := rateForm.FindStringSubmatch(parameter(d, "rate"))
	if name == "" || rate == nil || len(d.args) < 3 {
		return fmt.Errorf("line %d: limit_req_zone needs a key, zone=NAME:SIZE and a rate like 10r/s", d.line)
	}
	quota, err := strconv.ParseInt(rate[1], 10, 40)
	if err != nil {
		return fmt.Errorf("line %d: rate: %w", d.line, err)
	}
	z := zone{quota: quota, window: "1" + rate[2]}
	for _, v := range variableForm.FindAllStringSubmatch(d.args[0], -1) {
		attribute := nginxAttribute(v[1])
		z.countBy = append(z.countBy, attribute)
		if attribute != "ip" {
			n.note(d.line, "key $%s: checks must have the attribute %s", v[1], attribute)
		}
	}
	if slices.Contains(d.args, "sync") {
		n.note(d.line, "sync is not carried over: nodes share counters in Redis")
	}
	n.zones[name] = z
	return nil
}

// nginxAttribute returns the attribute of checks that corresponds to a variable of nginx.
func nginxAttribute(variable string) string {
	switch variable {
	case "binary_remote_addr", "remote_addr", "realip_remote_addr":
		return "ip"
	case "host", "server_name", "http_host":
		return "host"
	}
	if header, ok := strings.CutPrefix(variable, "http_"); ok {
		return strings.ReplaceAll(header, "_", "-")
	}
	for _, prefix := range []string{"cookie_", "arg_", "jwt_claim_"} {
		if name, ok := strings.CutPrefix(variable, prefix); ok {
			return name
		}
	}
	return variable
}

// block reads the limits in a block and in the blocks inside it. at is the place of the block.
func (n *nginxFile) block(list []directive, at place) error {
	outer := at
	at.limits = nil
	for _, d := range list {
		switch d.name {
		case "limit_req":
			at.limits = append(at.limits, d)
		case "limit_req_dry_run":
			at.dryRun = slices.Equal(d.args, []string{"on"})
		}
	}
	if len(at.limits) > 0 {
		if err := n.add(at); err != nil {
			return err
		}
	} else {
		at.limits = outer.limits
	}
	for _, d := range list {
		if len(d.block) == 0 {
			continue
		}
		n.file = d.file
		inner := at
		switch d.name {
		case "server":
			if n.hosts > 1 {
				inner.host = n.serverName(d)
			}
		case "location":
			if !n.location(d, &inner) {
				continue
			}
		}
		if err := n.block(d.block, inner); err != nil {
			return err
		}
	}
	return nil
}

// serverName returns the first name of a server, or "" if the server has no name. It adds a
// note about the name.
func (n *nginxFile) serverName(server directive) string {
	for _, d := range server.block {
		if d.name == "server_name" && len(d.args) > 0 {
			n.note(d.line, "checks must have the attribute host, with the value %s for all names of this server", d.args[0])
			return d.args[0]
		}
	}
	if limited(server) {
		n.note(server.line, "the server has no name, so its limits apply to all hosts")
	}
	return ""
}

// location sets the path of at to the path of the location d. If no path pattern can express the
// location, it adds a note and returns false.
func (n *nginxFile) location(d directive, at *place) bool {
	kind, path := "", d.args[len(d.args)-1]
	if len(d.args) > 1 {
		kind = d.args[0]
	}
	if kind == "~" || kind == "~*" || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, patternCharacters) {
		if limited(d) {
			n.note(d.line, "location %s: a pattern cannot express it, so its limits are left out", strings.Join(d.args, " "))
		}
		return false
	}
	at.prefix, at.exact = path, kind == "="
	if !limited(d) {
		n.free = append(n.free, freeLocation{*at, d})
	}
	return true
}

// add adds the policies for the limits of a place.
func (n *nginxFile) add(at place) error {
	one := placed{place: at}
	for _, d := range at.limits {
		n.file = d.file
		name := parameter(d, "zone")
		z, ok := n.zones[name]
		if !ok {
			return fmt.Errorf("line %d: there is no limit_req_zone %q", d.line, name)
		}
		burst := int64(0)
		if text := parameter(d, "burst"); text != "" {
			var err error
			if burst, err = strconv.ParseInt(text, 10, 40); err != nil {
				return fmt.Errorf("line %d: burst: %w", d.line, err)
			}
		}
		if burst > 0 && !slices.Contains(d.args, "nodelay") {
			n.note(d.line, "zone %s: nginx delays requests of the burst; the policy allows them at once, as with nodelay", name)
		}
		if n.used[name] > 1 {
			n.note(d.line, "zone %s: nginx counts all places with this zone together; each policy counts by itself", name)
		}
		match := Match{}
		switch {
		case at.exact:
			match.Path = at.prefix
		case at.prefix != "":
			match.Path = prefixed(at.prefix)
		}
		if at.host != "" {
			match.Attributes = map[string]string{"host": at.host}
		}
		// The bucket of nginx has room for the burst and one more request. Requests with an
		// empty key are not limited.
		p := Policy{
			Slug: n.slugs.of(at.host, at.prefix, name), Description: n.from(d.line), Match: match.orNil(), CountBy: z.countBy, Missing: "skip",
			Limits: []Limit{{Name: "rate", Algorithm: "token_bucket", Quota: z.quota, Window: z.window, Burst: burst + 1}},
		}
		if len(p.CountBy) == 0 {
			p.Missing = ""
		}
		if at.dryRun {
			p.Mode = "shadow"
		}
		one.policies = append(one.policies, p)
	}
	n.places = append(n.places, one)
	return nil
}

// policies returns the policies of all places. In nginx, the limit_req directives of a block
// replace the directives of the blocks around it, and those of locations with a shorter prefix.
// Therefore the policies of the block replace the policies of these blocks and locations.
func (n *nginxFile) policies() []Policy {
	var list []Policy
	for _, f := range n.free {
		for _, p := range n.places {
			if p.prefix != "" && !p.exact && p.host == f.host && strings.HasPrefix(f.prefix, p.prefix) && f.prefix != p.prefix {
				n.file = f.file
				n.note(f.line, "location %s has no limit of its own, but the policies of location %s apply to it", f.prefix, p.prefix)
			}
		}
	}
	for _, p := range n.places {
		replaced := map[string]bool{}
		for _, o := range n.places {
			wider := !o.exact && (o.prefix != p.prefix || o.host != p.host)
			if wider && (o.host == "" || o.host == p.host) && strings.HasPrefix(p.prefix, o.prefix) {
				for _, policy := range o.policies {
					replaced[policy.Slug] = true
				}
			}
		}
		for _, policy := range p.policies {
			policy.Replaces = slices.Sorted(maps.Keys(replaced))
			list = append(list, policy)
		}
	}
	return withExemptions(list, n.slugs)
}
