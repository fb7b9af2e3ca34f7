package accounts

import (
	"context"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// mayWrite checks whether by may change the people of a tenant, or of the
// operator (""): NotFound if by may not know of the tenant, otherwise
// Forbidden. The right includes all roles there: an owner grants every role, an
// editor the roles of tenants, an admin of a tenant the roles of that tenant.
func mayWrite(by Principal, tenantID string) error {
	return may(by, tenantID, PeopleWrite, MembersWrite)
}

// mayRead is mayWrite for reading.
func mayRead(by Principal, tenantID string) error { return may(by, tenantID, PeopleRead, MembersRead) }

func may(by Principal, tenantID string, operators, members Action) error {
	action := operators
	if tenantID != "" {
		action = members
	}
	switch {
	case by.Kind == "":
		return Authorize(by, action)
	case tenantID != "" && !by.Reaches(tenantID):
		return errNobody
	}
	return Authorize(by, action)
}

// errNobody is the error for an unknown person and for a person of another
// tenant alike.
var errNobody = problem.New(problem.NotFound, "there is no such person")

// errSelf prevents people from removing their own rights.
var errSelf = problem.WithCode(problem.Forbidden, "own_account", "nobody does this to their own account: ask somebody else with the right")

// validRole adds a fault for a role that does not exist in that place.
func validRole(f *problem.Fields, role Role, tenantID string) {
	switch {
	case tenantID == "" && !role.Operator():
		f.Add("/role", "must be owner, editor or viewer")
	case tenantID != "" && !role.Tenant():
		f.Add("/role", "must be tenant_admin or tenant_viewer")
	}
}

// Users lists the people of a tenant, or of the operator if tenantID is "", by
// id, oldest first. It uses Query, After and Limit of the filter. NotFound,
// Forbidden.
func (p *People) Users(ctx context.Context, by Principal, tenantID string, f UserFilter) ([]User, error) {
	if err := mayRead(by, tenantID); err != nil {
		return nil, err
	}
	f.TenantID, f.Operator = tenantID, tenantID == ""
	if f.Limit <= 0 {
		f.Limit = tenants.DefaultPage
	}
	return p.store.Users(ctx, f)
}

// User finds one of the people of a tenant or of the operator; NotFound,
// Forbidden.
func (p *People) User(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	if err := mayRead(by, tenantID); err != nil {
		return User{}, err
	}
	return p.member(ctx, tenantID, id)
}

// member finds a user of a tenant; NotFound for users of other tenants too.
func (p *People) member(ctx context.Context, tenantID, id string) (User, error) {
	u, err := orNobody(p.store.User(ctx, id))
	if err != nil {
		return User{}, err
	}
	if u.ID == "" || u.TenantID != tenantID {
		return User{}, errNobody
	}
	return u, nil
}

// other finds a user whom by wants to change. It is an error if they are the
// same person.
func (p *People) other(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	if err := mayWrite(by, tenantID); err != nil {
		return User{}, err
	}
	u, err := p.member(ctx, tenantID, id)
	if err == nil && by.Kind == "user" && by.ID == u.ID {
		return User{}, errSelf
	}
	return u, err
}

// ChangeRole changes the role of a user within the same tenant and ends their
// sessions; NotFound, Forbidden, Invalid, Stale, Conflict (code last_owner).
func (p *People) ChangeRole(ctx context.Context, by Principal, tenantID, id string, role Role) (User, error) {
	var f problem.Fields
	return p.change(ctx, by, tenantID, id, func(u *User) error {
		validRole(&f, role, tenantID)
		u.Role = role
		return f.Err()
	})
}

// ChangeAccess sets the role of a user and whether they are disabled, in one
// edit, if their revision is ifRevision. It ends their sessions. NotFound,
// Forbidden, Invalid, Stale, Conflict (code last_owner).
func (p *People) ChangeAccess(
	ctx context.Context, by Principal, tenantID, id string, role Role, disabled bool, ifRevision int64,
) (User, error) {
	var f problem.Fields
	return p.change(ctx, by, tenantID, id, func(u *User) error {
		if u.Revision != ifRevision {
			return problem.New(problem.Stale, "it was changed since it was read")
		}
		validRole(&f, role, tenantID)
		u.Role, u.Disabled = role, disabled
		return f.Err()
	})
}

// Disable disables a user and ends their sessions; errors as of ChangeRole.
func (p *People) Disable(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	return p.change(ctx, by, tenantID, id, func(u *User) error { u.Disabled = true; return nil })
}

// Enable enables a user; errors as of ChangeRole.
func (p *People) Enable(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	return p.change(ctx, by, tenantID, id, func(u *User) error { u.Disabled = false; return nil })
}

// change edits a user other than by. It writes nothing if nothing changes.
func (p *People) change(ctx context.Context, by Principal, tenantID, id string, edit func(*User) error) (User, error) {
	before, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return User{}, err
	}
	after := before
	if err := edit(&after); err != nil {
		return User{}, err
	}
	if after == before {
		return before, nil
	}
	return p.update(ctx, "user.update", before, after, "")
}

// update writes a changed user.
func (p *People) update(ctx context.Context, action string, before, after User, keep string) (User, error) {
	e := userEntry(ctx, audit.Actor{}, action, before, before, after)
	return p.store.UpdateUser(ctx, after, before.Revision, keep, e)
}

// Remove deletes a user and their sessions; NotFound, Forbidden, Conflict (code
// last_owner).
func (p *People) Remove(ctx context.Context, by Principal, tenantID, id string) error {
	u, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return err
	}
	e := userEntry(ctx, audit.Actor{}, "user.remove", u, u, nil)
	return p.store.DeleteUser(ctx, u.ID, e)
}
