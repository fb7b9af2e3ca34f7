package enforcement

import (
	"errors"
	"fmt"
	"strings"
)

// NormalizePath returns the canonical form of a request's path. Policies match this
// form, so that another spelling of a path does not bypass them. NormalizePath makes
// these changes, in this order: it removes the query and the fragment; decodes escapes
// of unreserved characters, once; writes other escapes in upper case; escapes bytes
// that a path must not contain; removes double and trailing slashes; and resolves "."
// and ".." segments. It keeps upper and lower case. It keeps %2F, which does not
// separate segments. A semicolon is an ordinary character.
//
// NormalizePath returns an error for a path that servers interpret differently: a
// backslash or a control character, escaped or not; overlong UTF-8; an invalid escape;
// a ".." above the root; or a segment in which further decoding produces a "." or ".."
// segment.
//
// A canonical path is returned unchanged, without an allocation.
func NormalizePath(path string) (string, error) {
	return normalize(path, false)
}

// normalize implements NormalizePath. If pattern is true, the text is a path pattern, and normalize
// keeps its braces.
func normalize(path string, pattern bool) (string, error) {
	if path == "" || path[0] != '/' {
		return "", errors.New("must begin with /")
	}
	normal := true // false after the first change
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path, normal = path[:end], false
	}
	var out []byte // the result, after the first change
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
				if err := checkDecoded(segment); err != nil {
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

// segmentNormal reports whether a segment is in canonical form. A canonical segment can still be
// invalid, but only for checkDecoded.
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

// appendSegment appends a slash and the canonical form of a segment to out. For the segment "..",
// it removes the last segment of out. For ".", it changes nothing.
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
	return out, checkDecoded(out[start+1:])
}

// checkDecoded returns an error if repeated decoding of a canonical segment can result in a "." or
// ".." segment, or in overlong UTF-8, which can hide such segments. It decodes each escape as soon
// as it has read its last digit, so it takes linear time. Escapes do not overlap, so the order in
// which they are decoded does not matter.
func checkDecoded[T string | []byte](segment T) error {
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

// overlong reports whether a UTF-8 sequence that begins with these two bytes is longer than
// necessary.
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

// Properties of bytes in a path, from RFC 3986. An unreserved byte means the same with and without
// an escape. A plain byte may stand in a path without an escape.
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

// unhex returns the value of a hexadecimal digit.
func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
