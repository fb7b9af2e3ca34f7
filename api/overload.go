package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/problem"
)

// codeOverloaded is the code of errOverloaded, and the name of its type.
const codeOverloaded = "overloaded"

// errOverloaded answers a batch for which the queue has no room.
var errOverloaded = &problem.Problem{
	Kind: problem.Unavailable, Code: codeOverloaded,
	Message: "more checks wait on this node than it serves soon; this one was not decided, and nothing was charged",
}

// checksPerSlot is how many checks of a batch weigh as much as one check of
// its own: a batch shares the cost of its HTTP request, and its charges go to
// the limiter in few calls.
const checksPerSlot = 8

// batchWeight is the weight of a batch for admission.Gate.
func batchWeight(checks int) int { return (checks + checksPerSlot - 1) / checksPerSlot }

// admit waits until a check or batch of a tenant may be served. An error is
// errOverloaded. If the client has gone while it waited, admit ends the
// request: no answer can reach the client.
func (a *API) admit(ctx context.Context, s *enforcement.Subject, weight int) error {
	err := a.cfg.Admission.Enter(ctx, s.Number, weight)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, admission.ErrOverloaded):
		panic(http.ErrAbortHandler)
	}
	now, last := time.Now().UnixNano(), a.turned.Load()
	if now-last >= int64(time.Second) && a.turned.CompareAndSwap(last, now) {
		a.cfg.Logger.Warn("overloaded: checks are answered 503", "tenant", s.Tenant)
	}
	return errOverloaded
}

// overloadedRetry returns retry_after_ms of an overloaded answer: 1 s on average,
// spread so that callers do not return together. Retry-After is then 1 or 2
// seconds, each for half of the answers.
func overloadedRetry() int64 { return 501 + rand.Int64N(1000) }

// overloaded is the answer to a check for which the queue has no room. It is
// no decision of the engine: it is not recorded, and GET /v1/explain does not
// find it.
func overloaded(d *enforcement.Decision, s *enforcement.Subject, c *enforcement.Check) {
	*d = enforcement.Decision{
		ID: uuidV7(), Subject: s, Check: c,
		Reason: enforcement.ReasonOverloaded, RetryAfter: overloadedRetry(), Limits: d.Limits[:0],
	}
}

// retryAfterOf is the value of Retry-After for a problem of kind Unavailable.
func retryAfterOf(p *problem.Problem) string {
	if p.Code == codeOverloaded {
		return strconv.FormatInt(seconds(overloadedRetry()), 10)
	}
	return "1"
}
