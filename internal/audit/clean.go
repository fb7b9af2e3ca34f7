package audit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the maximum length of a text in an audit line, in characters.
const maxWord = 256

// Clean returns a text that is safe to display in an audit line. The text has at most 256 characters; a shortened
// text ends with …. Line breaks, control characters and direction marks are replaced by their number, like \u000a.
// Invalid UTF-8 is replaced by \ufffd.
func Clean(word string) string {
	if isClean(word) {
		return word
	}
	var out strings.Builder
	room := maxWord
	for word != "" {
		r, size := utf8.DecodeRuneInString(word)
		word = word[size:]
		shown := string(r)
		if unfit(r) {
			shown = fmt.Sprintf(`\u%04x`, r)
		}
		need := utf8.RuneCountInString(shown)
		if need > room || need == room && word != "" {
			out.WriteRune('…')
			break
		}
		out.WriteString(shown)
		room -= need
	}
	return out.String()
}

func isClean(word string) bool {
	return utf8.RuneCountInString(word) <= maxWord && !strings.ContainsFunc(word, unfit)
}

// unfit reports whether a character could change how the text around it is displayed.
func unfit(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
