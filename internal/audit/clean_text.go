package audit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the maximum length of a text in an audit line, in characters.
const maxWord = 256

// Clean returns a text in a form that is safe to show. The result has at most 256 characters; a
// shortened text ends with …. Line breaks, control characters and characters that change the text
// direction are replaced by their numbers, like \u000a, and invalid UTF-8 by \ufffd.
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

// unfit reports whether a character could change how the text around it is shown.
func unfit(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
