package accounts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEmail is the maximum length of an e-mail address, in bytes.
const maxEmail = 254

// ValidEmail reports whether s has the form of an e-mail address: a local part,
// one @ and a host, without spaces and control characters. It does not check
// whether mail arrives there.
func ValidEmail(s string) bool {
	local, host, found := strings.Cut(s, "@")
	if !found || local == "" || host == "" || strings.Contains(host, "@") || len(s) > maxEmail || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// FoldEmail returns the lower-case form of an address, by which addresses are compared. It leaves a non-ASCII
// character unchanged if its lower case is ASCII, like the Kelvin sign. So such an address never equals an ASCII
// address.
func FoldEmail(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := unicode.ToLower(r); r < utf8.RuneSelf || lower >= utf8.RuneSelf {
			return lower
		}
		return r
	}, s)
}
