package store

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

var grants = exceptionKind[exceptions.Grant]{
	table: "grants",
	columns: `id, tenant_id, policy, limit_name, key_values, units, reason, expires_at, created_at, ` +
		actorColumns + `, revision`,
	kind: "grant", words: "grant", plural: "grants", most: exceptions.MaxGrants,
	scan: scanGrant,
	values: func(g exceptions.Grant) ([]any, error) {
		key, err := writeKeyValues(g.Key)
		return []any{
			g.ID, g.TenantID, g.Policy, g.Limit, key, g.Units, g.Reason, g.ExpiresAt, g.CreatedAt,
			g.CreatedBy.Kind, g.CreatedBy.ID, g.CreatedBy.Name, g.Revision,
		}, err
	},
	stamps: func(g *exceptions.Grant) stamps { return stamps{&g.ID, &g.ExpiresAt, &g.CreatedAt, &g.Revision} },
	about: func(g exceptions.Grant) exception {
		return exception{id: g.ID, tenantID: g.TenantID, name: g.Policy, policy: g.Policy, json: g.JSON}
	},
}

// scanGrant scans a row with a grant. If the key in the row cannot be decoded, scanGrant gives the
// grant a key with an attribute that no policy counts by, so that the grant has no effect. With an
// empty key, requests with any key could spend the grant.
func scanGrant(r row) (exceptions.Grant, error) {
	var g exceptions.Grant
	var key string
	err := r.Scan(&g.ID, &g.TenantID, &g.Policy, &g.Limit, &key, &g.Units, &g.Reason, &g.ExpiresAt, &g.CreatedAt,
		&g.CreatedBy.Kind, &g.CreatedBy.ID, &g.CreatedBy.Name, &g.Revision)
	if err != nil {
		return g, err
	}
	g.ExpiresAt, g.CreatedAt = g.ExpiresAt.UTC(), g.CreatedAt.UTC()
	if g.Key, err = readKeyValues(key); err != nil {
		g.Key = map[string]string{"": ""}
	}
	return g, nil
}

// Grants returns the grants of one tenant, newest first.
func (s *Store) Grants(ctx context.Context, tenantID string, f exceptions.Filter) ([]exceptions.Grant, error) {
	return grants.list(ctx, s, tenantID, f)
}

// Grant returns one grant of a tenant. The error is problem.NotFound if the tenant has no such grant.
func (s *Store) Grant(ctx context.Context, tenantID, id string) (exceptions.Grant, error) {
	return grants.one(ctx, s, tenantID, id)
}

// CreateGrant adds a grant to a tenant.
func (s *Store) CreateGrant(ctx context.Context, g exceptions.Grant, e audit.Entry) (exceptions.Grant, error) {
	return grants.create(ctx, s, g, e, roomForGrant)
}

// DeleteGrant deletes a grant, so that it ends immediately.
func (s *Store) DeleteGrant(ctx context.Context, tenantID, id string, e audit.Entry) error {
	return grants.delete(ctx, s, tenantID, id, e)
}

// roomForGrant returns a problem.Conflict if the limit and the key of g already have as many grants
// as one check can spend from. Expired grants do not count.
func roomForGrant(ctx context.Context, ed *edit, g exceptions.Grant) error {
	key, err := writeKeyValues(g.Key)
	if err != nil {
		return err
	}
	var n int
	err = ed.tx.QueryRowContext(ctx, `
		SELECT count(*)
		FROM grants
		WHERE tenant_id = $1 AND policy = $2 AND limit_name = $3 AND key_values = $4 AND expires_at > $5`,
		g.TenantID, g.Policy, g.Limit, key, ed.at).Scan(&n)
	if err != nil {
		return fmt.Errorf("count the grants of a limit: %w", err)
	}
	if n >= enforcement.MaxGrantsOfKey {
		return problem.WithCode(problem.Conflict, "too_many_grants",
			"this limit has %d grants for this key, and more are not possible; void one, or wait until one ends", n)
	}
	return nil
}
