package web

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Characters that change the direction of the text around them make a name look like
// another one. A page shows them as their number.

// showDirections replaces direction marks in HTML by their number (\u202e), in texts
// and in attributes. What a form sends back stays as it is: attributes named value, and
// the content of a textarea. JSON in data attributes gets a number that its reader shows.
//
// The HTML is that of templ, which escapes < and > in texts and attributes.
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

// directionForm is how a direction mark is written behind what precedes it; "": as it is.
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
