package web

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Some Unicode characters change the direction of the text after them, which can make one name look
// like another. Pages show such characters as escapes with their code point.

// showDirections replaces direction marks in a page with escapes such as \u202e, in texts and in
// attributes. It does not change what a form sends back: attributes named value, and the content of
// a textarea. In a data attribute with JSON, it escapes the backslash too, so that the JSON parser
// returns the escape and not the mark.
//
// The page must be HTML from templ, which escapes < and > in texts and attributes.
func showDirections(page []byte) []byte {
	if !bytes.ContainsFunc(page, isDirection) {
		return page
	}
	out := make([]byte, 0, len(page)+64)
	for at := 0; at < len(page); {
		r, size := utf8.DecodeRune(page[at:])
		form := ""
		if isDirection(r) {
			form = directionForm(page[:at])
		}
		if form == "" {
			out = append(out, page[at:at+size]...)
		} else {
			out = fmt.Appendf(out, form, r)
		}
		at += size
	}
	return out
}

func isDirection(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// directionForm returns the format string for the escape of a direction mark. It depends on the
// place of the mark in the page: before is the HTML before the mark. If the mark must stay,
// directionForm returns "".
func directionForm(before []byte) string {
	tag := bytes.LastIndexByte(before, '<')
	if tag <= bytes.LastIndexByte(before, '>') { // in a text
		if tag >= 0 && bytes.HasPrefix(before[tag:], []byte("<textarea")) {
			return ""
		}
		return `\u%04x`
	}
	equals := bytes.LastIndex(before, []byte(`="`))
	if equals < tag {
		return `\u%04x`
	}
	name := before[bytes.LastIndexAny(before[:equals], " \t\n")+1 : equals]
	switch {
	case bytes.Equal(name, []byte("value")):
		return ""
	case bytes.HasPrefix(name, []byte("data-")):
		return `\\u%04x`
	}
	return `\u%04x`
}
