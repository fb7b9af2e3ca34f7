package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

var listEntries = settingOf[exceptions.Entry]{
	table:   "list_entries",
	columns: `id, tenant_id, list, attribute, value, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision`,
	kind:    "list_entry", words: "list entry",
	scan: scanListEntry,
	about: func(n exceptions.Entry) setting {
		return setting{id: n.ID, tenantID: n.TenantID, name: n.Value, json: n.JSON}
	},
}

func scanListEntry(r row) (exceptions.Entry, error) {
	var n exceptions.Entry
	var expires sql.NullTime
	err := r.Scan(&n.ID, &n.TenantID, &n.List, &n.Attribute, &n.Value, &n.Reason, &expires, &n.CreatedAt,
		&n.CreatedBy.Kind, &n.CreatedBy.ID, &n.CreatedBy.Name, &n.Revision)
	n.ExpiresAt, n.CreatedAt = instant(expires), n.CreatedAt.UTC()
	return n, err
}

// Entries of one tenant's lists, newest first.
func (s *Store) Entries(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Entry, error) {
	var where filter
	where.and(`tenant_id = ?`, tenantID)
	if f.List != "" {
		where.and(`list = ?`, string(f.List))
	}
	if f.Query != "" {
		where.and(`search LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	list, err := listEntries.list(ctx, s, where, f.After, f.Limit)
	return list, s.fail(err, "list the lists of tenant %s", tenantID)
}

// Entry of one tenant's lists by id.
func (s *Store) Entry(ctx context.Context, tenantID, id string) (exceptions.Entry, error) {
	return listEntries.one(ctx, s, tenantID, id)
}

// CreateEntry adds a value to a list of a tenant. One that has ended there and
// was not removed yet gives way.
func (s *Store) CreateEntry(ctx context.Context, n exceptions.Entry, e audit.Entry) (exceptions.Entry, error) {
	var made exceptions.Entry
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if made, err = ed.addListEntry(ctx, n); err != nil {
			return err
		}
		ed.concerns(made.TenantID, made.ID, made.Value)
		return nil
	})
	return made, s.fail(err, "add to a list of tenant %s", n.TenantID)
}

// DeleteEntry takes a value off its list.
func (s *Store) DeleteEntry(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return listEntries.delete(ctx, s, tenantID, id, e)
}

func (e *edit) addListEntry(ctx context.Context, n exceptions.Entry) (_ exceptions.Entry, err error) {
	if _, err := e.tenant(ctx, n.TenantID); err != nil {
		return n, err
	}
	if err := e.yieldListed(ctx, n); err != nil {
		return n, err
	}
	if err := listEntries.room(ctx, e, n.TenantID, exceptions.MaxEntries, "too_many_entries", "list entries"); err != nil {
		return n, err
	}
	n.ID = cmp.Or(n.ID, audit.NewID())
	n.CreatedAt, n.Revision = e.at, e.revision
	if !n.ExpiresAt.IsZero() {
		n.ExpiresAt = stored(n.ExpiresAt)
	}
	added, err := e.exec(ctx, `
		INSERT INTO list_entries (`+listEntries.columns+`, search)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (tenant_id, list, attribute, value) DO NOTHING`,
		n.ID, n.TenantID, string(n.List), n.Attribute, n.Value, n.Reason, nullable(n.ExpiresAt), n.CreatedAt,
		n.CreatedBy.Kind, n.CreatedBy.ID, n.CreatedBy.Name, n.Revision, strings.ToLower(n.Value))
	if err != nil {
		return n, fmt.Errorf("add a list entry: %w", err)
	}
	if added == 0 {
		return n, problem.WithCode(problem.Conflict, "entry_exists", "the value is on this list already")
	}
	return n, nil
}

// yieldListed removes the entry with the value of n, if it has ended.
func (e *edit) yieldListed(ctx context.Context, n exceptions.Entry) error {
	ended, err := scanListEntry(e.tx.QueryRowContext(ctx, `
		SELECT `+listEntries.columns+`
		FROM list_entries
		WHERE tenant_id = $1 AND list = $2 AND attribute = $3 AND value = $4 AND expires_at <= $5`,
		n.TenantID, string(n.List), n.Attribute, n.Value, e.at))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for the value on the list: %w", err)
	}
	return listEntries.expire(ctx, e, []exceptions.Entry{ended})
}
