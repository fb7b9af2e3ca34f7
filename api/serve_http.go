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

	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
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
	if strings.HasPrefix(r.URL.Path, CheckPath) || strings.HasPrefix(r.URL.Path, forwardAuthPath) {
		a.echo.ServeHTTP(w, r)
		return
	}
	a.compressed.ServeHTTP(w, r)
}

// minCompressed is the minimum size of a response that is compressed, in bytes.
const minCompressed = 1 << 10

// compressing returns a handler that compresses the JSON responses of next with gzip, if the client
// accepts that. It does not compress decisions, because for them time matters more than size. The
// length of a compressed response can reveal its content to an attacker who chooses a part of it.
// The dashboard therefore gives its pages a random length. The API does not need that, because an
// attacker cannot make a client send its API key.
func compressing(next http.Handler) http.Handler {
	types := []string{"application/json", "application/problem+json", "text/csv"}
	wrapper, err := gzhttp.NewWrapper(gzhttp.ContentTypes(types), gzhttp.MinSize(minCompressed))
	if err != nil {
		panic(err) // cannot fail: the options are constants that a test checks
	}
	return wrapper(next)
}

// recovered writes a 500 response after a panic. If the handler has already written a part of a
// response, fail closes the connection, so that the client detects that the response is incomplete.
func (a *API) recovered(cause any, c echo.Context) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	a.fail(fmt.Errorf("panic: %v\n%s", cause, debug.Stack()), c)
}

// identify sets the X-Request-Id of the response. It uses the ID that the caller sent if saneID
// accepts it, and a new ID otherwise.
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

// uuidV7 returns a new UUIDv7. It uses math/rand, because a request ID is not a secret.
func uuidV7() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|0x7000|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}

// saneID reports whether a request ID has 1 to 128 characters that are safe in a log line and
// in a header.
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

// requestID returns the X-Request-Id that identify has set, or "".
func requestID(w http.ResponseWriter) string {
	if v := w.Header()[requestIDHeader]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// serve returns a handler for a route. Before it calls the handler of the route, it authenticates
// and authorizes the caller and checks the query parameters. It recovers from panics.
func (a *API) serve(r route) echo.HandlerFunc {
	gate, from := newGate(r.action), a.cfg.ClientIP
	if r.direct {
		from = connectionIP
	}
	return func(c echo.Context) error {
		defer func() {
			if cause := recover(); cause != nil {
				a.recovered(cause, c)
			}
		}()
		req := c.Request()
		req.Pattern = c.Path() // the tracer reads Pattern after the response, to name the request by its route
		var who caller
		if !gate.open {
			var err error
			who, err = a.authenticate(req, from)
			if r.action != accounts.Check {
				err = a.limitRequest(c.Response(), req, who, err)
			}
			if err != nil {
				return a.recordDenied(&r, who, c, err)
			}
			if err := gate.authorize(who, r.tenant(c)); err != nil {
				return a.recordDenied(&r, who, c, err)
			}
		}
		if !r.anyQuery {
			if err := checkQuery(req.URL, r.query); err != nil {
				return err
			}
		}
		switch {
		case r.decide != nil:
			return a.recordDenied(&r, who, c, r.decide(c.Response(), req, who))
		case gate.open:
			return r.handler(c)
		}
		return a.recordDenied(&r, who, c, a.manage(&r, who, c))
	}
}

// tenant returns the slug or ID of the tenant in the path or the query, or "".
func (r *route) tenant(c echo.Context) string {
	if tenant := c.Param("tenant"); tenant != "" || c.Request().URL.RawQuery == "" || !slices.Contains(r.query, "tenant") {
		return tenant
	}
	return c.QueryParam("tenant")
}

// recordDenied returns err unchanged. If the kind of err is Forbidden, recordDenied also queues an
// entry for the audit log. A background task writes the queued entries.
func (a *API) recordDenied(r *route, who caller, c echo.Context, err error) error {
	if err == nil || a.cfg.Refusals == nil || !problem.Is(err, problem.Forbidden) {
		return err
	}
	req := c.Request()
	tenant := r.tenant(c)
	ctx := audit.With(req.Context(), who.actor(), audit.Origin{RequestID: requestID(c.Response()), Address: a.cfg.ClientAddress(req)})
	a.cfg.Refusals.Note(ctx, who.principal(), r.action, r.method+" "+r.path, tenant[:min(len(tenant), maxNamed)])
	return err
}

// maxNamed is the maximum length of the slug or ID of a tenant in an audit entry about a denied
// access, in bytes.
const maxNamed = 64

const (
	// maxSlow is the maximum time of an operation on a whole configuration, and of a preview.
	maxSlow = 80 * time.Second
	// maxDownload is the maximum time of a download. Package export also ends a download if the
	// client stops reading.
	maxDownload = 15 * time.Minute
	// writeWithin is the maximum time to write the response of an expensive operation.
	writeWithin = 20 * time.Second
)

// errBusy is the error of an expensive operation that got no slot before its deadline.
var errBusy = &problem.Problem{
	Kind: problem.Unavailable, RetryAfter: 5,
	Message: "this node runs too many downloads, previews and operations on whole configurations: try again in a moment",
}

// manage runs a management operation. Before it calls the handler, it checks that a required
// If-Match is present, sets the deadline and the actor for the audit log, and checks the body.
func (a *API) manage(r *route, who caller, c echo.Context) error {
	req := c.Request()
	if lines := req.Header["If-Match"]; len(lines) > 1 { // HTTP allows a client to split a list into several header lines
		req.Header.Set("If-Match", strings.Join(lines, ", "))
	}
	if r.ifMatch && req.Header.Get("If-Match") == "" {
		return problem.New(problem.Unconditional, "send the ETag that was read as If-Match")
	}
	// A response may contain a secret, and depends on the caller. So no cache may store it.
	c.Response().Header()["Cache-Control"] = noStore
	timeout := a.cfg.Timeout
	if r.within > 0 {
		timeout = max(timeout, r.within)
		// The handler may use the whole timeout before it writes. So the deadline for writes is later than the timeout.
		// An error means that the connection supports no deadlines; it is ignored.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(timeout + writeWithin))
	}
	ctx, cancel := context.WithTimeout(req.Context(), timeout)
	defer cancel()
	ctx = context.WithValue(ctx, callerKey{}, who)
	ctx = context.WithValue(ctx, headerKey{}, c.Response().Header())
	ctx = audit.With(ctx, who.actor(), audit.Origin{RequestID: requestID(c.Response()), Address: a.cfg.ClientAddress(req)})
	var body []byte
	if r.body != nil {
		var err error
		var held int64
		body, held, err = a.managementBody(ctx, r, c, who)
		defer a.freeBody(who, held)
		if err != nil {
			return err
		}
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	if r.within > 0 { // only after the body is read, so that a slow client does not occupy a slot
		waiting, stop := context.WithTimeout(ctx, a.cfg.Timeout)
		end, ok := a.cfg.Slots.Take(waiting, who.party())
		stop()
		if !ok {
			return errBusy
		}
		defer end()
	}
	c.SetRequest(req.WithContext(ctx))
	return a.handle(r, who, c, body)
}

// managementBody returns the body for the handler of a management operation. held is the number of
// bytes that the body occupies in Config.Bodies. The caller must free these bytes, even after an
// error.
func (a *API) managementBody(ctx context.Context, r *route, c echo.Context, who caller) (body []byte, held int64, err error) {
	sent, held, err := a.readManagementBody(r, c.Request(), who)
	if err != nil || r.document == nil {
		return sent, held, err
	}
	body, err = patchedBody(ctx, r, c, sent)
	return body, held, err
}

func (a *API) readManagementBody(r *route, req *http.Request, who caller) (body []byte, held int64, err error) {
	if r.bodyOptional && req.ContentLength == 0 {
		return nil, 0, nil
	}
	if types := req.Header["Content-Type"]; r.document != nil && len(types) == 1 && types[0] == mergePatchType {
		req.Header["Content-Type"] = typeJSON
	}
	var b bytes.Buffer
	if held, err = a.readBody(&b, req, who, r.maxBody()); err != nil {
		return nil, 0, err
	}
	switch {
	case r.bodyOptional && b.Len() == 0:
		return nil, held, nil
	case r.document != nil:
		return b.Bytes(), held, conformPatch(b.Bytes(), r.body)
	}
	return b.Bytes(), held, conform(b.Bytes(), r.body)
}

// checkQuery returns an error if a query parameter is unknown, repeated, or empty, or has an
// invalid value.
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

// keyFault describes the fault in one member of the query parameter key, or returns "". The members
// have the form key[attribute]=value. An empty value stands for a missing attribute.
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

// before reports whether the time a is before the time b. Both are valid RFC 3339 times, because
// queryFault has checked them.
func before(a, b string) bool {
	first, _ := time.Parse(time.RFC3339, a)
	second, _ := time.Parse(time.RFC3339, b)
	return first.Before(second)
}

// queryLengths maps query parameters to their maximum lengths in characters.
var queryLengths = map[string]int{"q": 200, "action": 64, "object": 200, "tenant": problem.MaxSlug, "cursor": 512, "route": 2048}

// queryWords maps each query parameter with a fixed set of values to these values.
var queryWords = map[string][]string{
	"list": {string(exceptions.Deny), string(exceptions.Allow)}, "step": {string(metrics.Minute), string(metrics.Hour), string(metrics.Day)},
	"sort":   {"limited", "rate", "requests"},
	"reason": reasonWords(),
}

// queryFault describes the fault in the value of a query parameter, or returns "".
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
