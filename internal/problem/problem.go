// Package problem defines errors that may be shown to a caller.
//
// A Problem has a kind, a sentence that says what to do, and the invalid fields. The packages
// api and web turn the kind into a status or a page. Any other error is internal: it is logged
// and never shown. The package must not depend on HTTP or SQL, and imports only the standard
// library.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// A Kind classifies a Problem. Callers distinguish problems by their kind, never by their text.
type Kind uint8

const (
	// Internal is the kind of every error that is not a Problem.
	Internal Kind = iota
	// Malformed means that the request cannot be parsed: its syntax or a type is wrong, or a field is unknown.
	Malformed
	// Invalid means that the request was parsed, but contains a value that is not valid.
	Invalid
	// Unauthenticated means that the request has no API key, or that its key is unknown, expired or
	// revoked.
	Unauthenticated
	// Forbidden means that the caller is authenticated, but may not do this.
	Forbidden
	// NotFound means that the object does not exist, or that the caller may not find out that
	// it exists.
	NotFound
	// Conflict means that the state of an object does not allow the change. For example, a slug
	// is taken or a plan is in use.
	Conflict
	// Stale means that the object was changed after the caller read it.
	Stale
	// Unconditional means that a write has no If-Match header although it needs one.
	Unconditional
	// TooLarge means that the request has more bytes or items than allowed.
	TooLarge
	// Unsupported means that the body's media type is not supported.
	Unsupported
	// NotAllowed means that the path exists, but does not support the method.
	NotAllowed
	// TooMany means that the caller has sent too many requests to the API. The same request succeeds later.
	TooMany
	// Unavailable means that the database, Redis or another service is unavailable. The same
	// request may succeed later.
	Unavailable
)

var kindNames = [...]string{
	"internal", "malformed", "invalid", "unauthenticated", "forbidden", "not found", "conflict",
	"stale", "unconditional", "too large", "unsupported", "not allowed", "too many requests", "unavailable",
}

// String returns the name of the kind, for logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Field says what is wrong at one place of the input.
type Field struct {
	// Pointer is the RFC 6901 JSON pointer of the place, like "/limits/0/quota". For a query
	// parameter or a header, Pointer is its name without a slash.
	Pointer string
	// Message says what is wrong at the place and what is valid.
	Message string
}

// A Problem is an error that may be shown to a caller.
type Problem struct {
	Kind Kind
	// Code distinguishes problems of one kind, like "plan_in_use". It is "" if the kind says
	// enough. Codes never change, because clients compare them.
	Code string
	// Message is a sentence for the caller, without a capital letter at the start and without a
	// period at the end.
	Message string
	// Fields contains the faults of the input, in the order of their places.
	Fields []Field
	// RetryAfter is the number of seconds after which the same request may succeed; 0 if it is
	// unknown. It is set only for the kind Unavailable.
	RetryAfter int64
	// Cause is the underlying error. Logs contain it, but responses do not.
	Cause error
}

// Error returns the message, the fields and the cause, for logs.
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

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// CommonCause returns the message of a problem with the kind Unavailable and a cause, such as "the
// database is away". For any other problem, it returns "". Package logging writes one line for all
// warnings with the same common cause.
func (p *Problem) CommonCause() string {
	if p.Kind != Unavailable || p.Cause == nil {
		return ""
	}
	return p.Message
}

// New returns a Problem of a kind with a message.
func New(k Kind, format string, args ...any) *Problem {
	return &Problem{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// WithCode returns a Problem of a kind with a code and a message.
func WithCode(k Kind, code, format string, args ...any) *Problem {
	return &Problem{Kind: k, Code: code, Message: fmt.Sprintf(format, args...)}
}

// At returns a Problem of the kind Invalid with one field, which has the given pointer.
func At(pointer, format string, args ...any) *Problem {
	return &Problem{Kind: Invalid, Message: "invalid input", Fields: []Field{{pointer, fmt.Sprintf(format, args...)}}}
}

// Of returns the kind of the first Problem in the chain of err, or Internal if there is none.
func Of(err error) Kind {
	var p *Problem
	if errors.As(err, &p) {
		return p.Kind
	}
	return Internal
}

// Is reports whether the kind of err is k (see Of). It is false if err is nil.
func Is(err error, k Kind) bool { return err != nil && Of(err) == k }

// Fields collects all faults of one input, so that one response can report all of them.
type Fields []Field

// Add adds a fault at pointer.
func (f *Fields) Add(pointer, format string, args ...any) {
	*f = append(*f, Field{pointer, fmt.Sprintf(format, args...)})
}

// AddAll adds faults whose pointers are relative to the place at. It adds at to the beginning of
// each pointer.
func (f *Fields) AddAll(at string, faults Fields) {
	for _, fault := range faults {
		*f = append(*f, Field{at + fault.Pointer, fault.Message})
	}
}

// Err returns a Problem of the kind Invalid with the collected faults, or nil if there are none.
func (f Fields) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Problem{Kind: Invalid, Message: "invalid input", Fields: f}
}
