package api

import (
	"context"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// showRefusal converts a recorded decision to its JSON form in the API, without the explanation.
func showRefusal(r metrics.Refusal) (RecentRefusal, error) {
	out := RecentRefusal{
		DecisionId: r.ID, At: Instant{r.At}, Tenant: r.TenantSlug, Plan: r.Plan, PlanVersion: r.PlanVersion, Route: r.Route,
		Allowed: r.Allowed, Reason: RefusedReason(r.Reason), Policy: r.Policy, Limit: r.Limit,
		RetryAfterMs: showRetry(r.RetryAfterMS), Degraded: r.Degraded,
		Method: r.Method, Path: r.Path, Attributes: make(map[string]string, len(r.Attributes)), Redacted: r.Redacted,
		Cost: r.Cost, Node: r.Node, ListEntry: r.ListEntry, Block: r.Block,
	}
	for _, a := range r.Attributes {
		out.Attributes[a.Name] = a.Value
	}
	return out, nil
}

// showRetry converts a retry time in milliseconds to its JSON form. If waiting does not help, the
// result is null.
func showRetry(ms int64) RetryAfter {
	if ms == enforcement.Never {
		return nil
	}
	return &ms
}

// showKept converts a recorded decision with its explanation to its JSON form in the API.
func showKept(r metrics.Refusal) (KeptRefusal, error) {
	s, err := showRefusal(r)
	out := KeptRefusal{
		DecisionId: s.DecisionId, At: s.At, Tenant: s.Tenant, Plan: s.Plan, PlanVersion: s.PlanVersion, Route: s.Route,
		Allowed: s.Allowed, Reason: s.Reason, Policy: s.Policy, Limit: s.Limit, RetryAfterMs: s.RetryAfterMs, Degraded: s.Degraded,
		Method: s.Method, Path: s.Path, Attributes: s.Attributes, Redacted: s.Redacted,
		Cost: s.Cost, Node: s.Node, ListEntry: s.ListEntry, Block: s.Block,
		Limits: make([]KeptLimit, len(r.Limits)), Policies: make([]KeptPolicy, len(r.Policies)),
	}
	for i, l := range r.Limits {
		out.Limits[i] = KeptLimit{
			Policy: l.Policy, Limit: l.Limit, Mode: KeptLimitMode(l.Mode), Algorithm: Algorithm(l.Algorithm),
			Quota: l.Quota, RolledOver: l.RolledOver,
			WindowMs: l.WindowMS, Cost: l.Cost, Remaining: l.Remaining, ResetAfterMs: l.ResetAfterMS,
			RetryAfterMs: showRetry(l.RetryAfterMS), Allowed: l.Allowed, Override: l.Override,
		}
		if l.Burst != 0 {
			out.Limits[i].Burst = &l.Burst
		}
	}
	for i, p := range r.Policies {
		out.Policies[i] = KeptPolicy{
			Policy: p.Policy, Mode: KeptPolicyMode(p.Mode), Matches: p.Matches, Applies: p.Applies, Why: Why(p.Why),
			Attribute: p.Attribute, ReplacedBy: p.ReplacedBy, Override: p.Override, Block: p.Block,
		}
	}
	return out, err
}

// GetExplanation is GET /v1/explain/{decision}.
func (a *API) GetExplanation(ctx context.Context, r GetExplanationRequestObject) (GetExplanationResponseObject, error) {
	if err := a.counts(); err != nil {
		return nil, err
	}
	tenant := uint32(0)
	if own := callerOf(ctx).tenant(); own != nil {
		tenant = own.Number
	}
	kept, err := a.cfg.Analytics.Refusal(ctx, r.Decision, tenant)
	if problem.Is(err, problem.NotFound) {
		return nil, errNotKept
	}
	if err != nil {
		return nil, err
	}
	shown, err := showKept(kept)
	return GetExplanation200JSONResponse(shown), err
}

var errOutcome = malformedAt("outcome", "must be denied, allowed or any")

// onlyTrue returns "true" if b is set, and "" otherwise. It is for a query parameter that filters
// only if it is true.
func onlyTrue(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// ListRefusals is GET /v1/analytics/refusals.
func (a *API) ListRefusals(ctx context.Context, r ListRefusalsRequestObject) (ListRefusalsResponseObject, error) {
	p := r.Params
	if p.Outcome != "" && !p.Outcome.Valid() {
		return nil, errOutcome
	}
	tenant, err := a.countedTenant(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	if own := callerOf(ctx).tenant(); own != nil {
		p.Tenant = own.Tenant // page rejects a cursor from the listing of another tenant
	}
	filter := filters("tenant", p.Tenant, "policy", p.Policy, "route", p.Route, "outcome", string(p.Outcome),
		"degraded", onlyTrue(p.Degraded), "reason", string(p.Reason), "from", instant(p.From), "to", instant(p.To))
	out, link, err := list("/v1/analytics/refusals", filter, p.Limit, p.Cursor, func(after string, limit int) ([]metrics.Refusal, error) {
		f := metrics.RefusalFilter{
			Outcome: metrics.Outcome(p.Outcome), Tenant: tenant, Policy: p.Policy, Route: p.Route, Degraded: p.Degraded,
			Reason: enforcement.Reason(p.Reason), From: p.From, To: p.To, Limit: limit,
		}
		if after != "" {
			before, err := uuid.Parse(after)
			if err != nil {
				return nil, errCursor
			}
			f.Before = before
		}
		return a.cfg.Analytics.Refusals(ctx, f)
	}, func(r metrics.Refusal) string { return uuid.UUID(r.ID).String() }, showRefusal)
	return ListRefusals200JSONResponse{RefusalPage(out), ListRefusals200ResponseHeaders{link}}, err
}
