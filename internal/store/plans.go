package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

const planColumns = `p.id, p.slug, p.draft, p.draft_revision, p.published, p.latest,
	(SELECT count(*) FROM tenants t WHERE t.plan_id = p.id), p.revision, p.created_at, p.updated_at`

func scanPlan(r row) (plans.Plan, error) {
	var p plans.Plan
	var draft string
	var published sql.NullInt64
	err := r.Scan(&p.ID, &p.Slug, &draft, &p.DraftRevision, &published, &p.Latest,
		&p.Tenants, &p.Revision, &p.CreatedAt, &p.UpdatedAt)
	if err != nil {
		return p, err
	}
	p.Published = int(published.Int64)
	p.CreatedAt, p.UpdatedAt = p.CreatedAt.UTC(), p.UpdatedAt.UTC()
	if p.Draft, err = readDocument(draft); err != nil {
		return p, fmt.Errorf("draft of plan %s: %w", p.Slug, err)
	}
	return p, nil
}

// Plan returns a plan by its ID or slug. The error is problem.NotFound if there is none.
func (s *Store) Plan(ctx context.Context, idOrSlug string) (plans.Plan, error) {
	p, err := queryOne(ctx, s, "plan", scanPlan, `
		SELECT `+planColumns+`
		FROM plans p
		WHERE p.id = $1 OR p.slug = $1`, idOrSlug)
	return p, s.fail(err, "load plan %s", idOrSlug)
}

// Plans lists the plans that match f by ID, oldest first.
func (s *Store) Plans(ctx context.Context, f plans.Filter) ([]plans.Plan, error) {
	var where filter
	if f.Query != "" {
		where.and(`p.search LIKE ? ESCAPE '\'`, contains(f.Query))
	}
	if f.After != "" {
		where.and(`p.id > ?`, f.After)
	}
	list, err := queryPage(ctx, s, scanPlan, page{planColumns, `plans p`, where, `p.id`, f.Limit})
	return list, s.fail(err, "list plans")
}

// CreatePlan adds a plan that has a draft and no published version.
func (s *Store) CreatePlan(ctx context.Context, p plans.Plan, e audit.Entry) (plans.Plan, error) {
	draft, err := writeDocument(p.Draft)
	if err != nil {
		return plans.Plan{}, s.fail(err, "create plan %s", p.Slug)
	}
	var made plans.Plan
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		p.ID = cmp.Or(p.ID, audit.NewID())
		ed.concerns("", p.ID, p.Slug)
		n, err := ed.exec(ctx, `
			INSERT INTO plans (id, slug, draft, draft_revision, published, latest, search, revision, created_at, updated_at)
			VALUES ($1, $2, $3, $4, NULL, 0, $5, $4, $6, $6)
			ON CONFLICT (slug) DO NOTHING`,
			p.ID, p.Slug, draft, ed.revision, searchText(p.Slug, p.Draft.Name()), ed.at)
		if err != nil {
			return err
		}
		if n == 0 {
			return slugTaken
		}
		made, err = ed.plan(ctx, p.ID)
		return err
	})
	return made, s.fail(err, "create plan %s", p.Slug)
}

// SaveDraft replaces the draft of a plan. ifRevision is the revision of the draft that the caller
// read. If the draft was saved since then, its revision differs, and the error is problem.Stale.
func (s *Store) SaveDraft(ctx context.Context, planID string, d plans.Document, ifRevision int64, e audit.Entry) (plans.Plan, error) {
	draft, err := writeDocument(d)
	if err != nil {
		return plans.Plan{}, s.fail(err, "save the draft of plan %s", planID)
	}
	var p plans.Plan
	err = s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		slug, err := ed.planAt(ctx, planID, `draft_revision`, ifRevision)
		if err != nil {
			return err
		}
		ed.concerns("", planID, slug)
		_, err = ed.exec(ctx, `
			UPDATE plans
			SET draft = $2, draft_revision = $3, search = $4, revision = $3, updated_at = $5
			WHERE id = $1`, planID, draft, ed.revision, searchText(slug, d.Name()), ed.at)
		if err != nil {
			return err
		}
		p, err = ed.plan(ctx, planID)
		return err
	})
	return p, s.fail(err, "save the draft of plan %s", planID)
}

// DeletePlan deletes a plan, its versions and its limits. The error is problem.Conflict if a tenant
// uses the plan. The cells of the plan's limits, which identify their counters, stay in the
// database. Otherwise another limit could get the number of such a cell, and would continue the old
// counters.
func (s *Store) DeletePlan(ctx context.Context, planID string, ifRevision int64, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		slug, err := ed.planAt(ctx, planID, `revision`, ifRevision)
		if err != nil {
			return err
		}
		ed.concerns("", planID, slug)
		var inUse bool
		err = ed.tx.QueryRowContext(ctx, `
			SELECT EXISTS (SELECT 1 FROM tenants WHERE plan_id = $1)`, planID).Scan(&inUse)
		if err != nil {
			return err
		}
		if inUse {
			return problem.WithCode(problem.Conflict, "plan_in_use", "the plan has tenants; move them to another plan first")
		}
		for _, statement := range []string{
			`UPDATE plans SET published = NULL WHERE id = $1`, // published refers to a version, and the next statement deletes the versions
			`DELETE FROM plan_versions WHERE plan_id = $1`,
			`DELETE FROM plan_limits WHERE plan_id = $1`,
			`DELETE FROM plans WHERE id = $1`,
		} {
			if _, err := ed.exec(ctx, statement, planID); err != nil {
				return err
			}
		}
		return ed.bury(ctx, "plan", planID)
	})
	return s.fail(err, "delete plan %s", planID)
}

const versionColumns = `plan_id, number, document, published_at, actor_kind, actor_id, actor_name, revision`

func scanVersion(r row) (plans.Version, error) {
	var v plans.Version
	var document string
	err := r.Scan(&v.PlanID, &v.Number, &document, &v.PublishedAt, &v.PublishedBy.Kind, &v.PublishedBy.ID, &v.PublishedBy.Name, &v.Revision)
	if err != nil {
		return v, err
	}
	v.PublishedAt = v.PublishedAt.UTC()
	if v.Document, err = readDocument(document); err != nil {
		return v, fmt.Errorf("version %d of plan %s: %w", v.Number, v.PlanID, err)
	}
	return v, nil
}

// Version returns one version of a plan. The error is problem.NotFound if there is none.
func (s *Store) Version(ctx context.Context, planID string, number int) (plans.Version, error) {
	v, err := queryOne(ctx, s, "version", scanVersion, `
		SELECT `+versionColumns+`
		FROM plan_versions
		WHERE plan_id = $1 AND number = $2`, planID, number)
	return v, s.fail(err, "load version %d of plan %s", number, planID)
}

// Versions lists at most limit versions of a plan whose number is below before, newest first. If
// before is 0, it starts with the newest.
func (s *Store) Versions(ctx context.Context, planID string, before, limit int) ([]plans.Version, error) {
	var where filter
	where.and(`plan_id = ?`, planID)
	if before > 0 {
		where.and(`number < ?`, before)
	}
	list, err := queryPage(ctx, s, scanVersion, page{versionColumns, `plan_versions`, where, `number DESC`, limit})
	return list, s.fail(err, "list versions of plan %s", planID)
}

func (e *edit) plan(ctx context.Context, id string) (plans.Plan, error) {
	p, err := scanPlan(e.tx.QueryRowContext(ctx, `
		SELECT `+planColumns+`
		FROM plans p
		WHERE p.id = $1`, id))
	return p, missing(err, "plan")
}

// planAt returns the slug of a plan. The argument column names a column that contains a revision.
// If the revision in this column is not the argument revision, the error is problem.Stale. planAt
// does not read the draft, so that a draft that cannot be decoded can still be replaced or deleted.
func (e *edit) planAt(ctx context.Context, id, column string, revision int64) (slug string, err error) {
	var now int64
	err = e.tx.QueryRowContext(ctx, `SELECT slug, `+column+` FROM plans WHERE id = $1`, id).Scan(&slug, &now)
	if err == nil && now != revision {
		err = stale("plan")
	}
	return slug, missing(err, "plan")
}
