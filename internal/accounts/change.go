package accounts

import (
	"context"

	"github.com/headgate/headgate/internal/problem"
)

// ChangeAccess sets the role of a user and whether they are disabled, in one
// edit, if their revision is ifRevision. It ends their sessions. NotFound,
// Forbidden, Invalid, Stale, Conflict (code last_owner).
func (p *People) ChangeAccess(ctx context.Context, by Principal, tenantID, id string, role Role, disabled bool, ifRevision int64) (User, error) {
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
