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
	s, err := owner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	decision, err := uuid.Parse(r.Decision)
	if err != nil {
		return nil, enforcement.ErrNotRefundable
	}
	refunded, replayed, err := a.cfg.Reservations.RefundCheck(ctx, s, decision, r.Params.IdempotencyKey)
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
