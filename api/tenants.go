package api

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// parseUUID parses the ID of a stored object. A malformed ID is an internal error, because only
// valid IDs are stored.
func parseUUID(id string) (uuid.UUID, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("stored id %q: %w", id, err)
	}
	return u, nil
}

// showTenant converts a tenant to its JSON form in the API.
func showTenant(t tenants.Tenant) (Tenant, error) {
	id, err := parseUUID(t.ID)
	if err != nil {
		return Tenant{}, err
	}
	return Tenant{
		Id: id, Slug: t.Slug, Revision: t.Revision, CreatedAt: Instant{t.CreatedAt}, UpdatedAt: Instant{t.UpdatedAt},
		Tenant: showTenantDocument(t.Document),
	}, nil
}

// showTenantDocument converts the document of a tenant to its JSON form in the API.
func showTenantDocument(d tenants.Document) TenantDocument {
	redact, route := d.RedactValues, !d.RouteOptional
	var plan nullableSlug
	if d.Plan != "" {
		plan = &d.Plan
	}
	return TenantDocument{
		Name: d.Name, Status: TenantStatus(d.Status), Plan: plan, TimeZone: d.TimeZone, BillingAnchorDay: d.BillingAnchorDay,
		NoPolicy: NoPolicy(d.NoPolicy), RedactValues: &redact, RequireRoute: &route, MaxKeys: d.MaxKeys,
		SampleAllowed: int64(d.SampleAllowed), NoTrace: d.NoTrace,
	}
}

// tenantDocument converts the document of a tenant from its JSON form in the API.
func tenantDocument(d TenantDocument) tenants.Document {
	plan := ""
	if d.Plan != nil {
		plan = *d.Plan
	}
	return tenants.Document{
		Name: d.Name, Status: tenants.Status(d.Status), Plan: plan, TimeZone: d.TimeZone, BillingAnchorDay: d.BillingAnchorDay,
		NoPolicy: tenants.NoPolicy(d.NoPolicy), RedactValues: d.RedactValues != nil && *d.RedactValues,
		RouteOptional: d.RequireRoute != nil && !*d.RequireRoute, MaxKeys: d.MaxKeys, SampleAllowed: sampleOf(d.SampleAllowed),
		NoTrace: d.NoTrace,
	}
}

// sampleOf converts the number sample_allowed of the API. If the number is out of range, sampleOf
// returns the largest uint32, which the service rejects.
func sampleOf(n int64) uint32 {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// ListTenants is GET /v1/tenants.
func (a *API) ListTenants(ctx context.Context, r ListTenantsRequestObject) (ListTenantsResponseObject, error) {
	p := r.Params
	if p.Status != "" && p.Status != TenantStatusActive && p.Status != TenantStatusSuspended {
		return nil, malformedAt("status", "must be active or suspended")
	}
	filter := filters("q", p.Q, "status", string(p.Status), "plan", p.Plan)
	out, link, err := list("/v1/tenants", filter, p.Limit, p.Cursor, func(after string, limit int) ([]tenants.Tenant, error) {
		return a.cfg.Tenants.Tenants(ctx, tenants.Filter{
			Query: p.Q, Status: tenants.Status(p.Status), Plan: p.Plan, After: after, Limit: limit,
		})
	}, func(t tenants.Tenant) string { return t.ID }, showTenant)
	return ListTenants200JSONResponse{TenantPage(out), ListTenants200ResponseHeaders{link}}, err
}

// CreateTenant is POST /v1/tenants.
func (a *API) CreateTenant(ctx context.Context, r CreateTenantRequestObject) (CreateTenantResponseObject, error) {
	t, err := written(ctx, a, showTenant)(a.cfg.Tenants.CreateTenant(ctx, r.Body.Slug, tenantDocument(TenantDocument(r.Body.Tenant))))
	if err != nil {
		return nil, underUnless("/slug", "/tenant", err)
	}
	return CreateTenant201JSONResponse{t, CreateTenant201ResponseHeaders{etag(t.Revision), "/v1/tenants/" + t.Id.String()}}, nil
}

// GetTenant is GET /v1/tenants/{tenant}.
func (a *API) GetTenant(ctx context.Context, r GetTenantRequestObject) (GetTenantResponseObject, error) {
	t, err := shown(showTenant)(a.cfg.Tenants.Tenant(ctx, r.Tenant))
	return GetTenant200JSONResponse{t, GetTenant200ResponseHeaders{etag(t.Revision)}}, err
}

// tenantAt returns a tenant by its ID or slug. match is the value of the header If-Match. If it is
// not the revision of the tenant, tenantAt returns an error.
func (a *API) tenantAt(ctx context.Context, idOrSlug, match string) (tenants.Tenant, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, idOrSlug)
	if err == nil {
		err = ifMatch(match, t.Revision)
	}
	return t, err
}

// UpdateTenant is PUT /v1/tenants/{tenant}.
func (a *API) UpdateTenant(ctx context.Context, r UpdateTenantRequestObject) (UpdateTenantResponseObject, error) {
	before, err := a.tenantAt(ctx, r.Tenant, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	t, err := written(ctx, a, showTenant)(a.cfg.Tenants.UpdateTenant(ctx, before.ID, tenantDocument(*r.Body), before.Revision))
	return UpdateTenant200JSONResponse{t, UpdateTenant200ResponseHeaders{etag(t.Revision)}}, err
}

// DeleteTenant is DELETE /v1/tenants/{tenant}.
func (a *API) DeleteTenant(ctx context.Context, r DeleteTenantRequestObject) (DeleteTenantResponseObject, error) {
	t, err := a.tenantAt(ctx, r.Tenant, r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	return DeleteTenant204Response{}, a.changed(ctx, a.cfg.Tenants.DeleteTenant(ctx, t.ID, t.Revision))
}

// underUnless adds a prefix to the JSON pointers in a problem. It does not change the pointer of
// the field own, because this field is a direct member of the body and not part of the document.
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
