package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
)

var overrides = settingOf[exceptions.Override]{
	table: "overrides",
	columns: `id, tenant_id, policy, attribute, value, prefix, factor, limits, reason, expires_at, created_at,
		actor_kind, actor_id, actor_name, revision`,
	kind: "override", words: "override",
	scan: scanOverride,
	about: func(o exceptions.Override) setting {
		return setting{id: o.ID, tenantID: o.TenantID, name: o.Policy, policy: o.Policy, json: o.JSON}
	},
	removed: func(ctx context.Context, ed *edit, is setting) error {
		return ed.policyChanged(ctx, is.tenantID, is.policy)
	},
}

// scanOverride leaves an override whose limits cannot be read without numbers:
// that is none that anybody may use.
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

// Overrides of one tenant, newest first.
func (s *Store) Overrides(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Override, error) {
	var where filter
	where.and(`tenant_id = ?`, tenantID)
	if f.Policy != "" {
		where.and(`policy = ?`, f.Policy)
	}
	list, err := overrides.list(ctx, s, where, f.After, f.Limit)
	return list, s.fail(err, "list overrides of tenant %s", tenantID)
}

// Override of one tenant by id.
func (s *Store) Override(ctx context.Context, tenantID, id string) (exceptions.Override, error) {
	return overrides.one(ctx, s, tenantID, id)
}

// CreateOverride adds an override to a tenant.
func (s *Store) CreateOverride(ctx context.Context, o exceptions.Override, e audit.Entry) (exceptions.Override, error) {
	var made exceptions.Override
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if made, err = ed.addOverride(ctx, o); err != nil {
			return err
		}
		ed.concerns(made.TenantID, made.ID, made.Policy)
		return ed.policyChanged(ctx, made.TenantID, made.Policy)
	})
	return made, s.fail(err, "create an override of tenant %s", o.TenantID)
}

// DeleteOverride ends an override now.
func (s *Store) DeleteOverride(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return overrides.delete(ctx, s, tenantID, id, e)
}

func (e *edit) addOverride(ctx context.Context, o exceptions.Override) (_ exceptions.Override, err error) {
	if _, err := e.tenant(ctx, o.TenantID); err != nil {
		return o, err
	}
	if err := overrides.room(ctx, e, o.TenantID, exceptions.MaxOverrides, "too_many_overrides", "overrides"); err != nil {
		return o, err
	}
	limits, err := writeOverrideLimits(o.Limits)
	if err != nil {
		return o, err
	}
	o.ID = cmp.Or(o.ID, audit.NewID())
	o.CreatedAt, o.ExpiresAt, o.Revision = e.at, stored(o.ExpiresAt), e.revision
	_, err = e.exec(ctx, `
		INSERT INTO overrides (`+overrides.columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
		o.ID, o.TenantID, o.Policy, o.Attribute, o.Value, o.Prefix, o.Factor, limits, o.Reason, o.ExpiresAt, o.CreatedAt,
		o.CreatedBy.Kind, o.CreatedBy.ID, o.CreatedBy.Name, o.Revision)
	if err != nil {
		return o, fmt.Errorf("add an override: %w", err)
	}
	return o, nil
}
