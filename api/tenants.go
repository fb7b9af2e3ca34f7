package api

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// parseUUID reads an id that the store made.
func parseUUID(id string) (uuid.UUID, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("stored id %q: %w", id, err)
	}
	return u, nil
}

// showTenant is a tenant on the wire.
func showTenant(t tenants.Tenant) (Tenant, error) {
	id, err := parseUUID(t.ID)
	if err != nil {
		return Tenant{}, err
	}
	redact := t.RedactValues
	return Tenant{
		Id: id, Slug: t.Slug, Revision: t.Revision, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
		Tenant: TenantDocument{
			Name: t.Name, Status: TenantStatus(t.Status), Plan: t.Plan, TimeZone: t.TimeZone,
			BillingAnchorDay: t.BillingAnchorDay, NoPolicy: TenantDocumentNoPolicy(t.NoPolicy), RedactValues: &redact,
		},
	}, nil
}

// tenantDocument is what a body says of a tenant.
func tenantDocument(d TenantDocument) tenants.Document {
	return tenants.Document{
		Name: d.Name, Status: tenants.Status(d.Status), Plan: d.Plan, TimeZone: d.TimeZone, BillingAnchorDay: d.BillingAnchorDay,
		NoPolicy: tenants.NoPolicy(d.NoPolicy), RedactValues: d.RedactValues != nil && *d.RedactValues,
	}
}

// ListTenants is GET /v1/tenants.
func (a *API) ListTenants(ctx context.Context, r ListTenantsRequestObject) (ListTenantsResponseObject, error) {
	p := r.Params
	if p.Status != "" && p.Status != TenantStatusActive && p.Status != TenantStatusSuspended {
		return nil, malformedAt("status", "must be active or suspended")
	}
	l, err := page("/v1/tenants", filters("q", p.Q, "status", string(p.Status), "plan", p.Plan), p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Tenants.Tenants(ctx, tenants.Filter{Query: p.Q, Status: tenants.Status(p.Status), Plan: p.Plan, After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(t tenants.Tenant) string { return t.ID })
	data, err := each(rows, showTenant)
	if err != nil {
		return nil, err
	}
	return ListTenants200JSONResponse{TenantPage{data, next != "", next}, ListTenants200ResponseHeaders{link}}, nil
}

// CreateTenant is POST /v1/tenants.
func (a *API) CreateTenant(ctx context.Context, r CreateTenantRequestObject) (CreateTenantResponseObject, error) {
	t, err := a.cfg.Tenants.CreateTenant(ctx, r.Body.Slug, tenantDocument(r.Body.Tenant))
	if err != nil {
		return nil, underUnless("/slug", "/tenant", err)
	}
	a.cfg.Changed(ctx)
	shown, err := showTenant(t)
	if err != nil {
		return nil, err
	}
	return CreateTenant201JSONResponse{shown, CreateTenant201ResponseHeaders{etag(t.Revision), "/v1/tenants/" + t.ID}}, nil
}

// GetTenant is GET /v1/tenants/{tenant}.
func (a *API) GetTenant(ctx context.Context, r GetTenantRequestObject) (GetTenantResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	shown, err := showTenant(t)
	if err != nil {
		return nil, err
	}
	return GetTenant200JSONResponse{shown, GetTenant200ResponseHeaders{etag(t.Revision)}}, nil
}

// UpdateTenant is PUT /v1/tenants/{tenant}.
func (a *API) UpdateTenant(ctx context.Context, r UpdateTenantRequestObject) (UpdateTenantResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, t.Revision); err != nil {
		return nil, err
	}
	t, err = a.cfg.Tenants.UpdateTenant(ctx, t.ID, tenantDocument(*r.Body), t.Revision)
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := showTenant(t)
	if err != nil {
		return nil, err
	}
	return UpdateTenant200JSONResponse{shown, UpdateTenant200ResponseHeaders{etag(t.Revision)}}, nil
}

// DeleteTenant is DELETE /v1/tenants/{tenant}.
func (a *API) DeleteTenant(ctx context.Context, r DeleteTenantRequestObject) (DeleteTenantResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, t.Revision); err != nil {
		return nil, err
	}
	if err := a.cfg.Tenants.DeleteTenant(ctx, t.ID, t.Revision); err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	return DeleteTenant204Response{}, nil
}

// underUnless is under for every field but one, which stands in the body itself.
func underUnless(own, prefix string, err error) error {
	moved := under(prefix, err)
	if p := asProblem(moved); p != asProblem(err) && p.Kind == problem.Invalid {
		for i := range p.Fields {
			if p.Fields[i].Pointer == prefix+own {
				p.Fields[i].Pointer = own
			}
		}
	}
	return moved
}
