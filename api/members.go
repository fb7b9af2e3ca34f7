package api

import (
	"context"
)

// The members of a tenant are people. Each handler in this file finds the tenant and calls a
// function in people.go.

// ListMembers is GET /v1/tenants/{tenant}/members.
func (a *API) ListMembers(ctx context.Context, r ListMembersRequestObject) (ListMembersResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, link, err := a.listPeople(ctx, "/v1/tenants/"+r.Tenant+"/members", t.ID, r.Params.Q, r.Params.Limit, r.Params.Cursor)
	return ListMembers200JSONResponse{p, ListMembers200ResponseHeaders{link}}, err
}

// InviteMember is POST /v1/tenants/{tenant}/members.
func (a *API) InviteMember(ctx context.Context, r InviteMemberRequestObject) (InviteMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	i, err := a.invite(ctx, t.ID, *r.Body)
	return InviteMember201JSONResponse(i), err
}

// GetMember is GET /v1/tenants/{tenant}/members/{member}.
func (a *API) GetMember(ctx context.Context, r GetMemberRequestObject) (GetMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, tag, err := a.person(ctx, t.ID, r.Member.String())
	return GetMember200JSONResponse{p, GetMember200ResponseHeaders{tag}}, err
}

// UpdateMember is PUT /v1/tenants/{tenant}/members/{member}.
func (a *API) UpdateMember(ctx context.Context, r UpdateMemberRequestObject) (UpdateMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, tag, err := a.changePerson(ctx, t.ID, r.Member.String(), r.Params.IfMatch, *r.Body)
	return UpdateMember200JSONResponse{p, UpdateMember200ResponseHeaders{tag}}, err
}

// RemoveMember is DELETE /v1/tenants/{tenant}/members/{member}.
func (a *API) RemoveMember(ctx context.Context, r RemoveMemberRequestObject) (RemoveMemberResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	return RemoveMember204Response{}, a.removePerson(ctx, t.ID, r.Member.String())
}

// ResetMemberSecondFactor is DELETE /v1/tenants/{tenant}/members/{member}/second-factor.
func (a *API) ResetMemberSecondFactor(
	ctx context.Context, r ResetMemberSecondFactorRequestObject,
) (ResetMemberSecondFactorResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	return ResetMemberSecondFactor204Response{}, a.resetSecondFactor(ctx, t.ID, r.Member.String())
}

// ListMemberInvitations is GET /v1/tenants/{tenant}/invitations.
func (a *API) ListMemberInvitations(
	ctx context.Context, r ListMemberInvitationsRequestObject,
) (ListMemberInvitationsResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	p, link, err := a.listInvitations(ctx, "/v1/tenants/"+r.Tenant+"/invitations", t.ID, r.Params.Limit, r.Params.Cursor)
	return ListMemberInvitations200JSONResponse{p, ListMemberInvitations200ResponseHeaders{link}}, err
}

// DeleteMemberInvitation is DELETE /v1/tenants/{tenant}/invitations/{invitation}.
func (a *API) DeleteMemberInvitation(
	ctx context.Context, r DeleteMemberInvitationRequestObject,
) (DeleteMemberInvitationResponseObject, error) {
	t, err := a.cfg.Tenants.Tenant(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	err = a.cfg.People.Withdraw(ctx, callerOf(ctx).principal(), t.ID, r.Invitation.String())
	return DeleteMemberInvitation204Response{}, err
}
