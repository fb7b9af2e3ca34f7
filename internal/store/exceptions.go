package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// An exceptionKind stores one kind of exceptions of tenants: overrides, list entries, blocks, or
// grants. Only overrides can be changed. A person deletes rows, or EndExpired deletes them after
// they expire. Each deleted row leaves a tombstone.
type exceptionKind[T any] struct {
	table, columns string
	written        string // further columns, which create writes and scan does not read
	conflict       string // ON CONFLICT clause of the INSERT; if it inserts no row, create returns taken
	taken          error
	kind           string // kind of the tombstones; also the prefix of audit actions
	words, plural  string // names of one and of several objects, for error messages
	most           int    // maximum number of rows of one tenant
	code           string // problem code if a tenant has too many rows; default: "too_many_" followed by plural
	scan           func(row) (T, error)
	values         func(T) ([]any, error) // values for columns and written
	stamps         func(*T) stamps
	about          func(T) exception
	changed        func(context.Context, *edit, exception) error // called after each creation and removal; may be nil
}

// stamps has pointers to the fields of a new object that the method create sets. create sets the ID
// (if it is empty), the creation time and the revision, and rounds the expiry to the precision of
// the database.
type stamps struct {
	id                 *string
	expiresAt, created *time.Time
	revision           *int64
}

// An exception has those columns of an override, block or list entry that an audit line contains.
// The same columns are stored in the table of deleted rows.
type exception struct {
	id, tenantID string
	name         string // in the audit log
	policy       string // slug; "" for list entries
	json         func() (json.RawMessage, error)
}

// list returns the rows of one tenant that match f, newest first. It ignores the fields of f
// that do not apply to the kind.
func (k *exceptionKind[T]) list(ctx context.Context, s *Store, tenantID string, f exceptions.Filter) ([]T, error) {
	var where filter
	where.and(`tenant_id = ?`, tenantID)
	lists := k.kind == listEntries.kind
	if f.Policy != "" && !lists {
		where.and(`policy = ?`, f.Policy)
	}
	if f.List != "" && lists {
		where.and(`list = ?`, string(f.List))
	}
	if f.Query != "" && lists {
		where.and(`search LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		where.and(`id < ?`, f.After)
	}
	list, err := queryPage(ctx, s, k.scan, page{k.columns, k.table, where, `id DESC`, f.Limit})
	return list, s.fail(err, "list %s of tenant %s", k.plural, tenantID)
}

// create adds a row to a tenant. If before is not nil, create calls it in the same transaction,
// before the INSERT.
func (k *exceptionKind[T]) create(
	ctx context.Context, s *Store, v T, e audit.Entry, before func(context.Context, *edit, T) error,
) (T, error) {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		at := k.stamps(&v)
		*at.id, *at.created, *at.revision = cmp.Or(*at.id, audit.NewID()), ed.at, ed.revision
		if !at.expiresAt.IsZero() {
			*at.expiresAt = stored(*at.expiresAt)
		}
		is := k.about(v)
		if _, err := ed.tenant(ctx, is.tenantID); err != nil {
			return err
		}
		if before != nil {
			if err := before(ctx, ed, v); err != nil {
				return err
			}
		}
		if err := k.room(ctx, ed, is.tenantID); err != nil {
			return err
		}
		values, err := k.values(v)
		if err != nil {
			return err
		}
		n, err := ed.exec(ctx, `
			INSERT INTO `+k.table+` (`+k.columns+k.written+`)
			VALUES `+placeholders(1, len(values))+` `+k.conflict, values...)
		if err != nil {
			return fmt.Errorf("add a %s: %w", k.words, err)
		}
		if n == 0 {
			return k.taken
		}
		ed.concerns(is.tenantID, is.id, is.name)
		return k.noteChange(ctx, ed, is)
	})
	return v, s.fail(err, "create a %s of tenant %s", k.words, k.about(v).tenantID)
}

func (k *exceptionKind[T]) noteChange(ctx context.Context, ed *edit, is exception) error {
	if k.changed == nil {
		return nil
	}
	return k.changed(ctx, ed, is)
}

// one returns one row of a tenant by its ID. The error is problem.NotFound if the tenant has no such row.
func (k *exceptionKind[T]) one(ctx context.Context, s *Store, tenantID, id string) (T, error) {
	var v T
	err := s.read(ctx, func(ctx context.Context) (err error) {
		v, err = k.find(ctx, s.from(ctx), tenantID, id)
		return err
	})
	return v, s.fail(err, "load %s %s", k.words, id)
}

// A querier runs queries: a connection pool, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (k *exceptionKind[T]) find(ctx context.Context, q querier, tenantID, id string) (T, error) {
	v, err := k.scan(q.QueryRowContext(ctx, `
		SELECT `+k.columns+`
		FROM `+k.table+`
		WHERE tenant_id = $1 AND id = $2`, tenantID, id))
	return v, missing(err, k.words)
}

// delete deletes one row of a tenant. The audit line e describes the request.
func (k *exceptionKind[T]) delete(ctx context.Context, s *Store, tenantID, id string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		v, err := k.find(ctx, ed.tx, tenantID, id)
		if err != nil {
			return err
		}
		is := k.about(v)
		ed.concerns(tenantID, id, is.name)
		return k.remove(ctx, ed, is)
	})
	return s.fail(err, "delete %s %s", k.words, id)
}

func (k *exceptionKind[T]) remove(ctx context.Context, ed *edit, is exception) error {
	if _, err := ed.exec(ctx, `DELETE FROM `+k.table+` WHERE tenant_id = $1 AND id = $2`, is.tenantID, is.id); err != nil {
		return fmt.Errorf("remove %s %s: %w", k.words, is.id, err)
	}
	if err := ed.bury(ctx, k.kind, is.id); err != nil {
		return fmt.Errorf("bury %s %s: %w", k.words, is.id, err)
	}
	return k.noteChange(ctx, ed, is)
}

// expire deletes the rows in ended, all of which have expired. It writes an audit line for each
// of them, with the system as the actor.
func (k *exceptionKind[T]) expire(ctx context.Context, ed *edit, ended []T) error {
	for _, v := range ended {
		is := k.about(v)
		before, err := is.json()
		if err != nil {
			return fmt.Errorf("describe %s %s: %w", k.words, is.id, err)
		}
		if err := k.remove(ctx, ed, is); err != nil {
			return err
		}
		ed.lines = append(ed.lines, audit.Entry{
			Actor:    audit.Actor{Kind: "system", ID: "system", Name: "system"},
			TenantID: is.tenantID, Action: k.kind + ".expire", Object: is.id, ObjectName: is.name, Before: before,
		})
	}
	return nil
}

// expireDue deletes at most limit rows that have expired at now. It returns the number of deleted
// rows.
func (k *exceptionKind[T]) expireDue(ctx context.Context, ed *edit, now time.Time, limit int) (int, error) {
	rows, err := ed.tx.QueryContext(ctx, `
		SELECT `+k.columns+`
		FROM `+k.table+`
		WHERE expires_at <= $1
		ORDER BY expires_at, id
		LIMIT $2`, now, limit)
	ended, err := collect(rows, err, k.scan)
	if err != nil {
		return 0, fmt.Errorf("find every %s that has ended: %w", k.words, err)
	}
	return len(ended), k.expire(ctx, ed, ended)
}

// room returns a problem.Conflict if the tenant already has the maximum number of rows. Expired rows do not count.
func (k *exceptionKind[T]) room(ctx context.Context, ed *edit, tenantID string) error {
	var n int
	err := ed.tx.QueryRowContext(ctx, `
		SELECT count(*)
		FROM `+k.table+`
		WHERE tenant_id = $1 AND (expires_at IS NULL OR expires_at > $2)`, tenantID, ed.at).Scan(&n)
	if err != nil {
		return fmt.Errorf("count %s: %w", k.plural, err)
	}
	if n >= k.most {
		return problem.WithCode(problem.Conflict, cmp.Or(k.code, "too_many_"+k.plural),
			"the tenant has %d %s, and more are not possible; remove some first", n, k.plural)
	}
	return nil
}

// since returns the rows of all tenants that were created or changed after a revision.
func (k *exceptionKind[T]) since(ctx context.Context, q querier, since int64) ([]T, error) {
	rows, err := q.QueryContext(ctx, `SELECT `+k.columns+` FROM `+k.table+` WHERE revision > $1`, since)
	return collect(rows, err, k.scan)
}

// Exceptions returns the overrides and the list entries of all tenants, in no particular order.
// It does not return blocks.
func (s *Store) Exceptions(ctx context.Context) (o []exceptions.Override, e []exceptions.Entry, err error) {
	err = s.readWithin(ctx, 12*s.timeout, func(ctx context.Context) error {
		if o, err = overrides.since(ctx, s.from(ctx), 0); err != nil {
			return err
		}
		e, err = listEntries.since(ctx, s.from(ctx), 0)
		return err
	})
	return o, e, s.fail(err, "read all overrides and list entries")
}

// NoteReset writes the audit line of a reset of counters. Apart from the revision, it changes
// no data, because the counters are not in the database.
func (s *Store) NoteReset(ctx context.Context, tenantID string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		t, err := ed.tenant(ctx, tenantID)
		ed.concerns(tenantID, tenantID, t.Slug)
		return err
	})
	return s.fail(err, "note a reset for tenant %s", tenantID)
}

// EndExpired deletes at most limit exceptions that have expired at now, in one edit, and
// returns their number. Only one edit runs at a time, so two nodes that call EndExpired do not
// delete the same row twice.
func (s *Store) EndExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	now = stored(now)
	var total int
	err := s.edit(ctx, audit.Entry{}, func(ctx context.Context, ed *edit) error {
		total, ed.lines = 0, nil // each deleted row has its own audit line, so the edit itself has none
		for _, expireDue := range []func(context.Context, *edit, time.Time, int) (int, error){
			overrides.expireDue, listEntries.expireDue, blocks.expireDue, grants.expireDue,
		} {
			if total >= limit {
				break
			}
			n, err := expireDue(ctx, ed, now, limit-total)
			if err != nil {
				return err
			}
			total += n
		}
		if total == 0 {
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		return 0, s.fail(err, "remove what has ended")
	}
	return total, nil
}

// policyChanged stores the revision of this edit for a policy of a tenant. It is called when the
// edit adds, changes or removes an override of the policy. From the stored revision, the compiler
// of snapshots knows when the limits of the policy last changed for this tenant.
func (e *edit) policyChanged(ctx context.Context, tenantID, policy string) error {
	_, err := e.exec(ctx, `
		INSERT INTO policy_changes (tenant_id, policy, revision)
		VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id, policy) DO UPDATE SET revision = excluded.revision`, tenantID, policy, e.revision)
	if err != nil {
		return fmt.Errorf("note the change of policy %s: %w", policy, err)
	}
	return nil
}

func scanPolicyChange(r row) (exceptions.Change, error) {
	var c exceptions.Change
	err := r.Scan(&c.TenantID, &c.Policy, &c.Revision)
	return c, err
}
