package enforcement

import (
	"errors"
	"fmt"
	"strings"
)

// NormalizePath gives the one spelling of a request's path by which policies
// match it, so that no other spelling is a way around one. The query and the
// fragment are dropped; escapes of unreserved characters are decoded, once; the
// others are upper-cased; bytes that cannot stand in a path are escaped; doubled
// and trailing slashes and dot segments are removed, in that order. Case is
// kept, %2F is kept and separates nothing, and ; is an ordinary character.
//
// What servers are known to read in different ways is an error that says what
// is wrong with the path: a backslash, a control character (both escaped or
// not), overlong UTF-8, an escape that does not decode, a path that climbs
// above its root, and a segment in which further decoding would uncover . or ..
// as a segment. The result is its own normal form, and a path that is normal
// already costs no allocation.
func NormalizePath(path string) (string, error) {
	return normalize(path, false)
}

// normalize is NormalizePath; of a pattern, braces stay as they are.
func normalize(path string, pattern bool) (string, error) {
	if path == "" || path[0] != '/' {
		return "", errors.New("must begin with /")
	}
	normal := true // as long as nothing had to be changed
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path, normal = path[:end], false
	}
	var out []byte // the normal form, once it differs from path
	for at := 0; at < len(path); {
		at++ // past the slash
		length := strings.IndexByte(path[at:], '/')
		if length < 0 {
			length = len(path) - at
		}
		segment := path[at : at+length]
		if normal && !segmentNormal(segment, pattern) && len(path) > 1 {
			normal = false
			out = append(make([]byte, 0, len(path)+16), path[:at-1]...)
		}
		at += length
		if normal {
			if strings.IndexByte(segment, '%') >= 0 {
				if err := uncovers(segment); err != nil {
					return "", err
				}
			}
			continue
		}
		var err error
		if out, err = appendSegment(out, segment, pattern); err != nil {
			return "", err
		}
	}
	switch {
	case normal:
		return path, nil
	case len(out) == 0:
		return "/", nil
	}
	return string(out), nil
}

// segmentNormal reports whether a segment needs no change and may be looked at
// as it is: nothing in it is an error but what uncovers finds.
func segmentNormal(segment string, pattern bool) bool {
	if segment == "" || segment == "." || segment == ".." {
		return false
	}
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' {
			if i+2 >= len(segment) {
				return false
			}
			high, low := segment[i+1], segment[i+2]
			if !upperHex(high) || !upperHex(low) {
				return false
			}
			if d := unhex(high)<<4 | unhex(low); unreserved(d) || forbidden(d) {
				return false
			}
			i += 2
			continue
		}
		if !plain(c) && !(pattern && (c == '{' || c == '}')) {
			return false
		}
	}
	return true
}

// appendSegment appends a slash and the normal form of a segment, or takes back
// the last one for a "..".
func appendSegment(out []byte, segment string, pattern bool) ([]byte, error) {
	if segment == "" {
		return out, nil
	}
	start := len(out)
	out = append(out, '/')
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		escaped := c == '%'
		if escaped {
			if i+2 >= len(segment) || !isHex(segment[i+1]) || !isHex(segment[i+2]) {
				return nil, fmt.Errorf("has %q, which is not an escape: write a percent sign as %%25", segment[i:min(i+3, len(segment))])
			}
			c = unhex(segment[i+1])<<4 | unhex(segment[i+2])
			i += 2
		}
		switch {
		case c == '\\':
			return nil, errors.New(`has a backslash, which some servers read as a slash`)
		case forbidden(c):
			return nil, fmt.Errorf("has a control character (%%%02X)", c)
		case unreserved(c), !escaped && plain(c), !escaped && pattern && (c == '{' || c == '}'):
			out = append(out, c)
		default:
			out = append(out, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	switch string(out[start+1:]) {
	case ".":
		return out[:start], nil
	case "..":
		for start--; start >= 0 && out[start] != '/'; start-- {
		}
		if start < 0 {
			return nil, errors.New("climbs above its root")
		}
		return out[:start], nil
	}
	return out, uncovers(out[start+1:])
}

// uncovers refuses a normal segment (no dot segment itself) if decoding it over
// and over would uncover . or .. as a segment, or if its bytes are overlong
// UTF-8, in which those can be hidden too. It is linear: an escape is decoded
// as soon as its last digit stands at the end of what is decoded already, and
// as no two escapes overlap, the order does not matter.
func uncovers[T string | []byte](segment T) error {
	var room [128]byte
	full := room[:0]
	for i := 0; i < len(segment); i++ {
		full = append(full, segment[i])
		for n := len(full); n >= 3 && full[n-3] == '%' && isHex(full[n-2]) && isHex(full[n-1]); n = len(full) {
			full = append(full[:n-3], unhex(full[n-2])<<4|unhex(full[n-1]))
		}
	}
	part := 0
	for i := 0; i <= len(full); i++ {
		if i < len(full) && full[i] != '/' && full[i] != '\\' {
			if i > 0 && overlong(full[i-1], full[i]) {
				return errors.New("has overlong UTF-8")
			}
			continue
		}
		switch string(full[part:i]) {
		case ".", "..":
			return errors.New("hides . or .. beside a slash behind escapes")
		}
		part = i + 1
	}
	return nil
}

// overlong reports whether two bytes begin a form of UTF-8 that is longer than
// its character needs.
func overlong(first, second byte) bool {
	switch first {
	case 0xC0, 0xC1:
		return second >= 0x80 && second <= 0xBF
	case 0xE0:
		return second >= 0x80 && second <= 0x9F
	case 0xF0:
		return second >= 0x80 && second <= 0x8F
	}
	return false
}

const hexDigits = "0123456789ABCDEF"

// The kinds of byte, as RFC 3986 has them: unreserved ones are the same escaped
// or not; plain ones may stand in a path as they are.
const (
	kindUnreserved = 1 << iota
	kindPlain
	kindHex
	kindForbidden
)

var byteKinds = func() (kinds [256]byte) {
	for c := range 256 {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("-._~", byte(c)) >= 0:
			kinds[c] = kindUnreserved | kindPlain
		case strings.IndexByte("!$&'()*+,;=:@", byte(c)) >= 0:
			kinds[c] = kindPlain
		case c < ' ', c == 0x7F, c == '\\':
			kinds[c] = kindForbidden
		}
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
			kinds[c] |= kindHex
		}
	}
	return kinds
}()

func unreserved(c byte) bool { return byteKinds[c]&kindUnreserved != 0 }
func plain(c byte) bool      { return byteKinds[c]&kindPlain != 0 }
func isHex(c byte) bool      { return byteKinds[c]&kindHex != 0 }
func upperHex(c byte) bool   { return isHex(c) && c < 'a' }
func forbidden(c byte) bool  { return byteKinds[c]&kindForbidden != 0 }

// unhex is the value of a hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
