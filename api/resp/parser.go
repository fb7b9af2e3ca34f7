package resp

import (
	"bytes"
	"errors"
)

// Bounds of one command. The longest valid command is a check with a path of 8 KiB and 16 attributes of 1 KiB each.
const (
	maxArguments = 64
	maxCommand   = 32 << 10 // bytes, with the framing
)

// Errors of the protocol. After such an error, the server cannot find the next command. So it sends the error and
// closes the connection.
var (
	errFraming  = errors.New("protocol error: expected an array of bulk strings")
	errTooMany  = errors.New("protocol error: a command has at most 64 arguments")
	errTooLarge = errors.New("protocol error: a command has at most 32768 bytes")
)

// A span is the position of one argument in the buffer.
type span struct{ from, end int }

// parse reads the first command of b. at is the offset of b in the buffer. parse appends the positions of the command's
// arguments in the buffer to spans, and returns the length of the command in bytes. If b has no complete command, the
// length is 0. A line that does not begin with an asterisk is an inline command: words that are separated by spaces.
func parse(b []byte, at int, spans []span) ([]span, int, error) {
	if len(b) == 0 {
		return spans, 0, nil
	}
	if b[0] != '*' {
		return parseInline(b, at, spans)
	}
	count, n, err := parseLength(b, '*')
	if n == 0 || err != nil {
		return spans, 0, err
	}
	if count > maxArguments {
		return spans, 0, errTooMany
	}
	first := len(spans)
	for range count {
		size, used, err := parseLength(b[n:], '$')
		if err != nil {
			return spans[:first], 0, err
		}
		if n+used+size+2 > maxCommand {
			return spans[:first], 0, errTooLarge
		}
		if used == 0 || n+used+size+2 > len(b) {
			return spans[:first], 0, nil
		}
		n += used
		if b[n+size] != '\r' || b[n+size+1] != '\n' {
			return spans[:first], 0, errFraming
		}
		spans = append(spans, span{at + n, at + n + size})
		n += size + 2
	}
	return spans, n, nil
}

// maxDigits is the maximum number of digits of a length. A number with more digits exceeds every valid length.
const maxDigits = 5

// parseLength reads a line that consists of the byte kind and a number. It returns the number, and
// the length of the line in bytes. If the line is not complete, n is 0.
func parseLength(b []byte, kind byte) (value, n int, err error) {
	if len(b) == 0 {
		return 0, 0, nil
	}
	if b[0] != kind {
		return 0, 0, errFraming
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			if i > maxDigits {
				return 0, 0, errTooLarge
			}
			value = value*10 + int(c-'0')
		case c == '\r' && i > 1:
			if i+1 == len(b) {
				return 0, 0, nil
			}
			if b[i+1] != '\n' {
				return 0, 0, errFraming
			}
			return value, i + 2, nil
		default:
			return 0, 0, errFraming
		}
	}
	return 0, 0, nil
}

// maxInline is the maximum size of an inline command in bytes. People type inline commands, for example PING in telnet.
const maxInline = 1024

func parseInline(b []byte, at int, spans []span) ([]span, int, error) {
	end := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	if end < 0 {
		if len(b) >= maxInline {
			return spans, 0, errTooLarge
		}
		return spans, 0, nil
	}
	line, first := bytes.TrimSuffix(b[:end], []byte("\r")), len(spans)
	for from := 0; from < len(line); {
		if line[from] == ' ' {
			from++
			continue
		}
		word := bytes.IndexByte(line[from:], ' ')
		if word < 0 {
			word = len(line) - from
		}
		if len(spans)-first == maxArguments {
			return spans[:first], 0, errTooMany
		}
		spans = append(spans, span{at + from, at + from + word})
		from += word
	}
	return spans, end + 1, nil
}
