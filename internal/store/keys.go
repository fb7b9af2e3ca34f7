package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

const keyColumns = `id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, created_by, max_cost, peek_only,
	allowed_ips, last_used_at, revision`

func scanKey(r row) (tenants.Key, error) {
	var k tenants.Key
	var tenantID, createdBy sql.NullString
	var hash []byte
	var scopes, allowed string
	var expires, revoked sql.NullTime
	var used sql.NullInt64
	err := r.Scan(&k.ID, &tenantID, &k.Name, &hash, &k.Hint, &scopes, &expires, &revoked, &k.CreatedAt, &createdBy, &k.MaxCost, &k.PeekOnly,
		&allowed, &used, &k.Revision)
	// If the stored networks cannot be decoded, the key gets a network that contains no address. An
	// empty list would let all addresses use the key.
	k.AllowedIPs, _ = tenants.ParseNetworks(strings.Fields(allowed))
	if allowed != "" && len(k.AllowedIPs) == 0 {
		k.AllowedIPs = tenants.Networks{netip.Prefix{}}
	}
	if used.Valid {
		k.LastUsedAt = time.UnixMilli(used.Int64).UTC()
	}
	copy(k.Hash[:], hash)
	k.TenantID, k.CreatedBy, k.Scopes = tenantID.String, createdBy.String, readScopes(scopes)
	k.ExpiresAt, k.RevokedAt, k.CreatedAt = instant(expires), instant(revoked), k.CreatedAt.UTC()
	return k, err
}

// Keys returns the keys of one tenant, or of the operator if tenantID is "", oldest first. The list includes revoked
// keys.
func (s *Store) Keys(ctx context.Context, tenantID string, f tenants.Filter) ([]tenants.Key, error) {
	var where filter
	where.tenant(tenantID)
	if f.Query != "" {
		where.and(`lower(name) LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		where.and(`id > ?`, f.After)
	}
	list, err := queryPage(ctx, s, scanKey, page{keyColumns, `api_keys`, where, `id`, f.Limit})
	return list, s.fail(err, "list keys of %s", ownerName(tenantID))
}

// Key returns one key of a tenant, or of the operator if tenantID is "", by its ID.
func (s *Store) Key(ctx context.Context, tenantID, id string) (tenants.Key, error) {
	var k tenants.Key
	err := s.read(ctx, func(ctx context.Context) (err error) {
		k, err = findKey(ctx, s.from(ctx), tenantID, id)
		return err
	})
	return k, s.fail(err, "load key %s", id)
}

// CreateKey adds a key to a tenant or to the operator.
func (s *Store) CreateKey(ctx context.Context, k tenants.Key, e audit.Entry) (tenants.Key, error) {
	var created tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if err := ed.tenantIfAny(ctx, k.TenantID); err != nil {
			return err
		}
		created, err = ed.addKey(ctx, k)
		ed.concerns(created.TenantID, created.ID, created.Name)
		return err
	})
	return created, s.fail(err, "create a key of %s", ownerName(k.TenantID))
}

// RotateKey adds the key next. It sets the end of the old key, which has the given ID, to until. If
// until is zero, the old key ends now. If the old key already ends earlier, RotateKey keeps the
// earlier end.
func (s *Store) RotateKey(ctx context.Context, tenantID, id string, until time.Time, next tenants.Key, e audit.Entry) (tenants.Key, error) {
	var created tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		old, err := findKey(ctx, ed.tx, tenantID, id)
		if err != nil {
			return err
		}
		if !old.RevokedAt.IsZero() && !old.RevokedAt.After(ed.at) {
			return problem.WithCode(problem.Conflict, "key_revoked", "the key is revoked; create a new one")
		}
		ed.concerns(tenantID, id, old.Name)
		next.TenantID = tenantID
		// The new key is added first, so that endKey finds it when it looks for another valid
		// key with the scope manage.
		if created, err = ed.addKey(ctx, next); err != nil {
			return err
		}
		return ed.endKey(ctx, old, rotationEnd(old.RevokedAt, until, ed.at))
	})
	return created, s.fail(err, "rotate key %s", id)
}

// RevokeKey sets the end of a key to at, unless the key ends earlier. RevokeKey also deletes the
// invitation links that the key created.
func (s *Store) RevokeKey(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry) (tenants.Key, error) {
	var k tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if k, err = findKey(ctx, ed.tx, tenantID, id); err != nil {
			return err
		}
		at := stored(at)
		if !k.RevokedAt.IsZero() && !k.RevokedAt.After(at) {
			return errUnchanged
		}
		ed.concerns(tenantID, id, k.Name)
		return ed.revoke(ctx, &k, at)
	})
	return k, s.fail(err, "revoke key %s", id)
}

// RevokeKeyAndCreated revokes a key like RevokeKey. It also revokes the valid keys that the key
// created, directly or through other keys. The function entry returns the audit line for each of
// these created keys.
func (s *Store) RevokeKeyAndCreated(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry,
	entry func(tenants.Key) audit.Entry,
) (tenants.Key, error) {
	var k tenants.Key
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if k, err = findKey(ctx, ed.tx, tenantID, id); err != nil {
			return err
		}
		at := stored(at)
		ed.concerns(tenantID, id, k.Name)
		if k.RevokedAt.IsZero() || k.RevokedAt.After(at) {
			if err := ed.revoke(ctx, &k, at); err != nil {
				return err
			}
		} else {
			ed.lines = nil // the key ended earlier, so only the keys that it created get audit lines
		}
		created, err := keysCreatedBy(ctx, ed.tx, tenantID, id, at)
		if err != nil {
			return err
		}
		for _, c := range created {
			line := entry(c)
			if line.Err != nil {
				return line.Err
			}
			ed.lines = append(ed.lines, line)
			if err := ed.revoke(ctx, &c, at); err != nil {
				return err
			}
		}
		if len(ed.lines) == 0 {
			return errUnchanged
		}
		return nil
	})
	return k, s.fail(err, "revoke key %s and the keys that it created", id)
}

// KeysCreatedBy returns the keys that the key with the given ID created, directly or through other
// keys. It leaves out keys that are revoked or expired at the time at. The oldest keys come first.
// If tenantID is not "", the result contains only keys of this tenant; otherwise it contains keys
// of the operator and of all tenants.
func (s *Store) KeysCreatedBy(ctx context.Context, tenantID, id string, at time.Time) ([]tenants.Key, error) {
	var list []tenants.Key
	err := s.read(ctx, func(ctx context.Context) (err error) {
		list, err = keysCreatedBy(ctx, s.from(ctx), tenantID, id, at)
		return err
	})
	return list, s.fail(err, "list the keys that key %s created", id)
}

func keysCreatedBy(ctx context.Context, q querier, tenantID, id string, at time.Time) ([]tenants.Key, error) {
	rows, err := q.QueryContext(ctx, `
		WITH RECURSIVE created (id) AS (
			SELECT id FROM api_keys WHERE created_by = $1
			UNION
			SELECT k.id FROM api_keys k JOIN created c ON k.created_by = c.id
		)
		SELECT `+keyColumns+` FROM api_keys
		WHERE id IN (SELECT id FROM created) AND (tenant_id = $2 OR CAST($2 AS TEXT) IS NULL)
			AND (revoked_at IS NULL OR revoked_at > $3) AND (expires_at IS NULL OR expires_at > $3)
		ORDER BY id`, id, orNull(tenantID), stored(at))
	return collect(rows, err, scanKey)
}

// keyUsesTogether is the maximum number of keys that one statement of AddKeyUses updates.
const keyUsesTogether = 500

// AddKeyUses stores the time of the last use of each key in uses, unless the database has a later
// time. It ignores keys that do not exist. AddKeyUses does not raise the revision and writes no
// audit line.
func (s *Store) AddKeyUses(ctx context.Context, uses []tenants.KeyUse) error {
	for some := range slices.Chunk(uses, keyUsesTogether) {
		rows, args := make([]string, len(some)), make([]any, 0, 2*len(some))
		for i, u := range some {
			rows[i] = fmt.Sprintf("(CAST($%d AS TEXT), CAST($%d AS BIGINT))", 2*i+1, 2*i+2)
			args = append(args, u.ID, u.At.UnixMilli())
		}
		err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := execIn(ctx, tx, `
				UPDATE api_keys SET last_used_at = u.column2
				FROM (VALUES `+strings.Join(rows, ", ")+`) AS u
				WHERE id = u.column1 AND (last_used_at IS NULL OR last_used_at < u.column2)`, args...)
			return err
		})
		if err != nil {
			return s.fail(err, "store the last use of %d keys", len(some))
		}
	}
	return nil
}

// revoke sets the end of the key k, and deletes the invitation links that k created.
func (e *edit) revoke(ctx context.Context, k *tenants.Key, at time.Time) error {
	if err := e.endKey(ctx, *k, at); err != nil {
		return err
	}
	k.RevokedAt, k.Revision = at, e.revision
	actor := "tenant_key"
	if k.Operator() {
		actor = "operator_key"
	}
	return e.endLinksOf(ctx, actor, k.ID)
}

// ownerName returns the name of a key's owner for error messages: "tenant" and its ID, or "the
// operator" if tenantID is "".
func ownerName(tenantID string) string {
	if tenantID == "" {
		return "the operator"
	}
	return "tenant " + tenantID
}

func findKey(ctx context.Context, q querier, tenantID, id string) (tenants.Key, error) {
	k, err := scanKey(q.QueryRowContext(ctx, `
		SELECT `+keyColumns+`
		FROM api_keys
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(tenantID), id))
	if tenantID == "" {
		return k, missing(err, "operator key")
	}
	return k, missing(err, "key")
}

func (e *edit) addKey(ctx context.Context, k tenants.Key) (_ tenants.Key, err error) {
	k.ID = cmp.Or(k.ID, audit.NewID())
	k.CreatedAt, k.Revision, k.RevokedAt, k.LastUsedAt = e.at, e.revision, time.Time{}, time.Time{}
	if !k.ExpiresAt.IsZero() {
		k.ExpiresAt = stored(k.ExpiresAt)
	}
	n, err := e.exec(ctx, `
		INSERT INTO api_keys (`+keyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, NULL, $8, $9, $10, $11, $12, NULL, $13)
		ON CONFLICT (hash) DO NOTHING`,
		k.ID, orNull(k.TenantID), k.Name, k.Hash[:], k.Hint, writeScopes(k.Scopes), nullable(k.ExpiresAt), k.CreatedAt,
		orNull(k.CreatedBy), k.MaxCost, k.PeekOnly, strings.Join(k.AllowedIPs.Texts(), " "), k.Revision)
	if err != nil {
		return k, fmt.Errorf("add a key: %w", err)
	}
	if n == 0 {
		return k, problem.WithCode(problem.Conflict, "key_exists", "a key with this token exists already")
	}
	return k, nil
}

// endKey sets the end of a key. It returns a problem.Conflict if the operator would then have no
// valid key with the scope manage.
func (e *edit) endKey(ctx context.Context, k tenants.Key, at time.Time) error {
	expired := !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(e.at)
	if k.Operator() && slices.Contains(k.Scopes, tenants.ScopeManage) && !expired {
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
		UPDATE api_keys SET revoked_at = $3, revision = $4
		WHERE tenant_id IS NOT DISTINCT FROM $1 AND id = $2`, orNull(k.TenantID), k.ID, at, e.revision)
	return err
}

// managersBeside reports whether the operator has another valid key with the scope manage than the
// key with this ID. A rotated key does not count, because it soon ends.
func (e *edit) managersBeside(ctx context.Context, id string) (bool, error) {
	var left bool
	err := e.tx.QueryRowContext(ctx, `
		SELECT EXISTS (
			SELECT 1 FROM api_keys
			WHERE tenant_id IS NULL AND id <> $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
				AND ' ' || scopes || ' ' LIKE '% manage %')`, id, e.at).Scan(&left)
	return left, err
}

// rotationEnd returns the time at which a rotated key ends: until, or now if until is zero. revoked
// is the end that the key already has, or zero. If revoked is earlier than the new end, rotationEnd
// returns revoked.
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
