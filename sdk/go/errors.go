package headgate

import (
	"fmt"
	"net/http"
)

// UnreachableCode says why Headgate sent no usable response.
type UnreachableCode string

const (
	CodeTimeout     UnreachableCode = "timeout"     // no answer within the deadline
	CodeConnection  UnreachableCode = "connection"  // the connection failed
	CodeCanceled    UnreachableCode = "canceled"    // the caller canceled the context
	CodeUnavailable UnreachableCode = "unavailable" // 503: nothing was decided or charged
	CodeProtocol    UnreachableCode = "protocol"    // the response is malformed, or does not come from Headgate
)

// An UnreachableError is the error of a call to which Headgate sent no usable response.
type UnreachableError struct {
	Code  UnreachableCode
	Cause error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("headgate: no decision (%s): %v", e.Code, e.Cause)
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// A ProblemError is an RFC 9457 problem that Headgate returned.
type ProblemError struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Code      string  `json:"code"` // distinguishes problems of one type; may be empty
	RequestID string  `json:"request_id"`
	Errors    []Fault `json:"errors"`
}

// A Fault names an invalid member, parameter or header of a request.
type Fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

func (e *ProblemError) Error() string {
	text := fmt.Sprintf("headgate: %d %s", e.Status, e.Title)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	for _, fault := range e.Errors {
		text += fmt.Sprintf("; %s: %s", fault.Pointer, fault.Detail)
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// rejects reports whether the content of the request caused the problem. OnUnreachable does not
// allow such a request, because its sender could have chosen the content to pass unchecked.
func (e *ProblemError) rejects() bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.Status >= 400 && e.Status < 500
}
