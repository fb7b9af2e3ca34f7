package problem

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidSlug(t *testing.T) {
	t.Parallel()
	for slug, want := range map[string]bool{
		"a": true, "7": true, "login-per-ip": true, "a--b": true,
		strings.Repeat("a", 63) + "0":           true,
		strings.Repeat("a", 31):                 true,
		strings.Repeat("g", 32):                 true, // 32, and no hexadecimal digits
		"":                                      false,
		"-a":                                    false,
		"a-":                                    false,
		"A":                                     false,
		"a_b":                                   false,
		"a b":                                   false,
		"a\n":                                   false,
		"ä":                                     false,
		strings.Repeat("a", 65):                 false,
		"0190f5c4-7e1a-7b3c-8d2e-0123456789ab":  false,
		"0190f5c47e1a7b3c8d2e0123456789ab":      false,
		"0190f5c4-7e1a-7b3c-8d2e-0123456789ax":  true, // x is no hexadecimal digit
		"0190f5c4-7e1a-7b3c-8d2e-0123456789ab1": true,
	} {
		if got := ValidSlug(slug); got != want {
			t.Errorf("ValidSlug(%q) = %v, want %v", slug, got, want)
		}
	}
}

func TestValidSlugIsItsExpression(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z0-9-]{0,31}[a-zA-Z0-9_-]{0,36}`).Draw(t, "slug")
		if got, want := ValidSlug(s), form.MatchString(s) && !looksLikeUUID(s); got != want {
			t.Errorf("ValidSlug(%q) = %v, want %v", s, got, want)
		}
	})
}

func TestNewSlug(t *testing.T) {
	t.Parallel()
	for slug, ok := range map[string]bool{"new": false, "news": true, "New": false, "a": true, "": false} {
		var f Fields
		if f.NewSlug("/slug", slug); (f.Err() == nil) != ok {
			t.Errorf("%q: %v", slug, f.Err())
		}
	}
}

func TestTextAndLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value      string
		line, text bool
	}{
		{"Acme", true, true},
		{"Größe 東京", true, true},
		{strings.Repeat("é", 10), true, true}, // characters count, not bytes
		{strings.Repeat("é", 11), false, false},
		{"", false, true},
		{"   ", false, true},
		{"two\nlines", false, true},
		{"tab\there", false, true},
		{"bell\a", false, false},
		{"nul\x00", false, false},
		{"c1\u0085", false, false},
		{"\xff", false, false},
	} {
		var line, text Fields
		line.Line("/x", c.value, 1, 10)
		text.Text("/x", c.value, 10)
		if got := line.Err() == nil; got != c.line {
			t.Errorf("Line(%q): fine is %v, want %v", c.value, got, c.line)
		}
		if got := text.Err() == nil; got != c.text {
			t.Errorf("Text(%q): fine is %v, want %v", c.value, got, c.text)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	if got := Escape("a/b~c"); got != "a~1b~0c" {
		t.Errorf("Escape = %q", got)
	}
}
