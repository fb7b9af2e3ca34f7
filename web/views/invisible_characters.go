package views

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A piece is a part of a text that a user entered. It is plain text, or the escape of one
// character that is invisible or changes the direction of text.
type piece struct {
	Text   string
	Escape bool
}

// pieces splits a text into pieces. It replaces direction marks, zero-width characters,
// control characters and private-use characters with escapes such as U+202E.
func pieces(s string) []piece {
	var list []piece
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			list = append(list, piece{Text: plain.String()})
			plain.Reset()
		}
	}
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			flush()
			list = append(list, piece{Text: fmt.Sprintf("\\x%02X", s[0]), Escape: true})
		case unseen(r):
			flush()
			list = append(list, piece{Text: fmt.Sprintf("U+%04X", r), Escape: true})
		default:
			plain.WriteRune(r)
		}
		s = s[size:]
	}
	flush()
	return list
}

// unseen reports whether a character is invisible or changes the direction of text.
func unseen(r rune) bool {
	switch r {
	case 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0, utf8.RuneError:
		return true // joiners, fillers and blanks that Unicode calls letters or marks
	case ' ':
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z) || !unicode.IsGraphic(r)
}

// mixedAlphabets reports whether a word mixes letters from alphabets that look alike: Latin
// together with Cyrillic, Greek, Armenian or Cherokee.
func mixedAlphabets(s string) bool {
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, other := false, false
		for _, r := range word {
			latin = latin || unicode.Is(unicode.Latin, r)
			other = other || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee)
		}
		if latin && other {
			return true
		}
	}
	return false
}
