package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

var noSniff = []string{"nosniff"}

const requestIDHeader = "X-Request-Id"

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = noSniff
	if r.Method == http.MethodPost && r.URL.Path == CheckPath && r.URL.RawPath == "" {
		a.serveCheck(w, r)
		return
	}
	a.identify(w, r)
	a.echo.ServeHTTP(w, r)
}

// recovered answers for a handler that panicked with a cause: 500 with a request
// id. If the answer has begun, the connection is cut instead, so that half of one
// cannot pass for the whole.
func (a *API) recovered(cause any, c echo.Context) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	a.fail(fmt.Errorf("panic: %v\n%s", cause, debug.Stack()), c)
}

// identify gives the request an id: the caller's, if it is sane.
func (a *API) identify(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(requestIDHeader)
	if !saneID(id) {
		id = newID()
	}
	w.Header()[requestIDHeader] = []string{id}
}

// newID returns the text of a UUIDv7.
func newID() string {
	var text [36]byte
	return string(appendUUID(text[:0], uuidV7()))
}

// uuidV7 makes a UUIDv7. It is no secret, so that the runtime's generator is
// strong enough.
func uuidV7() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|0x7000|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

// saneID takes 1 to 128 characters that cannot break a log line or a header.
func saneID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.:/+=~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// requestID is the id that identify gave.
func requestID(w http.ResponseWriter) string {
	if v := w.Header()[requestIDHeader]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// serve is what every operation goes through before its handler.
func (a *API) serve(r route) echo.HandlerFunc {
	gate := newGate(r.action)
	return func(c echo.Context) error {
		defer func() {
			if cause := recover(); cause != nil {
				a.recovered(cause, c)
			}
		}()
		req := c.Request()
		req.Pattern = c.Path() // for whoever asks after the answer what it was
		var who caller
		if !gate.open {
			var err error
			if who, err = a.authenticate(req); err != nil {
				return err
			}
			if err := gate.authorize(who, c.Param("tenant")); err != nil {
				return a.noted(&r, who, c, err)
			}
		}
		if err := checkQuery(req.URL, r.query); err != nil {
			return err
		}
		switch {
		case r.decide != nil:
			return a.noted(&r, who, c, r.decide(c.Response(), req, who))
		case gate.open:
			return r.handler(c)
		}
		return a.noted(&r, who, c, a.manage(&r, who, c))
	}
}

// noted gives the error back; one that says that a key may not leaves a line in
// the audit log, in a while.
func (a *API) noted(r *route, who caller, c echo.Context, err error) error {
	if err == nil || a.cfg.Refusals == nil || !problem.Is(err, problem.Forbidden) {
		return err
	}
	req := c.Request()
	tenant := c.Param("tenant")
	if tenant == "" && req.URL.RawQuery != "" {
		tenant = req.URL.Query().Get("tenant")
	}
	ctx := audit.With(req.Context(), who.actor(), audit.Origin{RequestID: requestID(c.Response()), Address: a.cfg.ClientAddress(req)})
	a.cfg.Refusals.Note(ctx, who.principal(), r.action, r.method+" "+r.path, tenant[:min(len(tenant), maxNamed)])
	return err
}

// maxNamed bounds, in bytes, what the audit log keeps of a tenant's name that a
// key may not use.
const maxNamed = 64

// manage is what management goes through besides: a deadline, who acts, the
// precondition and the body.
func (a *API) manage(r *route, who caller, c echo.Context) error {
	req := c.Request()
	if lines := req.Header["If-Match"]; len(lines) > 1 { // one list, on several lines
		req.Header.Set("If-Match", strings.Join(lines, ", "))
	}
	if r.ifMatch && req.Header.Get("If-Match") == "" {
		return problem.New(problem.Unconditional, "send the ETag that was read as If-Match")
	}
	// Answers may hold a secret, and are one caller's in any case.
	c.Response().Header()["Cache-Control"] = noStore
	ctx, cancel := context.WithTimeout(req.Context(), a.cfg.Timeout)
	defer cancel()
	ctx = context.WithValue(ctx, callerKey{}, who)
	ctx = audit.With(ctx, who.actor(), audit.Origin{RequestID: requestID(c.Response()), Address: a.cfg.ClientAddress(req)})
	if r.body != nil {
		body, err := readManagementBody(r, req)
		if err != nil {
			return err
		}
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	c.SetRequest(req.WithContext(ctx))
	return r.handler(c)
}

func readManagementBody(r *route, req *http.Request) ([]byte, error) {
	if r.bodyOptional && req.ContentLength == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if err := readBody(&b, req, r.maxBody()); err != nil {
		return nil, err
	}
	if r.bodyOptional && b.Len() == 0 {
		return nil, nil
	}
	return b.Bytes(), conform(b.Bytes(), r.body)
}

// checkQuery refuses parameters that are unknown, repeated or empty, and values
// that they cannot have.
func checkQuery(u *url.URL, known []string) error {
	if u.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return problem.New(problem.Malformed, "the query cannot be read")
	}
	refuse := func(name, detail string) error {
		return &problem.Problem{
			Kind: problem.Malformed, Message: "a query parameter cannot be read",
			Fields: []problem.Field{{Pointer: name, Message: detail}},
		}
	}
	for name, list := range values {
		if slices.Contains(known, "key") && (name == "key" || strings.HasPrefix(name, "key[")) {
			if fault := keyFault(name, list); fault != "" {
				return refuse(name, fault)
			}
			continue
		}
		switch {
		case !slices.Contains(known, name):
			return refuse(name, "unknown parameter")
		case len(list) > 1:
			return refuse(name, "given twice")
		case list[0] == "" && name != "verbose":
			return refuse(name, "must not be empty")
		case hasControl(list[0]):
			return refuse(name, mustBeText)
		}
		if fault := queryFault(name, list[0]); fault != "" {
			return refuse(name, fault)
		}
	}
	if values.Has("from") && values.Has("to") && !before(values.Get("from"), values.Get("to")) {
		return refuse("to", "must be after from")
	}
	return nil
}

const mustBeText = "must be text without control characters"

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\uFFFD' })
}

// keyFault returns the error of one member of the parameter key, which is a deepObject:
// key[attribute]=value. An empty value stands for a missing attribute.
func keyFault(name string, list []string) string {
	attribute, closed := strings.CutSuffix(strings.TrimPrefix(name, "key["), "]")
	switch {
	case name == "key", !closed, attribute == "", strings.ContainsAny(attribute, "[]"):
		return "must have the form key[attribute]=value"
	case len(list) > 1:
		return "given twice"
	case hasControl(attribute), hasControl(list[0]):
		return mustBeText
	}
	return ""
}

// before compares two instants that queryFault took.
func before(a, b string) bool {
	first, _ := time.Parse(time.RFC3339, a)
	second, _ := time.Parse(time.RFC3339, b)
	return first.Before(second)
}

// queryLengths are the most characters that parameters may have.
var queryLengths = map[string]int{"q": 200, "action": 64, "object": 200, "tenant": problem.MaxSlug, "cursor": 512, "route": 2048}

// queryWords are the values of parameters that have only a few.
var queryWords = map[string][]string{
	"list": {string(exceptions.Deny), string(exceptions.Allow)}, "step": {string(metrics.Minute), string(metrics.Hour), string(metrics.Day)},
	"outcome": {"limited", "allowed"}, "sort": {"limited", "rate", "requests"},
	"reason": reasonWords(),
}

// queryFault says what is wrong with a parameter's value, by its name.
func queryFault(name, text string) string {
	if most := queryLengths[name]; most > 0 && utf8.RuneCountInString(text) > most {
		return "must have at most " + strconv.Itoa(most) + " characters"
	}
	if words := queryWords[name]; words != nil && !slices.Contains(words, text) {
		return "must be one of " + strings.Join(words, ", ")
	}
	switch name {
	case "limit":
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > maxPage || text[0] == '+' || text[0] == '0' {
			return "must be from 1 to " + strconv.Itoa(maxPage)
		}
	case "plan", "policy":
		if !problem.ValidSlug(text) {
			return problem.SlugForm
		}
	case "from", "to":
		if !instantForm(text) {
			return notInstant
		}
	}
	return ""
}
