package api

import (
	"cmp"
	"context"
	"strings"

	"github.com/headgate/headgate/internal/sharing"
)

// sharedLinkView returns the function that converts a link to its JSON form. For a caller from a
// tenant, the form does not contain the names of the operator's people and keys.
func (a *API) sharedLinkView(ctx context.Context) func(sharing.Link) (SharedLink, error) {
	seen := a.auditView(ctx)
	return func(l sharing.Link) (SharedLink, error) {
		id, err := ids(l.ID, l.TenantID)
		if err != nil {
			return SharedLink{}, err
		}
		by := l.CreatedBy.Name
		if seen != nil && l.CreatedBy.Kind != "system" {
			own, err := seen.Owns(ctx, l.CreatedBy)
			if err != nil {
				return SharedLink{}, err
			}
			if !own {
				by = "operator"
			}
		}
		return SharedLink{
			Id: id[0], TenantId: id[1], Name: l.Name, Kind: SharedLinkKind(l.Kind), Shows: SharedLinkShows(l.Page), Query: l.Query,
			TimeZone: l.Zone, CreatedBy: by, CreatedAt: Instant{l.CreatedAt}, ExpiresAt: Instant{l.ExpiresAt}, LastUsedAt: Instant{l.LastUsedAt},
		}, nil
	}
}

// ListSharedLinks is GET /v1/shared-links.
func (a *API) ListSharedLinks(ctx context.Context, r ListSharedLinksRequestObject) (ListSharedLinksResponseObject, error) {
	p := r.Params
	owner, err := a.auditedTenant(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	out, link, err := list(
		"/v1/shared-links", filters("tenant", owner), p.Limit, p.Cursor,
		func(after string, limit int) ([]sharing.Link, error) {
			return a.cfg.Sharing.Links(ctx, owner, sharing.Filter{After: after, Limit: limit})
		}, func(l sharing.Link) string { return l.ID }, a.sharedLinkView(ctx))
	return ListSharedLinks200JSONResponse{SharedLinkPage(out), ListSharedLinks200ResponseHeaders{link}}, err
}

// CreateSharedLink is POST /v1/shared-links.
func (a *API) CreateSharedLink(ctx context.Context, r CreateSharedLinkRequestObject) (CreateSharedLinkResponseObject, error) {
	owner, err := a.auditedTenant(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := r.Body
	d := sharing.Document{
		Name: b.Name, Kind: sharing.Kind(cmp.Or(b.Kind, NewSharedLinkKindDisplay)), Page: sharing.Page(b.Shows),
		Query: b.Query, Zone: b.TimeZone, ExpiresAt: b.ExpiresAt.Time,
	}
	if d.Zone == "" {
		d.Zone = "UTC"
	}
	l, token, err := a.cfg.Sharing.Create(ctx, owner, d)
	out, err := shown(a.sharedLinkView(ctx))(l, err)
	out.Link = strings.TrimSuffix(a.cfg.PublicURL, "/") + "/shared/" + token
	return CreateSharedLink201JSONResponse{
		out, CreateSharedLink201ResponseHeaders{Location: "/v1/shared-links/" + l.ID + ownerQuery(owner)},
	}, err
}

// GetSharedLink is GET /v1/shared-links/{link}.
func (a *API) GetSharedLink(ctx context.Context, r GetSharedLinkRequestObject) (GetSharedLinkResponseObject, error) {
	owner, err := a.auditedTenant(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(a.sharedLinkView(ctx))(a.cfg.Sharing.Link(ctx, owner, r.Link.String()))
	return GetSharedLink200JSONResponse(out), err
}

// RevokeSharedLink is DELETE /v1/shared-links/{link}.
func (a *API) RevokeSharedLink(ctx context.Context, r RevokeSharedLinkRequestObject) (RevokeSharedLinkResponseObject, error) {
	owner, err := a.auditedTenant(ctx, r.Params.Tenant)
	if err == nil {
		err = a.cfg.Sharing.Revoke(ctx, owner, r.Link.String())
	}
	return RevokeSharedLink204Response{}, err
}
