package strictjson

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// A Decoder pulls one value out of a text, piece by piece. Its first error
// stays: every later call returns a zero value or false, so a decoder reads
// straight down and asks End once.
//
//	d.Reset(body, strictjson.MaxDepth)
//	for name := range d.Members() {
//		switch name {
//		case "cost":
//			c.Cost = d.Int(0, 100)
//		default:
//			d.Unknown()
//		}
//	}
//	err := d.End()
//
// Strings that it returns are parts of the text where they hold no escape. A
// Decoder may be used again after Reset and keeps its memory. It is not for
// concurrent use.
type Decoder struct {
	text   string
	at     int
	max    int
	frames []frame
	names  []string // of all open objects, in the order of their frames
	fault  *problem.Problem
}

// A frame is an object or array that is open.
type frame struct {
	object bool
	index  int                 // array: of the element being read
	first  int                 // object: where its names begin in Decoder.names
	set    map[string]struct{} // object: its names, once they are many
}

// fewNames are compared one by one; more go into a map, so that an object of
// many names stays linear.
const fewNames = 24

// Reset begins a text. Arrays and objects may nest maxDepth deep.
func (d *Decoder) Reset(text string, maxDepth int) {
	clear(d.frames[:cap(d.frames)])
	*d = Decoder{text: text, max: maxDepth, frames: d.frames[:0], names: d.names[:0]}
}

// End asks that nothing follows, and gives the first error. It is nil or a
// *problem.Problem of kind Malformed.
func (d *Decoder) End() error {
	if d.fault == nil {
		d.space()
		if d.at < len(d.text) {
			d.syntax("nothing may follow the value")
		}
	}
	return d.Err()
}

// Err gives the first error so far.
func (d *Decoder) Err() error {
	if d.fault == nil {
		return nil
	}
	return d.fault
}

// Members reads an object: it gives each name in turn, and the loop's body must
// read the value. Names come unescaped.
func (d *Decoder) Members() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if !d.open('{', "an object") {
			return
		}
		for first := true; d.more('}', first); first = false {
			name, ok := d.name()
			if !ok || !yield(name) {
				return
			}
		}
		d.shut()
	}
}

// Elements reads an array: it gives each index in turn, and the loop's body
// must read the value.
func (d *Decoder) Elements() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		if !d.open('[', "an array") {
			return
		}
		for i := 0; d.more(']', i == 0); i++ {
			d.frames[len(d.frames)-1].index = i
			if !yield(i) {
				return
			}
		}
		d.shut()
	}
}

// Text reads a string, unescaped.
func (d *Decoder) Text() string {
	if !d.begins('"', "a string") {
		return ""
	}
	return d.quoted()
}

// Bool reads true or false.
func (d *Decoder) Bool() bool {
	switch {
	case d.fault != nil:
	case d.word("true"):
		return true
	case d.word("false"):
	default:
		d.wrongType("true or false")
	}
	return false
}

// Int reads an integer from low to high: digits, with a minus sign before a
// negative one; no fraction, no exponent, no -0.
func (d *Decoder) Int(low, high int64) int64 {
	if d.fault != nil {
		return 0
	}
	d.space()
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		d.wrongType("an integer")
		return 0
	}
	from := d.at
	if !d.number() {
		return 0
	}
	digits := d.text[from:d.at]
	if strings.ContainsAny(digits, ".eE") || digits == "-0" {
		d.Fail("must be an integer: digits only, without fraction or exponent")
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < low || n > high {
		d.Fail("must be from %d to %d", low, high)
		return 0
	}
	return n
}

// Skip reads any one value and forgets it.
func (d *Decoder) Skip() {
	if d.fault != nil {
		return
	}
	d.space()
	switch c := d.peek(); {
	case c == '{':
		for range d.Members() {
			d.Skip()
		}
	case c == '[':
		for range d.Elements() {
			d.Skip()
		}
	case c == '"':
		d.quoted()
	case c == '-', c >= '0' && c <= '9':
		d.number()
	case d.word("true"), d.word("false"):
	default:
		d.wrongType("a value")
	}
}

// Raw reads any one value and gives its text.
func (d *Decoder) Raw() string {
	d.space()
	from := d.at
	d.Skip()
	if d.fault != nil {
		return ""
	}
	return d.text[from:d.at]
}

// Kind gives the first byte of the next value without reading it: one of
// { [ " t f n, a minus sign or a digit; 0 at the end or after an error.
func (d *Decoder) Kind() byte {
	if d.fault != nil {
		return 0
	}
	d.space()
	return d.peek()
}

// Fail refuses the value being read: the one after the name or index that was
// given last, or the whole.
func (d *Decoder) Fail(format string, args ...any) {
	d.FailAt(d.Pointer(), format, args...)
}

// FailAt refuses a place. Only the first refusal stays.
func (d *Decoder) FailAt(pointer, format string, args ...any) {
	if d.fault == nil {
		d.fault = &problem.Problem{
			Kind: problem.Malformed, Message: "the body cannot be read",
			Fields: []problem.Field{{Pointer: pointer, Message: fmt.Sprintf(format, args...)}},
		}
	}
}

// Unknown refuses the field whose name was given last.
func (d *Decoder) Unknown() { d.Fail("unknown field") }

// Pointer gives the RFC 6901 pointer of the value being read.
func (d *Decoder) Pointer() string {
	var b strings.Builder
	for i := range d.frames {
		f := &d.frames[i]
		end := len(d.names)
		if i+1 < len(d.frames) {
			end = d.frames[i+1].first
		}
		switch {
		case !f.object && f.index >= 0:
			b.WriteByte('/')
			b.WriteString(strconv.Itoa(f.index))
		case f.object && end > f.first:
			b.WriteByte('/')
			b.WriteString(escapePointer.Replace(d.names[end-1]))
		}
	}
	return b.String()
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// Rest gives the text from the next value on, unread: what follows is judged
// only as it is read.
func (d *Decoder) Rest() string {
	if d.fault != nil {
		return ""
	}
	d.space()
	return d.text[d.at:]
}
