package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

const invitationColumns = `id, hash, tenant_id, email, role, user_id, created_at, expires_at, actor_kind, actor_id, actor_name`

func scanInvitation(r row) (accounts.Invitation, error) {
	var i accounts.Invitation
	var hash []byte
	var tenantID, userID sql.NullString
	err := r.Scan(&i.ID, &hash, &tenantID, &i.Email, &i.Role, &userID, &i.CreatedAt, &i.ExpiresAt,
		&i.CreatedBy.Kind, &i.CreatedBy.ID, &i.CreatedBy.Name)
	copy(i.Hash[:], hash)
	i.TenantID, i.UserID = tenantID.String, userID.String
	i.CreatedAt, i.ExpiresAt = i.CreatedAt.UTC(), i.ExpiresAt.UTC()
	return i, err
}

// CreateInvitation adds an invitation. The error is problem.NotFound if its tenant or its user does
// not exist. It does not check whether the e-mail address belongs to a user, because a tenant must
// not find out about users of other tenants.
func (s *Store) CreateInvitation(ctx context.Context, i accounts.Invitation, e audit.Entry) (accounts.Invitation, error) {
	var made accounts.Invitation
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if err := ed.mayInvite(ctx, i); err != nil {
			return err
		}
		if made, err = ed.addInvitation(ctx, i); err != nil || !i.Mail {
			return err
		}
		_, err = ed.exec(ctx, `
			INSERT INTO alert_deliveries (`+deliveryColumns+`)
			VALUES ($1, $2, NULL, NULL, $3, $4, '', $5, 0, '', $6, $6, NULL)`,
			audit.NewID(), orNull(made.TenantID), made.ID, string(alerts.EventInvited), string(alerts.Waiting), ed.at)
		return err
	})
	return made, s.fail(err, "create an invitation")
}

// MailInvitation stores the hash of a second link for an invitation. The e-mail contains this
// second link; the first link stays valid. The error is problem.NotFound if the invitation has
// expired.
func (s *Store) MailInvitation(ctx context.Context, id string, hash [32]byte, now time.Time) (accounts.Invitation, error) {
	var i accounts.Invitation
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		i, err = scanInvitation(tx.QueryRowContext(ctx, `
			UPDATE invitations SET mail_hash = $1
			WHERE id = $2 AND expires_at > $3
			RETURNING `+invitationColumns, hash[:], id, stored(now)))
		return missing(err, "invitation")
	})
	return i, s.fail(err, "make the link of an e-mail")
}

// mayInvite returns an error if the tenant of an invitation does not exist. If the invitation is
// for an existing user, it also returns an error if the user does not exist or belongs to another
// tenant.
func (e *edit) mayInvite(ctx context.Context, i accounts.Invitation) error {
	if err := e.tenantIfAny(ctx, i.TenantID); err != nil || i.UserID == "" {
		return err
	}
	u, err := e.user(ctx, i.UserID)
	if err == nil && u.TenantID != i.TenantID {
		err = missing(sql.ErrNoRows, "user")
	}
	return err
}

func (e *edit) addInvitation(ctx context.Context, i accounts.Invitation) (_ accounts.Invitation, err error) {
	i.ID = cmp.Or(i.ID, audit.NewID())
	e.concerns(i.TenantID, i.ID, i.Email)
	i.CreatedAt, i.ExpiresAt = e.at, stored(i.ExpiresAt)
	n, err := e.exec(ctx, `
		INSERT INTO invitations (id, hash, tenant_id, email, search, role, user_id, created_at, expires_at,
			actor_kind, actor_id, actor_name, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT DO NOTHING`,
		i.ID, i.Hash[:], orNull(i.TenantID), i.Email, accounts.FoldEmail(i.Email), string(i.Role), orNull(i.UserID), i.CreatedAt, i.ExpiresAt,
		i.CreatedBy.Kind, i.CreatedBy.ID, i.CreatedBy.Name, e.revision)
	if err != nil {
		return i, fmt.Errorf("add an invitation: %w", err)
	}
	if n == 0 {
		return i, problem.WithCode(problem.Conflict, "invitation_exists", "an invitation with this token exists already")
	}
	return i, nil
}

// Invitation returns an invitation by the hash of its token. The error is problem.NotFound if it is unknown or
// expired.
func (s *Store) Invitation(ctx context.Context, hash [32]byte, now time.Time) (accounts.Invitation, error) {
	i, err := queryOne(ctx, s, "invitation", scanInvitation, `
		SELECT `+invitationColumns+`
		FROM invitations
		WHERE (hash = $1 OR mail_hash = $1) AND expires_at > $2`, hash[:], stored(now))
	return i, s.fail(err, "load an invitation")
}

// Invitations lists the invitations that match f by ID, oldest first. The list includes expired
// invitations.
func (s *Store) Invitations(ctx context.Context, f accounts.UserFilter) ([]accounts.Invitation, error) {
	var where filter
	where.whose(f, "")
	list, err := queryPage(ctx, s, scanInvitation, page{invitationColumns, `invitations`, where, `id`, f.Limit})
	return list, s.fail(err, "list invitations")
}

// AcceptInvitation deletes the invitation whose link has the given hash. If the invitation is for
// an existing user, AcceptInvitation sets the new password of this user. Otherwise it creates the
// user u. The new user gets the role, the tenant and the e-mail address from the invitation, not
// from u. The invitation of the set-up link has no address; AcceptInvitation accepts it only if no
// user exists.
func (s *Store) AcceptInvitation(ctx context.Context, hash [32]byte, now time.Time, u accounts.User, e audit.Entry) (accounts.User, error) {
	var made accounts.User
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		i, err := scanInvitation(ed.tx.QueryRowContext(ctx, `
			DELETE FROM invitations
			WHERE hash = $1 AND expires_at > $2
			RETURNING `+invitationColumns, hash[:], stored(now)))
		if err != nil {
			return missing(err, "invitation")
		}
		if i.UserID != "" {
			made, err = ed.renewUser(ctx, i.UserID, u)
			return err
		}
		if i.Email != "" {
			u.Email = i.Email
		} else if err := ed.refuseSetUp(ctx); err != nil {
			return err
		}
		u.Role, u.TenantID, u.Disabled = i.Role, i.TenantID, false
		made, err = ed.addUser(ctx, u)
		return err
	})
	return made, s.fail(err, "accept an invitation")
}

// renewUser sets the password of the user with this ID to the password of u. If the user is
// disabled, renewUser changes nothing and returns problem.NotFound.
func (e *edit) renewUser(ctx context.Context, id string, u accounts.User) (accounts.User, error) {
	before, err := e.user(ctx, id)
	if err != nil {
		return u, err
	}
	if before.Disabled {
		return u, missing(sql.ErrNoRows, "invitation")
	}
	e.concerns(before.TenantID, before.ID, before.Email)
	after := before
	after.Password = u.Password
	return e.changeUser(ctx, before, after, "")
}

// DeleteInvitation deletes an invitation of one tenant, or of the operator if tenantID is "".
func (s *Store) DeleteInvitation(ctx context.Context, tenantID, id string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		i, err := scanInvitation(ed.tx.QueryRowContext(ctx, `
			DELETE FROM invitations
			WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2
			RETURNING `+invitationColumns, orNull(tenantID), id))
		if err != nil {
			return missing(err, "invitation")
		}
		ed.concerns(i.TenantID, i.ID, i.Email)
		return nil
	})
	return s.fail(err, "delete invitation %s", id)
}

// endLinksOf deletes the unused invitation links that an API key created. kind and id identify this
// key as the actor. Without the deletion, the holder of a revoked key could still use the links.
func (e *edit) endLinksOf(ctx context.Context, kind, id string) error {
	_, err := e.exec(ctx, `DELETE FROM invitations WHERE actor_kind = $1 AND actor_id = $2`, kind, id)
	if err != nil {
		return fmt.Errorf("end its links: %w", err)
	}
	return nil
}
