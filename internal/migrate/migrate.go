// Package migrate converts the rate limits of other products to plans.
//
// Read returns plans in the form that headgate apply reads. It also returns a Note for each line of
// the input that a plan cannot express. The package does not validate the plans; the server does.
package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Configuration is the content of a file that headgate apply reads.
type Configuration struct {
	Plans   map[string]Plan   `json:"plans"`
	Tenants map[string]Tenant `json:"tenants,omitempty"`
}

// A Tenant is a tenant of a configuration.
type Tenant struct {
	Name string `json:"name"`
	Plan string `json:"plan"`
}

// A Plan is the document of a plan.
type Plan struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Policies    []Policy `json:"policies"`
}

// A Policy is one policy of a plan. Its description names the line of the input from which it
// was made.
type Policy struct {
	Slug        string   `json:"slug"`
	Description string   `json:"description,omitempty"`
	Match       *Match   `json:"match,omitempty"`
	CountBy     []string `json:"count_by,omitempty"`
	Missing     string   `json:"missing,omitempty"`
	Replaces    []string `json:"replaces,omitempty"`
	Mode        string   `json:"mode,omitempty"`
	OnFailure   string   `json:"on_failure,omitempty"`
	Limits      []Limit  `json:"limits"`
}

// A Match selects the requests to which a policy applies.
type Match struct {
	Methods    []string          `json:"methods,omitempty"`
	Path       string            `json:"path,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// A Limit is one limit of a policy.
type Limit struct {
	Name      string `json:"name,omitempty"`
	Algorithm string `json:"algorithm"`
	Quota     int64  `json:"quota"`
	Window    string `json:"window"`
	Burst     int64  `json:"burst,omitempty"`
	Anchor    string `json:"anchor,omitempty"`
}

// A Note says which part of an input line is missing in the plans, or has another form there.
type Note struct {
	File string
	Line int
	Text string
}

func (n Note) String() string { return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text) }

// readers contains the reader of each format.
var readers = map[string]func(*reader, []byte) error{
	"envoy": (*reader).envoy,
	"kong":  (*reader).kong,
	"aws":   (*reader).aws,
	"nginx": (*reader).nginx,
}

// Read converts the text of a file in the given format. file is the name of the file, for
// notes. If plan is not "", all policies are put into one plan with this slug.
func Read(format, file, plan string, text []byte) (Configuration, []Note, error) {
	r := &reader{file: file, plans: map[string]Plan{}}
	read, ok := readers[format]
	if !ok {
		formats := strings.Join(slices.Sorted(maps.Keys(readers)), ", ")
		return Configuration{}, nil, fmt.Errorf("unknown format %q: must be one of %s", format, formats)
	}
	if err := read(r, text); err != nil {
		return Configuration{}, nil, fmt.Errorf("%s: %w", r.file, err)
	}
	for slug, p := range r.plans {
		if len(p.Policies) == 0 {
			delete(r.plans, slug)
		}
	}
	if len(r.plans) == 0 {
		return Configuration{}, r.notes, fmt.Errorf("%s: found no rate limit of %s that a plan can express", file, format)
	}
	if plan != "" {
		if len(r.plans) > 1 {
			return Configuration{}, nil, fmt.Errorf("%s: has %d plans, so they cannot all have the slug %s", file, len(r.plans), plan)
		}
		for slug, p := range r.plans {
			delete(r.plans, slug)
			r.plans[plan] = p
		}
	}
	slices.SortFunc(r.notes, func(a, b Note) int {
		return cmp.Or(slices.Index(r.files, a.File)-slices.Index(r.files, b.File), a.Line-b.Line, strings.Compare(a.Text, b.Text))
	})
	return Configuration{Plans: r.plans}, slices.Compact(r.notes), nil
}

// A reader collects plans and notes while it reads a file.
type reader struct {
	file  string   // name of the file; for the output of nginx -T, the name of the file whose lines are being read
	files []string // only for the output of nginx -T: the names of its files, in order
	plans map[string]Plan
	notes []Note
}

func (r *reader) note(line int, format string, args ...any) {
	r.notes = append(r.notes, Note{r.file, line, fmt.Sprintf(format, args...)})
}

// from returns a description for a policy. It names the line of the input from which the policy
// was made.
func (r *reader) from(line int) string { return fmt.Sprintf("From %s:%d.", r.file, line) }

// A slugs returns slugs that are unique within a plan or a configuration. It remembers each slug
// that it has returned.
type slugs map[string]bool

var (
	notInSlug = regexp.MustCompile(`[^a-z0-9]+`)
	uuidForm  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// of returns a slug that consists of the parts of a name. If it has returned this slug before,
// it appends a number.
func (s slugs) of(parts ...string) string {
	const most = 56 // a slug has at most 64 characters, so there is room for a number
	slug := strings.Trim(notInSlug.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-"), "-")
	if len(slug) > most {
		slug = strings.TrimRight(slug[:most], "-")
	}
	if slug == "" || uuidForm.MatchString(slug) {
		slug = strings.TrimRight("limit-"+slug, "-")
	}
	unique := slug
	for n := 2; s[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", slug, n)
	}
	s[unique] = true
	return unique
}

// withExemptions handles policies in mode shadow that replace other policies. In Headgate, a policy
// in mode shadow replaces nothing. For each of them, withExemptions adds an enforced policy that
// has no limits and replaces the same policies.
func withExemptions(list []Policy, s slugs) []Policy {
	var out []Policy
	for _, p := range list {
		if p.Mode == "shadow" && len(p.Replaces) > 0 {
			out = append(out, Policy{
				Slug: s.of(p.Slug, "exempt"), Description: p.Description, Match: p.Match, Replaces: p.Replaces, Limits: []Limit{},
			})
			p.Replaces = nil
		}
		out = append(out, p)
	}
	return out
}

// orNil returns a pointer to the match, or nil if the match selects all requests.
func (m Match) orNil() *Match {
	if len(m.Methods) == 0 && m.Path == "" && len(m.Attributes) == 0 {
		return nil
	}
	return &m
}

// prefixed returns the path pattern for all paths with this prefix.
func prefixed(prefix string) string {
	if prefix = strings.TrimRight(prefix, "/"); prefix == "" {
		return ""
	}
	return prefix + "/*"
}

// patternCharacters are the characters with a special meaning in a path pattern. A literal path
// that contains one of them cannot be written as a pattern.
const patternCharacters = "{}*"

// documents returns the YAML or JSON documents that a text contains.
func documents(text []byte) ([]*yaml.Node, error) {
	var list []*yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		switch {
		case errors.Is(err, io.EOF) && len(list) == 0:
			return nil, errors.New("is empty")
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		}
		if root := resolve(n.Content[0]); root.Kind == yaml.MappingNode {
			list = append(list, root)
		} else {
			return nil, fmt.Errorf("line %d: must be an object", root.Line)
		}
	}
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// members iterates over the names and values of the members of an object.
func members(n *yaml.Node) func(yield func(name, value *yaml.Node) bool) {
	return func(yield func(name, value *yaml.Node) bool) {
		if n = resolve(n); n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], resolve(n.Content[i+1])) {
				return
			}
		}
	}
}

// member returns the value of a member of an object. If there is none, or if it is null, it
// returns nil.
func member(n *yaml.Node, name string) *yaml.Node {
	for k, v := range members(n) {
		if k.Value == name && v.Tag != "!!null" {
			return v
		}
	}
	return nil
}

// text returns a member of an object as text. If there is none, or if it is not a scalar, it
// returns "".
func text(n *yaml.Node, name string) string {
	if v := member(n, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// items returns the elements of a member that is a list. If the member is not a list, it counts
// as a list with one element.
func items(n *yaml.Node, name string) []*yaml.Node {
	v := member(n, name)
	switch {
	case v == nil:
		return nil
	case v.Kind != yaml.SequenceNode:
		return []*yaml.Node{v}
	}
	list := make([]*yaml.Node, len(v.Content))
	for i := range v.Content {
		list[i] = resolve(v.Content[i])
	}
	return list
}

// line returns the line of the member of an object. If the object has no such member, line returns
// the line of the object.
func line(n *yaml.Node, name string) int {
	for k := range members(n) {
		if k.Value == name {
			return k.Line
		}
	}
	return n.Line
}

// quota returns a node as a number of requests. It returns an error if the node is not an
// integer from 0 to 10^12.
func quota(n *yaml.Node) (int64, error) {
	var v float64
	if err := n.Decode(&v); err != nil || v < 0 || v > 1e12 || v != float64(int64(v)) {
		return 0, fmt.Errorf("line %d: %q is not a number of requests from 0 to 1000000000000", n.Line, n.Value)
	}
	return int64(v), nil
}
