package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
)

// Revision returns the number of the latest edit.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	n, err := queryOne(ctx, s, "", scanValue[int64], `SELECT n FROM revision WHERE id = 1`)
	return n, s.fail(err, "read the revision")
}

// Empty reports whether the database has no tenants, no plans and no operator keys.
func (s *Store) Empty(ctx context.Context) (bool, error) {
	empty, err := queryOne(ctx, s, "", scanValue[bool], `
		SELECT NOT EXISTS (SELECT 1 FROM tenants)
			AND NOT EXISTS (SELECT 1 FROM plans)
			AND NOT EXISTS (SELECT 1 FROM api_keys)`)
	return empty, s.fail(err, "check whether the database is empty")
}

// Changes returns all objects that changed after the revision since, or all objects if since is 0.
// It reads them in one transaction, so that they belong to the same moment. If a plan cannot be
// decoded, its field Broken contains the error message. If an override or a block cannot be
// decoded, it has invalid values in the result, which the compiler of the snapshot rejects.
func (s *Store) Changes(ctx context.Context, since int64) (snapshot.Changes, error) {
	var c snapshot.Changes
	err := s.readWithin(ctx, 12*s.timeout, func(ctx context.Context) error {
		tx, err := s.reader.BeginTx(ctx, s.engine.oneMoment())
		if err != nil {
			return err
		}
		defer tx.Rollback()
		c, err = changes(ctx, tx, since)
		return err
	})
	return c, s.fail(err, "load what changed since revision %d", since)
}

func changes(ctx context.Context, tx *sql.Tx, since int64) (c snapshot.Changes, err error) {
	if err = tx.QueryRowContext(ctx, `SELECT n FROM revision WHERE id = 1`).Scan(&c.Revision); err != nil {
		return c, fmt.Errorf("revision: %w", err)
	}
	if c.Plans, err = publishedPlans(ctx, tx, since); err != nil {
		return c, fmt.Errorf("plans: %w", err)
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+tenantColumns+` FROM `+tenantTables+` WHERE t.revision > $1`, since)
	if c.Tenants, err = collect(rows, err, scanTenant); err != nil {
		return c, fmt.Errorf("tenants: %w", err)
	}
	rows, err = tx.QueryContext(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE revision > $1`, since)
	if c.Keys, err = collect(rows, err, scanKey); err != nil {
		return c, fmt.Errorf("keys: %w", err)
	}
	if err = exceptionChanges(ctx, tx, since, &c); err != nil {
		return c, err
	}
	if since == 0 {
		return c, nil // this call loads all objects, so the caller has none to remove
	}
	rows, err = tx.QueryContext(ctx, `
		SELECT kind, object_id FROM tombstones
		WHERE revision > $1
		ORDER BY revision, kind, object_id`, since)
	if c.Removed, err = collect(rows, err, scanTombstone); err != nil {
		return c, fmt.Errorf("tombstones: %w", err)
	}
	return c, nil
}

// exceptionChanges adds the changed overrides, list entries, blocks and policy changes to c.
func exceptionChanges(ctx context.Context, tx *sql.Tx, since int64, c *snapshot.Changes) (err error) {
	if c.Overrides, err = overrides.since(ctx, tx, since); err != nil {
		return fmt.Errorf("overrides: %w", err)
	}
	if c.Entries, err = listEntries.since(ctx, tx, since); err != nil {
		return fmt.Errorf("list entries: %w", err)
	}
	if c.Blocks, err = blocks.since(ctx, tx, since); err != nil {
		return fmt.Errorf("blocks: %w", err)
	}
	if c.Grants, err = grants.since(ctx, tx, since); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	rows, err := tx.QueryContext(ctx, `SELECT tenant_id, policy, revision FROM policy_changes WHERE revision > $1`, since)
	if c.PolicyChanges, err = collect(rows, err, scanPolicyChange); err != nil {
		return fmt.Errorf("policy changes: %w", err)
	}
	return nil
}

func scanTombstone(r row) (snapshot.Tombstone, error) {
	var t snapshot.Tombstone
	err := r.Scan(&t.Kind, &t.ID)
	return t, err
}

func publishedPlans(ctx context.Context, tx *sql.Tx, since int64) ([]snapshot.PublishedPlan, error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT p.id, p.slug, p.published, p.revision, v.document
		FROM plans p
		JOIN plan_versions v ON v.plan_id = p.id AND v.number = p.published
		WHERE p.revision > $1
		ORDER BY p.id`, since)
	list, err := collect(rows, err, scanPublishedPlan)
	if err != nil {
		return nil, err
	}
	rows, err = tx.QueryContext(ctx, `
		SELECT `+storedLimitColumns+`
		FROM plans p
		JOIN plan_limits l ON l.plan_id = p.id
		JOIN cells c ON c.number = l.cell
		WHERE p.revision > $1 AND p.published IS NOT NULL`, since)
	stored, err := collect(rows, err, scanStoredLimit)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	byPlan := make(map[string]map[identity]storedLimit, len(list))
	for _, l := range stored {
		if byPlan[l.planID] == nil {
			byPlan[l.planID] = make(map[identity]storedLimit)
		}
		byPlan[l.planID][l.identity] = l
	}
	for i := range list {
		if p := &list[i]; p.Broken == "" {
			if p.Limits, err = limitsInForce(p.Document, byPlan[p.ID]); err != nil {
				p.Document, p.Limits, p.Broken = plans.Document{}, nil, err.Error()
			}
		}
	}
	return list, nil
}

func scanPublishedPlan(r row) (snapshot.PublishedPlan, error) {
	var p snapshot.PublishedPlan
	var document string
	if err := r.Scan(&p.ID, &p.Slug, &p.Version, &p.Revision, &document); err != nil {
		return p, err
	}
	var err error
	if p.Document, err = readDocument(document); err != nil {
		p.Broken = err.Error()
	}
	return p, nil
}

// An identity has the five columns, as text, that identify a cell. Each cell also has a number. The
// keys of a limit's counters contain this number.
type identity struct{ policy, limit, algorithm, countBy, anchor string }

// twin returns the identity with the other name of the algorithm. The algorithms token_bucket and
// gcra have the same counters, so a limit keeps its cell if one of the two names replaces the
// other. The cell has the name that was published first. For other algorithms, twin returns id.
func (id identity) twin() identity {
	switch id.algorithm {
	case enforcement.TokenBucket.String():
		id.algorithm = enforcement.GCRA.String()
	case enforcement.GCRA.String():
		id.algorithm = enforcement.TokenBucket.String()
	}
	return id
}

// A storedLimit is a row of the table plan_limits, joined with the row of its cell. Its values
// are not validated yet.
type storedLimit struct {
	identity
	planID                 string
	cell                   uint32
	rev                    int64
	quota, windowMS, burst int64
	formers                string
}

const storedLimitColumns = `l.plan_id, l.rev, l.quota, l.window_ms, l.burst, l.formers,
	c.number, c.policy, c.limit_name, c.algorithm, c.count_by, c.anchor`

func scanStoredLimit(r row) (storedLimit, error) {
	var l storedLimit
	err := r.Scan(&l.planID, &l.rev, &l.quota, &l.windowMS, &l.burst, &l.formers,
		&l.cell, &l.policy, &l.limit, &l.algorithm, &l.countBy, &l.anchor)
	return l, err
}

// limitsInForce returns the stored values of every limit of d, in the order of d. rows contains
// the stored limits. It returns an error if a limit has no row.
func limitsInForce(d plans.Document, rows map[identity]storedLimit) ([]plans.Published, error) {
	var list []plans.Published
	for _, p := range d.Policies() {
		for _, l := range p.Limits {
			id, err := identityOf(p, l)
			if err != nil {
				return nil, err
			}
			r, ok := rows[id]
			if !ok {
				r, ok = rows[id.twin()]
			}
			if !ok {
				return nil, fmt.Errorf("limit %s of policy %s has no numbers in force: publish the plan again", l.Name, p.Slug)
			}
			published, err := r.read(cellOf(p, l))
			if err != nil {
				return nil, fmt.Errorf("limit %s of policy %s: %w", l.Name, p.Slug, err)
			}
			// plan_limits has no column for Period, because the stored window already has the
			// length of the period
			published.Limit.Period = l.Period
			list = append(list, published)
		}
	}
	return list, nil
}

// read converts a stored limit. c is the cell of the limit; its number is not set yet.
func (l storedLimit) read(c plans.Cell) (plans.Published, error) {
	c.Number = l.cell
	formers, err := readFormers(l.formers, c.Algorithm)
	if err != nil {
		return plans.Published{}, err
	}
	return plans.Published{
		Cell: c, Rev: l.rev, Formers: formers,
		Limit: enforcement.Limit{
			Name: c.Limit, Algorithm: c.Algorithm, Quota: l.quota,
			Window: time.Duration(l.windowMS) * time.Millisecond, Burst: l.burst, Anchor: c.Anchor,
		},
	}, nil
}
