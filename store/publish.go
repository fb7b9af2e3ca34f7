package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/audit"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// Publish makes the draft the next version, if its revision is ifRevision, and
// moves the pointer to it.
func (s *Store) Publish(ctx context.Context, planID string, ifRevision int64, e audit.Entry) (plans.Plan, plans.Version, error) {
	var p plans.Plan
	var v plans.Version
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		before, err := ed.plan(ctx, planID)
		if err != nil {
			return err
		}
		if before.DraftRevision != ifRevision {
			return stale("draft")
		}
		document, err := writeDocument(before.Draft)
		if err != nil {
			return err
		}
		by := ed.lines[0].Actor
		_, err = ed.exec(ctx, `
			INSERT INTO plan_versions (`+versionColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			planID, before.Latest+1, document, ed.at, by.Kind, by.ID, by.Name, ed.revision)
		if err != nil {
			return fmt.Errorf("add version %d: %w", before.Latest+1, err)
		}
		p, v, err = ed.point(ctx, planID, before.Latest+1)
		return err
	})
	return p, v, s.fail(err, "publish plan %s", planID)
}

// PublishVersion moves the pointer to a version that exists, back or forth again,
// if ifPublished is in force.
func (s *Store) PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (plans.Plan, plans.Version, error) {
	var p plans.Plan
	var v plans.Version
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if ifPublished != plans.AnyVersion {
			if _, err := ed.planAt(ctx, planID, `coalesce(published, 0)`, int64(ifPublished)); err != nil {
				return err
			}
		}
		p, v, err = ed.point(ctx, planID, number)
		return err
	})
	return p, v, s.fail(err, "publish version %d of plan %s", number, planID)
}

// point makes a version the one that tenants follow, and puts its numbers in force.
func (e *edit) point(ctx context.Context, planID string, number int) (plans.Plan, plans.Version, error) {
	var p plans.Plan
	v, err := scanVersion(e.tx.QueryRowContext(ctx, `
		SELECT `+versionColumns+`
		FROM plan_versions
		WHERE plan_id = $1 AND number = $2`, planID, number))
	if err != nil {
		return p, v, missing(err, "version")
	}
	if err := e.putInForce(ctx, planID, v.Document); err != nil {
		return p, v, err
	}
	_, err = e.exec(ctx, `
		UPDATE plans
		SET published = $2, latest = CASE WHEN latest < $2 THEN $2 ELSE latest END, revision = $3, updated_at = $4
		WHERE id = $1`, planID, number, e.revision, e.at)
	if err != nil {
		return p, v, err
	}
	p, err = e.plan(ctx, planID)
	e.concerns("", planID, p.Slug)
	return p, v, err
}

// putInForce gives every limit of a document its cell, and the numbers that
// differ from those in force the edit's revision, with the old ones behind them.
func (e *edit) putInForce(ctx context.Context, planID string, d plans.Document) error {
	for _, p := range d.Policies {
		for _, l := range p.Limits {
			number, err := e.cell(ctx, cellOf(p, l))
			if err != nil {
				return fmt.Errorf("cell of limit %s of policy %s: %w", l.Name, p.Slug, err)
			}
			if err := e.putNumbers(ctx, planID, number, l); err != nil {
				return fmt.Errorf("numbers of limit %s of policy %s: %w", l.Name, p.Slug, err)
			}
		}
	}
	return nil
}

// cellOf gives the identity of a limit's counters, without its number. Where an
// algorithm has no anchor, none makes a difference.
func cellOf(p plans.Policy, l enforcement.Limit) plans.Cell {
	c := plans.Cell{Policy: p.Slug, Limit: l.Name, Algorithm: l.Algorithm, CountBy: p.CountBy}
	if l.Algorithm.Windowed() {
		c.Anchor = l.Anchor
	}
	return c
}

// countBy is the text that stands for the attributes of a cell.
func countBy(attributes []string) (string, error) {
	if len(attributes) == 0 {
		return "[]", nil
	}
	return writeJSON(attributes)
}

// cell finds a cell's number, or allocates one.
func (e *edit) cell(ctx context.Context, c plans.Cell) (uint32, error) {
	attributes, err := countBy(c.CountBy)
	if err != nil {
		return 0, err
	}
	var number uint32
	find := func() error {
		return e.tx.QueryRowContext(ctx, `
			SELECT number FROM cells
			WHERE policy = $1 AND limit_name = $2 AND algorithm = $3 AND count_by = $4 AND anchor = $5`,
			c.Policy, c.Limit, c.Algorithm.String(), attributes, c.Anchor.String()).Scan(&number)
	}
	if err := find(); !errors.Is(err, sql.ErrNoRows) {
		return number, err
	}
	next, err := e.number(ctx, "cell")
	if err != nil {
		return 0, fmt.Errorf("take a number: %w", err)
	}
	_, err = e.exec(ctx, `
		INSERT INTO cells (number, policy, limit_name, algorithm, count_by, anchor)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (policy, limit_name, algorithm, count_by, anchor) DO NOTHING`,
		next, c.Policy, c.Limit, c.Algorithm.String(), attributes, c.Anchor.String())
	if err != nil {
		return 0, err
	}
	return number, find()
}

// putNumbers writes the numbers of one limit of a plan, if they are others.
func (e *edit) putNumbers(ctx context.Context, planID string, cell uint32, l enforcement.Limit) error {
	before := enforcement.Limit{Algorithm: l.Algorithm}
	var rev, windowMS int64
	var text string
	err := e.tx.QueryRowContext(ctx, `
		SELECT rev, quota, window_ms, burst, formers
		FROM plan_limits
		WHERE plan_id = $1 AND cell = $2`, planID, cell).Scan(&rev, &before.Quota, &windowMS, &before.Burst, &text)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		_, err := e.exec(ctx, `
			INSERT INTO plan_limits (plan_id, cell, rev, quota, window_ms, burst, formers)
			VALUES ($1, $2, $3, $4, $5, $6, '[]')`,
			planID, cell, e.revision, l.Quota, l.Window.Milliseconds(), l.Burst)
		return err
	case err != nil:
		return err
	}
	before.Window = time.Duration(windowMS) * time.Millisecond
	if before.Numbers() == l.Numbers() {
		return nil
	}
	formers, err := readFormers(text, l.Algorithm)
	if err != nil {
		return err
	}
	text, err = writeFormers(e.retire(formers, enforcement.Former{Numbers: before.Numbers(), Rev: rev}))
	if err != nil {
		return err
	}
	_, err = e.exec(ctx, `
		UPDATE plan_limits
		SET rev = $3, quota = $4, window_ms = $5, burst = $6, formers = $7
		WHERE plan_id = $1 AND cell = $2`,
		planID, cell, e.revision, l.Quota, l.Window.Milliseconds(), l.Burst, text)
	return err
}

// retire adds numbers that end now to those before, and drops the oldest. Ends
// never go back, whatever the clock does.
func (e *edit) retire(formers []enforcement.Former, last enforcement.Former) []enforcement.Former {
	last.Until = e.at.UnixMicro()
	if n := len(formers); n > 0 {
		last.Until = max(last.Until, formers[n-1].Until)
	}
	formers = append(formers, last)
	return formers[max(0, len(formers)-plans.MaxFormers):]
}
