package audit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the maximum number of characters of a text in an audit line, not counting the "…" of a
// shortened text.
const maxWord = 256

// Clean returns word in a form that is safe to show. It replaces line breaks, control
// characters and characters that change the text direction by their numbers, like \u000a, and
// invalid UTF-8 by \ufffd. If the result has more than 256 characters, Clean shortens it, and
// it ends with ….
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
