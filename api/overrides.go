package api

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// newOverride is what a body says of an override.
func newOverride(n NewOverride) (exceptions.NewOverride, error) {
	o := exceptions.NewOverride{
		Policy: n.Policy, Attribute: n.Attribute, Value: n.Value, Prefix: n.Prefix, Reason: n.Reason, ExpiresAt: n.ExpiresAt,
	}
	var f problem.Fields
	if n.Factor != "" {
		var err error
		if o.Factor, err = exceptions.ParseFactor(n.Factor.String()); err != nil {
			f.Add("/factor", "%v", err)
		}
	}
	if n.Limits != nil && len(n.Limits) == 0 {
		f.Add("/limits", "must name a limit; leave it out for a factor")
	}
	for i, l := range n.Limits {
		o.Limits = append(o.Limits, newOverrideLimit(&f, "/limits/"+strconv.Itoa(i), l))
	}
	return o, f.Err()
}

// notKeep returns n, or another negative number if n is enforcement.Keep: the
// service rejects that number, and would read Keep as an absent one.
func notKeep(n int64) int64 {
	if n == enforcement.Keep {
		return math.MinInt64
	}
	return n
}

// newOverrideLimit reads one limit of a body.
func newOverrideLimit(f *problem.Fields, at string, l OverrideLimit) enforcement.OverrideLimit {
	to := enforcement.OverrideLimit{Name: l.Name, Quota: enforcement.Keep, Burst: enforcement.Keep}
	if l.Quota != nil {
		to.Quota = notKeep(*l.Quota)
	}
	if l.Burst != 0 {
		to.Burst = notKeep(l.Burst)
	}
	if l.Window != "" {
		var err error
		if to.Window, err = enforcement.ParseWindow(l.Window); err != nil {
			f.Add(at+"/window", "%v", err)
		}
	}
	return to
}

// showNumbers is what an override says: a factor, or other numbers.
func showNumbers(factor int64, limits []enforcement.OverrideLimit) (json.Number, []OverrideLimit) {
	if factor != 0 {
		return json.Number(exceptions.FormatFactor(factor)), nil
	}
	out := make([]OverrideLimit, len(limits))
	for i, l := range limits {
		out[i] = OverrideLimit{Name: l.Name}
		if l.Quota != enforcement.Keep {
			out[i].Quota = &l.Quota
		}
		if l.Burst != enforcement.Keep {
			out[i].Burst = l.Burst
		}
		if l.Window != 0 {
			out[i].Window = enforcement.FormatWindow(l.Window)
		}
	}
	return "", out
}

// showOverride is an override on the wire.
func (a *API) showOverride(who caller) func(exceptions.Override) (Override, error) {
	return func(o exceptions.Override) (Override, error) {
		m, err := showMade(o.ID, o.TenantID, o.CreatedBy)
		if err != nil {
			return Override{}, err
		}
		why := a.idleOverride(who, o)
		out := Override{
			Id: m.id, TenantId: m.tenant, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Reason: o.Reason,
			Active: why == "", InactiveBecause: why, ExpiresAt: o.ExpiresAt.UTC(), CreatedAt: o.CreatedAt.UTC(), CreatedBy: m.by,
		}
		out.Factor, out.Limits = showNumbers(o.Factor, o.Limits)
		return out, nil
	}
}

// idleOverride says why an override has no effect; "" when it has one.
func (a *API) idleOverride(who caller, o exceptions.Override) InactiveBecause {
	if why := a.ended(o.ExpiresAt); why != "" {
		return why
	}
	r := who.rule(o.TenantID, o.Policy)
	switch {
	case r == nil:
		return InactiveBecauseNoPolicy
	case o.Attribute != "" && !countsBy(r, o.Attribute):
		return InactiveBecauseNoAttribute
	case len(o.Limits) > 0 && !slices.ContainsFunc(o.Limits, func(l enforcement.OverrideLimit) bool { return hasLimit(r, l.Name) }):
		return InactiveBecauseNoLimit // with some of them it holds for those
	case r.Mode == enforcement.PolicyOff:
		return InactiveBecauseNotPossible
	}
	spec := enforcement.ExceptionSpec{Overrides: []enforcement.Override{{
		ID: o.ID, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: o.Factor, Limits: o.Limits,
		Revision: o.Revision, From: o.CreatedAt.UnixMicro(), Until: o.ExpiresAt.UnixMicro(),
	}}}
	if !who.usable(o.TenantID, spec) {
		return InactiveBecauseNotPossible
	}
	return ""
}

func hasLimit(r *enforcement.Rule, name string) bool {
	return slices.ContainsFunc(r.Limits, func(l enforcement.RuleLimit) bool { return l.Name == name })
}

// ListOverrides is GET /v1/tenants/{tenant}/overrides.
func (a *API) ListOverrides(ctx context.Context, r ListOverridesRequestObject) (ListOverridesResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	p := r.Params
	l, err := page("/v1/tenants/"+r.Tenant+"/overrides", filters("policy", p.Policy), p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.Overrides(ctx, r.Tenant, exceptions.Filter{Policy: p.Policy, After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(o exceptions.Override) string { return o.ID })
	data, err := each(rows, a.showOverride(callerOf(ctx)))
	if err != nil {
		return nil, err
	}
	return ListOverrides200JSONResponse{OverridePage{data, next != "", next}, ListOverrides200ResponseHeaders{link}}, nil
}

// CreateOverride is POST /v1/tenants/{tenant}/overrides.
func (a *API) CreateOverride(ctx context.Context, r CreateOverrideRequestObject) (CreateOverrideResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	n, err := newOverride(*r.Body)
	if err != nil {
		return nil, err
	}
	o, err := s.CreateOverride(ctx, r.Tenant, n)
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := a.showOverride(callerOf(ctx))(o)
	if err != nil {
		return nil, err
	}
	return CreateOverride201JSONResponse{shown, CreateOverride201ResponseHeaders{"/v1/tenants/" + r.Tenant + "/overrides/" + o.ID}}, nil
}

// GetOverride is GET /v1/tenants/{tenant}/overrides/{override}.
func (a *API) GetOverride(ctx context.Context, r GetOverrideRequestObject) (GetOverrideResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	o, err := s.Override(ctx, r.Tenant, r.Override.String())
	if err != nil {
		return nil, err
	}
	shown, err := a.showOverride(callerOf(ctx))(o)
	return GetOverride200JSONResponse(shown), err
}

// DeleteOverride is DELETE /v1/tenants/{tenant}/overrides/{override}.
func (a *API) DeleteOverride(ctx context.Context, r DeleteOverrideRequestObject) (DeleteOverrideResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	if err := s.DeleteOverride(ctx, r.Tenant, r.Override.String()); err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	return DeleteOverride204Response{}, nil
}

// utcOrZero keeps the instant that means none.
func utcOrZero(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
