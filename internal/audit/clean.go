package audit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is how many characters of a word a line keeps.
const maxWord = 256

// Clean makes a word from outside fit for a line: at most 256 characters, the
// last one … when it was cut; what would end a line, steer a terminal or turn the
// direction of what follows stands as its number (\u000a), and so does what is
// no UTF-8 (\ufffd).
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

// unfit characters change how a reader sees the line around them.
func unfit(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
