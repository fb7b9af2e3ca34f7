package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// homes is the default number of different homes. The home of a tenant is the hash tag in its Redis
// keys, and many tenants have the same home. The number is large enough to spread tenants over the
// nodes of a Redis cluster. It is small enough that one script call can often decide checks of
// several tenants.
const homes = 64

const tenantColumns = `t.id, t.slug, t.number, t.home, t.name, t.status, p.slug, t.time_zone, t.billing_anchor_day,
	t.no_policy, t.redact_values, t.max_keys, t.sample_allowed, t.no_trace, t.route_optional, t.plan_id, t.plan_revision, t.revision,
	t.created_at, t.updated_at`

const tenantTables = `tenants t LEFT JOIN plans p ON p.id = t.plan_id`

func scanTenant(r row) (tenants.Tenant, error) {
	var t tenants.Tenant
	var plan, planID sql.NullString
	err := r.Scan(&t.ID, &t.Slug, &t.Number, &t.Home, &t.Name, &t.Status, &plan, &t.TimeZone, &t.BillingAnchorDay,
		&t.NoPolicy, &t.RedactValues, &t.MaxKeys, &t.SampleAllowed, &t.NoTrace, &t.RouteOptional, &planID, &t.PlanRevision, &t.Revision,
		&t.CreatedAt, &t.UpdatedAt)
	t.Plan, t.PlanID = plan.String, planID.String
	t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
	return t, err
}

// Tenant returns a tenant by its ID or slug. The error is problem.NotFound if there is none.
func (s *Store) Tenant(ctx context.Context, idOrSlug string) (tenants.Tenant, error) {
	t, err := queryOne(ctx, s, "tenant", scanTenant, `
		SELECT `+tenantColumns+`
		FROM `+tenantTables+`
		WHERE t.id = $1 OR t.slug = $1`, idOrSlug)
	return t, s.fail(err, "load tenant %s", idOrSlug)
}

// Tenants lists the tenants that match f by ID, oldest first.
func (s *Store) Tenants(ctx context.Context, f tenants.Filter) ([]tenants.Tenant, error) {
	var where filter
	if f.Query != "" {
		where.and(`t.search LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.Status != "" {
		where.and(`t.status = ?`, string(f.Status))
	}
	if f.Plan != "" {
		where.and(`p.slug = ?`, f.Plan)
	}
	if f.After != "" {
		where.and(`t.id > ?`, f.After)
	}
	list, err := queryPage(ctx, s, scanTenant, page{tenantColumns, tenantTables, where, `t.id`, f.Limit})
	return list, s.fail(err, "list tenants")
}

// CreateTenant adds a tenant. The tenant gets a number that no other tenant, existing or deleted,
// has.
func (s *Store) CreateTenant(ctx context.Context, t tenants.Tenant, e audit.Entry) (tenants.Tenant, error) {
	var made tenants.Tenant
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		t.ID = cmp.Or(t.ID, audit.NewID())
		ed.concerns(t.ID, t.ID, t.Slug)
		planID, err := ed.publishedPlan(ctx, t.Plan)
		if err != nil {
			return err
		}
		number, err := ed.numbers(ctx, "tenant", 1)
		if err != nil {
			return fmt.Errorf("take a number: %w", err)
		}
		n, err := ed.exec(ctx, `
			INSERT INTO tenants (id, slug, number, home, name, status, plan_id, plan_revision, time_zone,
				billing_anchor_day, no_policy, redact_values, max_keys, sample_allowed, no_trace, route_optional, search, revision,
				created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $8, $18, $18)
			ON CONFLICT (slug) DO NOTHING`,
			t.ID, t.Slug, number, fmt.Sprintf("%02x", number%homes), t.Name, string(t.Status), planID, ed.revision, t.TimeZone,
			t.BillingAnchorDay, string(t.NoPolicy), t.RedactValues, t.MaxKeys, t.SampleAllowed, t.NoTrace, t.RouteOptional,
			searchText(t.Slug, t.Name), ed.at)
		if err != nil {
			return err
		}
		if n == 0 {
			return slugTaken
		}
		made, err = ed.tenant(ctx, t.ID)
		return err
	})
	return made, s.fail(err, "create tenant %s", t.Slug)
}

// UpdateTenant writes the document of a tenant. The error is problem.Stale if the stored revision is not ifRevision.
func (s *Store) UpdateTenant(ctx context.Context, t tenants.Tenant, ifRevision int64, e audit.Entry) (tenants.Tenant, error) {
	var now tenants.Tenant
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := ed.tenantAt(ctx, t.ID, ifRevision)
		if err != nil {
			return err
		}
		ed.concerns(t.ID, t.ID, before.Slug)
		planID, err := ed.publishedPlan(ctx, t.Plan)
		if err != nil {
			return err
		}
		planRevision := before.PlanRevision
		if planID.String != before.PlanID {
			planRevision = ed.revision
		}
		_, err = ed.exec(ctx, `
			UPDATE tenants
			SET name = $2, status = $3, plan_id = $4, plan_revision = $5, time_zone = $6, billing_anchor_day = $7,
				no_policy = $8, redact_values = $9, max_keys = $10, sample_allowed = $11, no_trace = $12, route_optional = $13, search = $14,
				revision = $15, updated_at = $16
			WHERE id = $1`,
			t.ID, t.Name, string(t.Status), planID, planRevision, t.TimeZone, t.BillingAnchorDay,
			string(t.NoPolicy), t.RedactValues, t.MaxKeys, t.SampleAllowed, t.NoTrace, t.RouteOptional,
			searchText(before.Slug, t.Name), ed.revision, ed.at)
		if err != nil {
			return err
		}
		if t.NoTrace {
			_, err = ed.exec(ctx, `DELETE FROM sketches_minutes WHERE tenant = $1 AND name = $2`, int64(before.Number), metrics.SketchTrace)
			if err != nil {
				return fmt.Errorf("delete its traces: %w", err)
			}
		}
		now, err = ed.tenant(ctx, t.ID)
		return err
	})
	return now, s.fail(err, "update tenant %s", t.ID)
}

// DeleteTenant deletes a tenant with its keys, members and exceptions. Its number is never used
// again. The error is problem.Stale if the stored revision is not ifRevision.
//
// Each key gets a tombstone, because nodes look up keys without the tenant. Overrides, list
// entries, blocks and policy changes are deleted by ON DELETE CASCADE and leave no tombstones,
// because a snapshot drops them with their tenant. Members, sessions and invitations are deleted in
// the same way; snapshots do not contain them.
func (s *Store) DeleteTenant(ctx context.Context, id string, ifRevision int64, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := ed.tenantAt(ctx, id, ifRevision)
		if err != nil {
			return err
		}
		ed.concerns(id, id, before.Slug)
		_, err = ed.exec(ctx, `
			INSERT INTO tombstones (revision, kind, object_id)
			SELECT CAST($1 AS BIGINT), 'key', id FROM api_keys WHERE tenant_id = $2`, ed.revision, id)
		if err != nil {
			return fmt.Errorf("bury its keys: %w", err)
		}
		if _, err := ed.exec(ctx, `DELETE FROM api_keys WHERE tenant_id = $1`, id); err != nil {
			return fmt.Errorf("delete its keys: %w", err)
		}
		if _, err := ed.exec(ctx, `DELETE FROM durable_states WHERE tenant = $1`, int64(before.Number)); err != nil {
			return fmt.Errorf("delete its durable states: %w", err)
		}
		if _, err := ed.exec(ctx, `DELETE FROM tenants WHERE id = $1`, id); err != nil {
			return err
		}
		return ed.bury(ctx, "tenant", id)
	})
	return s.fail(err, "delete tenant %s", id)
}

func (e *edit) tenant(ctx context.Context, id string) (tenants.Tenant, error) {
	t, err := scanTenant(e.tx.QueryRowContext(ctx, `
		SELECT `+tenantColumns+`
		FROM `+tenantTables+`
		WHERE t.id = $1`, id))
	return t, missing(err, "tenant")
}

// tenantAt returns the tenant with the given ID. The error is problem.Stale if the argument
// revision is not the stored revision of the tenant.
func (e *edit) tenantAt(ctx context.Context, id string, revision int64) (tenants.Tenant, error) {
	t, err := e.tenant(ctx, id)
	if err == nil && t.Revision != revision {
		err = stale("tenant")
	}
	return t, err
}

// publishedPlan returns the ID of the plan with the given slug. For the slug "", it returns
// NULL and no error. The error is problem.Invalid if the plan does not exist or has no
// published version.
func (e *edit) publishedPlan(ctx context.Context, slug string) (id sql.NullString, err error) {
	if slug == "" {
		return id, nil
	}
	var published sql.NullInt64
	err = e.tx.QueryRowContext(ctx, `SELECT id, published FROM plans WHERE slug = $1`, slug).Scan(&id, &published)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return id, problem.At("/plan", "no plan has this slug")
	case err == nil && !published.Valid:
		return id, problem.At("/plan", "the plan has not been published yet")
	}
	return id, err
}
