package resp

import (
	"strconv"
	"strings"
)

// replies collects the replies to the commands of a pipeline, in RESP2 or RESP3.
type replies struct {
	out   []byte
	proto int // 2 or 3
}

func (r *replies) array(n int) { r.line('*', int64(n)) }

func (r *replies) integer(v int64) { r.line(':', v) }

func (r *replies) line(kind byte, v int64) {
	r.out = strconv.AppendInt(append(r.out, kind), v, 10)
	r.out = append(r.out, "\r\n"...)
}

// text appends a bulk string.
func (r *replies) text(s string) {
	r.line('$', int64(len(s)))
	r.out = append(append(r.out, s...), "\r\n"...)
}

// status appends s as a simple string. s must not have a line break.
func (r *replies) status(s string) {
	r.out = append(append(append(r.out, '+'), s...), "\r\n"...)
}

// fail appends an error. The first word of the message is an error code of Redis, which clients
// know.
func (r *replies) fail(message string) {
	r.out = append(r.out, '-')
	r.out = append(append(r.out, lineBreaks.Replace(message)...), "\r\n"...)
}

// lineBreaks replaces the line breaks of a message by spaces, because a line break ends an error reply.
var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// pairs appends the start of a map with n entries. The caller then appends each key and its value. RESP2 has no maps, so there the reply
// is an array of keys and values.
func (r *replies) pairs(n int) {
	if r.proto == 3 {
		r.line('%', int64(n))
		return
	}
	r.array(2 * n)
}
