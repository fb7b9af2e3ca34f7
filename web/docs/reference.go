package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/web/views"
)

var methods = []string{"get", "post", "put", "patch", "delete"}

// parseReference reads openapi.yaml for the reference page, in the order of the file.
func parseReference(spec []byte) (views.Reference, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(spec, &document); err != nil {
		return views.Reference{}, err
	}
	if len(document.Content) == 0 {
		return views.Reference{}, fmt.Errorf("empty document")
	}
	s := specification{root: document.Content[0]}
	info := s.get(s.root, "info")
	r := views.Reference{Title: s.text(info, "title"), Version: s.text(info, "version"), Intro: views.Prose(s.text(info, "description"))}
	for _, tag := range s.list(s.root, "tags") {
		r.Groups = append(r.Groups, views.Group{Name: s.text(tag, "name"), Intro: views.Prose(s.text(tag, "description"))})
	}
	for path, item := range s.pairs(s.get(s.root, "paths")) {
		for method, node := range s.pairs(item) {
			if !slices.Contains(methods, method) {
				continue
			}
			group := r.GroupOf(s.first(node, "tags"))
			group.Operations = append(group.Operations, s.operation(path, method, item, node))
		}
	}
	r.Groups = slices.DeleteFunc(r.Groups, func(g views.Group) bool { return len(g.Operations) == 0 })
	for _, g := range r.Groups {
		// A reader runs the examples from top to bottom, and an example may use objects that an
		// earlier example created. Therefore deletions come last.
		slices.SortStableFunc(g.Operations, func(a, b views.Operation) int { return deletion(a) - deletion(b) })
	}
	export := s.get(s.get(s.get(s.root, "paths"), "/v1/configuration"), "get")
	for _, e := range s.response("200", s.get(s.get(export, "responses"), "200")).Examples {
		r.Setup = e.JSON
	}
	return r, nil
}

func deletion(op views.Operation) int {
	if op.Method == "DELETE" {
		return 1
	}
	return 0
}

// specification reads the YAML tree and resolves references.
type specification struct{ root *yaml.Node }

func (s specification) operation(path, method string, item, node *yaml.Node) views.Operation {
	op := views.Operation{
		ID:      s.text(node, "operationId"),
		Method:  strings.ToUpper(method),
		Path:    path,
		Summary: s.text(node, "summary"),
		Text:    views.Prose(s.text(node, "description")),
		Open:    s.open(node),
	}
	for _, p := range append(s.list(item, "parameters"), s.list(node, "parameters")...) {
		name := s.text(p, "name")
		op.Parameters = append(op.Parameters, views.Parameter{
			Name: name, In: s.text(p, "in"), Required: s.text(p, "required") == "true",
			Type: s.typeName(s.get(p, "schema")), Text: views.Prose(s.text(p, "description")),
			Example:  cmp.Or(s.text(s.get(node, "x-curl"), name), s.exampleText(p)),
			ServerID: s.text(s.get(p, "schema"), "format") == "uuid",
		})
	}
	if body := s.get(node, "requestBody"); body != nil {
		for mediaType, media := range s.pairs(s.get(body, "content")) {
			op.MediaType = mediaType
			op.Examples = s.examples(media)
			op.Fields = s.fields(s.get(media, "schema"), "", 0)
		}
	}
	for status, response := range s.pairs(s.get(node, "responses")) {
		op.Responses = append(op.Responses, s.response(status, response))
	}
	return op
}

func (s specification) response(status string, node *yaml.Node) views.Response {
	r := views.Response{Status: status, Text: views.Prose(s.text(node, "description"))}
	for name, header := range s.pairs(s.get(node, "headers")) {
		r.Headers = append(r.Headers, views.Parameter{Name: name, Text: views.Prose(s.text(header, "description"))})
	}
	for mediaType, media := range s.pairs(s.get(node, "content")) {
		for _, e := range s.examples(media) {
			e.MediaType = mediaType
			r.Examples = append(r.Examples, e)
		}
	}
	return r
}

// open reports whether an operation can be called without an API key.
func (s specification) open(node *yaml.Node) bool {
	security := s.get(node, "security")
	if security == nil {
		security = s.get(s.root, "security")
	}
	return security == nil || len(security.Content) == 0
}

// fields returns the properties of a schema, up to three levels deep. The name of a nested
// property has dots.
func (s specification) fields(schema *yaml.Node, prefix string, depth int) []views.Field {
	if schema == nil || depth > 2 {
		return nil
	}
	if items := s.get(schema, "items"); items != nil {
		return s.fields(items, prefix, depth)
	}
	var required []string
	for _, r := range s.list(schema, "required") {
		required = append(required, r.Value)
	}
	var out []views.Field
	for name, property := range s.pairs(s.get(schema, "properties")) {
		kind := s.typeName(property)
		out = append(out, views.Field{
			Name: prefix + name, Type: kind, Required: slices.Contains(required, name),
			Text: views.Prose(s.text(property, "description")),
		})
		child := prefix + name + "."
		if strings.HasPrefix(kind, "array") {
			child = prefix + name + "[]."
		}
		out = append(out, s.fields(property, child, depth+1)...)
	}
	return out
}

func (s specification) typeName(schema *yaml.Node) string {
	if schema == nil {
		return ""
	}
	kind := s.get(schema, "type")
	name := ""
	switch {
	case kind == nil:
	case kind.Kind == yaml.SequenceNode:
		parts := make([]string, len(kind.Content))
		for i, n := range kind.Content {
			parts[i] = n.Value
		}
		name = strings.Join(parts, " or ")
	default:
		name = kind.Value
	}
	if items := s.get(schema, "items"); items != nil {
		return "array of " + s.typeName(items)
	}
	if values := s.list(schema, "enum"); len(values) > 0 {
		parts := make([]string, len(values))
		for i, v := range values {
			parts[i] = v.Value
		}
		return strings.Join(parts, " | ")
	}
	if format := s.text(schema, "format"); format != "" {
		name += " (" + format + ")"
	}
	return name
}

// examples returns the examples of a media type as indented JSON.
func (s specification) examples(media *yaml.Node) []views.Example {
	if one := s.get(media, "example"); one != nil {
		return []views.Example{{JSON: s.json(one)}}
	}
	var out []views.Example
	for name, example := range s.pairs(s.get(media, "examples")) {
		title := s.text(example, "summary")
		title = cmp.Or(title, name)
		out = append(out, views.Example{Title: title, JSON: s.json(s.get(example, "value"))})
	}
	return out
}

func (s specification) exampleText(parameter *yaml.Node) string {
	if e := s.get(parameter, "example"); e != nil {
		return e.Value
	}
	for _, e := range s.pairs(s.get(parameter, "examples")) {
		if v := s.get(e, "value"); v != nil {
			return v.Value
		}
	}
	if e := s.get(s.get(parameter, "schema"), "example"); e != nil {
		return e.Value
	}
	return s.text(s.get(parameter, "schema"), "default")
}

// json returns a YAML value as indented JSON, with the members in the order of the file. If the
// value is a text, json returns the text itself.
func (s specification) json(node *yaml.Node) string {
	node = s.resolve(node)
	if node == nil {
		return ""
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!str" {
		return strings.TrimRight(node.Value, "\n")
	}
	var compact, indented bytes.Buffer
	s.writeJSON(&compact, node)
	if err := json.Indent(&indented, compact.Bytes(), "", "  "); err != nil {
		return compact.String()
	}
	return indented.String()
}

func (s specification) writeJSON(b *bytes.Buffer, node *yaml.Node) {
	node = s.resolve(node)
	switch node.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		first := true
		for name, value := range s.pairs(node) {
			if !first {
				b.WriteByte(',')
			}
			first = false
			writeText(b, name)
			b.WriteByte(':')
			s.writeJSON(b, value)
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, value := range node.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			s.writeJSON(b, value)
		}
		b.WriteByte(']')
	default:
		switch node.Tag {
		case "!!int", "!!float", "!!bool":
			b.WriteString(node.Value)
		case "!!null":
			b.WriteString("null")
		default:
			writeText(b, node.Value)
		}
	}
}

// writeText writes a JSON string without escapes for <, > and &, because the page escapes them.
func writeText(b *bytes.Buffer, text string) {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always encodes
	b.Truncate(b.Len() - 1)  // the newline
}

// resolve follows references and aliases.
func (s specification) resolve(node *yaml.Node) *yaml.Node {
	for range 16 {
		if node == nil {
			return nil
		}
		if node.Kind == yaml.AliasNode {
			node = node.Alias
			continue
		}
		ref := rawGet(node, "$ref")
		if ref == nil {
			return node
		}
		target := s.root
		for _, part := range strings.Split(strings.TrimPrefix(ref.Value, "#/"), "/") {
			target = rawGet(target, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
		node = target
	}
	return nil
}

func rawGet(node *yaml.Node, name string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

func (s specification) get(node *yaml.Node, name string) *yaml.Node {
	return s.resolve(rawGet(s.resolve(node), name))
}

func (s specification) text(node *yaml.Node, name string) string {
	if v := s.get(node, name); v != nil && v.Kind == yaml.ScalarNode {
		return strings.TrimSpace(v.Value)
	}
	return ""
}

func (s specification) list(node *yaml.Node, name string) []*yaml.Node {
	v := s.get(node, name)
	if v == nil || v.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, len(v.Content))
	for i, n := range v.Content {
		out[i] = s.resolve(n)
	}
	return out
}

func (s specification) first(node *yaml.Node, name string) string {
	if l := s.list(node, name); len(l) > 0 {
		return l[0].Value
	}
	return ""
}

// pairs returns an iterator over the keys and values of a YAML mapping, in the order of the
// file.
func (s specification) pairs(node *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		node := s.resolve(node)
		if node == nil || node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if !yield(node.Content[i].Value, s.resolve(node.Content[i+1])) {
				return
			}
		}
	}
}
