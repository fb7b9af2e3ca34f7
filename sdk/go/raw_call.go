package headgate

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// manageTimeout is the maximum time of a management call whose context has no deadline.
const manageTimeout = 30 * time.Second

// A RawCall is a call of any operation of the API. Package manage has a typed method for each
// operation.
type RawCall struct {
	Method string
	Path   string // with escaped segments, such as /v1/tenants/acme
	Query  url.Values
	Header http.Header // sent in addition to the client's headers
	Body   []byte      // JSON; nil: no body
	// Idempotent says that the server acts only once on repetitions of the call. The client then
	// also repeats it if the connection breaks before the response.
	Idempotent bool
}

// A RawAnswer is the response to a RawCall.
type RawAnswer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Raw makes a call. If the status is 400 or higher, it returns a *ProblemError or an
// *UnreachableError. It repeats a failed call only if the server has not acted on it, or if
// the call is idempotent.
func (c *Client) Raw(ctx context.Context, raw RawCall) (*RawAnswer, error) {
	path, err := url.PathUnescape(raw.Path)
	if err != nil {
		return nil, err
	}
	u := at(c.base, path)
	u.RawPath, u.RawQuery = c.base.EscapedPath()+raw.Path, raw.Query.Encode()
	to := call{method: raw.Method, url: u, header: maps.Clone(c.header), body: raw.Body, idempotent: raw.Idempotent}
	if raw.Body == nil {
		to.header.Del("Content-Type")
	}
	maps.Copy(to.header, raw.Header)
	limited := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, manageTimeout)
		defer cancel()
	}
	a, err := c.call(limited, ctx, to)
	if err == nil && (a.status < 200 || a.status > 299) {
		err = asProblem(a)
		a.release()
	}
	if err != nil {
		c.failed(ctx, err)
		return nil, err
	}
	defer a.release()
	return &RawAnswer{a.status, a.header, bytes.Clone(a.body.Bytes())}, nil
}
