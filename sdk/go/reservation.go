package headgate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A ReservationRequest is a request whose real cost is known only later. Cost, and the attributes
// that policies read costs from, are estimates. IdempotencyKey has no effect, because the ID makes
// the call idempotent.
type ReservationRequest struct {
	CheckRequest
	// ID is an ID of your own, such as that of the job: 1 to 64 letters, digits, and . _ ~ -.
	// Default: a random ID.
	ID string
	// TTL is the time after which the reservation ends by itself, from 1 s to 24 h. Required.
	TTL time.Duration
}

// A Reservation is the answer to Client.Reserve. If its decision allows the request, serve the
// request, and call Settle or Release afterwards.
type Reservation struct {
	// Decision says whether the request may pass, and why.
	Decision
	// ID is the ID of the reservation.
	ID string

	client *Client
	tenant string
	held   bool
}

// Reserve decides a request like Check, and keeps what it charged as a reservation. It always
// returns a Reservation: if Headgate does not decide, its Decision is a fallback.
func (c *Client) Reserve(ctx context.Context, request ReservationRequest) *Reservation {
	start := time.Now()
	r := &Reservation{ID: request.ID, client: c, tenant: request.Tenant}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	body := request.append(make([]byte, 0, 256))
	body = appendMember(body[:len(body)-1], "id", r.ID)
	body = strconv.AppendInt(append(body, `,"ttl_ms":`...), request.TTL.Milliseconds(), 10)
	limited, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	a, err := c.call(limited, ctx, call{method: http.MethodPost, url: c.reserve, header: c.header, body: append(body, '}'), idempotent: true})
	if err == nil {
		var made struct {
			Reservation json.RawMessage `json:"reservation"`
		}
		if r.Decision, err = decode(a); err == nil && json.Unmarshal(a.body.Bytes(), &made) == nil {
			r.held = made.Reservation != nil
		}
		a.release()
	}
	if err != nil {
		r.Decision = c.fallback(ctx, request.CheckRequest, err)
		var unreachable *UnreachableError
		r.held = errors.As(err, &unreachable) && unreachable.Code != CodeUnavailable
	}
	c.decided(ctx, request.CheckRequest, r.Decision, start)
	return r
}

// Held reports whether the reservation exists. It is also true if the response was lost, because the
// reservation may exist then. It is false if the request was denied, or if it was allowed while
// the shared limiter was unavailable. Then Settle, Extend and Release make no call and return nil.
func (r *Reservation) Held() bool { return r.held }

// A Settlement is the real cost of a request. A policy for which it has no cost keeps its estimate.
type Settlement struct {
	// Cost is the cost for all policies without cost_from.
	Cost *int64 `json:"cost,omitzero"`
	// Attributes has the costs for policies with cost_from, such as "tokens": "1800".
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Settle ends the reservation with its real cost, in the windows that were charged. It repeats the
// call if the response is lost, because Headgate settles a reservation once. Without a deadline, ctx
// allows 30 s. Use a context that is not canceled with the request, such as context.WithoutCancel(ctx).
// A *ProblemError with status 409 says how the reservation has ended before.
func (r *Reservation) Settle(ctx context.Context, real Settlement) error {
	return r.change(ctx, http.MethodPost, "/settle", real)
}

// Extend makes the reservation end when ttl has passed from now on.
func (r *Reservation) Extend(ctx context.Context, ttl time.Duration) error {
	return r.change(ctx, http.MethodPost, "/extend", map[string]int64{"ttl_ms": ttl.Milliseconds()})
}

// Release ends the reservation and gives its whole cost back. See Settle for ctx and errors.
func (r *Reservation) Release(ctx context.Context) error {
	return r.change(ctx, http.MethodDelete, "", nil)
}

func (r *Reservation) change(ctx context.Context, method, action string, body any) error {
	if !r.held {
		return nil
	}
	to := RawCall{Method: method, Path: "/v1/reservations/" + url.PathEscape(r.ID) + action, Idempotent: true}
	if r.tenant != "" {
		to.Query = url.Values{"tenant": {r.tenant}}
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		to.Body = text
	}
	_, err := r.client.Raw(ctx, to)
	var problem *ProblemError
	if r.Kind == KindFallback && errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		return nil // the request that would have made the reservation was lost, not its response
	}
	return err
}
