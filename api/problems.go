package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
)

// kindTypes maps each kind of error to the name of its problem type in problem.Catalog.
var kindTypes = map[problem.Kind]string{
	problem.Internal:        "internal-error",
	problem.Malformed:       "malformed-request",
	problem.Invalid:         "invalid-input",
	problem.Unauthenticated: "unauthenticated",
	problem.Forbidden:       "forbidden",
	problem.NotFound:        "not-found",
	problem.Conflict:        "conflict",
	problem.Stale:           "precondition-failed",
	problem.Unconditional:   "precondition-required",
	problem.TooLarge:        "request-too-large",
	problem.Unsupported:     "unsupported-media-type",
	problem.NotAllowed:      "method-not-allowed",
	problem.TooMany:         "too-many-requests",
	problem.Unavailable:     "unavailable",
}

// quotaExceeded is the URI of the only problem type that is registered with IANA. The URIs of all
// other types are the addresses of pages that Headgate serves.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A problemType is an entry of problem.Catalog with its URI. An error response contains the three
// fields as its members type, title and status.
type problemType struct {
	uri, title string
	status     int
}

// problemTypes contains the problem types by name.
type problemTypes struct {
	byName map[string]problemType
}

func newProblemTypes(publicURL string) problemTypes {
	t := problemTypes{byName: make(map[string]problemType, len(problem.Catalog))}
	for _, p := range problem.Catalog {
		t.byName[p.Name] = problemType{strings.TrimSuffix(publicURL, "/") + "/docs/problems/" + p.Name, p.Title, p.Status}
	}
	return t
}

// of returns the problem type for an error. The kind of the error determines the type. Only
// errOverloaded has a type of its own.
func (t problemTypes) of(p *problem.Problem) problemType {
	if p.Code == codeOverloaded {
		return t.byName[codeOverloaded]
	}
	return t.byName[kindTypes[p.Kind]]
}

// asProblem converts any error to a problem. It chooses a kind for the errors of echo and for
// exceeded deadlines. Any other error that is not a problem gets the kind Internal.
func asProblem(err error) *problem.Problem {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p
	}
	var h *echo.HTTPError
	if errors.As(err, &h) {
		return fromEcho(h)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &problem.Problem{Kind: problem.Unavailable, Message: "the operation timed out", Cause: err}
	}
	return &problem.Problem{Kind: problem.Internal, Message: "internal error", Cause: err}
}

// pathIDs are the path parameters whose values are IDs or numbers. If the value has the wrong
// format, no such object can exist, so the response is NotFound.
var pathIDs = []string{"key", "version", "override", "entry", "block", "grant", "member", "person", "invitation"}

// fromEcho converts an error of the router or of the generated parameter binder to a problem.
func fromEcho(h *echo.HTTPError) *problem.Problem {
	text := fmt.Sprint(h.Message)
	switch h.Code {
	case http.StatusNotFound:
		return problem.New(problem.NotFound, "this address does not exist")
	case http.StatusMethodNotAllowed:
		return problem.New(problem.NotAllowed, "this address does not support this method")
	case http.StatusBadRequest:
		name, _, named := strings.Cut(strings.TrimPrefix(text, "Invalid format for parameter "), ":")
		switch {
		case named && name == "decision": // the error of GET /v1/explain/{decision}
			return errNotKept
		case named && slices.Contains(pathIDs, name):
			return problem.New(problem.NotFound, "this address does not exist")
		case named:
			return &problem.Problem{
				Kind: problem.Malformed, Message: "a parameter cannot be read",
				Fields: []problem.Field{{Pointer: name, Message: "has the wrong format"}}, Cause: h,
			}
		}
		return &problem.Problem{Kind: problem.Malformed, Message: "the request cannot be read", Cause: h}
	}
	return &problem.Problem{Kind: problem.Internal, Message: "internal error", Cause: h}
}

// fail writes an error as a problem. echo calls it for every error that a handler returns.
func (a *API) fail(err error, c echo.Context) {
	p := asProblem(err)
	failed := p.Kind == problem.Internal || p.Kind == problem.Unavailable && p.Cause != nil
	if failed && !clientLeft(err, c.Request()) {
		a.cfg.Logger.Error("request failed", "request_id", requestID(c.Response()),
			"method", c.Request().Method, "path", c.Path(), "err", err)
	}
	if c.Response().Committed {
		panic(http.ErrAbortHandler)
	}
	t := a.types.of(p)
	h := c.Response().Header()
	switch p.Kind {
	case problem.Unauthenticated:
		h["Www-Authenticate"] = challenge
	case problem.Unavailable:
		h.Set("Retry-After", retryAfterOf(p))
	case problem.TooLarge:
		h.Set("Connection", "close") // the server does not read the rest of the body
	case problem.NotAllowed:
		if allow, ok := c.Get(echo.ContextKeyHeaderAllow).(string); ok {
			h.Set("Allow", allow)
		}
	}
	out := a.appendProblem(make([]byte, 0, 512), p, requestID(c.Response()), "")
	h["Content-Type"] = typeProblem
	h["Content-Length"] = []string{strconv.Itoa(len(out))}
	h["Cache-Control"] = noStore
	c.Response().WriteHeader(t.status)
	if c.Request().Method != http.MethodHead {
		_, _ = c.Response().Write(out) // an error means that the client closed the connection
	}
}

// clientLeft reports whether err is an error of writing to the client. Such an error means that the client has closed
// the connection or does not read.
func clientLeft(err error, r *http.Request) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "write" && op.Addr != nil && op.Addr.String() == r.RemoteAddr
}

// appendProblem appends the JSON form of a problem to b. For an item of a batch, prefix is the JSON
// pointer of the item, and appendProblem puts it before the pointers in the problem.
func (a *API) appendProblem(b []byte, p *problem.Problem, id, prefix string) []byte {
	t := a.types.of(p)
	message, code, fields := p.Message, p.Code, p.Fields
	if p.Kind == problem.Internal {
		message, code, fields = "internal error", "", nil
	}
	b = append(b, `{"kind":"problem","type":`...)
	b = appendString(b, t.uri)
	b = append(b, `,"title":`...)
	b = appendString(b, t.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(t.status), 10)
	if message != "" {
		b = append(b, `,"detail":`...)
		b = appendString(b, message)
	}
	if code != "" {
		b = append(b, `,"code":`...)
		b = appendString(b, code)
	}
	b = append(b, `,"request_id":`...)
	b = appendString(b, id)
	if len(fields) > 0 {
		b = appendFaults(append(b, `,"errors":`...), fields, prefix)
	}
	return append(b, '}')
}

func appendFaults(b []byte, fields []problem.Field, prefix string) []byte {
	b = append(b, '[')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"pointer":`...)
		b = appendString(b, prefix+f.Pointer)
		b = append(b, `,"detail":`...)
		b = appendString(b, f.Message)
		b = append(b, '}')
	}
	return append(b, ']')
}

func faultsOf(fields []problem.Field) []Fault {
	out := make([]Fault, len(fields))
	for i, f := range fields {
		out[i] = Fault{Pointer: f.Pointer, Detail: f.Message}
	}
	return out
}

// under adds a prefix to the JSON pointers in a problem. A handler calls it if the validated
// document is one member of the body, because the pointers of the service start at the document.
func under(prefix string, err error) error {
	var p *problem.Problem
	if !errors.As(err, &p) || len(p.Fields) == 0 {
		return err
	}
	moved := *p
	moved.Fields = make([]problem.Field, len(p.Fields))
	for i, f := range p.Fields {
		moved.Fields[i] = problem.Field{Pointer: prefix + f.Pointer, Message: f.Message}
	}
	return &moved
}
