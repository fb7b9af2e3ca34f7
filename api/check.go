package api

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/strictjson"
)

// scratch is what one check needs and the next can use again.
type scratch struct {
	body       bytes.Buffer
	decoder    strictjson.Decoder
	attributes [enforcement.MaxAttributes]enforcement.Attribute
	check      enforcement.Check
	decision   enforcement.Decision
	out        []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release forgets what the caller sent and gives s back.
func (s *scratch) release() {
	if s.body.Cap() > maxBody+bytes.MinRead+1 {
		return
	}
	clear(s.attributes[:])
	s.check = enforcement.Check{}
	s.decision = enforcement.Decision{Limits: s.decision.Limits[:0]}
	s.decoder.Reset("", 0)
	scratches.Put(s)
}

// check is POST /v1/check.
func (a *API) check(c echo.Context, who caller) error {
	s := scratches.Get().(*scratch)
	err := a.checkWith(c, who, s)
	s.release()
	return err
}

func (a *API) checkWith(c echo.Context, who caller, s *scratch) error {
	r := c.Request()
	deny, err := checkParameters(r)
	if err != nil {
		return err
	}
	subject, err := s.read(r, who)
	if err != nil {
		return err
	}
	a.cfg.Decider.Decide(r.Context(), subject, &s.check, &s.decision)
	a.writeDecision(c.Response(), s, deny)
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
func (a *API) writeDecision(w *echo.Response, s *scratch, deny int) {
	d := &s.decision
	status := a.decisionStatus(d, deny)
	s.out = a.appendDecision(s.out[:0], d, status, false)
	h, size := w.Header(), len(s.out)
	s.out = a.cfg.Headers.write(h, d, s.out)
	h["Content-Type"] = typeJSON
	if status != http.StatusOK {
		h["Content-Type"] = typeProblem
	}
	h["Cache-Control"] = noStore
	w.WriteHeader(status)
	_, _ = w.Write(s.out[:size]) // the client is gone if this fails
}

// Answer is the status with which a check is answered that was decided as d, and
// its headers, but for the length of the body.
func (a *API) Answer(d *enforcement.Decision) (status int, header http.Header) {
	status, header = a.decisionStatus(d, 0), http.Header{}
	a.cfg.Headers.write(header, d, nil)
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
