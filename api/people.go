package api

import (
	"context"
	"strings"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// people gives the service of those who sign in.
func (a *API) people() (*accounts.People, error) {
	if a.cfg.People == nil {
		return nil, problem.New(problem.Unavailable, "this node has no people")
	}
	return a.cfg.People, nil
}

// principal is the caller as accounts knows those who ask.
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

// showPerson is a user on the wire: never a password, or who they are at a provider.
func showPerson(u accounts.User) (Person, error) {
	id, err := parseUUID(u.ID)
	if err != nil {
		return Person{}, err
	}
	out := Person{
		Id: id, Email: u.Email, Name: u.Name, Access: Access{Role: Role(u.Role), Disabled: u.Disabled},
		CreatedAt: u.CreatedAt.UTC(), UpdatedAt: u.UpdatedAt.UTC(), SignedInAt: utcOrZero(u.SignedInAt),
	}
	if u.TenantID != "" {
		out.TenantId, err = parseUUID(u.TenantID)
	}
	return out, err
}

// listPeople is a page of the people of a tenant, or of the operator ("").
func (a *API) listPeople(ctx context.Context, path, tenantID, query string, limit int, cursor string) (PersonPage, *string, error) {
	s, err := a.people()
	if err != nil {
		return PersonPage{}, nil, err
	}
	l, err := page(path, filters("q", query), limit, cursor)
	if err != nil {
		return PersonPage{}, nil, err
	}
	rows, err := s.Users(ctx, callerOf(ctx).principal(), tenantID, accounts.UserFilter{Query: query, After: l.after, Limit: l.fetch()})
	if err != nil {
		return PersonPage{}, nil, err
	}
	rows, next, link := cut(l, rows, func(u accounts.User) string { return u.ID })
	data, err := each(rows, showPerson)
	return PersonPage{data, next != "", next}, link, err
}

// invite makes an invitation of a tenant, or of the operator ("").
func (a *API) invite(ctx context.Context, tenantID string, n NewInvitation) (IssuedInvitation, error) {
	s, err := a.people()
	if err != nil {
		return IssuedInvitation{}, err
	}
	i, token, err := s.Invite(ctx, callerOf(ctx).principal(), tenantID, n.Email, accounts.Role(n.Role))
	if err != nil {
		return IssuedInvitation{}, err
	}
	a.cfg.Changed(ctx)
	id, err := parseUUID(i.ID)
	if err != nil {
		return IssuedInvitation{}, err
	}
	out := IssuedInvitation{
		Token: token, Link: strings.TrimSuffix(a.cfg.PublicURL, "/") + "/invite/" + token,
		Invitation: Invitation{
			Id: id, Email: i.Email, Role: Role(i.Role), CreatedAt: i.CreatedAt.UTC(), CreatedBy: showActor(i.CreatedBy), ExpiresAt: i.ExpiresAt.UTC(),
		},
	}
	if i.TenantID != "" {
		out.Invitation.TenantId, err = parseUUID(i.TenantID)
	}
	return out, err
}

// person finds one of the people of a tenant, or of the operator (""), with
// their ETag.
func (a *API) person(ctx context.Context, tenantID, id string) (Person, string, error) {
	s, err := a.people()
	if err != nil {
		return Person{}, "", err
	}
	u, err := s.User(ctx, callerOf(ctx).principal(), tenantID, id)
	if err != nil {
		return Person{}, "", err
	}
	shown, err := showPerson(u)
	return shown, etag(u.Revision), err
}

// changePerson writes what one of them may do.
func (a *API) changePerson(ctx context.Context, tenantID, id, match string, to Access) (Person, string, error) {
	s, err := a.people()
	if err != nil {
		return Person{}, "", err
	}
	by := callerOf(ctx).principal()
	u, err := s.User(ctx, by, tenantID, id)
	if err != nil {
		return Person{}, "", err
	}
	if err := ifMatch(match, u.Revision); err != nil {
		return Person{}, "", err
	}
	if u, err = s.ChangeAccess(ctx, by, tenantID, u.ID, accounts.Role(to.Role), to.Disabled, u.Revision); err != nil {
		return Person{}, "", err
	}
	a.cfg.Changed(ctx)
	shown, err := showPerson(u)
	return shown, etag(u.Revision), err
}

// removePerson deletes one of them.
func (a *API) removePerson(ctx context.Context, tenantID, id string) error {
	s, err := a.people()
	if err != nil {
		return err
	}
	if err := s.Remove(ctx, callerOf(ctx).principal(), tenantID, id); err != nil {
		return err
	}
	a.cfg.Changed(ctx)
	return nil
}

// ListPeople is GET /v1/people.
func (a *API) ListPeople(ctx context.Context, r ListPeopleRequestObject) (ListPeopleResponseObject, error) {
	p, link, err := a.listPeople(ctx, "/v1/people", "", r.Params.Q, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	return ListPeople200JSONResponse{p, ListPeople200ResponseHeaders{link}}, nil
}

// InvitePerson is POST /v1/people.
func (a *API) InvitePerson(ctx context.Context, r InvitePersonRequestObject) (InvitePersonResponseObject, error) {
	i, err := a.invite(ctx, "", *r.Body)
	if err != nil {
		return nil, err
	}
	return InvitePerson201JSONResponse(i), nil
}

// GetPerson is GET /v1/people/{person}.
func (a *API) GetPerson(ctx context.Context, r GetPersonRequestObject) (GetPersonResponseObject, error) {
	p, tag, err := a.person(ctx, "", r.Person.String())
	if err != nil {
		return nil, err
	}
	return GetPerson200JSONResponse{p, GetPerson200ResponseHeaders{tag}}, nil
}

// UpdatePerson is PUT /v1/people/{person}.
func (a *API) UpdatePerson(ctx context.Context, r UpdatePersonRequestObject) (UpdatePersonResponseObject, error) {
	p, tag, err := a.changePerson(ctx, "", r.Person.String(), r.Params.IfMatch, *r.Body)
	if err != nil {
		return nil, err
	}
	return UpdatePerson200JSONResponse{p, UpdatePerson200ResponseHeaders{tag}}, nil
}

// RemovePerson is DELETE /v1/people/{person}.
func (a *API) RemovePerson(ctx context.Context, r RemovePersonRequestObject) (RemovePersonResponseObject, error) {
	if err := a.removePerson(ctx, "", r.Person.String()); err != nil {
		return nil, err
	}
	return RemovePerson204Response{}, nil
}
