package enforcement

import (
	"errors"
	"fmt"
	"strings"
)

// A Pattern says which paths a policy matches: literal segments, {name} for any
// one segment, and a final * for all below ("/api/*" matches "/api", "/api/a"
// and "/api/a/b"). "*" alone matches everything, also a check without a path;
// so does the zero Pattern.
type Pattern struct {
	text     string   // "" for everything
	segments []string // "" for any one segment
	rest     bool     // ends with /*
}

// maxName bounds the name of a {name} in a pattern.
const maxName = 64

// ParsePattern reads a pattern; "" is "*". Its literal segments are normalised
// as NormalizePath does it with paths, so that a pattern matches however it is
// written. The error says what is wrong with the pattern.
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

// variable reports whether a segment is {name}.
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

// Match reports whether a normalised path matches; "" is a check without one.
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

// cutSegment takes the first segment off a normalised path. ok is false when
// there is none.
func cutSegment(path string) (segment, below string, ok bool) {
	if len(path) < 2 {
		return "", "", false
	}
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[1 : 1+end], path[1+end:], true
	}
	return path[1:], "", true
}

// Overlaps reports whether one check could match both patterns.
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

// literals returns the number of literal segments. A pattern with more of them is more
// specific.
func (p Pattern) literals() int {
	n := 0
	for _, s := range p.segments {
		if s != "" {
			n++
		}
	}
	return n
}

// String returns the pattern in normal form.
func (p Pattern) String() string {
	if p.text == "" {
		return "*"
	}
	return p.text
}
