package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
)

var blocks = settingOf[exceptions.Block]{
	table:   "blocks",
	columns: `id, tenant_id, policy, key_values, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision`,
	kind:    "block", words: "block",
	scan: scanBlock,
	about: func(b exceptions.Block) setting {
		return setting{id: b.ID, tenantID: b.TenantID, name: b.Policy, policy: b.Policy, json: b.JSON}
	},
}

// scanBlock gives a block whose key cannot be read a key that no policy counts
// by: without any, it would be the key of all who sent no values.
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

// Blocks of one tenant, newest first.
func (s *Store) Blocks(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Block, error) {
	var where filter
	where.and(`tenant_id = ?`, tenantID)
	if f.Policy != "" {
		where.and(`policy = ?`, f.Policy)
	}
	list, err := blocks.list(ctx, s, where, f.After, f.Limit)
	return list, s.fail(err, "list blocks of tenant %s", tenantID)
}

// Block of one tenant by id.
func (s *Store) Block(ctx context.Context, tenantID, id string) (exceptions.Block, error) {
	return blocks.one(ctx, s, tenantID, id)
}

// CreateBlock adds a block to a tenant.
func (s *Store) CreateBlock(ctx context.Context, b exceptions.Block, e audit.Entry) (exceptions.Block, error) {
	var made exceptions.Block
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if made, err = ed.addBlock(ctx, b); err != nil {
			return err
		}
		ed.concerns(made.TenantID, made.ID, made.Policy)
		return nil
	})
	return made, s.fail(err, "create a block of tenant %s", b.TenantID)
}

// DeleteBlock ends a block now.
func (s *Store) DeleteBlock(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return blocks.delete(ctx, s, tenantID, id, e)
}

func (e *edit) addBlock(ctx context.Context, b exceptions.Block) (_ exceptions.Block, err error) {
	if _, err := e.tenant(ctx, b.TenantID); err != nil {
		return b, err
	}
	if err := blocks.room(ctx, e, b.TenantID, exceptions.MaxBlocks, "too_many_blocks", "blocks"); err != nil {
		return b, err
	}
	key, err := writeKeyValues(b.Key)
	if err != nil {
		return b, err
	}
	b.ID = cmp.Or(b.ID, audit.NewID())
	b.CreatedAt, b.ExpiresAt, b.Revision = e.at, stored(b.ExpiresAt), e.revision
	_, err = e.exec(ctx, `
		INSERT INTO blocks (`+blocks.columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		b.ID, b.TenantID, b.Policy, key, b.Reason, b.ExpiresAt, b.CreatedAt,
		b.CreatedBy.Kind, b.CreatedBy.ID, b.CreatedBy.Name, b.Revision)
	if err != nil {
		return b, fmt.Errorf("add a block: %w", err)
	}
	return b, nil
}
