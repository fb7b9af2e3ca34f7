package accounts

import (
	"context"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// mayWrite returns nil if the caller may change the members of a tenant, or the operator's
// people if tenantID is "". If the caller cannot access the tenant, the error is
// problem.NotFound. If the caller can access it but lacks the right, the error is
// problem.Forbidden. A caller who may change members may also give them every role that exists
// there: every role of the operator if tenantID is "", otherwise every role of a tenant.
func mayWrite(by Principal, tenantID string) error {
	return may(by, tenantID, PeopleWrite, MembersWrite)
}

// mayRead is like mayWrite, but checks the right to read the list of members or people.
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

// errNobody is the error for an unknown user ID, and for a user of another tenant. Both have the
// same error, so that a caller does not find out whether the user exists.
var errNobody = problem.New(problem.NotFound, "there is no such person")

// errSelf is the error for people who change their own role or access. Otherwise they could take
// away their own rights, and perhaps nobody could restore them.
var errSelf = problem.WithCode(problem.Forbidden, "own_account",
	"you cannot do this to your own account: ask another person who has this right")

// validRole adds a fault to f if role is not a role of a tenant. If tenantID is "", it adds a fault
// if role is not a role of the operator.
func validRole(f *problem.Fields, role Role, tenantID string) {
	switch {
	case tenantID == "" && !role.Operator():
		f.Add("/role", "must be owner, editor or viewer")
	case tenantID != "" && !role.Tenant():
		f.Add("/role", "must be tenant_admin or tenant_viewer")
	}
}

// Users lists the members of a tenant, or the operator's people if tenantID is "", ordered by ID,
// oldest first. It uses only the fields Query, After and Limit of f. The error is problem.NotFound
// or problem.Forbidden.
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

// User returns one member of a tenant, or one of the operator's people if tenantID is "". The error
// is problem.NotFound or problem.Forbidden.
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

// member returns the user with this ID if the user belongs to the tenant, or to the operator if
// tenantID is "". Otherwise the error is errNobody.
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

// other returns the user with this ID, whom the caller wants to change. If this user is the caller,
// the error is errSelf. If the caller lacks the right, the error is that of mayWrite.
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

// ChangeRole gives a user another role in the same tenant and ends the user's sessions. The error
// is problem.NotFound, problem.Forbidden, problem.Invalid, problem.Stale, or problem.Conflict with
// the code last_owner.
func (p *People) ChangeRole(ctx context.Context, by Principal, tenantID, id string, role Role) (User, error) {
	var f problem.Fields
	return p.change(ctx, by, tenantID, id, func(u *User) error {
		validRole(&f, role, tenantID)
		u.Role = role
		return f.Err()
	})
}

// ChangeAccess sets the role and the disabled state of a user in one edit and ends the user's
// sessions. The error is problem.Stale if ifRevision is not the user's revision. Other errors are
// problem.NotFound, problem.Forbidden, problem.Invalid, and problem.Conflict with the code
// last_owner.
func (p *People) ChangeAccess(
	ctx context.Context, by Principal, tenantID, id string, role Role, disabled bool, ifRevision int64,
) (User, error) {
	var f problem.Fields
	return p.change(ctx, by, tenantID, id, func(u *User) error {
		if u.Revision != ifRevision {
			return problem.New(problem.Stale, "it was changed since it was read")
		}
		validRole(&f, role, tenantID)
		gives := u.Role != role || u.Disabled && !disabled
		u.Role, u.Disabled = role, disabled
		if err := f.Err(); err != nil || !gives {
			return err
		}
		return mayGive(by, role)
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

// change calls edit with a copy of a user and stores the copy. The user must not be the caller.
// If edit does not change the copy, change stores nothing.
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

// update stores the changed user after, with an audit line. If the change ends the user's
// sessions (see PeopleStore.UpdateUser), the session with the ID keep stays.
func (p *People) update(ctx context.Context, action string, before, after User, keep string) (User, error) {
	e := userEntry(ctx, audit.Actor{}, action, before, before, after)
	return p.store.UpdateUser(ctx, after, before.Revision, keep, e)
}

// Remove deletes a user and ends the user's sessions. The error is problem.NotFound,
// problem.Forbidden, or problem.Conflict with the code last_owner.
func (p *People) Remove(ctx context.Context, by Principal, tenantID, id string) error {
	u, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return err
	}
	e := userEntry(ctx, audit.Actor{}, "user.remove", u, u, nil)
	return p.store.DeleteUser(ctx, u.ID, e)
}
