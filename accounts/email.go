package accounts

import (
	"strconv"
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

// maxTyped is how much of what a stranger typed stands in the audit log, in
// characters.
const maxTyped = 256

// typed makes what a stranger typed fit for a log and a page: cut, with
// control characters, invisible ones and bytes that are no text as escapes.
func typed(s string) string {
	var b strings.Builder
	n := 0
	for len(s) > 0 {
		_, size := utf8.DecodeRuneInString(s)
		quoted := strconv.QuoteToGraphic(s[:size])
		quoted = quoted[1 : len(quoted)-1]
		if s[:size] == `"` {
			quoted = `"`
		}
		if n += utf8.RuneCountInString(quoted); n > maxTyped {
			break
		}
		b.WriteString(quoted)
		s = s[size:]
	}
	return b.String()
}
