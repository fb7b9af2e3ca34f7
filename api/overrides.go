package api

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// newOverride converts a new override from its JSON form in the API.
func newOverride(n NewOverride) (exceptions.NewOverride, error) {
	o := exceptions.NewOverride{
		Policy: n.Policy, Attribute: n.Attribute, Value: n.Value, Prefix: n.Prefix, Reason: n.Reason, ExpiresAt: n.ExpiresAt.Time,
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

// notKeep returns n, or another negative number if n equals enforcement.Keep. enforcement.Keep is a
// negative number that stands for a missing number. A client must not be able to send it, so
// notKeep returns a number that the service rejects.
func notKeep(n int64) int64 {
	if n == enforcement.Keep {
		return math.MinInt64
	}
	return n
}

// newOverrideLimit converts one limit of an override from its JSON form in the API. It adds faults
// to f. at is the JSON pointer of the limit.
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

// showNumbers returns what an override sets, in the JSON form of the API: either its factor or its
// limits. The parameter factor is in thousandths.
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

// showOverride returns a function that converts an override to its JSON form in the API.
func (a *API) showOverride(who caller) func(exceptions.Override) (Override, error) {
	return func(o exceptions.Override) (Override, error) {
		m, err := showMade(o.ID, o.TenantID, o.CreatedBy)
		if err != nil {
			return Override{}, err
		}
		why := InactiveBecause(o.Idle(who.tenantSubject(o.TenantID), a.cfg.Now()).Code)
		out := Override{
			Id: m.id, TenantId: m.tenant, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Reason: o.Reason,
			Active: why == "", InactiveBecause: why, ExpiresAt: Instant{o.ExpiresAt}, CreatedAt: Instant{o.CreatedAt}, CreatedBy: m.by,
		}
		out.Factor, out.Limits = showNumbers(o.Factor, o.Limits)
		return out, nil
	}
}

// ListOverrides is GET /v1/tenants/{tenant}/overrides.
func (a *API) ListOverrides(ctx context.Context, r ListOverridesRequestObject) (ListOverridesResponseObject, error) {
	p, at := r.Params, "/v1/tenants/"+r.Tenant+"/overrides"
	out, link, err := list(at, filters("policy", p.Policy), p.Limit, p.Cursor, func(after string, limit int) ([]exceptions.Override, error) {
		return a.cfg.Exceptions.Overrides(ctx, r.Tenant, exceptions.Filter{Policy: p.Policy, After: after, Limit: limit})
	}, func(o exceptions.Override) string { return o.ID }, a.showOverride(callerOf(ctx)))
	return ListOverrides200JSONResponse{OverridePage(out), ListOverrides200ResponseHeaders{link}}, err
}

// CreateOverride is POST /v1/tenants/{tenant}/overrides.
func (a *API) CreateOverride(ctx context.Context, r CreateOverrideRequestObject) (CreateOverrideResponseObject, error) {
	n, err := newOverride(*r.Body)
	if err != nil {
		return nil, err
	}
	made, err := a.cfg.Exceptions.CreateOverride(ctx, r.Tenant, n)
	o, err := written(ctx, a, a.showOverride(callerOf(ctx)))(made, err)
	at := "/v1/tenants/" + r.Tenant + "/overrides/" + o.Id.String()
	return CreateOverride201JSONResponse{o, CreateOverride201ResponseHeaders{etag(made.Revision), at}}, err
}

// GetOverride is GET /v1/tenants/{tenant}/overrides/{override}.
func (a *API) GetOverride(ctx context.Context, r GetOverrideRequestObject) (GetOverrideResponseObject, error) {
	stored, err := a.cfg.Exceptions.Override(ctx, r.Tenant, r.Override.String())
	o, err := shown(a.showOverride(callerOf(ctx)))(stored, err)
	return GetOverride200JSONResponse{o, GetOverride200ResponseHeaders{etag(stored.Revision)}}, err
}

// overrideDocumentOf returns the stored document to which PATCH
// /v1/tenants/{tenant}/overrides/{override} applies the patch.
func (a *API) overrideDocumentOf(ctx context.Context, c echo.Context) (any, int64, error) {
	o, err := a.cfg.Exceptions.Override(ctx, c.Param("tenant"), c.Param("override"))
	d := OverrideDocument{
		Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Reason: o.Reason, ExpiresAt: Instant{o.ExpiresAt},
	}
	d.Factor, d.Limits = showNumbers(o.Factor, o.Limits)
	return d, o.Revision, err
}

// UpdateOverride is PUT /v1/tenants/{tenant}/overrides/{override}.
func (a *API) UpdateOverride(ctx context.Context, r UpdateOverrideRequestObject) (UpdateOverrideResponseObject, error) {
	before, err := a.cfg.Exceptions.Override(ctx, r.Tenant, r.Override.String())
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, before.Revision); err != nil {
		return nil, err
	}
	d := r.Body
	n, err := newOverride(NewOverride{
		Policy: before.Policy, Attribute: d.Attribute, Value: d.Value, Prefix: d.Prefix, Factor: d.Factor, Limits: d.Limits,
		Reason: d.Reason, ExpiresAt: d.ExpiresAt,
	})
	if err != nil {
		return nil, err
	}
	changed, err := a.cfg.Exceptions.UpdateOverride(ctx, r.Tenant, before.ID, n, before.Revision)
	o, err := written(ctx, a, a.showOverride(callerOf(ctx)))(changed, err)
	return UpdateOverride200JSONResponse{o, UpdateOverride200ResponseHeaders{etag(changed.Revision)}}, err
}

// DeleteOverride is DELETE /v1/tenants/{tenant}/overrides/{override}.
func (a *API) DeleteOverride(ctx context.Context, r DeleteOverrideRequestObject) (DeleteOverrideResponseObject, error) {
	return DeleteOverride204Response{}, a.changed(ctx, a.cfg.Exceptions.DeleteOverride(ctx, r.Tenant, r.Override.String()))
}
