package accounts

import (
	"context"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// mayWrite returns nil if the caller may change the members of a tenant, or the operator's people if tenantID is "".
// The error is problem.NotFound if the caller cannot access the tenant, otherwise problem.Forbidden. The right
// includes granting every role there: an owner grants all roles, an editor and a tenant admin grant the tenant's
// roles.
func mayWrite(by Principal, tenantID string) error {
	return may(by, tenantID, PeopleWrite, MembersWrite)
}

// mayRead is like mayWrite, but for reading the list of people.
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

// errNobody is the error for an unknown user ID and for a user of another tenant, so that it does not show which case
// it is.
var errNobody = problem.New(problem.NotFound, "there is no such person")

// errSelf is the error for a change of one's own role or access, which could lock out the last person with the right.
var errSelf = problem.WithCode(problem.Forbidden, "own_account",
	"you cannot do this to your own account: ask another person who has this right")

// validRole adds a fault if the role is not one of the tenant's roles, or of the operator's if tenantID is "".
func validRole(f *problem.Fields, role Role, tenantID string) {
	switch {
	case tenantID == "" && !role.Operator():
		f.Add("/role", "must be owner, editor or viewer")
	case tenantID != "" && !role.Tenant():
		f.Add("/role", "must be tenant_admin or tenant_viewer")
	}
}

// Users lists the members of a tenant, or the operator's people if tenantID is "", ordered by ID, oldest first. It
// uses only Query, After and Limit of the filter. Errors: problem.NotFound, problem.Forbidden.
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

// User returns one member of a tenant, or one of the operator's people if tenantID is "". Errors: problem.NotFound,
// problem.Forbidden.
func (p *People) User(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	if err := mayRead(by, tenantID); err != nil {
		return User{}, err
	}
	return p.member(ctx, tenantID, id)
}

// IsMember reports whether a user is a member of a tenant.
func (p *People) IsMember(ctx context.Context, tenantID, id string) (bool, error) {
	_, err := p.member(ctx, tenantID, id)
	if problem.Is(err, problem.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// member returns a user of a tenant. The error is errNobody if the user is unknown or belongs to another tenant.
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

// other returns the user whom the caller wants to change. The error is errSelf if the caller is that user.
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

// ChangeRole changes the role of a user within the same tenant and ends the user's sessions. Errors:
// problem.NotFound, problem.Forbidden, problem.Invalid, problem.Stale, and problem.Conflict with the code last_owner.
func (p *People) ChangeRole(ctx context.Context, by Principal, tenantID, id string, role Role) (User, error) {
	var f problem.Fields
	return p.change(ctx, by, tenantID, id, func(u *User) error {
		validRole(&f, role, tenantID)
		u.Role = role
		return f.Err()
	})
}

// ChangeAccess sets a user's role and disabled state in one edit and ends the user's sessions. The error is
// problem.Stale if the user's revision is not ifRevision. Other errors: problem.NotFound, problem.Forbidden,
// problem.Invalid, and problem.Conflict with the code last_owner.
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

// Disable disables a user and ends the user's sessions. It returns the same errors as ChangeRole.
func (p *People) Disable(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	return p.change(ctx, by, tenantID, id, func(u *User) error { u.Disabled = true; return nil })
}

// Enable enables a disabled user. It returns the same errors as ChangeRole.
func (p *People) Enable(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	return p.change(ctx, by, tenantID, id, func(u *User) error { u.Disabled = false; return nil })
}

// change applies edit to a user who is not the caller. It writes nothing if edit changes nothing.
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

// update writes a changed user and its audit line. The session with the ID keep stays signed in.
func (p *People) update(ctx context.Context, action string, before, after User, keep string) (User, error) {
	e := userEntry(ctx, audit.Actor{}, action, before, before, after)
	return p.store.UpdateUser(ctx, after, before.Revision, keep, e)
}

// Remove deletes a user and the user's sessions. Errors: problem.NotFound, problem.Forbidden, and problem.Conflict
// with the code last_owner.
func (p *People) Remove(ctx context.Context, by Principal, tenantID, id string) error {
	u, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return err
	}
	e := userEntry(ctx, audit.Actor{}, "user.remove", u, u, nil)
	return p.store.DeleteUser(ctx, u.ID, e)
}
