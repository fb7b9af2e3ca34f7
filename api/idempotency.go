package api

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

const (
	idempotencyKeyHeader = "Idempotency-Key"
	// replayedHeader is the name of the header that is true if the response is a stored copy of the
	// first response.
	replayedHeader = "Idempotent-Replayed"
)

// once returns a copy of the route that accepts an Idempotency-Key. A repeated request with the
// same key gets a stored copy of the first response.
func (r route) once() route {
	r.idempotent = true
	return r
}

// An answer is the complete response of a management operation.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// An answerWriter is an http.ResponseWriter that collects the response in memory.
type answerWriter struct {
	answer
	body bytes.Buffer
}

func (w *answerWriter) Header() http.Header         { return w.answer.Header }
func (w *answerWriter) WriteHeader(status int)      { w.Status = status }
func (w *answerWriter) Write(b []byte) (int, error) { return w.body.Write(b) }

// errKeyReused is the error for a check whose Idempotency-Key was used for another check.
var errKeyReused = problem.WithCode(problem.Conflict, "idempotency_key_reused",
	"this Idempotency-Key belongs to another check of the last 10 minutes: send a new key for a new check; this check was not charged")

// keyRefused returns an error if a check was not decided because its Idempotency-Key belongs to
// another check, or because the tenant has too many records. Otherwise it returns nil.
func keyRefused(d *enforcement.Decision) error {
	switch d.Idempotency {
	case enforcement.KeyReused:
		return errKeyReused
	case enforcement.TooManyKeys:
		code, what := "too_many_idempotency_keys", "used too many new Idempotency-Keys"
		if d.Check.Refundable {
			code, what = "too_many_refundable_checks", "made too many refundable checks, or used too many new Idempotency-Keys,"
		}
		p := problem.WithCode(problem.Unavailable, code,
			"the tenant has %s in the last 10 minutes; this check was not decided and not charged", what)
		p.RetryAfter = seconds(d.RetryAfter)
		return p
	}
	return nil
}

// headerKey is the context key under which a management operation finds the header of its response.
type headerKey struct{}

// markReplayed sets the header that says that the response is a copy of the first one.
func markReplayed(ctx context.Context) {
	if h, ok := ctx.Value(headerKey{}).(http.Header); ok {
		h.Set(replayedHeader, "true")
	}
}

// idempotencyKey returns the Idempotency-Key of a request, or "".
func idempotencyKey(h http.Header) (string, error) {
	lines := h[idempotencyKeyHeader]
	if len(lines) == 0 {
		return "", nil
	}
	key := lines[0]
	if len(lines) > 1 || key == "" {
		return "", errKeyForm
	}
	return key, validKey(key)
}

var errKeyForm = malformedAt(idempotencyKeyHeader, "must be one value of 1 to 255 visible ASCII characters")

// validKey returns an error if key does not have the form of an Idempotency-Key.
func validKey(key string) error {
	if !enforcement.ValidIdempotencyKey(key) {
		return errKeyForm
	}
	return nil
}

// handle calls the handler of a management operation. If the request has an Idempotency-Key, and
// the response to an earlier request with this key is stored, handle returns that response instead.
// If none is stored, handle stores the response of the handler.
func (a *API) handle(r *route, who caller, c echo.Context, body []byte) error {
	if !r.idempotent || a.cfg.Once == nil {
		return r.handler(c)
	}
	req, out := c.Request(), c.Response()
	key, err := idempotencyKey(req.Header)
	if err != nil || key == "" {
		if err == nil {
			err = r.handler(c)
		}
		return err
	}
	actor := who.actor()
	id := sha256.Sum256([]byte(strings.Join([]string{actor.Kind, actor.ID, req.Method, req.URL.RequestURI(), key}, "\x00")))
	box, err := answerCipher(req, id)
	if err != nil {
		return err
	}
	sealed, repeated, err := a.cfg.Once(req.Context(), id, sha256.Sum256(body), func(ctx context.Context) ([]byte, error) {
		w := answerWriter{answer: answer{Header: http.Header{}}}
		w.Header()[requestIDHeader] = out.Header()[requestIDHeader]
		c.SetRequest(req.WithContext(ctx))
		c.SetResponse(echo.NewResponse(&w, a.echo))
		defer c.SetResponse(out)
		if err := r.handler(c); err != nil {
			return nil, err
		}
		delete(w.Header(), requestIDHeader)
		w.Body = w.body.Bytes()
		return seal(box, w.answer)
	})
	if err != nil {
		return err
	}
	first, err := unseal(box, sealed)
	if err != nil {
		return err
	}
	if repeated {
		out.Header().Set(replayedHeader, "true")
	} else {
		a.cfg.Changed(req.Context()) // a second call: the handler called it when the transaction was not committed yet
	}
	maps.Copy(out.Header(), first.Header)
	out.WriteHeader(first.Status)
	_, _ = out.Write(first.Body) // an error means that the client closed the connection
	return nil
}

// answerCipher returns the cipher that encrypts the stored response to a request. A response may
// contain a secret that is shown only once. The key of the cipher is therefore derived from the
// caller's token, which the database does not contain.
func answerCipher(r *http.Request, id [32]byte) (cipher.AEAD, error) {
	token, _ := bearer(r.Header["Authorization"])
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("idempotent answer\x00"))
	_, _ = mac.Write(id[:])
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func seal(box cipher.AEAD, a answer) ([]byte, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // crypto/rand returns no error
	return box.Seal(nonce, nonce, text, nil), nil
}

func unseal(box cipher.AEAD, sealed []byte) (a answer, err error) {
	n := box.NonceSize()
	if len(sealed) < n {
		return a, errors.New("a stored answer is too short")
	}
	text, err := box.Open(nil, sealed[:n], sealed[n:], nil)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}
