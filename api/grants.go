package api

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
)

// showGrant returns a function that converts a grant to its JSON form in the API. left maps the ID of a grant to its
// remaining units.
func (a *API) showGrant(who caller, left map[string]int64) func(exceptions.Grant) (Grant, error) {
	return func(g exceptions.Grant) (Grant, error) {
		m, err := showMade(g.ID, g.TenantID, g.CreatedBy)
		if err != nil {
			return Grant{}, err
		}
		why := InactiveBecause(g.Idle(who.tenantSubject(g.TenantID), a.cfg.Now()).Code)
		out := Grant{
			Id: m.id, TenantId: m.tenant, Policy: g.Policy, Limit: g.Limit, Key: showPartition(g.Key), Units: g.Units, Reason: g.Reason,
			Active: why == "", InactiveBecause: why, ExpiresAt: Instant{g.ExpiresAt}, CreatedAt: Instant{g.CreatedAt}, CreatedBy: m.by,
		}
		if n, known := left[g.ID]; known {
			out.Left = &n
		}
		return out, nil
	}
}

// grantsLeft returns the remaining units of each grant, by ID. The result is empty if the limiter does not answer.
func (a *API) grantsLeft(ctx context.Context, grants ...exceptions.Grant) map[string]int64 {
	if a.cfg.Usage == nil {
		return nil
	}
	return a.cfg.Usage.GrantsLeft(ctx, grants)
}

// ListGrants is GET /v1/tenants/{tenant}/grants.
func (a *API) ListGrants(ctx context.Context, r ListGrantsRequestObject) (ListGrantsResponseObject, error) {
	p, at, left := r.Params, "/v1/tenants/"+r.Tenant+"/grants", map[string]int64{}
	out, link, err := list(at, filters("policy", p.Policy), p.Limit, p.Cursor, func(after string, limit int) ([]exceptions.Grant, error) {
		grants, err := a.cfg.Exceptions.Grants(ctx, r.Tenant, exceptions.Filter{Policy: p.Policy, After: after, Limit: limit})
		for id, n := range a.grantsLeft(ctx, grants...) {
			left[id] = n
		}
		return grants, err
	}, func(g exceptions.Grant) string { return g.ID }, a.showGrant(callerOf(ctx), left))
	return ListGrants200JSONResponse{GrantPage(out), ListGrants200ResponseHeaders{link}}, err
}

// CreateGrant is POST /v1/tenants/{tenant}/grants.
func (a *API) CreateGrant(ctx context.Context, r CreateGrantRequestObject) (CreateGrantResponseObject, error) {
	made, err := a.cfg.Exceptions.CreateGrant(ctx, r.Tenant, exceptions.NewGrant{
		Policy: r.Body.Policy, Limit: r.Body.Limit, Key: r.Body.Key, Units: r.Body.Units, Reason: r.Body.Reason,
		ExpiresAt: r.Body.ExpiresAt.Time,
	})
	left := map[string]int64{made.ID: made.Units} // no check has used the new grant yet
	g, err := written(ctx, a, a.showGrant(callerOf(ctx), left))(made, err)
	at := "/v1/tenants/" + r.Tenant + "/grants/" + g.Id.String()
	return CreateGrant201JSONResponse{g, CreateGrant201ResponseHeaders{at}}, err
}

// GetGrant is GET /v1/tenants/{tenant}/grants/{grant}.
func (a *API) GetGrant(ctx context.Context, r GetGrantRequestObject) (GetGrantResponseObject, error) {
	found, err := a.cfg.Exceptions.Grant(ctx, r.Tenant, r.Grant.String())
	if err != nil {
		return nil, err
	}
	g, err := a.showGrant(callerOf(ctx), a.grantsLeft(ctx, found))(found)
	return GetGrant200JSONResponse(g), err
}

// DeleteGrant is DELETE /v1/tenants/{tenant}/grants/{grant}.
func (a *API) DeleteGrant(ctx context.Context, r DeleteGrantRequestObject) (DeleteGrantResponseObject, error) {
	return DeleteGrant204Response{}, a.changed(ctx, a.cfg.Exceptions.DeleteGrant(ctx, r.Tenant, r.Grant.String()))
}

// wireGrantNow is the JSON form of a grant that applies to a limit in an explanation.
type wireGrantNow struct {
	ID        string  `json:"id"`
	Units     int64   `json:"units"`
	Left      int64   `json:"left"`
	ExpiresAt Instant `json:"expires_at"`
}

func showGrantStates(states []enforcement.GrantState) (list []wireGrantNow) {
	for i := range states {
		g := &states[i]
		list = append(list, wireGrantNow{ID: g.ID, Units: g.Units, Left: g.Left, ExpiresAt: Instant{enforcement.Instant(g.Until)}})
	}
	return list
}
