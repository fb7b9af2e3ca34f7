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

// codeOverloaded is the code of errOverloaded and the name of its problem type.
const codeOverloaded = "overloaded"

// errOverloaded is the error for a check or batch that arrives while too many checks wait on this
// node.
var errOverloaded = &problem.Problem{
	Kind: problem.Unavailable, Code: codeOverloaded,
	Message: "too many checks wait on this node; this check was not decided, and nothing was charged",
}

// checksPerSlot is the number of checks of a batch that share one slot of the admission gate. A
// single check needs a whole slot. A check of a batch costs less than a single check, because the
// batch is one HTTP request and needs few calls of Redis.
const checksPerSlot = 8

// batchWeight returns the number of slots of the admission gate that a batch needs.
func batchWeight(checks int) int { return (checks + checksPerSlot - 1) / checksPerSlot }

// admit waits for weight slots of the admission gate, for a check or batch of a tenant. If too many
// checks wait, it returns errOverloaded. If the client closes the connection during the wait, admit
// panics with http.ErrAbortHandler.
func (a *API) admit(ctx context.Context, s *enforcement.Subject, weight int) error {
	err := a.cfg.Admission.Enter(ctx, s.Number, weight)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, admission.ErrOverloaded):
		panic(http.ErrAbortHandler)
	}
	now, last := time.Now().UnixNano(), a.lastOverloadLog.Load()
	if now-last >= int64(time.Second) && a.lastOverloadLog.CompareAndSwap(last, now) {
		a.cfg.Logger.Warn("overloaded: checks are answered 503", "tenant", s.Tenant)
	}
	return errOverloaded
}

// overloadedRetry returns a random retry time between 501 and 1500 ms for a check that was denied
// because of overload. It is random, so that not all callers try again at the same time.
func overloadedRetry() int64 { return 501 + rand.Int64N(1000) }

// overloaded sets d to a denial because of overload. This denial has no limits. It is not counted,
// and GET /v1/explain does not find it.
func overloaded(d *enforcement.Decision, s *enforcement.Subject, c *enforcement.Check) {
	*d = enforcement.Decision{
		ID: uuidV7(), Subject: s, Check: c,
		Reason: enforcement.ReasonOverloaded, RetryAfter: overloadedRetry(), Limits: d.Limits[:0],
	}
}

// retryAfterOf returns the value of the header Retry-After, in seconds, for a problem of the kind
// Unavailable.
func retryAfterOf(p *problem.Problem) string {
	after := max(1, p.RetryAfter)
	if p.Code == codeOverloaded {
		after = seconds(overloadedRetry())
	}
	return strconv.FormatInt(after, 10)
}
