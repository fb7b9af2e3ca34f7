package api

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// scratch is what one check needs and the next can use again.
type scratch struct {
	body       bytes.Buffer
	decoder    strictjson.Decoder
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	check      enforcement.Check
	decision   enforcement.Decision
	out        []byte
	answered   bool // the status was written
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release forgets what the caller sent and gives s back.
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

// serveCheck is POST /v1/check. It does what serve does for every operation,
// without the router and its context, which only an error needs.
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
		c := a.failing(w, r, s)
		a.fail(a.noted(&a.checkRoute, who, c, err), c)
	}
	s.release()
}

// failing returns the context that fail needs.
func (a *API) failing(w http.ResponseWriter, r *http.Request, s *scratch) echo.Context {
	if len(w.Header()[requestIDHeader]) == 0 {
		a.identify(w, r)
	}
	c := a.echo.NewContext(r, w)
	c.SetPath(CheckPath)
	c.Response().Committed = s.answered
	return c
}

// recoverCheck answers for a check that panicked. Its scratch is not used again.
func (a *API) recoverCheck(w http.ResponseWriter, r *http.Request, s *scratch) {
	if cause := recover(); cause != nil {
		a.recovered(cause, a.failing(w, r, s))
	}
}

// check authenticates and answers a check. It returns the caller as soon as
// that is known.
func (a *API) check(w http.ResponseWriter, r *http.Request, s *scratch) (who caller, err error) {
	if who, err = a.authenticate(r); err != nil {
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
	deny, err := checkParameters(r)
	if err != nil {
		return err
	}
	subject, err := s.read(r, who)
	if err != nil {
		return err
	}
	if a.decideOne(r.Context(), subject, s) != nil {
		overloaded(&s.decision, subject, &s.check)
	}
	a.writeDecision(w, s, deny)
	return nil
}

// decideOne has s.check decided within a slot. The slot is free before the
// answer is written, so that a client that does not read holds none.
func (a *API) decideOne(ctx context.Context, subject *enforcement.Subject, s *scratch) error {
	if err := a.admit(ctx, subject, 1); err != nil {
		return err
	}
	defer a.cfg.Admission.Leave(1)
	a.cfg.Decider.Decide(ctx, subject, &s.check, &s.decision)
	return nil
}

// read takes the body of one check into s.check and finds the tenant it is about.
func (s *scratch) read(r *http.Request, who caller) (*enforcement.Subject, error) {
	s.body.Reset()
	if err := readBody(&s.body, r, maxBody); err != nil {
		return nil, err
	}
	tenant, err := s.decode(s.body.String())
	if err != nil {
		return nil, err
	}
	if tenant == "" && who.key.Operator {
		return nil, malformedAt("/tenant", "is required with an operator key")
	}
	subject, err := who.subject(tenant)
	if err != nil {
		return nil, atTenant(err, "/tenant")
	}
	return subject, nil
}

// writeDecision answers with s.decision.
func (a *API) writeDecision(w http.ResponseWriter, s *scratch, deny int) {
	d := &s.decision
	status := a.decisionStatus(d, deny)
	s.out = a.appendDecision(s.out[:0], d, status, false)
	h, size := w.Header(), len(s.out)
	s.out = a.cfg.Headers.write(h, d, s.out, len(h[requestIDHeader]) == 0)
	h["Content-Type"] = typeJSON
	if status != http.StatusOK {
		h["Content-Type"] = typeProblem
	}
	h["Cache-Control"] = noStore
	s.answered = true
	w.WriteHeader(status)
	_, _ = w.Write(s.out[:size]) // the client is gone if this fails
}

// Answer is the status with which a check is answered that was decided as d, and
// its headers, but for the length of the body.
func (a *API) Answer(d *enforcement.Decision) (status int, header http.Header) {
	status, header = a.decisionStatus(d, 0), http.Header{}
	a.cfg.Headers.write(header, d, nil, false)
	header.Del("Content-Length")
	header["Content-Type"] = typeJSON
	if status != http.StatusOK {
		header["Content-Type"] = typeProblem
	}
	header["Cache-Control"] = noStore
	return status, header
}

// Header values that every answer shares; nobody writes into them.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
	challenge   = []string{"Bearer"}
)

// checkParameters reads deny_status, and refuses what is not built yet: an
// idempotency key that were ignored would charge twice.
func checkParameters(r *http.Request) (deny int, err error) {
	if _, ok := r.Header["Idempotency-Key"]; ok {
		return 0, malformedAt("Idempotency-Key", "not supported yet")
	}
	if r.URL.RawQuery == "" {
		return 0, nil
	}
	switch text := r.URL.Query().Get("deny_status"); text {
	case "":
		return 0, nil
	case "200":
		return http.StatusOK, nil
	case "403":
		return http.StatusForbidden, nil
	case "429":
		return http.StatusTooManyRequests, nil
	}
	return 0, malformedAt("deny_status", "must be 200, 403 or 429")
}

func malformedAt(pointer, detail string) error {
	return &problem.Problem{
		Kind: problem.Malformed, Message: "the request cannot be read",
		Fields: []problem.Field{{Pointer: pointer, Message: detail}},
	}
}

// atTenant names the member behind a tenant that is unknown. A foreign one is
// told no more than that.
func atTenant(err error, pointer string) error {
	if p := asProblem(err); p.Kind == problem.NotFound {
		return &problem.Problem{Kind: p.Kind, Message: p.Message, Fields: []problem.Field{{Pointer: pointer, Message: p.Message}}}
	}
	return err
}

// decode reads the body of one check into s.check and gives the tenant it names.
func (s *scratch) decode(text string) (tenant string, err error) {
	s.decoder.Reset(text, strictjson.MaxDepth)
	tenant = decodeCheck(&s.decoder, &s.check, s.attributes[:0])
	return tenant, s.decoder.End()
}

// decodeCheck reads one check. Its attributes go to the room given; the strings
// are parts of the text.
func decodeCheck(d *strictjson.Decoder, c *enforcement.Check, room []enforcement.Attribute) (tenant string) {
	*c = enforcement.Check{Cost: 1, Attributes: room}
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
			c.Cost = d.Int(0, enforcement.MaxCost)
		case "mode":
			decodeMode(d, c)
		default:
			d.Unknown()
		}
	}
	return tenant
}

// failed tells what is wrong with the value that was read last.
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
	default:
		d.Fail("must be enforce, peek or force")
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
