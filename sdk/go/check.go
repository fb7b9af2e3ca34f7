package headgate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Check decides a request and charges its cost. It always returns a decision: if Headgate does
// not decide, the decision is a fallback, and its field Err has the cause. If ctx is canceled,
// the request is denied.
func (c *Client) Check(ctx context.Context, request CheckRequest) Decision {
	start := time.Now()
	body := request.append(make([]byte, 0, 256))
	remembers := c.config.RememberDenials && (request.Mode == "" || request.Mode == Enforce) && request.IdempotencyKey == ""
	if remembers {
		if d, ok := c.denials.get(body, start); ok {
			c.decided(ctx, request, d, start)
			return d
		}
	}
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	var d Decision
	a, err := c.call(limited, ctx, call{method: http.MethodPost, url: c.check, header: c.headerFor(&request), body: body})
	if err == nil {
		d, err = decode(a)
		a.release()
	}
	if err != nil {
		d = c.fallback(ctx, request, err)
	}
	if remembers && d.Kind == KindDenial {
		c.denials.put(body, d, time.Now())
	}
	c.decided(ctx, request, d, start)
	return d
}

// CheckBatch decides up to 1,000 requests in one call. It returns one decision for each
// request, in order. If atomic is true, it charges all requests or none; then all requests must
// have the same tenant, and there may be at most 100.
func (c *Client) CheckBatch(ctx context.Context, requests []CheckRequest, atomic bool) []Decision {
	start := time.Now()
	if len(requests) == 0 {
		return nil
	}
	body := append(make([]byte, 0, 32+256*len(requests)), `{"checks":[`...)
	for i := range requests {
		if i > 0 {
			body = append(body, ',')
		}
		body = requests[i].append(body)
	}
	body = append(body, ']')
	if atomic {
		body = append(body, `,"atomic":true`...)
	}
	body = append(body, '}')
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	var decisions []Decision
	a, err := c.call(limited, ctx, call{method: http.MethodPost, url: c.batch, header: c.headerFor(&requests[0]), body: body})
	if err == nil {
		decisions, err = c.decodeBatch(ctx, requests, a)
		a.release()
	}
	if err != nil {
		c.failed(ctx, err)
		decisions = make([]Decision, len(requests))
		for i := range decisions {
			decisions[i] = c.decideWithout(ctx, requests[i], err)
		}
	}
	for i := range decisions {
		c.decided(ctx, requests[i], decisions[i], start)
	}
	return decisions
}

// headerFor returns the HTTP headers of the call for a request, with its Idempotency-Key if it
// has one.
func (c *Client) headerFor(request *CheckRequest) http.Header {
	if request.IdempotencyKey == "" {
		return c.header
	}
	header := c.header.Clone()
	header.Set(idempotencyKey, request.IdempotencyKey)
	return header
}

func (c *Client) decided(ctx context.Context, request CheckRequest, d Decision, start time.Time) {
	if c.config.Hooks.Decided != nil {
		c.config.Hooks.Decided(ctx, request, d, time.Since(start))
	}
}

func (c *Client) failed(ctx context.Context, err error) {
	if c.config.Hooks.Failed != nil {
		c.config.Hooks.Failed(ctx, err)
	}
}

func (c *Client) fallback(ctx context.Context, request CheckRequest, err error) Decision {
	c.failed(ctx, err)
	return c.decideWithout(ctx, request, err)
}

// decideWithout makes the decision for a request if Headgate did not decide it. err is the
// cause.
func (c *Client) decideWithout(ctx context.Context, request CheckRequest, err error) Decision {
	d := Decision{Kind: KindFallback, Status: http.StatusServiceUnavailable, Err: err}
	var unreachable *UnreachableError
	var problem *ProblemError
	rejected := errors.As(err, &problem) && problem.rejects()
	switch {
	case errors.As(err, &unreachable) && unreachable.Code == CodeCanceled:
	case c.config.OnUnreachable == Callback:
		d.Allowed = c.config.Decide(ctx, request, err)
	default:
		d.Allowed = c.config.OnUnreachable == Open && !rejected
	}
	switch {
	case d.Allowed:
		d.Status = http.StatusOK
	case rejected:
		d.Status = http.StatusForbidden
	}
	return d
}

// decode returns the decision in a response. If the response is a problem, it returns the problem
// as an error.
func decode(a *answer) (Decision, error) {
	var d Decision
	if err := json.Unmarshal(a.body.Bytes(), &d); err != nil || d.Kind == "problem" {
		return Decision{}, asProblem(a)
	}
	d.Header = a.header
	if d.RequestID == "" {
		d.RequestID = a.header.Get("X-Request-Id")
	}
	return usable(d, a)
}

// usable returns d if Headgate decided it. Otherwise it returns an error.
func usable(d Decision, a *answer) (Decision, error) {
	switch {
	case d.Kind != KindDecision && d.Kind != KindDenial:
		return Decision{}, protocolError(a.status, errors.New("it has no kind"))
	case d.Reason == ReasonOverloaded:
		return Decision{}, &UnreachableError{Code: CodeUnavailable, Cause: fmt.Errorf("%d %s", d.Status, d.Detail)}
	case d.Allowed != (d.Kind == KindDecision):
		return Decision{}, protocolError(a.status, fmt.Errorf("kind is %s, and allowed is %t", d.Kind, d.Allowed))
	}
	if d.Allowed {
		d.Status = http.StatusOK
	}
	return d, nil
}

// decodeBatch returns the decisions of a batch. Items that Headgate did not decide are
// fallbacks.
func (c *Client) decodeBatch(ctx context.Context, requests []CheckRequest, a *answer) ([]Decision, error) {
	if a.status != http.StatusOK {
		return nil, asProblem(a)
	}
	var results struct {
		Results []json.RawMessage `json:"results"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &results); err != nil {
		return nil, protocolError(a.status, err)
	}
	if len(results.Results) != len(requests) {
		return nil, protocolError(a.status, fmt.Errorf("%d results for %d checks", len(results.Results), len(requests)))
	}
	decisions := make([]Decision, len(requests))
	for i, result := range results.Results {
		item := &answer{header: a.header, status: a.status}
		item.body.Write(result)
		d, err := decode(item)
		if err != nil {
			d = c.fallback(ctx, requests[i], err)
		}
		d.Header = nil // the HTTP headers belong to the whole batch, not to one item
		decisions[i] = d
	}
	return decisions, nil
}

func protocolError(status int, cause error) error {
	return &UnreachableError{Code: CodeProtocol, Cause: fmt.Errorf("answer %d: %w", status, cause)}
}

// asProblem returns the error for a response without a decision.
func asProblem(a *answer) error {
	p := ProblemError{Status: a.status}
	err := json.Unmarshal(a.body.Bytes(), &p)
	if p.RequestID == "" {
		p.RequestID = a.header.Get("X-Request-Id")
	}
	switch {
	case p.Status == http.StatusServiceUnavailable:
		p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
		return &UnreachableError{Code: CodeUnavailable, Cause: &p}
	case err != nil || p.Title == "":
		return protocolError(a.status, errors.New("it is no problem document"))
	}
	return &p
}
