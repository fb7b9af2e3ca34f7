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

// FoldEmail gives the spelling by which addresses are compared.
func FoldEmail(s string) string { return strings.ToLower(s) }
