package views

import (
	"fmt"
	"strings"
)

// An Error is the page for an error.
type Error struct {
	Status, Title, Text string
	RequestID           string // or ""
	Back, BackURL       string
}

// A Reference is the API reference.
type Reference struct {
	Title, Version string
	Intro          Prose
	Groups         []Group
	// Setup is the body of the first call in the reference. This call creates the objects that the
	// examples use.
	Setup  string
	origin string
}

// A Group has the operations that have one tag in openapi.yaml.
type Group struct {
	Name       string
	Intro      Prose
	Operations []Operation
}

// An Operation is one method on one path.
type Operation struct {
	ID, Method, Path, Summary string
	Text                      Prose
	Open                      bool // needs no key
	Parameters                []Parameter
	MediaType                 string
	Fields                    []Field
	Examples                  []Example
	Responses                 []Response
}

// A Parameter is a parameter of an operation, or a header of a response.
type Parameter struct {
	Name, In, Type, Example string
	Required                bool
	ServerID                bool // the server creates the value
	Text                    Prose
}

// A Field is a field of a body. The name of a nested field has dots.
type Field struct {
	Name, Type string
	Required   bool
	Text       Prose
}

// An Example is an example of a request or response body.
type Example struct{ Title, MediaType, JSON string }

// A Response is one status of an operation.
type Response struct {
	Status   string
	Text     Prose
	Headers  []Parameter
	Examples []Example
}

// GroupOf returns the group for a tag. If there is no such group, it adds one.
func (r *Reference) GroupOf(name string) *Group {
	for i := range r.Groups {
		if r.Groups[i].Name == name {
			return &r.Groups[i]
		}
	}
	r.Groups = append(r.Groups, Group{Name: name})
	return &r.Groups[len(r.Groups)-1]
}

// At returns a copy of the reference in which the examples use the server at origin.
func (r Reference) At(origin string) Reference {
	r.origin = origin
	return r
}

// SetupCurl returns a curl command that creates the objects that the examples use.
func (r Reference) SetupCurl() string {
	return r.Curl(Operation{
		Method: "POST", Path: "/v1/configuration/apply", MediaType: "application/json", Examples: []Example{{JSON: r.Setup}},
	})
}

// variable returns the shell variable that stands for a path parameter in the examples. It is for
// parameters whose values the server creates.
func (p Parameter) variable() string { return "$" + strings.ToUpper(p.Name) + "_ID" }

// Curl returns a curl command that calls an operation. The command reads the API key from the
// shell variable $HEADGATE_TOKEN.
func (r Reference) Curl(op Operation) string {
	var b strings.Builder
	b.WriteString("curl -i")
	if op.Method != "GET" && !(op.Method == "POST" && len(op.Examples) > 0) {
		b.WriteString(" -X " + op.Method)
	}
	path, query := op.Path, []string{}
	var headers []string
	for _, p := range op.Parameters {
		switch {
		case p.In == "path" && p.ServerID:
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.variable())
		case p.In == "path" && p.Example != "":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		case p.In == "query" && p.Required:
			query = append(query, p.Name+"="+p.Example)
		case p.In == "header" && p.Required:
			headers = append(headers, fmt.Sprintf("%s: %s", p.Name, p.Example))
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	address := quote(r.origin + path)
	if strings.Contains(path, "$") {
		address = `"` + r.origin + path + `"`
	}
	b.WriteString(" " + address)
	if !op.Open {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $HEADGATE_TOKEN\"")
	}
	for _, h := range headers {
		b.WriteString(" \\\n  -H " + quote(h))
	}
	if len(op.Examples) > 0 {
		b.WriteString(" \\\n  -H " + quote("Content-Type: "+op.MediaType))
		b.WriteString(" \\\n  -d " + quote(op.Examples[0].JSON))
	}
	return b.String()
}

// quote quotes a text for a POSIX shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Anchor returns the HTML ID of an operation on the page.
func (op Operation) Anchor() string { return "op-" + op.ID }

// Prose is a text with paragraphs, `code` and **strong** words. Its syntax is that of Markdown.
type Prose string

// A Span is a part of a paragraph with one style.
type Span struct {
	Text         string
	Code, Strong bool
}

// Paragraphs splits a text at empty lines into paragraphs, and each paragraph into parts with one
// style.
func (p Prose) Paragraphs() [][]Span {
	var out [][]Span
	for paragraph := range strings.SplitSeq(string(p), "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		var spans []Span
		for i, part := range strings.Split(paragraph, "`") {
			if i%2 == 1 {
				spans = append(spans, Span{Text: part, Code: true})
				continue
			}
			for k, run := range strings.Split(part, "**") {
				if run != "" {
					spans = append(spans, Span{Text: run, Strong: k%2 == 1})
				}
			}
		}
		out = append(out, spans)
	}
	return out
}
