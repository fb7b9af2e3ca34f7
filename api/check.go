package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// A scratch holds the buffers and values that one POST /v1/check needs. Scratches are pooled, so
// that a check allocates no memory.
type scratch struct {
	body       bytes.Buffer
	decoder    strictjson.Decoder
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	check      enforcement.Check
	decision   enforcement.Decision
	out        []byte
	held       int64 // number of bytes that body occupies in Config.Bodies
	answered   bool  // set when the status line is written; after that, no error can be sent
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release clears the references to the request and returns s to the pool. A scratch with a large
// buffer is not returned.
func (s *scratch) release() {
	if s.body.Cap() > maxBody+bytes.MinRead+1 {
		return
	}
	clear(s.check.Attributes)
	s.check = enforcement.Check{}
	s.decision.Reset()
	s.answered = false
	s.decoder.Reset("", 0)
	scratches.Put(s)
}

// CheckPath is the path of POST /v1/check.
const CheckPath = "/v1/check"

// serveCheck serves POST /v1/check. It does the same steps as serve, but it does not use the router
// of echo, and it creates an echo context only to write an error.
func (a *API) serveCheck(w http.ResponseWriter, r *http.Request) {
	r.Pattern = CheckPath
	sent := r.Header[requestIDHeader]
	if len(sent) > 0 && saneID(sent[0]) {
		w.Header()[requestIDHeader] = sent[:1:1]
	}
	s := scratches.Get().(*scratch)
	defer a.recoverCheck(w, r, s)
	who, err := a.check(w, r, s)
	if err != nil {
		c := a.errorContext(w, r, s)
		a.fail(a.recordDenied(&a.checkRoute, who, c, err), c)
	}
	s.release()
}

// errorContext returns the echo context that fail needs to write an error.
func (a *API) errorContext(w http.ResponseWriter, r *http.Request, s *scratch) echo.Context {
	if len(w.Header()[requestIDHeader]) == 0 {
		a.identify(w, r)
	}
	c := a.echo.NewContext(r, w)
	c.SetPath(CheckPath)
	c.Response().Committed = s.answered
	return c
}

// recoverCheck responds with 500 after a panic. It does not return the scratch to the pool, because
// its state is unknown.
func (a *API) recoverCheck(w http.ResponseWriter, r *http.Request, s *scratch) {
	if cause := recover(); cause != nil {
		a.recovered(cause, a.errorContext(w, r, s))
	}
}

// check authenticates the caller, decides the check, and writes the response. If it fails after the
// authentication, it also returns the caller, for the audit log.
func (a *API) check(w http.ResponseWriter, r *http.Request, s *scratch) (who caller, err error) {
	if who, err = a.authenticate(r, a.cfg.ClientIP); err != nil {
		return who, err
	}
	if err = a.checkGate.authorize(who, ""); err != nil {
		return who, err
	}
	if err = checkQuery(r.URL, a.checkRoute.query); err != nil {
		return who, err
	}
	return who, a.checkWith(w, r, who, s)
}

func (a *API) checkWith(w http.ResponseWriter, r *http.Request, who caller, s *scratch) error {
	deny, key, err := checkParameters(r)
	if err != nil {
		return err
	}
	subject, err := a.readCheck(s, r, who)
	defer a.freeBody(who, s.held)
	if err != nil {
		return err
	}
	if err := who.within(subject, &s.check); err != nil {
		return err
	}
	s.check.IdempotencyKey = key
	if a.decideOne(r.Context(), subject, s) != nil {
		overloaded(&s.decision, subject, &s.check)
	}
	if err := keyRefused(&s.decision); err != nil {
		return err
	}
	a.writeDecision(w, s, answerForm{denyStatus: deny})
	return nil
}

// decideOne waits for a slot of the admission gate and decides s.check. It frees the slot before
// the response is written, so that a slow client does not occupy one.
func (a *API) decideOne(ctx context.Context, subject *enforcement.Subject, s *scratch) error {
	if err := a.admit(ctx, subject, 1); err != nil {
		return err
	}
	defer a.cfg.Admission.Leave(1)
	a.cfg.Decider.Decide(ctx, subject, &s.check, &s.decision)
	return nil
}

// readCheck decodes the body of a check into s.check. It returns the tenant of the check. The caller
// must free s.held.
func (a *API) readCheck(s *scratch, r *http.Request, who caller) (_ *enforcement.Subject, err error) {
	s.body.Reset()
	if s.held, err = a.readBody(&s.body, r, who, maxBody); err != nil {
		return nil, err
	}
	tenant, err := s.decode(s.body.String())
	if err != nil {
		return nil, err
	}
	if tenant == "" && who.key.Operator {
		return nil, malformedAt("/tenant", tenantRequired)
	}
	subject, err := who.subject(tenant)
	if err != nil {
		return nil, atTenant(err, "/tenant")
	}
	return subject, complete(subject, &s.check, -1)
}

// complete returns an error if a check is incomplete or contradictory. If the tenant requires a
// route, the check must have a method and a path, because the policies for routes match nothing
// without them. An attribute that a policy uses as the cost must be a valid cost. Some modes do not
// allow some other members. index is the position of the check in its batch, or -1.
func complete(s *enforcement.Subject, c *enforcement.Check, index int) error {
	var pointer, message string
	switch name, fault := s.CostFault(c); {
	case s.RequireRoute && c.Method == "":
		pointer, message = "/method", routeRequired
	case s.RequireRoute && c.Path == "":
		pointer, message = "/path", routeRequired
	case name != "":
		pointer, message = "/attributes/"+problem.Escape(name), fault
	case c.Reservation != nil && c.Reservation.Life == 0:
		pointer, message = "/ttl_ms", "is required"
	case c.Reservation != nil && c.Mode != enforcement.Enforce && c.Mode != enforcement.Force:
		pointer, message = "/mode", "must be enforce or force: a peek reserves nothing, and take_up_to is not for reservations"
	case c.Refundable && c.Mode == enforcement.Peek:
		pointer, message = "/refundable", "must be false with the mode peek, which charges nothing"
	case c.Refundable && c.Mode == enforcement.TakeUpTo:
		pointer, message = "/refundable", "must be false with the mode take_up_to: reserve the units that you take instead"
	case c.Mode == enforcement.TakeUpTo && c.Cost == 0:
		pointer, message = "/cost", "must be at least 1 with the mode take_up_to: 0 takes nothing"
	default:
		return nil
	}
	if index >= 0 {
		pointer = "/checks/" + strconv.Itoa(index) + pointer
	}
	return malformedAt(pointer, message)
}

// tenantRequired is the error message for a check that names no tenant, if its API key does not
// belong to a tenant.
const tenantRequired = "is required with an operator key: name the tenant, or use an API key of the tenant"

const routeRequired = "is required, unless require_route of the tenant is false"

// An answerForm holds the options of a caller that change the response to a check.
type answerForm struct {
	denyStatus     int  // the status of a denial, or 0 for the usual one
	emptyIfAllowed bool // an allowed check gets a response without a body
	// clientErrors is set if the caller is a proxy that treats a status of 500 or more as a failure of Headgate. A
	// denial of the failure mode closed then has the status 429 instead of 503.
	clientErrors bool
}

// writeDecision writes the response for s.decision.
func (a *API) writeDecision(w http.ResponseWriter, s *scratch, form answerForm) {
	d := &s.decision
	status := a.decisionStatus(d, form.denyStatus)
	if form.clientErrors && d.Reason == enforcement.ReasonLimiterUnavailable {
		status = http.StatusTooManyRequests
	}
	s.out = s.out[:0]
	if !form.emptyIfAllowed || status != http.StatusOK {
		s.out = a.appendDecision(s.out, d, status, false, requestID(w))
	}
	h, size := w.Header(), len(s.out)
	s.out = a.cfg.Headers.write(h, d, s.out, len(h[requestIDHeader]) == 0)
	switch {
	case size == 0: // a response without a body has no Content-Type
	case status == http.StatusOK:
		h["Content-Type"] = typeJSON
	default:
		h["Content-Type"] = typeProblem
	}
	h["Cache-Control"] = noStore
	if d.Idempotency == enforcement.Replayed {
		h[replayedHeader] = isReplayed
	}
	s.answered = true
	w.WriteHeader(status)
	_, _ = w.Write(s.out[:size]) // an error means that the client closed the connection
}

// Answer returns the status and the headers of the response to a check with the decision d, without
// Content-Length. The dashboard shows them where it explains a decision.
func (a *API) Answer(d *enforcement.Decision) (status int, header http.Header) {
	header = http.Header{}
	return a.SetAnswer(header, d, nil), header
}

// SetAnswer sets the headers that Answer would return in header, and returns the status. It uses
// the spare capacity of buffer to build the header values, so that it allocates less.
func (a *API) SetAnswer(header http.Header, d *enforcement.Decision, buffer []byte) (status int) {
	status = a.decisionStatus(d, 0)
	a.cfg.Headers.write(header, d, buffer[len(buffer):], false)
	delete(header, "Content-Length")
	header["Content-Type"] = typeJSON
	if status != http.StatusOK {
		header["Content-Type"] = typeProblem
	}
	header["Cache-Control"] = noStore
	return status
}

// Header values that all responses share. These slices must not be changed.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
	challenge   = []string{"Bearer"}
	isReplayed  = []string{"true"}
)

// checkParameters returns the status in the query parameter deny_status, or 0, and the
// Idempotency-Key, or "".
func checkParameters(r *http.Request) (deny int, key string, err error) {
	if key, err = idempotencyKey(r.Header); err != nil || r.URL.RawQuery == "" {
		return 0, key, err
	}
	switch text := r.URL.Query().Get("deny_status"); text {
	case "":
		return 0, key, nil
	case "200":
		return http.StatusOK, key, nil
	case "403":
		return http.StatusForbidden, key, nil
	case "429":
		return http.StatusTooManyRequests, key, nil
	}
	return 0, "", malformedAt("deny_status", "must be 200, 403 or 429")
}

func malformedAt(pointer, detail string) error {
	return &problem.Problem{
		Kind: problem.Malformed, Message: "the request cannot be read",
		Fields: []problem.Field{{Pointer: pointer, Message: detail}},
	}
}

// atTenant adds a JSON pointer to the error for an unknown tenant. It does not change
// errForeign, which must not reveal whether the tenant exists.
func atTenant(err error, pointer string) error {
	if p := asProblem(err); p.Kind == problem.NotFound {
		return &problem.Problem{Kind: p.Kind, Message: p.Message, Fields: []problem.Field{{Pointer: pointer, Message: p.Message}}}
	}
	return err
}

// decode decodes the body of a check into s.check. It returns the slug or ID of the tenant that the
// body names, or "".
func (s *scratch) decode(text string) (tenant string, err error) {
	s.decoder.Reset(text, strictjson.MaxDepth)
	tenant = decodeCheck(&s.decoder, &s.check, s.attributes[:0])
	return tenant, s.decoder.End()
}

// decodeCheck decodes one check into c. room is the array in which it stores the attributes. The
// strings in c are parts of the decoded text.
func decodeCheck(d *strictjson.Decoder, c *enforcement.Check, room []enforcement.Attribute) (tenant string) {
	return decodeCheckWith(d, c, room, func(d *strictjson.Decoder, name string) {
		switch name {
		case "refundable":
			c.Refundable = d.Bool()
		case "lease":
			decodeLease(d, c, true)
		default:
			d.Unknown()
		}
	})
}

// decodeCheckWith decodes a check like decodeCheck, but the body may have further members. It
// calls other with the name of each further member.
func decodeCheckWith(d *strictjson.Decoder, c *enforcement.Check, room []enforcement.Attribute, other func(*strictjson.Decoder, string)) (
	tenant string,
) {
	*c = enforcement.Check{Cost: 1, DefaultCost: true, Attributes: room}
	for name := range d.Members() {
		switch name {
		case "tenant":
			if tenant = d.Text(); tenant == "" {
				d.Fail("must not be empty")
			}
		case "method":
			failed(d, c.SetMethod(d.Text()))
		case "path":
			if text := d.Text(); d.Err() == nil {
				failed(d, c.SetPath(text))
			}
		case "attributes":
			decodeAttributes(d, c)
		case "cost":
			c.Cost, c.DefaultCost = d.Int(0, enforcement.MaxCost), false
		case "mode":
			decodeMode(d, c)
		default:
			other(d, name)
		}
	}
	return tenant
}

// failed records err in d as a fault of the JSON value that d has read last. It does nothing if
// err is nil.
func failed(d *strictjson.Decoder, err error) {
	if err != nil {
		d.Fail("%v", err)
	}
}

func decodeMode(d *strictjson.Decoder, c *enforcement.Check) {
	switch d.Text() {
	case "enforce":
		c.Mode = enforcement.Enforce
	case "peek":
		c.Mode = enforcement.Peek
	case "force":
		c.Mode = enforcement.Force
	case "take_up_to":
		c.Mode = enforcement.TakeUpTo
	default:
		d.Fail("must be enforce, peek, force or take_up_to")
	}
}

func decodeAttributes(d *strictjson.Decoder, c *enforcement.Check) {
	for name := range d.Members() {
		value := d.Text()
		if d.Err() == nil {
			failed(d, c.AddAttribute(name, value))
		}
		if d.Err() != nil {
			return
		}
	}
}
