package problem

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// What tenants, plans, policies and keys have in common as input: slugs and
// text for people to read. It stands here because the packages that need it
// share nothing else.

// MaxSlug is the longest slug, in bytes.
const MaxSlug = 64

// SlugForm says in words what ValidSlug takes, for messages.
const SlugForm = "must be 1 to 64 lower-case letters, digits and hyphens, begin and end with a letter or digit, and not look like a UUID"

// ValidSlug reports whether s is a slug: ^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$
// and not in the form of a UUID, so that a slug can stand wherever an id can.
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

// looksLikeUUID knows the two forms that parsers of UUIDs take and that a slug
// could have: with its four hyphens, and as 32 bare digits.
func looksLikeUUID(s string) bool {
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(s) != 32 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// ReservedSlug is the slug that nothing new may have: the dashboard has the form
// of a new tenant, and of a new plan, at this address.
const ReservedSlug = "new"

// NewSlug notes a fault at pointer unless s is a slug that something new may have.
func (f *Fields) NewSlug(pointer, s string) {
	if s == ReservedSlug {
		f.Add(pointer, "is reserved: the dashboard has its forms at this address; choose another one")
		return
	}
	f.Slug(pointer, s)
}

// Slug notes a fault at pointer unless s is a slug.
func (f *Fields) Slug(pointer, s string) {
	if !ValidSlug(s) {
		f.Add(pointer, SlugForm)
	}
}

// Line notes a fault at pointer unless s is one line of from least to most
// characters of valid UTF-8, not blank, and without control characters.
func (f *Fields) Line(pointer, s string, least, most int) {
	if least > 0 && strings.TrimSpace(s) == "" {
		f.Add(pointer, "must have %d to %d characters", least, most)
		return
	}
	f.text(pointer, s, least, most, "")
}

// Text is Line for longer texts, which may have line breaks and tabs.
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

// Escape makes s a segment of a JSON pointer.
func Escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}
