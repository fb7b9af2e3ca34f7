package strictjson

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// open reads the opening bracket of an object or array.
func (d *Decoder) open(bracket byte, want string) bool {
	if !d.begins(bracket, want) {
		return false
	}
	if len(d.frames) >= d.max {
		d.Fail("nested more than %d deep", d.max)
		return false
	}
	d.at++
	d.frames = append(d.frames, frame{object: bracket == '{', index: -1, first: len(d.names)})
	return true
}

// more reports whether another member or element follows. If so, it reads the comma before it;
// otherwise it reads the closing bracket.
func (d *Decoder) more(bracket byte, first bool) bool {
	if d.fault != nil {
		return false
	}
	d.space()
	switch c := d.peek(); {
	case c == bracket && d.at < len(d.text):
		d.at++
		return false
	case first:
		return true
	case c == ',':
		d.at++
		return true
	}
	d.syntax("a comma or the closing bracket is missing")
	return false
}

// shut removes the frame of the innermost object or array, because its end has been read.
func (d *Decoder) shut() {
	if d.fault == nil {
		last := len(d.frames) - 1
		d.names = d.names[:d.frames[last].first]
		d.frames = d.frames[:last]
	}
}

// name reads the name of a member and the colon.
func (d *Decoder) name() (string, bool) {
	d.space()
	if d.peek() != '"' {
		d.syntax("a name in double quotes is missing")
		return "", false
	}
	name := d.quoted()
	if d.fault != nil {
		return "", false
	}
	known := d.known(name)
	d.names = append(d.names, name)
	if known {
		d.Fail("given twice")
		return "", false
	}
	d.space()
	if d.peek() != ':' {
		d.syntax("a colon is missing")
		return "", false
	}
	d.at++
	return name, true
}

// known reports whether the innermost object has already had a member with this name.
func (d *Decoder) known(name string) bool {
	f := &d.frames[len(d.frames)-1]
	had := d.names[f.first:]
	if f.set == nil {
		for _, n := range had {
			if n == name {
				return true
			}
		}
		if len(had) < fewNames {
			return false
		}
		f.set = make(map[string]struct{}, 2*fewNames)
		for _, n := range had {
			f.set[n] = struct{}{}
		}
	}
	if _, ok := f.set[name]; ok {
		return true
	}
	f.set[name] = struct{}{}
	return false
}

// begins reports whether the next value starts with the byte c. If not, it records the error that
// want was expected.
func (d *Decoder) begins(c byte, want string) bool {
	if d.fault != nil {
		return false
	}
	d.space()
	if d.at < len(d.text) && d.text[d.at] == c {
		return true
	}
	d.wrongType(want)
	return false
}

// quoted reads a string. The next byte must be its opening quote.
func (d *Decoder) quoted() string {
	d.at++
	from, escaped, high := d.at, false, false
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '"':
			raw := d.text[from:d.at]
			d.at++
			switch {
			case high && !utf8.ValidString(raw):
				d.syntax("the text is not valid UTF-8")
				return ""
			case escaped:
				return d.unescape(raw)
			}
			return raw
		case c == '\\':
			escaped = true
			d.at++ // a backslash and the next character cannot close the string; unescape validates them
		case c < ' ':
			d.syntax("a control character must be escaped")
			return ""
		case c >= utf8.RuneSelf:
			high = true
		}
	}
	d.at = len(d.text)
	d.syntax("a string is not closed")
	return ""
}

// unescape replaces the escapes in a string without its quotes.
func (d *Decoder) unescape(raw string) string {
	out := make([]byte, 0, len(raw))
	for {
		plain, rest, found := strings.Cut(raw, `\`)
		out = append(out, plain...)
		if !found {
			return string(out)
		}
		if rest == "" {
			d.syntax("an escape is cut off")
			return ""
		}
		if rest[0] != 'u' {
			i := strings.IndexByte(`"\/bfnrt`, rest[0])
			if i < 0 {
				d.syntax("an unknown escape")
				return ""
			}
			out = append(out, "\"\\/\b\f\n\r\t"[i])
			raw = rest[1:]
			continue
		}
		r, n := escapedRune(rest)
		switch {
		case n == 0:
			d.syntax("\\u needs four hexadecimal digits, and surrogates come in pairs")
			return ""
		case r == 0:
			d.syntax("NUL is not taken")
			return ""
		}
		out = utf8.AppendRune(out, r)
		raw = rest[n:]
	}
}

// escapedRune reads uXXXX, or the pair uXXXX\uXXXX. It returns the character and its length in bytes, or 0 if the
// escape is not valid.
func escapedRune(s string) (rune, int) {
	r, ok := hex4(s)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 5
	case len(s) < 7 || s[5] != '\\':
		return 0, 0
	}
	low, ok := hex4(s[6:])
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 11
	}
	return 0, 0
}

// hex4 reads the letter u and four hexadecimal digits.
func hex4(s string) (rune, bool) {
	if len(s) < 5 || s[0] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(s[1:5]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number reads a number with the grammar of RFC 8259.
func (d *Decoder) number() bool {
	if d.peek() == '-' {
		d.at++
	}
	switch c := d.peek(); {
	case c == '0':
		d.at++
	case c < '1' || c > '9' || !d.digits():
		d.syntax("a number needs digits")
		return false
	}
	if d.peek() == '.' {
		d.at++
		if !d.digits() {
			d.syntax("a fraction needs digits")
			return false
		}
	}
	if d.peek()|0x20 == 'e' {
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if !d.digits() {
			d.syntax("an exponent needs digits")
			return false
		}
	}
	return true
}

func (d *Decoder) digits() bool {
	from := d.at
	for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
		d.at++
	}
	return d.at > from
}

// word reads the word w if the rest of the text begins with w. It returns false if it does not.
func (d *Decoder) word(w string) bool {
	d.space()
	if strings.HasPrefix(d.text[d.at:], w) {
		d.at += len(w)
		return true
	}
	return false
}

func (d *Decoder) space() {
	for ; d.at < len(d.text); d.at++ {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
		default:
			return
		}
	}
}

// peek returns the next byte without reading it. At the end of the text, it returns 0, which is not
// valid anywhere.
func (d *Decoder) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

// wrongType records that the next value does not have the expected type.
func (d *Decoder) wrongType(want string) {
	switch c := d.peek(); {
	case d.at >= len(d.text):
		d.syntax("the text ends early")
	case strings.HasPrefix(d.text[d.at:], "null"):
		d.Fail("null is not taken: leave the field out")
	case c == '{', c == '[', c == '"', c == '-', c == 't', c == 'f', c >= '0' && c <= '9':
		d.Fail("must be %s", want)
	default:
		d.syntax("a value is missing")
	}
}

// syntax records a syntax error at the next byte.
func (d *Decoder) syntax(what string) {
	d.Fail("%s, near byte %d", what, d.at)
}
