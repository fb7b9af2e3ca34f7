package api

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// principal converts the caller to an accounts.Principal.
func (c caller) principal() accounts.Principal {
	actor := c.actor()
	p := accounts.Principal{Kind: actor.Kind, ID: actor.ID, Name: actor.Name}
	for _, s := range []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage} {
		if c.key.Scopes.Has(s) {
			p.Scopes = append(p.Scopes, s)
		}
	}
	if t := c.tenant(); t != nil {
		p.TenantID = t.TenantID
	}
	return p
}

// showPerson converts a user to its JSON form in the API, which contains neither the password nor
// the identity at an OpenID provider.
func showPerson(u accounts.User) (Person, error) {
	id, err := parseUUID(u.ID)
	if err != nil {
		return Person{}, err
	}
	out := Person{
		Id: id, Email: u.Email, Name: u.Name, Access: Access{Role: Role(u.Role), Disabled: u.Disabled}, SecondFactor: u.SecondFactor,
		CreatedAt: Instant{u.CreatedAt}, UpdatedAt: Instant{u.UpdatedAt}, SignedInAt: Instant{u.SignedInAt},
	}
	if u.TenantID != "" {
		out.TenantId, err = parseUUID(u.TenantID)
	}
	return out, err
}

// listPeople returns a page of the members of a tenant. In this file, the tenant ID "" stands for
// the operator.
func (a *API) listPeople(ctx context.Context, path, tenantID, query string, limit int, cursor string) (PersonPage, *string, error) {
	p, link, err := list(path, filters("q", query), limit, cursor, func(after string, limit int) ([]accounts.User, error) {
		return a.cfg.People.Users(ctx, callerOf(ctx).principal(), tenantID, accounts.UserFilter{Query: query, After: after, Limit: limit})
	}, func(u accounts.User) string { return u.ID }, showPerson)
	return PersonPage(p), link, err
}

// invite creates an invitation to a tenant. If tenantID is "", the invitation is to the operator.
func (a *API) invite(ctx context.Context, tenantID string, n NewInvitation) (IssuedInvitation, error) {
	invite := a.cfg.People.Invite
	if n.SendEmail {
		if a.cfg.Alerts == nil || !a.cfg.Alerts.SendsMail() {
			return IssuedInvitation{}, problem.At("/send_email", "must be absent: the operator has not set HEADGATE_SMTP_ADDR")
		}
		invite = a.cfg.People.InviteByMail
	}
	i, token, err := invite(ctx, callerOf(ctx).principal(), tenantID, n.Email, accounts.Role(n.Role))
	invitation, err := written(ctx, a, showInvitation)(i, err)
	return IssuedInvitation{
		Token: token, Link: strings.TrimSuffix(a.cfg.PublicURL, "/") + "/invite/" + token, Invitation: invitation,
	}, err
}

func showInvitation(i accounts.Invitation) (Invitation, error) {
	id, err := parseUUID(i.ID)
	if err != nil {
		return Invitation{}, err
	}
	out := Invitation{
		Id: id, Email: i.Email, Role: Role(i.Role), CreatedAt: Instant{i.CreatedAt}, CreatedBy: showActor(i.CreatedBy),
		ExpiresAt: Instant{i.ExpiresAt},
	}
	if i.TenantID != "" {
		out.TenantId, err = parseUUID(i.TenantID)
	}
	return out, err
}

// person returns one person of a tenant, and the person's ETag. If tenantID is "", the person
// belongs to the operator.
func (a *API) person(ctx context.Context, tenantID, id string) (Person, string, error) {
	u, err := a.cfg.People.User(ctx, callerOf(ctx).principal(), tenantID, id)
	p, err := shown(showPerson)(u, err)
	return p, etag(u.Revision), err
}

// changePerson changes the role of one person of a tenant. If tenantID is "", the person belongs to
// the operator.
func (a *API) changePerson(ctx context.Context, tenantID, id, match string, to Access) (Person, string, error) {
	by := callerOf(ctx).principal()
	u, err := a.cfg.People.User(ctx, by, tenantID, id)
	if err != nil {
		return Person{}, "", err
	}
	if err := ifMatch(match, u.Revision); err != nil {
		return Person{}, "", err
	}
	u, err = a.cfg.People.ChangeAccess(ctx, by, tenantID, u.ID, accounts.Role(to.Role), to.Disabled, u.Revision)
	p, err := written(ctx, a, showPerson)(u, err)
	return p, etag(u.Revision), err
}

// removePerson deletes one person of a tenant. If tenantID is "", the person belongs to the
// operator.
func (a *API) removePerson(ctx context.Context, tenantID, id string) error {
	return a.changed(ctx, a.cfg.People.Remove(ctx, callerOf(ctx).principal(), tenantID, id))
}

// resetSecondFactor removes the second factors of one person of a tenant. If tenantID is "", the
// person belongs to the operator.
func (a *API) resetSecondFactor(ctx context.Context, tenantID, id string) error {
	_, err := a.cfg.People.ResetSecondFactor(ctx, callerOf(ctx).principal(), tenantID, id)
	return a.changed(ctx, err)
}

// ListPeople is GET /v1/people.
func (a *API) ListPeople(ctx context.Context, r ListPeopleRequestObject) (ListPeopleResponseObject, error) {
	p, link, err := a.listPeople(ctx, "/v1/people", "", r.Params.Q, r.Params.Limit, r.Params.Cursor)
	return ListPeople200JSONResponse{p, ListPeople200ResponseHeaders{link}}, err
}

// InvitePerson is POST /v1/people.
func (a *API) InvitePerson(ctx context.Context, r InvitePersonRequestObject) (InvitePersonResponseObject, error) {
	i, err := a.invite(ctx, "", *r.Body)
	return InvitePerson201JSONResponse(i), err
}

// GetPerson is GET /v1/people/{person}.
func (a *API) GetPerson(ctx context.Context, r GetPersonRequestObject) (GetPersonResponseObject, error) {
	p, tag, err := a.person(ctx, "", r.Person.String())
	return GetPerson200JSONResponse{p, GetPerson200ResponseHeaders{tag}}, err
}

// UpdatePerson is PUT /v1/people/{person}.
func (a *API) UpdatePerson(ctx context.Context, r UpdatePersonRequestObject) (UpdatePersonResponseObject, error) {
	p, tag, err := a.changePerson(ctx, "", r.Person.String(), r.Params.IfMatch, *r.Body)
	return UpdatePerson200JSONResponse{p, UpdatePerson200ResponseHeaders{tag}}, err
}

// RemovePerson is DELETE /v1/people/{person}.
func (a *API) RemovePerson(ctx context.Context, r RemovePersonRequestObject) (RemovePersonResponseObject, error) {
	return RemovePerson204Response{}, a.removePerson(ctx, "", r.Person.String())
}

// ResetPersonSecondFactor is DELETE /v1/people/{person}/second-factor.
func (a *API) ResetPersonSecondFactor(
	ctx context.Context, r ResetPersonSecondFactorRequestObject,
) (ResetPersonSecondFactorResponseObject, error) {
	return ResetPersonSecondFactor204Response{}, a.resetSecondFactor(ctx, "", r.Person.String())
}

// listInvitations returns a page of the open invitations to a tenant. If tenantID is "", the
// invitations are to the operator.
func (a *API) listInvitations(ctx context.Context, path, tenantID string, limit int, cursor string) (InvitationPage, *string, error) {
	p, link, err := list(path, nil, limit, cursor, func(after string, limit int) ([]accounts.Invitation, error) {
		open, err := a.cfg.People.Invitations(ctx, callerOf(ctx).principal(), tenantID)
		first := slices.IndexFunc(open, func(i accounts.Invitation) bool { return i.ID > after })
		if err != nil || first < 0 {
			return nil, err
		}
		return open[first:min(first+limit, len(open))], nil
	}, func(i accounts.Invitation) string { return i.ID }, showInvitation)
	return InvitationPage(p), link, err
}

// ListInvitations is GET /v1/invitations.
func (a *API) ListInvitations(ctx context.Context, r ListInvitationsRequestObject) (ListInvitationsResponseObject, error) {
	p, link, err := a.listInvitations(ctx, "/v1/invitations", "", r.Params.Limit, r.Params.Cursor)
	return ListInvitations200JSONResponse{p, ListInvitations200ResponseHeaders{link}}, err
}

// DeleteInvitation is DELETE /v1/invitations/{invitation}.
func (a *API) DeleteInvitation(ctx context.Context, r DeleteInvitationRequestObject) (DeleteInvitationResponseObject, error) {
	return DeleteInvitation204Response{}, a.cfg.People.Withdraw(ctx, callerOf(ctx).principal(), "", r.Invitation.String())
}
