package api

import (
	"context"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
)

// RefundCheck is POST /v1/checks/{decision}/refund.
func (a *API) RefundCheck(ctx context.Context, r RefundCheckRequestObject) (RefundCheckResponseObject, error) {
	if err := validKey(r.Params.IdempotencyKey); err != nil {
		return nil, err
	}
	who := callerOf(ctx)
	s, err := who.owner(r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	refunded, replayed, err := a.refund(ctx, who, s, r.Decision, r.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	if replayed {
		markReplayed(ctx)
	}
	out := CheckRefund{
		DecisionId: refunded.Decision, Tenant: s.Tenant, Limits: make([]RefundedLimit, len(refunded.Limits)),
		CheckedAt: Instant{enforcement.Instant(refunded.CheckedAt)}, RefundedAt: Instant{enforcement.Instant(refunded.RefundedAt)},
	}
	for i, l := range refunded.Limits {
		out.Limits[i] = RefundedLimit{Policy: l.Policy, Limit: l.Limit, Charged: l.Charged, Refunded: l.Refunded}
	}
	return RefundCheck200JSONResponse(out), nil
}

// refund refunds a check of the tenant s for the caller who. decision is the ID of the check's
// decision. key is an Idempotency-Key, or "". replayed is set if an earlier call with this key
// already refunded the check.
func (a *API) refund(ctx context.Context, who caller, s *enforcement.Subject, decision, key string) (
	r *enforcement.RefundedCheck, replayed bool, err error,
) {
	if who.key.Bounds.PeekOnly {
		return nil, false, errPeekOnly
	}
	id, err := uuid.Parse(decision)
	if err != nil {
		return nil, false, enforcement.ErrNotRefundable
	}
	return a.cfg.Reservations.RefundCheck(ctx, s, id, key)
}
