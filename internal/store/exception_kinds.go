package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

const actorColumns = `actor_kind, actor_id, actor_name`

var overrides = exceptionKind[exceptions.Override]{
	table: "overrides",
	columns: `id, tenant_id, policy, attribute, value, prefix, factor, limits, reason, expires_at, created_at, ` +
		actorColumns + `, revision`,
	kind: "override", words: "override", plural: "overrides", most: exceptions.MaxOverrides,
	scan: scanOverride,
	values: func(o exceptions.Override) ([]any, error) {
		limits, err := writeOverrideLimits(o.Limits)
		return []any{
			o.ID, o.TenantID, o.Policy, o.Attribute, o.Value, o.Prefix, o.Factor, limits, o.Reason, o.ExpiresAt, o.CreatedAt,
			o.CreatedBy.Kind, o.CreatedBy.ID, o.CreatedBy.Name, o.Revision,
		}, err
	},
	stamps: func(o *exceptions.Override) stamps { return stamps{&o.ID, &o.ExpiresAt, &o.CreatedAt, &o.Revision} },
	about: func(o exceptions.Override) exception {
		return exception{id: o.ID, tenantID: o.TenantID, name: o.Policy, policy: o.Policy, json: o.JSON}
	},
	changed: func(ctx context.Context, ed *edit, is exception) error {
		return ed.policyChanged(ctx, is.tenantID, is.policy)
	},
}

// scanOverride scans a row with an override. If the limits in the row cannot be decoded, the result
// has no limits and no factor, so the compiler of the snapshot rejects it.
func scanOverride(r row) (exceptions.Override, error) {
	var o exceptions.Override
	var limits string
	err := r.Scan(&o.ID, &o.TenantID, &o.Policy, &o.Attribute, &o.Value, &o.Prefix, &o.Factor, &limits, &o.Reason,
		&o.ExpiresAt, &o.CreatedAt, &o.CreatedBy.Kind, &o.CreatedBy.ID, &o.CreatedBy.Name, &o.Revision)
	if err != nil {
		return o, err
	}
	o.ExpiresAt, o.CreatedAt = o.ExpiresAt.UTC(), o.CreatedAt.UTC()
	if o.Limits, err = readOverrideLimits(limits); err != nil {
		o.Factor, o.Limits = 0, nil
	}
	return o, nil
}

// Overrides returns the overrides of one tenant, newest first.
func (s *Store) Overrides(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Override, error) {
	return overrides.list(ctx, s, tenantID, f)
}

// Override returns one override of a tenant. The error is problem.NotFound if the tenant has no such override.
func (s *Store) Override(ctx context.Context, tenantID, id string) (exceptions.Override, error) {
	return overrides.one(ctx, s, tenantID, id)
}

// CreateOverride adds an override to a tenant.
func (s *Store) CreateOverride(ctx context.Context, o exceptions.Override, e audit.Entry) (exceptions.Override, error) {
	return overrides.create(ctx, s, o, e, nil)
}

// UpdateOverride replaces the keys, the numbers, the reason, and the end of an override. The error is problem.Stale if
// the stored revision is not ifRevision.
func (s *Store) UpdateOverride(
	ctx context.Context, o exceptions.Override, ifRevision int64, e audit.Entry,
) (now exceptions.Override, err error) {
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := overrides.find(ctx, ed.tx, o.TenantID, o.ID)
		if err != nil {
			return err
		}
		if before.Revision != ifRevision {
			return stale("override")
		}
		limits, err := writeOverrideLimits(o.Limits)
		if err != nil {
			return err
		}
		ed.concerns(o.TenantID, o.ID, before.Policy)
		_, err = ed.exec(ctx, `
			UPDATE overrides
			SET attribute = $3, value = $4, prefix = $5, factor = $6, limits = $7, reason = $8, expires_at = $9, revision = $10
			WHERE tenant_id = $1 AND id = $2`,
			o.TenantID, o.ID, o.Attribute, o.Value, o.Prefix, o.Factor, limits, o.Reason, stored(o.ExpiresAt), ed.revision)
		if err != nil {
			return err
		}
		if err := ed.policyChanged(ctx, o.TenantID, before.Policy); err != nil {
			return err
		}
		now, err = overrides.find(ctx, ed.tx, o.TenantID, o.ID)
		return err
	})
	return now, s.fail(err, "update override %s", o.ID)
}

// DeleteOverride deletes an override, so that it ends immediately.
func (s *Store) DeleteOverride(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return overrides.delete(ctx, s, tenantID, id, e)
}

var listEntries = exceptionKind[exceptions.Entry]{
	table:   "list_entries",
	columns: `id, tenant_id, list, attribute, value, reason, expires_at, created_at, ` + actorColumns + `, revision`,
	written: `, search`,
	kind:    "list_entry", words: "list entry", plural: "list entries", most: exceptions.MaxEntries, code: "too_many_entries",
	scan: func(r row) (exceptions.Entry, error) {
		var n exceptions.Entry
		var expires sql.NullTime
		err := r.Scan(&n.ID, &n.TenantID, &n.List, &n.Attribute, &n.Value, &n.Reason, &expires, &n.CreatedAt,
			&n.CreatedBy.Kind, &n.CreatedBy.ID, &n.CreatedBy.Name, &n.Revision)
		n.ExpiresAt, n.CreatedAt = instant(expires), n.CreatedAt.UTC()
		return n, err
	},
	values: func(n exceptions.Entry) ([]any, error) {
		return []any{
			n.ID, n.TenantID, string(n.List), n.Attribute, n.Value, n.Reason, nullable(n.ExpiresAt), n.CreatedAt,
			n.CreatedBy.Kind, n.CreatedBy.ID, n.CreatedBy.Name, n.Revision, strings.ToLower(n.Value),
		}, nil
	},
	conflict: `ON CONFLICT (tenant_id, list, attribute, value) DO NOTHING`,
	taken:    problem.WithCode(problem.Conflict, "entry_exists", "the value is on this list already"),
	stamps:   func(n *exceptions.Entry) stamps { return stamps{&n.ID, &n.ExpiresAt, &n.CreatedAt, &n.Revision} },
	about: func(n exceptions.Entry) exception {
		return exception{id: n.ID, tenantID: n.TenantID, name: n.Value, json: n.JSON}
	},
}

// Entries returns the list entries of one tenant, newest first.
func (s *Store) Entries(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Entry, error) {
	return listEntries.list(ctx, s, tenantID, f)
}

// Entry returns one list entry of a tenant. The error is problem.NotFound if the tenant has no such entry.
func (s *Store) Entry(ctx context.Context, tenantID, id string) (exceptions.Entry, error) {
	return listEntries.one(ctx, s, tenantID, id)
}

// CreateEntry adds a value to a list of a tenant. If the list has an expired entry with the same
// value, CreateEntry deletes it in the same transaction.
func (s *Store) CreateEntry(ctx context.Context, n exceptions.Entry, e audit.Entry) (exceptions.Entry, error) {
	return listEntries.create(ctx, s, n, e, removeEndedEntry)
}

// DeleteEntry deletes a list entry, so that its value is no longer on the list.
func (s *Store) DeleteEntry(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return listEntries.delete(ctx, s, tenantID, id, e)
}

// removeEndedEntry deletes the expired entry that has the same list and value as n, if there is
// one.
func removeEndedEntry(ctx context.Context, e *edit, n exceptions.Entry) error {
	ended, err := listEntries.scan(e.tx.QueryRowContext(ctx, `
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

var blocks = exceptionKind[exceptions.Block]{
	table:   "blocks",
	columns: `id, tenant_id, policy, key_values, reason, expires_at, created_at, ` + actorColumns + `, revision`,
	kind:    "block", words: "block", plural: "blocks", most: exceptions.MaxBlocks,
	scan: scanBlock,
	values: func(b exceptions.Block) ([]any, error) {
		key, err := writeKeyValues(b.Key)
		return []any{
			b.ID, b.TenantID, b.Policy, key, b.Reason, b.ExpiresAt, b.CreatedAt,
			b.CreatedBy.Kind, b.CreatedBy.ID, b.CreatedBy.Name, b.Revision,
		}, err
	},
	stamps: func(b *exceptions.Block) stamps { return stamps{&b.ID, &b.ExpiresAt, &b.CreatedAt, &b.Revision} },
	about: func(b exceptions.Block) exception {
		return exception{id: b.ID, tenantID: b.TenantID, name: b.Policy, policy: b.Policy, json: b.JSON}
	},
}

// scanBlock scans a row with a block. If the key in the row cannot be decoded, scanBlock gives the
// block a key with an attribute that no policy counts by, so that the block has no effect. With an
// empty key, the block could deny requests.
func scanBlock(r row) (exceptions.Block, error) {
	var b exceptions.Block
	var key string
	err := r.Scan(&b.ID, &b.TenantID, &b.Policy, &key, &b.Reason, &b.ExpiresAt, &b.CreatedAt,
		&b.CreatedBy.Kind, &b.CreatedBy.ID, &b.CreatedBy.Name, &b.Revision)
	if err != nil {
		return b, err
	}
	b.ExpiresAt, b.CreatedAt = b.ExpiresAt.UTC(), b.CreatedAt.UTC()
	if b.Key, err = readKeyValues(key); err != nil {
		b.Key = map[string]string{"": ""}
	}
	return b, nil
}

// Blocks returns the blocks of one tenant, newest first.
func (s *Store) Blocks(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Block, error) {
	return blocks.list(ctx, s, tenantID, f)
}

// Block returns one block of a tenant. The error is problem.NotFound if the tenant has no such block.
func (s *Store) Block(ctx context.Context, tenantID, id string) (exceptions.Block, error) {
	return blocks.one(ctx, s, tenantID, id)
}

// CreateBlock adds a block to a tenant.
func (s *Store) CreateBlock(ctx context.Context, b exceptions.Block, e audit.Entry) (exceptions.Block, error) {
	return blocks.create(ctx, s, b, e, nil)
}

// DeleteBlock deletes a block, so that it ends immediately.
func (s *Store) DeleteBlock(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return blocks.delete(ctx, s, tenantID, id, e)
}
