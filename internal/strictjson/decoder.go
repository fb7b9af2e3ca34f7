package strictjson

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
)

// A Decoder reads one JSON value from a text, piece by piece. After the first error, every method
// returns a zero value or false. The caller can therefore read all fields without error checks. At
// the end, it calls End, which returns the first error:
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
// A string without escapes is returned as a slice of the text. A Decoder can be used again after
// Reset and keeps its memory. It is not safe for concurrent use.
type Decoder struct {
	text   string
	at     int
	max    int
	frames []frame
	names  []string // names of the members of all open objects, in the order of their frames
	fault  *problem.Problem
}

// A frame is an object or array whose end was not read yet.
type frame struct {
	object bool
	index  int                 // only for an array: index of the element that is being read
	first  int                 // only for an object: index of its first name in Decoder.names
	set    map[string]struct{} // only for an object with more than fewNames names: its names
}

// fewNames is the maximum number of names in an object for which a linear search finds duplicates.
// For more names, a map finds them, so that the total time stays linear.
const fewNames = 24

// Reset starts the reading of a new text. Its arrays and objects may be nested at most maxDepth
// levels deep.
func (d *Decoder) Reset(text string, maxDepth int) {
	clear(d.frames[:cap(d.frames)])
	*d = Decoder{text: text, max: maxDepth, frames: d.frames[:0], names: d.names[:0]}
}

// End returns the first error, which is a *problem.Problem of the kind Malformed, or nil. Text
// after the value is an error too.
func (d *Decoder) End() error {
	if d.fault == nil {
		d.space()
		if d.at < len(d.text) {
			d.syntax("nothing may follow the value")
		}
	}
	return d.Err()
}

// Err returns the first error so far, or nil.
func (d *Decoder) Err() error {
	if d.fault == nil {
		return nil
	}
	return d.fault
}

// Members reads an object. It yields each name, without escapes, and the body of the loop must read the value.
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

// Elements reads an array. It yields each index, and the body of the loop must read the element.
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

// Text reads a string and replaces its escapes.
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

// Int reads an integer from low to high: digits with an optional minus sign. A fraction, an exponent, and -0 are
// errors.
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

// Skip reads a value of any type and discards it.
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

// Null reports whether the next value is null. If so, it reads the value. All other methods reject
// null.
func (d *Decoder) Null() bool { return d.fault == nil && d.word("null") }

// Raw reads a value of any type and returns its text.
func (d *Decoder) Raw() string {
	d.space()
	from := d.at
	d.Skip()
	if d.fault != nil {
		return ""
	}
	return d.text[from:d.at]
}

// Kind returns the first byte of the next value without reading it: { [ " t f n, a minus sign or a digit. It returns
// 0 at the end of the text or after an error.
func (d *Decoder) Kind() byte {
	if d.fault != nil {
		return 0
	}
	d.space()
	return d.peek()
}

// Fail records an error. The error is at the value after the name or index that was yielded last,
// or at the whole text.
func (d *Decoder) Fail(format string, args ...any) {
	d.FailAt(d.Pointer(), format, args...)
}

// FailAt records an error at a place. Only the first error is kept.
func (d *Decoder) FailAt(pointer, format string, args ...any) {
	if d.fault == nil {
		d.fault = &problem.Problem{
			Kind: problem.Malformed, Message: "the body cannot be read",
			Fields: []problem.Field{{Pointer: pointer, Message: fmt.Sprintf(format, args...)}},
		}
	}
}

// Unknown records that the field whose name was yielded last is unknown.
func (d *Decoder) Unknown() { d.Fail("unknown field") }

// Pointer returns the RFC 6901 pointer of the value that is being read.
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

// Rest returns the text that was not read yet. This text is not validated yet.
func (d *Decoder) Rest() string {
	if d.fault != nil {
		return ""
	}
	d.space()
	return d.text[d.at:]
}
