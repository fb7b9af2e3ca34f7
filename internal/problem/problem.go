// Package problem holds the kinds of error that cross packages.
//
// A Problem is an error that may be shown to a caller: it has a kind, which
// api and web turn into a status or a page, a sentence that says what to do,
// and the fields at fault. Everything else that is an error is internal, is
// logged, and is never shown. The package knows neither HTTP nor SQL, and
// imports nothing but the standard library.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// A Kind says what sort of answer a caller can expect. Callers branch on it,
// never on text.
type Kind uint8

const (
	// Internal is the kind of every error without one.
	Internal Kind = iota
	// Malformed: the request cannot be read: syntax, types, unknown fields.
	Malformed
	// Invalid: it can be read, and a value in it is not allowed.
	Invalid
	// Unauthenticated: no key, or one that is unknown, expired or revoked.
	Unauthenticated
	// Forbidden: the caller is known and may not do this.
	Forbidden
	// NotFound: no such object, or none that the caller may know of.
	NotFound
	// Conflict: the state of the object forbids it: a slug taken, a plan in use.
	Conflict
	// Stale: somebody else changed the object since it was read.
	Stale
	// Unconditional: a write that needs a condition came without one.
	Unconditional
	// TooLarge: more bytes or items than are taken.
	TooLarge
	// Unsupported: the body's media type is not one that is read.
	Unsupported
	// NotAllowed: the path exists, the method on it does not.
	NotAllowed
	// Unavailable: a store is away; the same request may pass later.
	Unavailable
)

var kindNames = [...]string{
	"internal", "malformed", "invalid", "unauthenticated", "forbidden", "not found", "conflict",
	"stale", "unconditional", "too large", "unsupported", "not allowed", "unavailable",
}

// String names the kind in words, for logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Field is one place of the input that is at fault.
type Field struct {
	// Pointer is the RFC 6901 JSON pointer of the place: "/limits/0/quota".
	// For a query parameter or a header it is its name, without a slash.
	Pointer string
	// Message says what is wrong there and what would be right.
	Message string
}

// A Problem is an error that may be shown to a caller.
type Problem struct {
	Kind Kind
	// Code tells problems of one kind apart ("plan_in_use"); empty when the
	// kind says enough. Codes are stable: SDKs match on them.
	Code string
	// Message is a sentence for the caller, in lower case, without a full stop.
	Message string
	// Fields are the places at fault, in the order of the input.
	Fields []Field
	// Cause is what lies beneath. It is logged and never shown.
	Cause error
}

// Error joins the message, the fields and the cause, for logs.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Message)
	for _, f := range p.Fields {
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Message)
	}
	if p.Cause != nil {
		fmt.Fprintf(&b, ": %v", p.Cause)
	}
	return b.String()
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// New makes a Problem of a kind.
func New(k Kind, format string, args ...any) *Problem {
	return &Problem{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// WithCode is New with a code.
func WithCode(k Kind, code, format string, args ...any) *Problem {
	return &Problem{Kind: k, Code: code, Message: fmt.Sprintf(format, args...)}
}

// At makes an Invalid problem of one field.
func At(pointer, format string, args ...any) *Problem {
	return &Problem{Kind: Invalid, Message: "invalid input", Fields: []Field{{pointer, fmt.Sprintf(format, args...)}}}
}

// Of gives the kind of err: that of the first Problem in its chain, or Internal.
func Of(err error) Kind {
	var p *Problem
	if errors.As(err, &p) {
		return p.Kind
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && Of(err) == k }

// Fields gathers the faults of one input, so that all are told at once.
type Fields []Field

// Add notes a fault.
func (f *Fields) Add(pointer, format string, args ...any) {
	*f = append(*f, Field{pointer, fmt.Sprintf(format, args...)})
}

// AddAll adds faults whose pointers are relative to the place at.
func (f *Fields) AddAll(at string, faults Fields) {
	for _, fault := range faults {
		*f = append(*f, Field{at + fault.Pointer, fault.Message})
	}
}

// Err gives an Invalid problem of the faults noted, or nil without any.
func (f Fields) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Problem{Kind: Invalid, Message: "invalid input", Fields: f}
}
