package api

import (
	"bytes"
	"errors"
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
	maxPlan  = plans.MaxBytes // of a plan's document

	maxConfiguration = 32 << 20
)

// MaxBody is the size in bytes of the largest body that any operation accepts.
const MaxBody = max(maxBody, maxBatch, maxPlan, maxConfiguration)

// readBody reads a JSON body into b. It returns an error if the media type is wrong or the body has
// more than limit bytes.
func readBody(b *bytes.Buffer, r *http.Request, limit int64) error {
	if err := checkMediaType(r.Header); err != nil {
		return err
	}
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	if r.ContentLength > 0 {
		b.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	body := io.Reader(r.Body)
	if r.ContentLength < 0 { // otherwise the HTTP server reads at most ContentLength bytes
		body = io.LimitReader(body, limit+1)
	}
	n, err := b.ReadFrom(body)
	switch {
	case err != nil:
		return readError(err, limit)
	case n > limit:
		return tooLarge(limit)
	}
	return nil
}

func readError(err error, limit int64) error {
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return tooLarge(limit)
	}
	return &problem.Problem{Kind: problem.Malformed, Message: "the body ended early", Cause: err}
}

func tooLarge(limit int64) error {
	return problem.New(problem.TooLarge, "the body has more than %d bytes", limit)
}

// checkMediaType returns an error unless the headers of a request say that the body is
// application/json in UTF-8 and not compressed.
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
