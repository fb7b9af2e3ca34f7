package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// byHand lists operations that the SDKs implement by hand, or that no program calls.
var byHand = []string{"check", "checkBatch", "forwardAuth", "healthz", "livez", "readyz", "metrics", "openapi", "openapiJson", "docs"}

// A spec is the part of openapi.yaml that the generators need.
type spec struct {
	root       *yaml.Node
	schemas    []schema // the schemas that operations use, in the order of the file
	operations []operation
	requests   map[string]bool // names of the schemas that requests can contain
}

// A schema is a schema of openapi.yaml with its name. A schema inside another one is named
// after the place where it occurs.
type schema struct {
	name string
	node *yaml.Node
}

type operation struct {
	id, method, path, summary string
	pathParams                []parameter
	query                     []parameter
	ifMatch                   string // whether If-Match is needed: "", optional or required
	idempotent                bool   // the operation accepts Idempotency-Key
	body                      *yaml.Node
	bodyType                  string // media type of the body
	bodyRequired              bool
	answer                    *yaml.Node // schema of the response; nil if it has no body
	text                      bool       // the response is text, not JSON
}

type parameter struct {
	name, description string
	node              *yaml.Node
	required          bool
}

func load(file string) (*spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	s := &spec{root: document.Content[0], requests: map[string]bool{}}
	used := map[string]bool{}
	for path, item := range members(get(s.root, "paths")) {
		for method, node := range members(item) {
			if id := str(node, "operationId"); id != "" && !slices.Contains(byHand, id) {
				o, err := s.operation(id, method, path, item, node)
				if err != nil {
					return nil, err
				}
				s.operations = append(s.operations, o)
				s.reach(o.body, s.requests)
				s.reach(o.body, used)
				s.reach(o.answer, used)
				for _, p := range slices.Concat(o.query, o.pathParams) {
					s.reach(p.node, used)
					s.reach(p.node, s.requests)
				}
			}
		}
	}
	for name, node := range members(get(s.root, "components", "schemas")) {
		if used[name] {
			s.schemas = append(s.schemas, schema{name, node})
		}
	}
	return s, nil
}

func (s *spec) operation(id, method, path string, item, node *yaml.Node) (operation, error) {
	o := operation{id: id, method: strings.ToUpper(method), path: path, summary: str(node, "summary")}
	for _, list := range []*yaml.Node{get(item, "parameters"), get(node, "parameters")} {
		for _, p := range items(list) {
			p = s.follow(p)
			param := parameter{str(p, "name"), oneLine(str(p, "description")), get(p, "schema"), str(p, "required") == "true"}
			switch in := str(p, "in"); {
			case in == "path":
				o.pathParams = append(o.pathParams, param)
			case in == "query":
				o.query = append(o.query, param)
			case param.name == "If-Match":
				o.ifMatch = "optional"
				if param.required {
					o.ifMatch = "required"
				}
			case param.name == "Idempotency-Key":
				o.idempotent = true
			default:
				return o, fmt.Errorf("%s has the parameter %s in %s, which the generator does not know", id, param.name, in)
			}
		}
	}
	if body := s.follow(get(node, "requestBody")); body != nil {
		for media, content := range members(get(body, "content")) {
			o.bodyType, o.body = media, get(content, "schema")
			break
		}
		o.bodyRequired = str(body, "required") == "true"
	}
	for status, response := range members(get(node, "responses")) {
		if !strings.HasPrefix(status, "2") {
			continue
		}
		for media, content := range members(get(s.follow(response), "content")) {
			if media == "application/json" {
				o.answer, o.text = get(content, "schema"), false
				break
			}
			o.text = o.answer == nil
		}
		break
	}
	return o, nil
}

// follow returns the node that a $ref names, or the node itself.
func (s *spec) follow(node *yaml.Node) *yaml.Node {
	if ref := str(node, "$ref"); ref != "" {
		return s.follow(get(s.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
	}
	return node
}

// reach adds the names of all schemas that a schema refers to, directly or indirectly, to into.
func (s *spec) reach(node *yaml.Node, into map[string]bool) {
	if node == nil {
		return
	}
	if name := refName(node); name != "" {
		if into[name] {
			return
		}
		into[name] = true
		s.reach(s.follow(node), into)
	}
	for _, child := range node.Content {
		s.reach(child, into)
	}
}

func refName(node *yaml.Node) string {
	return strings.TrimPrefix(str(node, "$ref"), "#/components/schemas/")
}

// property is one member of an object.
type property struct {
	name, description  string
	node               *yaml.Node
	required, nullable bool
}

// properties returns the members of an object, including those of its allOf. For a oneOf, it
// returns the members of all alternatives. A member is required if all alternatives require it.
func (s *spec) properties(node *yaml.Node) []property {
	node = s.follow(node)
	var found []property
	add := func(list []property, optional bool) {
		for _, p := range list {
			p.required = p.required && !optional
			at := slices.IndexFunc(found, func(f property) bool { return f.name == p.name })
			if at < 0 {
				found = append(found, p)
				continue
			}
			found[at].required = found[at].required && p.required
			if str(p.node, "const") != str(found[at].node, "const") {
				found[at].node = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{scalar("type"), scalar(str(p.node, "type"))}}
			}
		}
	}
	for _, part := range items(get(node, "allOf")) {
		add(s.properties(part), false)
	}
	alternatives := items(get(node, "oneOf"))
	for _, alternative := range alternatives {
		mine := s.properties(alternative)
		for i := range found {
			found[i].required = found[i].required && slices.ContainsFunc(mine, func(p property) bool { return p.name == found[i].name })
		}
		if len(found) > 0 {
			for i, p := range mine {
				mine[i].required = p.required && slices.ContainsFunc(found, func(f property) bool { return f.name == p.name })
			}
		}
		add(mine, false)
	}
	var required []string
	for _, r := range items(get(node, "required")) {
		required = append(required, r.Value)
	}
	for name, p := range members(get(node, "properties")) {
		_, nullable := kind(s.follow(p))
		description := str(p, "description")
		if description == "" {
			description = str(s.follow(p), "description")
		}
		add([]property{{name, oneLine(description), p, slices.Contains(required, name), nullable}}, false)
	}
	return found
}

// kind returns the type of a schema, and whether it may be null.
func kind(node *yaml.Node) (string, bool) {
	t := get(node, "type")
	if t == nil {
		switch {
		case get(node, "properties") != nil || get(node, "allOf") != nil:
			return "object", false
		case get(node, "enum") != nil || get(node, "const") != nil:
			return "string", false
		}
		return "", false
	}
	if t.Kind == yaml.ScalarNode {
		return t.Value, false
	}
	name, null := "", false
	for _, item := range t.Content {
		if item.Value == "null" {
			null = true
		} else {
			name = item.Value
		}
	}
	return name, null
}

func enum(node *yaml.Node) []string {
	var values []string
	for _, v := range items(get(node, "enum")) {
		if v.Tag != "!!null" {
			values = append(values, v.Value)
		}
	}
	return values
}

func get(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		if node == nil || node.Kind != yaml.MappingNode {
			return nil
		}
		var next *yaml.Node
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				next = node.Content[i+1]
			}
		}
		node = next
	}
	return node
}

func str(node *yaml.Node, path ...string) string {
	if found := get(node, path...); found != nil && found.Kind == yaml.ScalarNode {
		return found.Value
	}
	return ""
}

func items(node *yaml.Node) []*yaml.Node {
	if node == nil || node.Kind != yaml.SequenceNode {
		return nil
	}
	return node.Content
}

// members returns an iterator over the members of a YAML mapping, in the order of the file.
func members(node *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if node == nil || node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if !yield(node.Content[i].Value, node.Content[i+1]) {
				return
			}
		}
	}
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// words splits a name in openapi.yaml, such as retry_after_ms or createTenant, into its words.
func words(name string) []string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r == '_' || r == '-' || r == '.' || r == '/' || r == ' ':
			b.WriteByte(' ')
		case i > 0 && r >= 'A' && r <= 'Z' && name[i-1] >= 'a' && name[i-1] <= 'z':
			b.WriteByte(' ')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return strings.Fields(strings.ToLower(b.String()))
}

func camel(name string, initialisms map[string]string) string {
	var b strings.Builder
	for _, word := range words(name) {
		if upper, ok := initialisms[word]; ok {
			b.WriteString(upper)
		} else {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

func snake(name string) string { return strings.Join(words(name), "_") }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
