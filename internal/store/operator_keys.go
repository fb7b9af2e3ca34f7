package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

const operatorKeyColumns = `id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision`

func scanOperatorKey(r row) (accounts.OperatorKey, error) {
	var k accounts.OperatorKey
	var hash []byte
	var scopes string
	var expires, revoked sql.NullTime
	err := r.Scan(&k.ID, &k.Name, &hash, &k.Hint, &scopes, &expires, &revoked, &k.CreatedAt, &k.Revision)
	copy(k.Hash[:], hash)
	k.Scopes = readScopes(scopes)
	k.ExpiresAt, k.RevokedAt, k.CreatedAt = instant(expires), instant(revoked), k.CreatedAt.UTC()
	return k, err
}

// OperatorKeys lists by id, oldest first, revoked ones too.
func (s *Store) OperatorKeys(ctx context.Context, f tenants.Filter) ([]accounts.OperatorKey, error) {
	var where filter
	if f.Query != "" {
		where.and(`lower(name) LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		where.and(`id > ?`, f.After)
	}
	query := `
		SELECT ` + operatorKeyColumns + `
		FROM operator_keys ` + where.where() + `
		ORDER BY id ` + where.limit(f.Limit)
	var list []accounts.OperatorKey
	err := s.read(ctx, func(ctx context.Context) error {
		rows, err := s.reader.QueryContext(ctx, query, where.args...)
		list, err = collect(rows, err, scanOperatorKey)
		return err
	})
	return list, s.fail(err, "list operator keys")
}

// OperatorKey finds by id.
func (s *Store) OperatorKey(ctx context.Context, id string) (accounts.OperatorKey, error) {
	var k accounts.OperatorKey
	err := s.read(ctx, func(ctx context.Context) (err error) {
		k, err = scanOperatorKey(s.reader.QueryRowContext(ctx, `
			SELECT `+operatorKeyColumns+`
			FROM operator_keys
			WHERE id = $1`, id))
		return missing(err, "operator key")
	})
	return k, s.fail(err, "load operator key %s", id)
}

// CreateOperatorKey adds a key.
func (s *Store) CreateOperatorKey(ctx context.Context, k accounts.OperatorKey, e audit.Entry) (accounts.OperatorKey, error) {
	var made accounts.OperatorKey
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		made, err = ed.addOperatorKey(ctx, k)
		ed.concerns("", made.ID, made.Name)
		return err
	})
	return made, s.fail(err, "create an operator key")
}

// RotateOperatorKey adds next and ends the old key at until; a key that ends
// sooner already keeps its end.
func (s *Store) RotateOperatorKey(ctx context.Context, id string, until time.Time, next accounts.OperatorKey, e audit.Entry) (accounts.OperatorKey, error) {
	var made accounts.OperatorKey
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		old, err := ed.operatorKey(ctx, id)
		if err != nil {
			return err
		}
		if err := refuseRevoked(old.RevokedAt, ed.at); err != nil {
			return err
		}
		ed.concerns("", id, old.Name)
		if made, err = ed.addOperatorKey(ctx, next); err != nil {
			return err
		}
		return ed.endOperatorKey(ctx, old, rotationEnd(old.RevokedAt, until, ed.at))
	})
	return made, s.fail(err, "rotate operator key %s", id)
}

// RevokeOperatorKey ends a key at an instant; one that ends no later is left as
// it is. Somebody must be left who can manage keys. The links that the key made
// end with it.
func (s *Store) RevokeOperatorKey(ctx context.Context, id string, at time.Time, e audit.Entry) (accounts.OperatorKey, error) {
	var k accounts.OperatorKey
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if k, err = ed.operatorKey(ctx, id); err != nil {
			return err
		}
		at := stored(at)
		if !k.RevokedAt.IsZero() && !k.RevokedAt.After(at) {
			return errUnchanged
		}
		ed.concerns("", id, k.Name)
		if err := ed.endOperatorKey(ctx, k, at); err != nil {
			return err
		}
		k.RevokedAt, k.Revision = at, ed.revision
		return ed.endLinksOf(ctx, "operator_key", id)
	})
	return k, s.fail(err, "revoke operator key %s", id)
}

func (e *edit) operatorKey(ctx context.Context, id string) (accounts.OperatorKey, error) {
	k, err := scanOperatorKey(e.tx.QueryRowContext(ctx, `
		SELECT `+operatorKeyColumns+`
		FROM operator_keys
		WHERE id = $1`, id))
	return k, missing(err, "operator key")
}

func (e *edit) addOperatorKey(ctx context.Context, k accounts.OperatorKey) (_ accounts.OperatorKey, err error) {
	if k.ID, err = newID(k.ID); err != nil {
		return k, err
	}
	k.CreatedAt, k.Revision, k.RevokedAt = e.at, e.revision, time.Time{}
	if !k.ExpiresAt.IsZero() {
		k.ExpiresAt = stored(k.ExpiresAt)
	}
	n, err := e.exec(ctx, `
		INSERT INTO operator_keys (`+operatorKeyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $8)
		ON CONFLICT (hash) DO NOTHING`,
		k.ID, k.Name, k.Hash[:], k.Hint, writeScopes(k.Scopes), nullable(k.ExpiresAt), k.CreatedAt, k.Revision)
	if err != nil {
		return k, fmt.Errorf("add an operator key: %w", err)
	}
	if n == 0 {
		return k, tokenTaken()
	}
	return k, nil
}

// endOperatorKey sets the end of a key, unless it is the last that can manage.
// One that has expired, or never could, may always be ended.
func (e *edit) endOperatorKey(ctx context.Context, k accounts.OperatorKey, at time.Time) error {
	expired := !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(e.at)
	if hasManage(k.Scopes) && !expired {
		left, err := e.managersBeside(ctx, k.ID)
		if err != nil {
			return err
		}
		if !left {
			return problem.WithCode(problem.Conflict, "last_operator_key",
				"this is the last valid operator key with the scope manage; create another one first")
		}
	}
	_, err := e.exec(ctx, `
		UPDATE operator_keys SET revoked_at = $2, revision = $3
		WHERE id = $1`, k.ID, at, e.revision)
	return err
}

// managersBeside tells whether another key can manage. One in its overlap after
// a rotation does not count: it ends by itself.
func (e *edit) managersBeside(ctx context.Context, id string) (bool, error) {
	var left bool
	err := e.tx.QueryRowContext(ctx, `
		SELECT EXISTS (
			SELECT 1 FROM operator_keys
			WHERE id <> $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
				AND ' ' || scopes || ' ' LIKE '% manage %')`, id, e.at).Scan(&left)
	return left, err
}

func hasManage(scopes []tenants.Scope) bool {
	for _, s := range scopes {
		if s == tenants.ScopeManage {
			return true
		}
	}
	return false
}
