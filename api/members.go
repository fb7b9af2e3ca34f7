package api

import (
	"context"
)

// Members are the people of a tenant: what is done to them is that of people.go,
// once the tenant is found.

// ListMembers is GET /v1/tenants/{tenant}/members.
func (a *API) ListMembers(ctx context.Context, r ListMembersRequestObject) (ListMembersResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, link, err := a.listPeople(ctx, "/v1/tenants/"+r.Tenant+"/members", t.ID, r.Params.Q, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	return ListMembers200JSONResponse{p, ListMembers200ResponseHeaders{link}}, nil
}

// InviteMember is POST /v1/tenants/{tenant}/members.
func (a *API) InviteMember(ctx context.Context, r InviteMemberRequestObject) (InviteMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	i, err := a.invite(ctx, t.ID, *r.Body)
	if err != nil {
		return nil, err
	}
	return InviteMember201JSONResponse(i), nil
}

// GetMember is GET /v1/tenants/{tenant}/members/{member}.
func (a *API) GetMember(ctx context.Context, r GetMemberRequestObject) (GetMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, tag, err := a.person(ctx, t.ID, r.Member.String())
	if err != nil {
		return nil, err
	}
	return GetMember200JSONResponse{p, GetMember200ResponseHeaders{tag}}, nil
}

// UpdateMember is PUT /v1/tenants/{tenant}/members/{member}.
func (a *API) UpdateMember(ctx context.Context, r UpdateMemberRequestObject) (UpdateMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, tag, err := a.changePerson(ctx, t.ID, r.Member.String(), r.Params.IfMatch, *r.Body)
	if err != nil {
		return nil, err
	}
	return UpdateMember200JSONResponse{p, UpdateMember200ResponseHeaders{tag}}, nil
}

// RemoveMember is DELETE /v1/tenants/{tenant}/members/{member}.
func (a *API) RemoveMember(ctx context.Context, r RemoveMemberRequestObject) (RemoveMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	if err := a.removePerson(ctx, t.ID, r.Member.String()); err != nil {
		return nil, err
	}
	return RemoveMember204Response{}, nil
}
