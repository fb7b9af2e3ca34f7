package enforcement

import (
	"errors"
	"fmt"
	"strings"
)

// A Pattern matches the paths to which a policy applies. It consists of literal
// segments, {name} for any single segment, and optionally a final * for any further
// segments. For example, "/api/*" matches "/api", "/api/a" and "/api/a/b". "*" alone
// matches all paths, and also checks without a path. The zero Pattern is "*".
type Pattern struct {
	text     string   // "" for everything
	segments []string // "" for any one segment
	rest     bool     // ends with /*
}

// maxName is the maximum length of a name in braces, in bytes.
const maxName = 64

// ParsePattern parses a path pattern; "" stands for "*". It normalizes the literal
// segments in the same way as NormalizePath, so that all spellings of a path match.
func ParsePattern(pattern string) (Pattern, error) {
	if pattern == "" || pattern == "*" {
		return Pattern{}, nil
	}
	if pattern[0] != '/' {
		return Pattern{}, errors.New("must begin with /, or be * alone")
	}
	if strings.ContainsAny(pattern, "?#") {
		return Pattern{}, errors.New("has a query or a fragment, which no path has: write ? as %3F and # as %23")
	}
	text, err := normalize(pattern, true)
	if err != nil {
		return Pattern{}, err
	}
	p := Pattern{text: text}
	if text == "/" {
		return p, nil
	}
	p.segments = strings.Split(text[1:], "/")
	for i, segment := range p.segments {
		switch {
		case segment == "*":
			if i != len(p.segments)-1 {
				return Pattern{}, errors.New("has * before its end: write {name} for one segment")
			}
			p.segments, p.rest = p.segments[:i], true
		case strings.Contains(segment, "*"):
			return Pattern{}, fmt.Errorf("has * within the segment %q: it stands alone, at the end", segment)
		case strings.ContainsAny(segment, "{}"):
			if !variable(segment) {
				return Pattern{}, fmt.Errorf("has the segment %q: braces must enclose a whole segment, as in /{name}; "+
					"the name has letters, digits, _ and -", segment)
			}
			p.segments[i] = ""
		}
	}
	return p, nil
}

// variable reports whether a segment has the form {name} with a valid name.
func variable(segment string) bool {
	name, opened := strings.CutPrefix(segment, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !opened || !closed || name == "" || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !unreserved(c) || c == '.' || c == '~' {
			return false
		}
	}
	return true
}

// Match reports whether the pattern matches a normalized path. The path "" stands for a check
// without a path.
func (p Pattern) Match(path string) bool {
	if p.text == "" {
		return true
	}
	for _, want := range p.segments {
		segment, below, ok := cutSegment(path)
		if !ok || want != "" && want != segment {
			return false
		}
		path = below
	}
	return path == "/" || path == "" && len(p.segments) > 0 || p.rest && path != ""
}

// cutSegment returns the first segment of a normalized path and the rest of the path. ok is false
// if the path has no segment.
func cutSegment(path string) (segment, below string, ok bool) {
	if len(path) < 2 {
		return "", "", false
	}
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[1 : 1+end], path[1+end:], true
	}
	return path[1:], "", true
}

// Overlaps reports whether there is a path that matches both patterns.
func (p Pattern) Overlaps(q Pattern) bool {
	if p.text == "" || q.text == "" {
		return true
	}
	if len(p.segments) > len(q.segments) {
		p, q = q, p
	}
	for i, s := range p.segments {
		if t := q.segments[i]; s != "" && t != "" && s != t {
			return false
		}
	}
	return p.rest || len(p.segments) == len(q.segments)
}

// HasLiterals reports whether the pattern has a literal segment. In such a segment, paths that
// differ in case or in a semicolon are different. Some back ends treat them as the same path, so
// the policy editor shows a hint.
func (p Pattern) HasLiterals() bool { return p.literals() > 0 }

// literals returns the number of literal segments. Of two patterns, the one with more literal
// segments is more specific.
func (p Pattern) literals() int {
	n := 0
	for _, s := range p.segments {
		if s != "" {
			n++
		}
	}
	return n
}

// String returns the normalized text of the pattern.
func (p Pattern) String() string {
	if p.text == "" {
		return "*"
	}
	return p.text
}
