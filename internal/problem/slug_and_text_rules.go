package problem

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The following functions validate slugs and texts for people, which tenants, plans, policies and
// keys have. The functions are in this package because all packages of these objects import it.

// MaxSlug is the maximum length of a slug, in bytes.
const MaxSlug = 64

// SlugForm is the error message for an invalid slug. It says what ValidSlug accepts.
const SlugForm = "must be 1 to 64 lower-case letters, digits and hyphens, begin and end with a letter or digit, and not look like a UUID"

// ValidSlug reports whether s is a slug: it matches ^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$ and does
// not look like a UUID. Therefore a parameter that accepts a slug or an ID is never ambiguous.
func ValidSlug(s string) bool {
	if s == "" || len(s) > MaxSlug || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '-' && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') {
			return false
		}
	}
	return !looksLikeUUID(s)
}

// looksLikeUUID reports whether s is a UUID in one of the forms that could also be a slug: 32
// hexadecimal digits, with four hyphens or without hyphens.
func looksLikeUUID(s string) bool {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(s) != 32 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// ReservedSlug is a slug that no new tenant or plan may have. The dashboard uses it in the
// address of the form for a new tenant or plan.
const ReservedSlug = "new"

// NewSlug adds a fault at pointer if s is not valid as the slug of a new object.
func (f *Fields) NewSlug(pointer, s string) {
	if s == ReservedSlug {
		f.Add(pointer, "is reserved: the dashboard has its forms at this address; choose another one")
		return
	}
	f.Slug(pointer, s)
}

// Slug adds a fault at pointer if s is not a slug.
func (f *Fields) Slug(pointer, s string) {
	if !ValidSlug(s) {
		f.Add(pointer, SlugForm)
	}
}

// Line adds a fault at pointer unless s is one line of valid UTF-8 with at least least and at
// most most characters. If least is above 0, s must not be blank. s must not contain control
// characters.
func (f *Fields) Line(pointer, s string, least, most int) {
	if least > 0 && strings.TrimSpace(s) == "" {
		f.Add(pointer, "must have %d to %d characters", least, most)
		return
	}
	f.text(pointer, s, least, most, "")
}

// Text is like Line for longer texts. s may be empty, and may contain line breaks and tabs.
func (f *Fields) Text(pointer, s string, most int) { f.text(pointer, s, 0, most, "\n\t") }

func (f *Fields) text(pointer, s string, least, most int, allowed string) {
	if !utf8.ValidString(s) {
		f.Add(pointer, "must be valid UTF-8")
		return
	}
	for _, r := range s {
		if unicode.IsControl(r) && !strings.ContainsRune(allowed, r) {
			f.Add(pointer, "must not have control characters (it has U+%04X)", r)
			return
		}
	}
	switch n := utf8.RuneCountInString(s); {
	case n > most && least == 0:
		f.Add(pointer, "must have at most %d characters", most)
	case n < least || n > most:
		f.Add(pointer, "must have %d to %d characters", least, most)
	}
}

// Escape returns s in the form that a segment of a JSON pointer needs.
func Escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// Unescape returns the text for which a segment of a JSON pointer stands. It is the inverse of
// Escape.
func Unescape(segment string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
}
