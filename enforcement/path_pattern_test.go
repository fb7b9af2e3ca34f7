package enforcement

import (
	"strings"
	"testing"
)

func TestPatternMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*", []string{"", "/", "/a", "/a/b"}, nil},
		{"", []string{"", "/", "/a"}, nil},
		{"/*", []string{"/", "/a", "/a/b"}, []string{""}},
		{"/", []string{"/"}, []string{"", "/a"}},
		{"/api", []string{"/api"}, []string{"", "/", "/API", "/api/a", "/ap", "/apis"}},
		{"/api/", []string{"/api"}, []string{"/api/a"}},
		{"/api/*", []string{"/api", "/api/a", "/api/a/b"}, []string{"", "/", "/apis", "/b/api"}},
		{"/users/{id}", []string{"/users/1", "/users/a%2Fb", "/users/*"}, []string{"/users", "/users/1/x", "/user/1"}},
		{"/users/{id}/orders", []string{"/users/1/orders"}, []string{"/users/1", "/users/orders", "/users/1/2/orders"}},
		{"/{a}/*", []string{"/x", "/x/y"}, []string{"/", ""}},
		{"/{a}/{a}", []string{"/x/y"}, []string{"/x"}},
		{"//api/./x/../*", []string{"/api/y"}, []string{"/x"}},
		{"/%61pi%2f/é", []string{"/api%2F/%C3%A9"}, []string{"/api/é"}},
		{"/a%2A", []string{"/a%2A"}, []string{"/a*", "/ab"}},
		{"/%7Bid%7D", []string{"/%7Bid%7D"}, []string{"/1"}},
		{"/v1/things:batch", []string{"/v1/things:batch"}, []string{"/v1/things"}},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("ParsePattern(%q): %v", c.pattern, err)
			continue
		}
		for _, path := range c.yes {
			if !p.Match(path) {
				t.Errorf("%q does not match %q", c.pattern, path)
			}
		}
		for _, path := range c.no {
			if p.Match(path) {
				t.Errorf("%q matches %q", c.pattern, path)
			}
		}
		again, err := ParsePattern(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q became %q became %q, %v", c.pattern, p, again, err)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	t.Parallel()
	for pattern, reason := range map[string]string{
		"api":                                "begin with /",
		"**":                                 "begin with /",
		"*/a":                                "begin with /",
		"/a/*/b":                             "before its end",
		"/a*":                                "within the segment",
		"/a/**":                              "within the segment",
		"/{}":                                "braces",
		"/{a":                                "braces",
		"/a}":                                "braces",
		"/x{a}":                              "braces",
		"/{a}{b}":                            "braces",
		"/{a...}":                            "braces",
		"/{" + strings.Repeat("a", 65) + "}": "braces",
		"/{é}":                               "braces",
		"/a?b":                               "query",
		"/a#b":                               "query",
		"/..":                                "climbs",
		"/a\\b":                              "backslash",
		"/a%0a":                              "control",
		"/a%2":                               "not an escape",
		"/%252e":                             "hides",
	} {
		p, err := ParsePattern(pattern)
		if err == nil {
			t.Errorf("ParsePattern(%q) = %q; want an error with %q", pattern, p, reason)
		} else if !strings.Contains(err.Error(), reason) {
			t.Errorf("ParsePattern(%q): %q; want an error with %q", pattern, err, reason)
		}
	}
}

func TestPatternOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"*", "/a", true},
		{"*", "*", true},
		{"/*", "*", true},
		{"/*", "/", true},
		{"/", "/a", false},
		{"/a", "/a", true},
		{"/a", "/b", false},
		{"/a", "/A", false},
		{"/a", "/a/b", false},
		{"/a/*", "/a", true},
		{"/a/*", "/a/b/c", true},
		{"/a/*", "/b", false},
		{"/a/*", "/b/*", false},
		{"/{x}", "/a", true},
		{"/{x}", "/a/b", false},
		{"/{x}/b", "/a/{y}", true},
		{"/{x}/b", "/a/c", false},
		{"/{x}/*", "/a/c", true},
		{"/{x}/*", "/", false},
	} {
		a, b := mustPattern(t, c.a), mustPattern(t, c.b)
		if got := a.Overlaps(b); got != c.want {
			t.Errorf("%q overlaps %q: %v", c.a, c.b, got)
		}
		if got := b.Overlaps(a); got != c.want {
			t.Errorf("%q overlaps %q: %v", c.b, c.a, got)
		}
	}
}

func TestPatternLiterals(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{"*": 0, "/": 0, "/*": 0, "/a": 1, "/a/{b}/c/*": 2, "/{a}": 0} {
		if got := mustPattern(t, pattern).literals(); got != want {
			t.Errorf("%q has %d literal segments", pattern, got)
		}
	}
}

func mustPattern(t testing.TB, s string) Pattern {
	t.Helper()
	p, err := ParsePattern(s)
	if err != nil {
		t.Fatalf("ParsePattern(%q): %v", s, err)
	}
	return p
}

// naiveMatch is the simplest implementation of a pattern.
func naiveMatch(pattern, path string) bool {
	if pattern == "*" {
		return true
	}
	if path == "" {
		return false
	}
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '/' })
	}
	want, got := split(pattern), split(path)
	if n := len(want); n > 0 && want[n-1] == "*" {
		want = want[:n-1]
		got = got[:min(len(want), len(got))]
	}
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !(want[i][0] == '{') {
			return false
		}
	}
	return true
}

func FuzzParsePattern(f *testing.F) {
	f.Add("/api/*", "/api/a", "*")
	f.Add("/users/{id}", "/users/1", "/{a}/*")
	f.Add("*", "/", "/")
	f.Add("/%2f/é/{x}/*", "/%2F/%c3%a9/1/2", "/{a}/{b}/{c}")
	f.Fuzz(func(t *testing.T, pattern, path, other string) {
		p, err := ParsePattern(pattern)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again.String() != p.String() {
			t.Fatalf("%q became %q became %q (%v)", pattern, p, again, err)
		}
		if path, err = NormalizePath(path); err != nil {
			path = ""
		}
		if got, want := p.Match(path), naiveMatch(p.String(), path); got != want {
			t.Fatalf("%q matches %q: %v", p, path, got)
		}
		q, err := ParsePattern(other)
		if err != nil {
			return
		}
		if p.Overlaps(q) != q.Overlaps(p) {
			t.Fatalf("overlap of %q and %q depends on the order", p, q)
		}
		if p.Match(path) && q.Match(path) && !p.Overlaps(q) {
			t.Fatalf("%q and %q match %q, and do not overlap", p, q, path)
		}
	})
}
