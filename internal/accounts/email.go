package accounts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxEmail is the longest e-mail address, in bytes.
const MaxEmail = 254

// ValidEmail reports whether s can be an e-mail address: something, one @ and
// something, without blanks and control characters. Whether letters arrive
// there is not asked; names of hosts are taken as they are typed.
func ValidEmail(s string) bool {
	local, host, found := strings.Cut(s, "@")
	if !found || local == "" || host == "" || strings.Contains(host, "@") || len(s) > MaxEmail || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
}

// FoldEmail gives the spelling by which addresses are compared: in lower case,
// but for what only Unicode lowers to a letter of ASCII, like the sign of the
// Kelvin to a k. Such an address is another one, and can be somebody else's.
func FoldEmail(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := unicode.ToLower(r); r < utf8.RuneSelf || lower >= utf8.RuneSelf {
			return lower
		}
		return r
	}, s)
}
