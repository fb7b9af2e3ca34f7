package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Users and invitations have no tombstones, because no snapshot contains them.

const userColumns = `u.id, u.tenant_id, u.email, u.name, u.role, u.password, u.issuer, u.subject, u.disabled,
	u.created_at, u.updated_at, u.signed_in_at, u.revision`

// A userRow scans userColumns.
type userRow struct {
	accounts.User
	tenantID, issuer, subject sql.NullString
	signedIn                  sql.NullTime
}

func (u *userRow) into() []any {
	return []any{
		&u.ID, &u.tenantID, &u.Email, &u.Name, &u.Role, &u.Password, &u.issuer, &u.subject, &u.Disabled,
		&u.CreatedAt, &u.UpdatedAt, &u.signedIn, &u.Revision,
	}
}

func (u *userRow) user() accounts.User {
	u.TenantID, u.Issuer, u.Subject = u.tenantID.String, u.issuer.String, u.subject.String
	u.CreatedAt, u.UpdatedAt, u.SignedInAt = u.CreatedAt.UTC(), u.UpdatedAt.UTC(), instant(u.signedIn)
	return u.User
}

func scanUser(r row) (accounts.User, error) {
	var u userRow
	err := r.Scan(u.into()...)
	return u.user(), err
}

func emailTaken() error {
	return problem.WithCode(problem.Conflict, "email_taken", "somebody has this e-mail address already")
}

func linkTaken() error {
	return problem.WithCode(problem.Conflict, "link_taken", "this identity of the sign-in provider belongs to somebody else")
}

// User finds a user by id.
func (s *Store) User(ctx context.Context, id string) (accounts.User, error) {
	u, err := s.oneUser(ctx, `u.id = $1`, id)
	return u, s.fail(err, "load user %s", id)
}

// UserByEmail finds a user by e-mail address, in any case.
func (s *Store) UserByEmail(ctx context.Context, email string) (accounts.User, error) {
	u, err := s.oneUser(ctx, `u.email_key = $1`, accounts.FoldEmail(email))
	return u, s.fail(err, "load a user by e-mail")
}

// UserBySubject finds the user who is linked to an identity at an OpenID
// provider.
func (s *Store) UserBySubject(ctx context.Context, issuer, subject string) (accounts.User, error) {
	u, err := s.oneUser(ctx, `u.issuer = $1 AND u.subject = $2`, issuer, subject)
	return u, s.fail(err, "load a user by subject")
}

func (s *Store) oneUser(ctx context.Context, condition string, args ...any) (accounts.User, error) {
	u, err := queryOne(ctx, s, "user", scanUser, `
		SELECT `+userColumns+`
		FROM users u
		WHERE `+condition, args...)
	return u, err
}

// Users lists users by id, oldest first.
func (s *Store) Users(ctx context.Context, f accounts.UserFilter) ([]accounts.User, error) {
	var where filter
	where.whose(f, "u.")
	list, err := queryPage(ctx, s, scanUser, page{userColumns, `users u`, where, `u.id`, f.Limit})
	return list, s.fail(err, "list users")
}

// whose adds the conditions of f on a table with the columns tenant_id, search
// and id. prefix is "" or the table's name and a dot.
func (w *filter) whose(f accounts.UserFilter, prefix string) {
	switch {
	case f.TenantID != "":
		w.and(prefix+`tenant_id = ?`, f.TenantID)
	case f.Operator:
		w.and(prefix + `tenant_id IS NULL`)
	}
	if f.Query != "" {
		w.and(prefix+`search LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		w.and(prefix+`id > ?`, f.After)
	}
}

// CreateUser adds a user; with setup only while there is no user.
func (s *Store) CreateUser(ctx context.Context, u accounts.User, setup bool, e audit.Entry) (accounts.User, error) {
	var made accounts.User
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if setup {
			if err := ed.refuseSetUp(ctx); err != nil {
				return err
			}
		}
		made, err = ed.addUser(ctx, u)
		return err
	})
	return made, s.fail(err, "create a user")
}

// refuseSetUp returns a Conflict if there is a user. Edits are serialized, so
// no other edit can create one in between.
func (e *edit) refuseSetUp(ctx context.Context) error {
	var is bool
	err := e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM users)`).Scan(&is)
	if err == nil && is {
		err = problem.WithCode(problem.Conflict, "already_set_up", "this headgate is set up already: sign in, or ask an owner for an invitation")
	}
	return err
}

func (e *edit) addUser(ctx context.Context, u accounts.User) (_ accounts.User, err error) {
	if err := e.tenantIfAny(ctx, u.TenantID); err != nil {
		return u, err
	}
	u.ID = cmp.Or(u.ID, audit.NewID())
	e.concerns(u.TenantID, u.ID, u.Email)
	u.CreatedAt, u.UpdatedAt, u.Revision = e.at, e.at, e.revision
	n, err := e.exec(ctx, `
		INSERT INTO users (id, tenant_id, email, email_key, name, search, role, password, issuer, subject, disabled,
			created_at, updated_at, signed_in_at, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14)
		ON CONFLICT DO NOTHING`,
		u.ID, orNull(u.TenantID), u.Email, accounts.FoldEmail(u.Email), u.Name, searchText(u.Email, u.Name), string(u.Role), u.Password,
		orNull(u.Issuer), orNull(u.Subject), u.Disabled, e.at, nullable(u.SignedInAt), e.revision)
	if err != nil {
		return u, fmt.Errorf("add a user: %w", err)
	}
	if n == 0 {
		return u, e.userTaken(ctx, u)
	}
	return e.user(ctx, u.ID)
}

// userTaken returns a Conflict that names which identity of the user exists
// already.
func (e *edit) userTaken(ctx context.Context, u accounts.User) error {
	taken, err := e.emailTaken(ctx, u.Email)
	switch {
	case err != nil:
		return err
	case taken:
		return emailTaken()
	case u.Issuer != "":
		return linkTaken()
	}
	return problem.WithCode(problem.Conflict, "already_exists", "a user with this id exists already")
}

func (e *edit) emailTaken(ctx context.Context, email string) (taken bool, err error) {
	err = e.tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE email_key = $1)`, accounts.FoldEmail(email)).Scan(&taken)
	return taken, err
}

// tenantIfAny returns NotFound for an unknown tenant; "" is the operator.
func (e *edit) tenantIfAny(ctx context.Context, tenantID string) error {
	if tenantID == "" {
		return nil
	}
	_, err := e.tenant(ctx, tenantID)
	return err
}

func (e *edit) user(ctx context.Context, id string) (accounts.User, error) {
	u, err := scanUser(e.tx.QueryRowContext(ctx, `
		SELECT `+userColumns+`
		FROM users u
		WHERE u.id = $1`, id))
	return u, missing(err, "user")
}

// UpdateUser writes name, role, password, link and disabled if the stored
// revision is ifRevision. A user cannot move to another tenant: a user of
// another tenant than u.TenantID is not found.
//
// If role, password or disabled change, all sessions except keep end, and so do
// the links by which the user could set a password. A disabled user keeps no
// session.
func (s *Store) UpdateUser(ctx context.Context, u accounts.User, ifRevision int64, keep string, e audit.Entry) (accounts.User, error) {
	var now accounts.User
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := ed.user(ctx, u.ID)
		switch {
		case err != nil:
			return err
		case before.TenantID != u.TenantID:
			return missing(sql.ErrNoRows, "user")
		case before.Revision != ifRevision:
			return stale("user")
		}
		ed.concerns(before.TenantID, before.ID, before.Email)
		now, err = ed.changeUser(ctx, before, u, keep)
		return err
	})
	return now, s.fail(err, "update user %s", u.ID)
}

// changeUser writes the changeable fields of a user and ends sessions and
// links.
func (e *edit) changeUser(ctx context.Context, before, u accounts.User, keep string) (accounts.User, error) {
	_, err := e.exec(ctx, `
		UPDATE users
		SET name = $2, search = $3, role = $4, password = $5, issuer = $6, subject = $7, disabled = $8,
			updated_at = $9, revision = $10
		WHERE id = $1`,
		before.ID, u.Name, searchText(before.Email, u.Name), string(u.Role), u.Password, orNull(u.Issuer), orNull(u.Subject),
		u.Disabled, e.at, e.revision)
	if f, _ := e.engine.fault(err); f == faultUnique {
		return u, linkTaken() // nothing else that is unique was written
	}
	if err != nil {
		return u, err
	}
	if err := e.keepAnOwner(ctx, before); err != nil {
		return u, err
	}
	if u.Role != before.Role || u.Password != before.Password || u.Disabled != before.Disabled {
		if u.Disabled {
			keep = ""
		}
		if err := e.endAccess(ctx, before.ID, keep); err != nil {
			return u, err
		}
	}
	return e.user(ctx, before.ID)
}

// endAccess ends the sessions of a user except keep, and their open links.
func (e *edit) endAccess(ctx context.Context, userID, keep string) error {
	if _, err := e.exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id <> $2`, userID, keep); err != nil {
		return fmt.Errorf("end its sessions: %w", err)
	}
	if _, err := e.exec(ctx, `DELETE FROM invitations WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("end its links: %w", err)
	}
	return nil
}

// keepAnOwner returns a Conflict if the user was an owner and no owner is left
// who can sign in. It runs after the change. Edits are serialized, so two
// owners cannot remove each other.
func (e *edit) keepAnOwner(ctx context.Context, before accounts.User) error {
	if before.Role != accounts.Owner || before.Disabled || before.Password == "" && before.Issuer == "" {
		return nil
	}
	var left bool
	err := e.tx.QueryRowContext(ctx, `
		SELECT EXISTS (
			SELECT 1 FROM users
			WHERE role = 'owner' AND NOT disabled AND (password <> '' OR issuer IS NOT NULL))`).Scan(&left)
	if err == nil && !left {
		err = problem.WithCode(problem.Conflict, "last_owner", "this is the last owner who can sign in; make another one first")
	}
	return err
}

// DeleteUser removes a user with their sessions and links.
func (s *Store) DeleteUser(ctx context.Context, id string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := ed.user(ctx, id)
		if err != nil {
			return err
		}
		ed.concerns(before.TenantID, before.ID, before.Email)
		if _, err := ed.exec(ctx, `DELETE FROM users WHERE id = $1`, id); err != nil {
			return err
		}
		return ed.keepAnOwner(ctx, before)
	})
	return s.fail(err, "delete user %s", id)
}

// ownerOf adds the user and their tenant to the audit line of an aside.
func (e *edit) ownerOf(ctx context.Context, userID string) error {
	var email string
	var tenantID sql.NullString
	err := e.tx.QueryRowContext(ctx, `SELECT email, tenant_id FROM users WHERE id = $1`, userID).Scan(&email, &tenantID)
	if errors.Is(err, sql.ErrNoRows) {
		return missing(err, "user")
	}
	e.concerns(tenantID.String, userID, email)
	return err
}
