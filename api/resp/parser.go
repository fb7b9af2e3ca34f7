package resp

import (
	"bytes"
	"encoding/hex"
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
	errQuotes   = errors.New("protocol error: unbalanced quotes in an inline command")
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

// parseInline is parse for an inline command. A word can have parts in quotes, as in Redis. parseInline replaces such a
// word in b by its text.
func parseInline(b []byte, at int, spans []span) ([]span, int, error) {
	end := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	if end < 0 {
		if len(b) >= maxInline {
			return spans, 0, errTooLarge
		}
		return spans, 0, nil
	}
	for from, words := 0, 0; ; words++ { // an invalid line stays as it is, because it is parsed again
		_, next, err := inlineWord(b[:end], from, false)
		if err == nil && next > 0 && words == maxArguments {
			err = errTooMany
		}
		if err != nil {
			return spans, 0, err
		}
		if from = next; next == 0 {
			break
		}
	}
	for from := 0; ; {
		word, next, _ := inlineWord(b[:end], from, true)
		if next == 0 {
			return spans, end + 1, nil
		}
		spans = append(spans, span{at + word.from, at + word.end})
		from = next
	}
}

// inlineWord finds the first word of line at or after from. next is the offset after the word, or 0 if there is none. If
// write is set, it removes the quotes and replaces the escapes of the word. The rules are those of sdssplitargs of Redis: a quote can
// begin inside a word, but must end with it; in double quotes, \n, \r, \t, \b, \a and \xHH are escapes, and a backslash makes each other
// byte ordinary; in single quotes, only \' is an escape.
func inlineWord(line []byte, from int, write bool) (word span, next int, err error) {
	from = len(line) - len(bytes.TrimLeft(line[from:], " \t\n\v\f\r"))
	if from == len(line) {
		return span{}, 0, nil
	}
	to, quote := from, byte(0)
	put := func(c byte) {
		if write {
			line[to] = c
		}
		to++
	}
	i := from
	for ; i < len(line) && (quote != 0 || !isSpace(line[i])); i++ {
		switch c := line[i]; {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0:
			put(c)
		case c == quote:
			if quote = 0; i+1 < len(line) && !isSpace(line[i+1]) {
				return span{}, 0, errQuotes
			}
		case c == '\\' && i+1 < len(line) && (quote == '"' || line[i+1] == '\''):
			value, size := unescape(line[i+1:], quote)
			put(value)
			i += size
		default:
			put(c)
		}
	}
	if quote != 0 {
		return span{}, 0, errQuotes
	}
	return span{from, to}, i, nil
}

// unescape returns the byte for which the escape without its backslash stands at the start of b, and the size of the
// escape.
func unescape(b []byte, quote byte) (value byte, size int) {
	if quote == '\'' {
		return b[0], 1
	}
	switch b[0] {
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'b':
		return '\b', 1
	case 'a':
		return '\a', 1
	case 'x':
		if len(b) >= 3 {
			var one [1]byte
			if _, err := hex.Decode(one[:], b[1:3]); err == nil {
				return one[0], 3
			}
		}
	}
	return b[0], 1
}

// isSpace reports whether c separates the words of an inline command, as isspace of C does.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
