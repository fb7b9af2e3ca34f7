package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// An Output has the flag for the format of standard output.
type Output struct {
	Format string `name:"output" short:"o" default:"table" enum:"table,json,yaml" help:"Format of the output: table, json or yaml."`
}

// print writes a JSON document in the selected format. For the format table, it calls table.
func (o Output) print(t Terminal, document []byte, table func(w io.Writer) error) error {
	switch o.Format {
	case "json":
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(document), "", "  "); err != nil {
			return fmt.Errorf("the answer is not JSON: %w", err)
		}
		b.WriteByte('\n')
		_, err := t.Stdout.Write(b.Bytes())
		return err
	case "yaml":
		text, err := toYAML(document)
		if err != nil {
			return err
		}
		_, err = t.Stdout.Write(text)
		return err
	}
	w := tabwriter.NewWriter(t.Stdout, 0, 0, 2, ' ', 0)
	if err := table(w); err != nil {
		return err
	}
	return w.Flush()
}

// A Column is a column of a table: a heading, and the path of the value in the JSON form of a row.
type Column struct {
	Title string
	Path  string // path of the value in a row: names of members, with dots between them
}

// Table prints the JSON form of v. In the table format, at is the name of a member of v that is an
// array, and each element of this array is a row. If at is "", v is the only row.
func (o Output) Table(t Terminal, v any, at string, columns ...Column) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.rows(t, document, at, columns...)
}

// Text prints the JSON form of v. In the table format, it prints text instead.
func (o Output) Text(t Terminal, v any, text string) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return o.print(t, document, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// rows writes a JSON document as a table. at is the name of a member of the document that is an
// array, and each element of this array is a row. If at is "", the document is the only row.
func (o Output) rows(t Terminal, document []byte, at string, columns ...Column) error {
	return o.print(t, document, func(w io.Writer) error {
		v, err := decode(document)
		if err != nil {
			return err
		}
		list := []any{v}
		if at != "" {
			list, _ = lookUp(v, at).([]any)
		}
		return writeTable(w, list, columns)
	})
}

// Lines returns a writer to which a command writes JSON documents, one in each line. The writer
// prints each document in the selected format: as a line of JSON, as a YAML document, or as the
// text that row returns.
func (o Output) Lines(t Terminal, row func(document json.RawMessage) (string, error)) io.Writer {
	return &lineWriter{output: o, terminal: t, row: row}
}

// A lineWriter is the writer that Lines returns.
type lineWriter struct {
	output   Output
	terminal Terminal
	row      func(json.RawMessage) (string, error)
	rest     []byte // the beginning of a line whose end has not been written yet
}

func (l *lineWriter) Write(text []byte) (int, error) {
	if l.output.Format == "json" {
		return l.terminal.Stdout.Write(text)
	}
	l.rest = append(l.rest, text...)
	for {
		line, rest, complete := bytes.Cut(l.rest, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		if err := l.line(line); err != nil {
			return 0, err
		}
		l.rest = rest
	}
}

func (l *lineWriter) line(document []byte) error {
	if l.output.Format == "yaml" {
		if _, err := fmt.Fprintln(l.terminal.Stdout, "---"); err != nil {
			return err
		}
		return l.output.print(l.terminal, document, nil)
	}
	text, err := l.row(document)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(l.terminal.Stdout, text)
	return err
}

func writeTable(w io.Writer, list []any, columns []Column) error {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.Title
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
	for _, row := range list {
		for i, c := range columns {
			cells[i] = cell(lookUp(row, c.Path))
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return nil
}

func decode(document []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	return v, nil
}

// lookUp returns the value in v at a path of member names that are separated by dots. If there is
// no such value, it returns nil.
func lookUp(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

// cell returns a JSON value as text for a cell of a table.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return plain(v)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		parts, between := make([]string, len(v)), ","
		for i := range v {
			if parts[i] = cell(v[i]); strings.Contains(parts[i], ",") {
				between = "; "
			}
		}
		if len(parts) == 0 {
			return "-"
		}
		return strings.Join(parts, between)
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, plain(name)+"="+cell(v[name]))
		}
		if len(parts) == 0 {
			return "-"
		}
		return strings.Join(parts, ",")
	}
	return plain(fmt.Sprint(v))
}

// plain replaces control characters in a text with escapes, so that they cannot control the
// terminal. Attribute values may contain control characters, because they come from the clients of
// a tenant.
func plain(text string) string {
	if text == "" {
		return "-"
	}
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// toYAML converts a JSON document to YAML. The members keep their order.
func toYAML(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	node, err := yamlNode(d)
	if err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// yamlNode reads one JSON value from d and returns it as YAML.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}, nil
	}
	switch token := token.(type) {
	case nil:
		return scalar("!!null", "null")
	case bool:
		return scalar("!!bool", strconv.FormatBool(token))
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(token.String(), ".eE") {
			tag = "!!float"
		}
		return scalar(tag, token.String())
	case string:
		n := new(yaml.Node)
		n.SetString(token)
		return n, nil
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if token == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for d.More() {
			child, err := yamlNode(d) // the child is a member name or a value
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := d.Token()
		return n, err
	}
	return nil, fmt.Errorf("unexpected %v", token)
}

// maxInput is the maximum size of an input in bytes.
const maxInput = 64 << 20

// readAll reads r to the end. It returns an error if r has more than maxInput bytes.
func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("has more than %d bytes", maxInput)
	}
	return text, err
}
