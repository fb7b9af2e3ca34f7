package accounts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEmail is the maximum length of an e-mail address, in bytes.
const maxEmail = 254

// ValidEmail reports whether s has the form of an e-mail address: a local part, one @, and a host,
// without spaces and control characters. It does not check whether the address exists.
func ValidEmail(s string) bool {
	local, host, found := strings.Cut(s, "@")
	if !found || local == "" || host == "" || strings.Contains(host, "@") || len(s) > maxEmail || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// FoldEmail returns an e-mail address in lower case. Two addresses are equal if FoldEmail returns
// the same text for them. FoldEmail does not change a non-ASCII character whose lower case is an
// ASCII letter, such as the Kelvin sign. Therefore an address with such a character never equals an
// ASCII address.
func FoldEmail(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := unicode.ToLower(r); r < utf8.RuneSelf || lower >= utf8.RuneSelf {
			return lower
		}
		return r
	}, s)
}
