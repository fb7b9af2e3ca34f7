package headgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	maxAnswer  = 8 << 20               // maximum size of a response in bytes
	retryBase  = 20 * time.Millisecond // maximum random wait before the first retry; it doubles with each retry
	retryMax   = time.Second
	budgetMax  = 10.0 // maximum number of retries in a row
	budgetCall = 0.1  // retries that each call adds, so that a tenth of the calls may be retried

	idempotencyKey = "Idempotency-Key"
)

// A call is one call of the API. All its tries share the header.
type call struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
	// idempotent says that the server acts only once on repetitions. A call with an
	// Idempotency-Key is idempotent too.
	idempotent bool
}

// An answer is a response whose body has been read to the end.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

var answers = sync.Pool{New: func() any { return new(answer) }}

// release returns the memory of the body to the pool, for other calls. The header stays valid.
func (a *answer) release() {
	if a.body.Cap() > 1<<16 {
		return
	}
	a.header = nil
	a.body.Reset()
	answers.Put(a)
}

// call makes a call. It repeats a failed call if nothing was charged, or if the call is
// idempotent. limited is the context with the deadline for all tries. callers is the caller's
// context; it shows whether the caller canceled the call.
func (c *Client) call(limited, callers context.Context, to call) (*answer, error) {
	c.budget.earn()
	for try := 1; ; try++ {
		a, err := c.send(limited, to)
		wait, retry := retryable(a, err, try, to.idempotent || to.header[idempotencyKey] != nil)
		if retry && try < c.maxTries {
			if deadline, ok := limited.Deadline(); (!ok || time.Until(deadline) > wait) && c.budget.spend() {
				if a != nil {
					err = asProblem(a)
					a.release()
				}
				if c.config.Hooks.Retrying != nil {
					c.config.Hooks.Retrying(callers, err, wait)
				}
				if err = sleep(limited, wait); err == nil {
					continue
				}
				a = nil
			}
		}
		if err != nil {
			return nil, classify(callers, err)
		}
		return a, nil
	}
}

// retryable reports whether a call may be repeated after a failed try: if the try charged
// nothing, or if the call is idempotent. It also returns the wait before the next try: the
// Retry-After of the response plus a random time, whose maximum doubles with each try.
func retryable(a *answer, err error, try int, idempotent bool) (time.Duration, bool) {
	wait := time.Duration(rand.Int64N(int64(min(retryMax, retryBase<<(try-1)))))
	if err != nil {
		var dial *net.OpError
		refused := errors.As(err, &dial) && dial.Op == "dial" && !dial.Timeout()
		return wait, (refused || idempotent) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	if a.status != http.StatusServiceUnavailable && !a.limitsCalls() {
		return 0, false
	}
	seconds, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 32)
	return wait + time.Duration(seconds)*time.Second, err == nil
}

// limitsCalls reports whether the response says that the caller makes too many calls of the API.
// These limits do not apply to checks: a check with status 429 is a denial.
func (a *answer) limitsCalls() bool {
	var body struct{ Kind string }
	return a.status == http.StatusTooManyRequests && json.Unmarshal(a.body.Bytes(), &body) == nil && body.Kind == "problem"
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send makes one try. It does not follow redirects, so that the token is not sent to another
// server.
func (c *Client) send(ctx context.Context, to call) (*answer, error) {
	request := (&http.Request{
		Method: to.method, URL: to.url, Host: to.url.Host, Header: to.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if to.body != nil {
		request.ContentLength = int64(len(to.body))
		// net/http sends the headers and a body of this type in one system call.
		request.Body = io.NopCloser(bytes.NewReader(to.body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(to.body)), nil }
	}
	response, err := c.config.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := answers.Get().(*answer)
	a.status, a.header = response.StatusCode, response.Header
	n, err := a.body.ReadFrom(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && n > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if err != nil {
		a.release()
		return nil, err
	}
	return a, nil
}

// classify converts an error of the HTTP transport to an UnreachableError.
func classify(callers context.Context, err error) error {
	code := CodeConnection
	var timeout net.Error
	switch {
	case errors.Is(callers.Err(), context.Canceled):
		code = CodeCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		code = CodeTimeout
	}
	return &UnreachableError{Code: code, Cause: err}
}

// A budget allows retries for only a tenth of the calls. Without it, retries would multiply the
// load of a server that is already overloaded.
type budget struct {
	mu     sync.Mutex
	tokens float64
}

func (b *budget) earn() {
	b.mu.Lock()
	b.tokens = min(budgetMax, b.tokens+budgetCall)
	b.mu.Unlock()
}

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
