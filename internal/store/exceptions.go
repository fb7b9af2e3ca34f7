package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// Overrides, list entries and blocks are kept alike: rows of one tenant that
// never change, are removed by hand or when they have ended, and leave a
// tombstone. What is alike stands here.

// A settingOf is how one kind of them is kept.
type settingOf[T any] struct {
	table, columns string
	kind           string // of its tombstones, and the object of its actions
	words          string // for people
	scan           func(row) (T, error)
	about          func(T) setting
	// removed is what else follows from removing one; nil: nothing.
	removed func(context.Context, *edit, setting) error
}

// A setting is what an audit line and a tombstone tell of one.
type setting struct {
	id, tenantID string
	name         string // in the audit log
	policy       string // slug; of overrides and blocks
	json         func() (json.RawMessage, error)
}

// list gives the rows of one tenant, newest first.
func (k *settingOf[T]) list(ctx context.Context, s *Store, where filter, after string, limit int) ([]T, error) {
	if after != "" {
		where.and(`id < ?`, after)
	}
	query := `
		SELECT ` + k.columns + `
		FROM ` + k.table + ` ` + where.where() + `
		ORDER BY id DESC ` + where.limit(limit)
	return queryAll(ctx, s, k.scan, query, where.args...)
}

// one gives a row of one tenant by id.
func (k *settingOf[T]) one(ctx context.Context, s *Store, tenantID, id string) (T, error) {
	var v T
	err := s.read(ctx, func(ctx context.Context) (err error) {
		v, err = k.find(ctx, s.reader, tenantID, id)
		return err
	})
	return v, s.fail(err, "load %s %s", k.words, id)
}

// An asker is a pool or a transaction.
type asker interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (k *settingOf[T]) find(ctx context.Context, q asker, tenantID, id string) (T, error) {
	v, err := k.scan(q.QueryRowContext(ctx, `
		SELECT `+k.columns+`
		FROM `+k.table+`
		WHERE tenant_id = $1 AND id = $2`, tenantID, id))
	return v, missing(err, k.words)
}

// delete removes a row of one tenant by hand.
func (k *settingOf[T]) delete(ctx context.Context, s *Store, tenantID, id string, e audit.Entry) error {
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

func (k *settingOf[T]) remove(ctx context.Context, ed *edit, is setting) error {
	if _, err := ed.exec(ctx, `DELETE FROM `+k.table+` WHERE tenant_id = $1 AND id = $2`, is.tenantID, is.id); err != nil {
		return fmt.Errorf("remove %s %s: %w", k.words, is.id, err)
	}
	if err := ed.bury(ctx, k.kind, is.id); err != nil {
		return fmt.Errorf("bury %s %s: %w", k.words, is.id, err)
	}
	if k.removed == nil {
		return nil
	}
	return k.removed(ctx, ed, is)
}

// expire removes rows that have ended, with a line of the system for each.
func (k *settingOf[T]) expire(ctx context.Context, ed *edit, ended []T) error {
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

// expireDue removes what ended at or before now, at most limit rows, and gives
// how many there were.
func (k *settingOf[T]) expireDue(ctx context.Context, ed *edit, now time.Time, limit int) (int, error) {
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

// room refuses one more row than a tenant may have. What has ended and was not
// removed yet does not count.
func (k *settingOf[T]) room(ctx context.Context, ed *edit, tenantID string, most int, code, plural string) error {
	var n int
	err := ed.tx.QueryRowContext(ctx, `
		SELECT count(*)
		FROM `+k.table+`
		WHERE tenant_id = $1 AND (expires_at IS NULL OR expires_at > $2)`, tenantID, ed.at).Scan(&n)
	if err != nil {
		return fmt.Errorf("count %s: %w", plural, err)
	}
	if n >= most {
		return problem.WithCode(problem.Conflict, code, "the tenant has %d %s, and more are not possible; remove some first", n, plural)
	}
	return nil
}

// changed gives the rows that changed after a revision.
func (k *settingOf[T]) changed(ctx context.Context, tx *sql.Tx, since int64) ([]T, error) {
	rows, err := tx.QueryContext(ctx, `SELECT `+k.columns+` FROM `+k.table+` WHERE revision > $1`, since)
	return collect(rows, err, k.scan)
}

// NoteReset writes the audit line of a reset, which has no row of its own.
func (s *Store) NoteReset(ctx context.Context, tenantID string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		t, err := ed.tenant(ctx, tenantID)
		ed.concerns(tenantID, tenantID, t.Slug)
		return err
	})
	return s.fail(err, "note a reset for tenant %s", tenantID)
}

// EndExpired removes what ended at or before now, in one edit for at most limit
// rows. Edits take turns, so of several that try at once only one finds a row.
func (s *Store) EndExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	now = stored(now)
	var total int
	err := s.edit(ctx, audit.Entry{}, func(ctx context.Context, ed *edit) error {
		total, ed.lines = 0, nil // each row has a line, the edit has none
		for _, expireDue := range []func(context.Context, *edit, time.Time, int) (int, error){
			overrides.expireDue, listEntries.expireDue, blocks.expireDue,
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

// policyChanged notes that a tenant's numbers of a policy are others from this
// edit on.
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
