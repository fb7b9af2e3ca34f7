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

// Deleted users and invitations leave no tombstones, because no snapshot contains them.

const userColumns = `u.id, u.tenant_id, u.email, u.name, u.role, u.password, u.issuer, u.subject, u.disabled,
	u.created_at, u.updated_at, u.signed_in_at, u.revision,
	EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = u.id)`

// A userRow has the scan targets for userColumns.
type userRow struct {
	accounts.User
	tenantID, issuer, subject sql.NullString
	signedIn                  sql.NullTime
}

func (u *userRow) into() []any {
	return []any{
		&u.ID, &u.tenantID, &u.Email, &u.Name, &u.Role, &u.Password, &u.issuer, &u.subject, &u.Disabled,
		&u.CreatedAt, &u.UpdatedAt, &u.signedIn, &u.Revision, &u.SecondFactor,
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
	return problem.WithCode(problem.Conflict, "email_taken", "another user has this e-mail address")
}

func linkTaken() error {
	return problem.WithCode(problem.Conflict, "link_taken", "this identity of the sign-in provider is linked to another user")
}

// User returns a user by ID. The error is problem.NotFound if there is none.
func (s *Store) User(ctx context.Context, id string) (accounts.User, error) {
	u, err := s.oneUser(ctx, `u.id = $1`, id)
	return u, s.fail(err, "load user %s", id)
}

// UserByEmail returns the user with an e-mail address. Upper and lower case are equal.
func (s *Store) UserByEmail(ctx context.Context, email string) (accounts.User, error) {
	u, err := s.oneUser(ctx, `u.email_key = $1`, accounts.FoldEmail(email))
	return u, s.fail(err, "load a user by e-mail")
}

// UserBySubject returns the user that is linked to the identity subject at the OpenID provider
// issuer.
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

// Users lists the users that match f by ID, oldest first.
func (s *Store) Users(ctx context.Context, f accounts.UserFilter) ([]accounts.User, error) {
	var where filter
	where.whose(f, "u.")
	list, err := queryPage(ctx, s, scanUser, page{userColumns, `users u`, where, `u.id`, f.Limit})
	return list, s.fail(err, "list users")
}

// whose adds the conditions of f. The queried table must have the columns tenant_id, search and id.
// prefix is the text before these column names: "", or the name of the table and a dot.
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

// CreateUser adds a user. If setup is true, u must be the first user: the error is
// problem.Conflict if any user exists.
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

// refuseSetUp returns a problem.Conflict if any user exists. Only one edit runs at a time, so no
// other edit can create a user before this one commits.
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

// userTaken returns the problem.Conflict for a new user u whose INSERT violated a unique
// constraint. The message says which value of u another user already has: the e-mail address,
// the provider identity, or the ID.
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

// tenantIfAny returns problem.NotFound if there is no tenant with this ID. It accepts the ID "",
// which stands for the operator.
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

// UpdateUser stores the name, role, password, provider link and disabled state of a user. The error
// is problem.Stale if the stored revision is not ifRevision. A user cannot move to another tenant:
// if u.TenantID is not the stored tenant, the error is problem.NotFound.
//
// If the role, the password or the disabled state changes, UpdateUser ends all sessions of the user
// except the session with the ID keep. It also deletes the unused links with which the user could
// set a password. If the user is now disabled, UpdateUser ends the session keep too.
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

// changeUser stores u; before is the stored user. If the role, the password or the disabled state
// differs, changeUser ends the user's sessions and deletes the user's unused links. It does not end
// the session with the ID keep, unless u is disabled.
func (e *edit) changeUser(ctx context.Context, before, u accounts.User, keep string) (accounts.User, error) {
	_, err := e.exec(ctx, `
		UPDATE users
		SET name = $2, search = $3, role = $4, password = $5, issuer = $6, subject = $7, disabled = $8,
			updated_at = $9, revision = $10
		WHERE id = $1`,
		before.ID, u.Name, searchText(before.Email, u.Name), string(u.Role), u.Password, orNull(u.Issuer), orNull(u.Subject),
		u.Disabled, e.at, e.revision)
	if f, _ := e.engine.fault(err); f == faultUnique {
		return u, linkTaken() // the provider identity is the only unique value in this statement
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

// endSessions ends the sessions and the pending sign-ins of a user, except the one with the ID keep.
func (e *edit) endSessions(ctx context.Context, userID, keep string) error {
	if _, err := e.exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id <> $2`, userID, keep); err != nil {
		return fmt.Errorf("end its sessions: %w", err)
	}
	if _, err := e.exec(ctx, `DELETE FROM pending_sign_ins WHERE user_id = $1 AND id <> $2`, userID, keep); err != nil {
		return fmt.Errorf("end its pending sign-ins: %w", err)
	}
	return nil
}

// endAccess ends the sessions of a user, except the session with the ID keep, and deletes the
// user's unused links.
func (e *edit) endAccess(ctx context.Context, userID, keep string) error {
	if err := e.endSessions(ctx, userID, keep); err != nil {
		return err
	}
	if _, err := e.exec(ctx, `DELETE FROM invitations WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("end its links: %w", err)
	}
	return nil
}

// keepAnOwner returns a problem.Conflict if the change takes away the last owner who can sign in.
// before is the user before the change. keepAnOwner runs after the change in the same transaction.
// Only one edit runs at a time, so two owners cannot remove each other at the same time.
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

// DeleteUser deletes a user and the user's sessions and links.
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

// ownerOf writes the user with this ID, and the user's tenant, into the first audit line. Methods
// that change sessions or second factors of the user call ownerOf.
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
