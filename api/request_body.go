package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// The maximum sizes of the bodies of requests, in bytes.
const (
	maxBody  = 64 << 10
	maxBatch = 1 << 20
	maxPlan  = plans.MaxBytes // document of a plan

	maxConfiguration = 32 << 20
)

// MaxBody is the size in bytes of the largest body that any operation accepts.
const MaxBody = max(maxBody, maxBatch, maxPlan, maxConfiguration)

// smallBody is the size in bytes of the largest body that is not counted in Config.Bodies. The
// buffers of a connection have about this size.
const smallBody = 4 << 10

// readBody reads a JSON body into b. It returns an error if the media type is wrong, if the body is
// larger than limit bytes, or if the node has no memory for it. held is the number of bytes that
// the body occupies in Config.Bodies. The caller must pass held to freeBody when it no longer uses
// b.
func (a *API) readBody(b *bytes.Buffer, r *http.Request, who caller, limit int64) (held int64, err error) {
	if err := checkMediaType(r.Header); err != nil {
		return 0, err
	}
	if r.ContentLength > limit {
		return 0, tooLarge(limit)
	}
	if r.ContentLength >= 0 && r.ContentLength <= smallBody { // the HTTP server reads at most ContentLength bytes
		b.Grow(int(r.ContentLength) + bytes.MinRead)
		_, err := b.ReadFrom(r.Body)
		return 0, readError(err, limit)
	}
	held, err = a.readLargeBody(b, r, who, limit)
	if err != nil {
		a.freeBody(who, held)
		return 0, err
	}
	return held, nil
}

// readLargeBody reads a body into a buffer that it doubles when the buffer is full. So a client
// that announces a large body and does not send it occupies little memory.
func (a *API) readLargeBody(b *bytes.Buffer, r *http.Request, who caller, limit int64) (held int64, err error) {
	whole := limit + 1 // if the extra byte is read, the body is too large
	if r.ContentLength >= 0 {
		whole = r.ContentLength
	}
	for size := int64(0); size < whole; size = int64(b.Len()) {
		step := min(max(size, smallBody), whole-size)
		if size > 0 {
			if !a.cfg.Bodies.Take(who.party(), held, step) {
				return held, errTooManyBodies(who)
			}
			held += step
		}
		b.Grow(int(step))
		n, err := fill(r.Body, b.AvailableBuffer()[:step])
		b.Write(b.AvailableBuffer()[:n])
		switch {
		case err == nil || int64(n) == step:
		case errors.Is(err, io.EOF) && r.ContentLength < 0:
			return held, nil
		default:
			return held, readError(err, limit)
		}
	}
	if r.ContentLength < 0 {
		return held, tooLarge(limit)
	}
	return held, nil
}

// fill reads from r until p is full. At the end of r it returns io.EOF, even if it has filled a
// part of p. io.ReadFull does not fit here: it returns the same error for a short body and for a
// broken connection.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// freeBody frees the bytes that readBody reserved in Config.Bodies.
func (a *API) freeBody(who caller, held int64) {
	if held > 0 {
		a.cfg.Bodies.Give(who.party(), held)
	}
}

// errTooManyBodies is the error for a body for which the node has no memory.
func errTooManyBodies(who caller) error {
	return &problem.Problem{
		Kind: problem.Unavailable, RetryAfter: 1,
		Message: "this node holds as many large bodies as its memory allows: send smaller bodies, or try again in a moment",
		Cause:   fmt.Errorf("too many large bodies at once, the last one of %s", who.party()),
	}
}

// readError converts an error of reading a body to a problem. For a nil error, it returns nil.
func readError(err error, limit int64) error {
	if err == nil {
		return nil
	}
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return tooLarge(limit)
	}
	return &problem.Problem{Kind: problem.Malformed, Message: "the body ended early", Cause: err}
}

func tooLarge(limit int64) error {
	return problem.New(problem.TooLarge, "the body has more than %d bytes", limit)
}

// checkMediaType returns an error if the headers of a request do not say that the body is
// uncompressed application/json in UTF-8.
func checkMediaType(h http.Header) error {
	if coding := h["Content-Encoding"]; len(coding) > 0 && (len(coding) > 1 || !strings.EqualFold(coding[0], "identity")) {
		return problem.New(problem.Unsupported, "the body must not be compressed")
	}
	types := h["Content-Type"]
	if len(types) == 1 && types[0] == "application/json" {
		return nil
	}
	if len(types) == 1 {
		media, params, err := mime.ParseMediaType(types[0])
		charset, has := params["charset"]
		if err == nil && media == "application/json" && (len(params) == 0 || len(params) == 1 && has && strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return problem.New(problem.Unsupported, "the body must be application/json in UTF-8")
}
