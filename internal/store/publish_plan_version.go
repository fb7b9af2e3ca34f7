package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
)

// Publish creates the next version of a plan from its draft, and makes this version current. If the
// draft equals the current version, Publish returns the current version and changes nothing. The
// error is problem.Stale if the draft's revision is not ifRevision.
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
		if before.Published > 0 {
			now, err := ed.version(ctx, planID, before.Published)
			if err != nil {
				return err
			}
			published, err := writeDocument(now.Document)
			if err != nil {
				return err
			}
			if published == document {
				p, v = before, now
				return errUnchanged
			}
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

// PublishVersion makes an existing version of a plan current. The error is problem.Stale if the
// current version is not the version ifPublished. If ifPublished is plans.AnyVersion,
// PublishVersion does not compare the versions.
func (s *Store) PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (plans.Plan, plans.Version,
	error,
) {
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

func (e *edit) version(ctx context.Context, planID string, number int) (plans.Version, error) {
	v, err := scanVersion(e.tx.QueryRowContext(ctx, `
		SELECT `+versionColumns+`
		FROM plan_versions
		WHERE plan_id = $1 AND number = $2`, planID, number))
	return v, missing(err, "version")
}

// point makes a version of a plan current. It updates the plan, and the stored values of the
// plan's limits.
func (e *edit) point(ctx context.Context, planID string, number int) (plans.Plan, plans.Version, error) {
	var p plans.Plan
	v, err := e.version(ctx, planID, number)
	if err != nil {
		return p, v, err
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

// putInForce stores the quota, window and burst of every limit of d, and the cell of the limit: the
// number that identifies its counters. If the new values differ from the stored values, putInForce
// sets the revision of the limit to the revision of this edit, and adds the stored values to the
// former values of the limit. A plan may have thousands of limits, so each statement writes many
// rows.
func (e *edit) putInForce(ctx context.Context, planID string, d plans.Document) error {
	cells, err := e.cells(ctx, d)
	if err != nil {
		return fmt.Errorf("cells of the limits: %w", err)
	}
	rows, err := e.tx.QueryContext(ctx, `SELECT `+storedLimitColumns+`
		FROM plan_limits l
		JOIN cells c ON c.number = l.cell
		WHERE l.plan_id = $1`, planID)
	list, err := collect(rows, err, scanStoredLimit)
	if err != nil {
		return fmt.Errorf("numbers in force: %w", err)
	}
	before := make(map[uint32]storedLimit, len(list))
	for _, l := range list {
		before[l.cell] = l
	}
	var values []any
	for _, p := range d.Policies() {
		for _, l := range p.Limits {
			id, err := identityOf(p, l)
			if err != nil {
				return err
			}
			old, known := before[cells[id]]
			formers, differs, err := e.formers(old, known, l)
			if err != nil {
				return fmt.Errorf("numbers of limit %s of policy %s: %w", l.Name, p.Slug, err)
			}
			if differs {
				values = append(values, planID, cells[id], e.revision, l.Quota, l.Window.Milliseconds(), l.Burst, formers)
			}
		}
	}
	err = e.insert(ctx, `INSERT INTO plan_limits (plan_id, cell, rev, quota, window_ms, burst, formers)`, 7, values, `
		ON CONFLICT (plan_id, cell) DO UPDATE SET rev = excluded.rev, quota = excluded.quota, window_ms = excluded.window_ms,
			burst = excluded.burst, formers = excluded.formers`)
	if err != nil {
		return fmt.Errorf("put numbers in force: %w", err)
	}
	return nil
}

// formers returns the former values of a limit as JSON text, after the edit that replaces the
// stored values in old. The result includes the values in old, with the carry-over of the new limit
// l. If l has the same values as old, differs is false and text is "". known is false if the limit
// is new and has no former values.
func (e *edit) formers(old storedLimit, known bool, l enforcement.Limit) (text string, differs bool, err error) {
	if !known {
		return "[]", true, nil
	}
	before := enforcement.Limit{
		Algorithm: l.Algorithm, Quota: old.quota, Window: time.Duration(old.windowMS) * time.Millisecond, Burst: old.burst,
	}
	if before.Numbers() == l.Numbers() {
		return "", false, nil
	}
	formers, err := readFormers(old.formers, l.Algorithm)
	if err != nil {
		return "", false, err
	}
	text, err = writeFormers(e.retire(formers, enforcement.Former{Numbers: before.Numbers(), Rev: old.rev, CarryOver: l.CarryOver}))
	return text, true, err
}

// rowsAtOnce is the maximum number of rows that one INSERT adds.
const rowsAtOnce = 1_000

// insert adds rows with the given number of columns. values contains the values of the first
// row, then those of the second row, and so on. conflict is the ON CONFLICT clause, or "".
func (e *edit) insert(ctx context.Context, into string, columns int, values []any, conflict string) error {
	for len(values) > 0 {
		some := values[:min(len(values), rowsAtOnce*columns)]
		values = values[len(some):]
		if _, err := e.exec(ctx, into+` VALUES `+placeholders(len(some)/columns, columns)+conflict, some...); err != nil {
			return err
		}
	}
	return nil
}

// placeholders returns the list of placeholders for a VALUES clause, like "($1, $2), ($3, $4)".
func placeholders(rows, columns int) string {
	var b strings.Builder
	for i := range rows * columns {
		switch {
		case i == 0:
			b.WriteByte('(')
		case i%columns == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(i + 1))
	}
	b.WriteByte(')')
	return b.String()
}

// cellOf returns the cell of the limit l of the policy p, without its number. A cell identifies the
// counters of a limit: as long as the cell is the same, the limit continues its counters. The field
// Anchor is "" if the algorithm does not use an anchor.
func cellOf(p plans.Policy, l enforcement.Limit) plans.Cell {
	c := plans.Cell{Policy: p.Slug, Limit: l.Name, Algorithm: l.Algorithm, CountBy: p.CountBy}
	if l.Algorithm.Windowed() {
		c.Anchor = l.Anchor
	}
	return c
}

// countBy returns the text under which the count_by of a policy is stored.
func countBy(attributes []string) (string, error) {
	if len(attributes) == 0 {
		return "[]", nil
	}
	return writeJSON(attributes)
}

// identityOf returns the text values that identify the cell of the limit l of the policy p: policy,
// limit, algorithm, count_by, and anchor.
func identityOf(p plans.Policy, l enforcement.Limit) (identity, error) {
	c := cellOf(p, l)
	attributes, err := countBy(c.CountBy)
	return identity{c.Policy, c.Limit, c.Algorithm.String(), attributes, c.Anchor.String()}, err
}

// cells returns the cell number of every limit of a document. The number identifies the counters of
// the limit. cells allocates numbers for new limits. A limit whose algorithm changed between
// token_bucket and gcra keeps its number. The result may also contain numbers of other limits.
func (e *edit) cells(ctx context.Context, d plans.Document) (map[identity]uint32, error) {
	found := make(map[identity]uint32)
	if err := e.findCells(ctx, d.Policies(), found); err != nil {
		return nil, err
	}
	var missing []identity
	for _, p := range d.Policies() {
		for _, l := range p.Limits {
			id, err := identityOf(p, l)
			if err != nil {
				return nil, err
			}
			if _, known := found[id]; known {
				continue
			}
			if number, known := found[id.twin()]; known {
				found[id] = number
				continue
			}
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	last, err := e.numbers(ctx, "cell", len(missing))
	if err != nil {
		return nil, fmt.Errorf("take numbers: %w", err)
	}
	values := make([]any, 0, 6*len(missing))
	for i, id := range missing {
		found[id] = last - uint32(len(missing)-1-i) //nolint:gosec // a document has few limits
		values = append(values, found[id], id.policy, id.limit, id.algorithm, id.countBy, id.anchor)
	}
	return found, e.insert(ctx, `INSERT INTO cells (number, policy, limit_name, algorithm, count_by, anchor)`, 6, values, ``)
}

// findCells reads the cells of all current and former limits of the policies, and adds the number
// of each cell to found. It finds the policies by slug.
func (e *edit) findCells(ctx context.Context, policies []plans.Policy, found map[identity]uint32) error {
	for some := range slices.Chunk(policies, rowsAtOnce) {
		slugs := make([]any, len(some))
		for i := range some {
			slugs[i] = some[i].Slug
		}
		rows, err := e.tx.QueryContext(ctx, `
			SELECT number, policy, limit_name, algorithm, count_by, anchor
			FROM cells
			WHERE policy IN `+placeholders(1, len(slugs)), slugs...)
		_, err = collect(rows, err, func(r row) (none struct{}, err error) {
			var number uint32
			var id identity
			err = r.Scan(&number, &id.policy, &id.limit, &id.algorithm, &id.countBy, &id.anchor)
			found[id] = number
			return none, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retire appends last to formers. last contains the values that a limit has until this edit. If
// formers then has more than plans.MaxFormers elements, retire drops the oldest. The end of last is
// the time of this edit. If the clock went back, the end of the previous former value can be later;
// retire then uses that end.
func (e *edit) retire(formers []enforcement.Former, last enforcement.Former) []enforcement.Former {
	last.Until = e.at.UnixMicro()
	if n := len(formers); n > 0 {
		last.Until = max(last.Until, formers[n-1].Until)
	}
	formers = append(formers, last)
	return formers[max(0, len(formers)-plans.MaxFormers):]
}
