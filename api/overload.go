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
	Message: "too many checks wait on this node; this check was not decided, and nothing was charged",
}

// checksPerSlot is the number of checks of a batch that have the weight of one single
// check. A batch is one HTTP request, and its charges need few calls of the limiter.
const checksPerSlot = 8

// batchWeight is the weight of a batch for admission.Gate.
func batchWeight(checks int) int { return (checks + checksPerSlot - 1) / checksPerSlot }

// admit waits for a slot for a check or a batch of a tenant. Its error is errOverloaded.
// If the client closed the connection, admit aborts the request.
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

// overloadedRetry returns retry_after_ms of an overloaded answer: 1 s on average, at
// random so that callers do not retry together. Retry-After is 1 or 2 seconds.
func overloadedRetry() int64 { return 501 + rand.Int64N(1000) }

// overloaded sets the answer to a check for which the queue has no room. The engine does
// not decide it, the recorder does not count it, and GET /v1/explain does not find it.
func overloaded(d *enforcement.Decision, s *enforcement.Subject, c *enforcement.Check) {
	*d = enforcement.Decision{
		ID: uuidV7(), Subject: s, Check: c,
		Reason: enforcement.ReasonOverloaded, RetryAfter: overloadedRetry(), Limits: d.Limits[:0],
	}
}

// retryAfterOf returns Retry-After for a problem of kind Unavailable.
func retryAfterOf(p *problem.Problem) string {
	if p.Code == codeOverloaded {
		return strconv.FormatInt(seconds(overloadedRetry()), 10)
	}
	return "1"
}
