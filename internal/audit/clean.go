package audit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the maximum length of a word in a line, in characters.
const maxWord = 256

// Clean returns a text that is safe in a line: at most 256 characters, with …
// at the end of a shortened text. It replaces line ends, control characters and
// direction marks by their number (\u000a), and invalid UTF-8 by \ufffd.
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

// unfit reports whether a character changes how the line around it is
// displayed.
func unfit(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
