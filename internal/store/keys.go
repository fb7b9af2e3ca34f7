package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

const keyColumns = `id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision`

func scanKey(r row) (tenants.Key, error) {
	var k tenants.Key
	var hash []byte
	var scopes string
	var expires, revoked sql.NullTime
	err := r.Scan(&k.ID, &k.TenantID, &k.Name, &hash, &k.Hint, &scopes, &expires, &revoked, &k.CreatedAt, &k.Revision)
	copy(k.Hash[:], hash)
	k.Scopes = readScopes(scopes)
	k.ExpiresAt, k.RevokedAt, k.CreatedAt = instant(expires), instant(revoked), k.CreatedAt.UTC()
	return k, err
}

// Keys of one tenant, oldest first, revoked ones too.
func (s *Store) Keys(ctx context.Context, tenantID string, f tenants.Filter) ([]tenants.Key, error) {
	var where filter
	where.and(`tenant_id = ?`, tenantID)
	if f.Query != "" {
		where.and(`lower(name) LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		where.and(`id > ?`, f.After)
	}
	query := `
		SELECT ` + keyColumns + `
		FROM api_keys ` + where.where() + `
		ORDER BY id ` + where.limit(f.Limit)
	var list []tenants.Key
	err := s.read(ctx, func(ctx context.Context) error {
		rows, err := s.reader.QueryContext(ctx, query, where.args...)
		list, err = collect(rows, err, scanKey)
		return err
	})
	return list, s.fail(err, "list keys of tenant %s", tenantID)
}

// Key of one tenant by id.
func (s *Store) Key(ctx context.Context, tenantID, id string) (tenants.Key, error) {
	var k tenants.Key
	err := s.read(ctx, func(ctx context.Context) (err error) {
		k, err = scanKey(s.reader.QueryRowContext(ctx, `
			SELECT `+keyColumns+`
			FROM api_keys
			WHERE tenant_id = $1 AND id = $2`, tenantID, id))
		return missing(err, "key")
	})
	return k, s.fail(err, "load key %s", id)
}

// CreateKey adds a key to a tenant.
func (s *Store) CreateKey(ctx context.Context, k tenants.Key, e audit.Entry) (tenants.Key, error) {
	var made tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if _, err := ed.tenant(ctx, k.TenantID); err != nil {
			return err
		}
		made, err = ed.addKey(ctx, k)
		ed.concerns(made.TenantID, made.ID, made.Name)
		return err
	})
	return made, s.fail(err, "create a key of tenant %s", k.TenantID)
}

// RotateKey adds next and ends the old key at until; a key that ends sooner
// already keeps its end.
func (s *Store) RotateKey(ctx context.Context, tenantID, id string, until time.Time, next tenants.Key, e audit.Entry) (tenants.Key, error) {
	var made tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		old, err := ed.key(ctx, tenantID, id)
		if err != nil {
			return err
		}
		if err := refuseRevoked(old.RevokedAt, ed.at); err != nil {
			return err
		}
		ed.concerns(tenantID, id, old.Name)
		_, err = ed.exec(ctx, `
			UPDATE api_keys SET revoked_at = $3, revision = $4
			WHERE tenant_id = $1 AND id = $2`, tenantID, id, rotationEnd(old.RevokedAt, until, ed.at), ed.revision)
		if err != nil {
			return err
		}
		next.TenantID = tenantID
		made, err = ed.addKey(ctx, next)
		return err
	})
	return made, s.fail(err, "rotate key %s", id)
}

// RevokeKey ends a key at an instant; one that ends no later is left as it is.
// The links that the key made end with it.
func (s *Store) RevokeKey(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry) (tenants.Key, error) {
	var k tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if k, err = ed.key(ctx, tenantID, id); err != nil {
			return err
		}
		at := stored(at)
		if !k.RevokedAt.IsZero() && !k.RevokedAt.After(at) {
			return errUnchanged
		}
		ed.concerns(tenantID, id, k.Name)
		k.RevokedAt, k.Revision = at, ed.revision
		_, err = ed.exec(ctx, `
			UPDATE api_keys SET revoked_at = $3, revision = $4
			WHERE tenant_id = $1 AND id = $2`, tenantID, id, at, ed.revision)
		if err != nil {
			return err
		}
		return ed.endLinksOf(ctx, "tenant_key", id)
	})
	return k, s.fail(err, "revoke key %s", id)
}

func (e *edit) key(ctx context.Context, tenantID, id string) (tenants.Key, error) {
	k, err := scanKey(e.tx.QueryRowContext(ctx, `
		SELECT `+keyColumns+`
		FROM api_keys
		WHERE tenant_id = $1 AND id = $2`, tenantID, id))
	return k, missing(err, "key")
}

func (e *edit) addKey(ctx context.Context, k tenants.Key) (_ tenants.Key, err error) {
	if k.ID, err = newID(k.ID); err != nil {
		return k, err
	}
	k.CreatedAt, k.Revision, k.RevokedAt = e.at, e.revision, time.Time{}
	if !k.ExpiresAt.IsZero() {
		k.ExpiresAt = stored(k.ExpiresAt)
	}
	n, err := e.exec(ctx, `
		INSERT INTO api_keys (`+keyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, NULL, $8, $9)
		ON CONFLICT (hash) DO NOTHING`,
		k.ID, k.TenantID, k.Name, k.Hash[:], k.Hint, writeScopes(k.Scopes), nullable(k.ExpiresAt), k.CreatedAt, k.Revision)
	if err != nil {
		return k, fmt.Errorf("add a key: %w", err)
	}
	if n == 0 {
		return k, tokenTaken()
	}
	return k, nil
}

// tokenTaken: two keys cannot have one secret.
func tokenTaken() error {
	return problem.WithCode(problem.Conflict, "key_exists", "a key with this token exists already")
}

// refuseRevoked: a key that has ended is not rotated back to life.
func refuseRevoked(revoked, now time.Time) error {
	if !revoked.IsZero() && !revoked.After(now) {
		return problem.WithCode(problem.Conflict, "key_revoked", "the key is revoked; create a new one")
	}
	return nil
}

// rotationEnd is when a rotated key ends: at until, now without one, and never
// later than it would have.
func rotationEnd(revoked, until, now time.Time) time.Time {
	if until.IsZero() {
		until = now
	}
	if !revoked.IsZero() && revoked.Before(until) {
		until = revoked
	}
	return stored(until)
}

func writeScopes(scopes []tenants.Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, " ")
}

func readScopes(text string) []tenants.Scope {
	var scopes []tenants.Scope
	for word := range strings.FieldsSeq(text) {
		scopes = append(scopes, tenants.Scope(word))
	}
	return scopes
}
