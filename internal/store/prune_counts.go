package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/headgate/headgate/internal/metrics"
)

// pruneRows is the maximum number of rows that one call of Prune deletes from one table. While a
// transaction deletes rows, no other transaction can write to a SQLite file. With this maximum, a
// deletion takes less than about 100 milliseconds.
const pruneRows = 2000

// Prune deletes the rows that are older than r allows, in one transaction for each table. It
// deletes at most pruneRows rows of a table. It returns true if there may be more rows to delete.
//
// Before Prune deletes minutes or hours, it records the time before which it deletes them (see
// giveUp). From then on, no batch adds to these rows, and no roll-up reads them. Therefore Prune
// can delete the rows in several transactions, and the hours and days that were computed from the
// rows stay correct. If counts of such an old time arrive later, AddCounts adds them to the row of
// their hour or day.
func (s *Store) Prune(ctx context.Context, r metrics.Retention) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 12*s.timeout)
	defer cancel()
	more, err := s.prune(ctx, r)
	return more, s.fail(err, "prune the counts")
}

func (s *Store) prune(ctx context.Context, r metrics.Retention) (more bool, err error) {
	given, err := s.giveUp(ctx, r)
	if err != nil {
		return false, fmt.Errorf("give up what is old: %w", err)
	}
	given[metrics.Day] = floor(r.Days, metrics.Day)
	var removals []removal
	for _, step := range levels {
		removals = append(removals,
			removal{tableOf("counts", step), "tenant, kind, at, name", "at", given[step]},
			removal{tableOf("sketches", step), "tenant, name, at, node", "at", given[step]})
	}
	for _, table := range []string{deniedTable, allowedTable} {
		before, err := s.refusalsBefore(ctx, table, r)
		if err != nil {
			return false, fmt.Errorf("find the oldest rows of %s: %w", table, err)
		}
		removals = append(removals, removal{table, "id", "at_us", before})
	}
	removals = append(removals,
		removal{"durable_states", "tenant, cell, part", "ends_us", s.now().Add(-endedFor).UnixMicro()},
		removal{"flush_marks", "node", "at", r.Nodes},
		removal{"idempotent_answers", "id", "at", s.now().Add(-answerKept).Unix()})
	for _, each := range removals {
		full, err := s.remove(ctx, each)
		if err != nil {
			return false, fmt.Errorf("remove rows of %s: %w", each.table, err)
		}
		more = more || full
	}
	crowded, err := s.pruneAllowedOfTenants(ctx)
	if err != nil {
		return false, fmt.Errorf("remove allowed requests of single tenants: %w", err)
	}
	return more || crowded, nil
}

// allowedOfTenant is the maximum number of allowed requests that are kept for one tenant.
// Without this limit, a tenant with many requests could fill the table.
const allowedOfTenant = 10_000

// pruneAllowedOfTenants deletes the oldest kept allowed requests of tenants that have more than
// allowedOfTenant. more is true if there may be more rows to delete.
func (s *Store) pruneAllowedOfTenants(ctx context.Context) (more bool, err error) {
	type line struct {
		tenant int64
		n      int
	}
	scan := func(r row) (l line, err error) { err = r.Scan(&l.tenant, &l.n); return l, err }
	list, err := queryAll(ctx, s, scan, `
		SELECT tenant, count(*) FROM `+allowedTable+`
		GROUP BY tenant
		HAVING count(*) > $1`, allowedOfTenant)
	if err != nil {
		return false, err
	}
	for _, l := range list {
		surplus := min(l.n-allowedOfTenant, pruneRows)
		err := s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := execIn(ctx, tx, `
				DELETE FROM `+allowedTable+`
				WHERE id IN (SELECT id FROM `+allowedTable+` WHERE tenant = $1 ORDER BY id LIMIT $2)`, l.tenant, surplus)
			return err
		})
		if err != nil {
			return false, err
		}
		more = more || l.n-allowedOfTenant > pruneRows
	}
	return more, nil
}

// giveUp raises the two recorded times before which rows of minutes and of hours are deleted, and
// returns the new times. The new times follow from the retention r. They are never later than rows
// that a roll-up still has to read. giveUp waits for transactions that are adding counts.
// Transactions that begin later read the new times.
func (s *Store) giveUp(ctx context.Context, r metrics.Retention) (kept map[metrics.Step]int64, err error) {
	minutes, hours := floor(r.Minutes, metrics.Hour), floor(r.Hours, metrics.Day)
	err = s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		kept, err = keptSince(ctx, tx)
		if err != nil || minutes <= kept[metrics.Minute] && hours <= kept[metrics.Hour] {
			return err
		}
		if err := s.engine.lockCounts(ctx, tx, false); err != nil {
			return err
		}
		if kept, err = keptSince(ctx, tx); err != nil { // another process may have raised the times since the first read
			return err
		}
		kept[metrics.Minute], err = moveMark(ctx, tx, metrics.Minute, kept[metrics.Minute], minutes)
		if err != nil {
			return err
		}
		// As long as the minutes of an hour are kept, the row of the hour can change, and then the
		// row of the day changes too. Therefore hours are kept at least as long as minutes.
		most := min(hours, floor(kept[metrics.Minute], metrics.Day))
		kept[metrics.Hour], err = moveMark(ctx, tx, metrics.Hour, kept[metrics.Hour], most)
		return err
	})
	return kept, err
}

// moveMark raises the recorded time before which rows of the step s are deleted, and returns the
// recorded time after the change. The argument is is the time that is recorded now, and wanted is
// the new time. A roll-up that is due may still have to read rows before wanted. The new time is
// then the start of the oldest hour or day of such a roll-up.
func moveMark(ctx context.Context, tx *sql.Tx, s metrics.Step, is, wanted int64) (int64, error) {
	above, _ := aboveOf(s)
	var due sql.NullInt64
	err := tx.QueryRowContext(ctx, `SELECT min(at) FROM roll_ups_due WHERE step = $1`, string(above)).Scan(&due)
	if err != nil {
		return is, err
	}
	if due.Valid {
		wanted = min(wanted, due.Int64)
	}
	if wanted <= is {
		return is, nil
	}
	_, err = tx.ExecContext(ctx, `UPDATE pruned SET before = $1 WHERE step = $2`, wanted, string(s))
	return wanted, err
}

// refusalsBefore returns the time before which rows of a table of kept decisions are deleted, in
// microseconds since the epoch. The maximum age of the rows gives one such time. Their maximum
// number r.MaxRefusals gives another. refusalsBefore returns the later of the two.
func (s *Store) refusalsBefore(ctx context.Context, table string, r metrics.Retention) (int64, error) {
	before := r.Refusals * 1_000_000
	if r.MaxRefusals <= 0 {
		return before, nil
	}
	err := s.read(ctx, func(ctx context.Context) error {
		var oldest sql.NullInt64
		err := s.reader.QueryRowContext(ctx, `
			SELECT max(at_us) FROM (
				SELECT at_us FROM `+table+`
				ORDER BY at_us DESC, id DESC
				LIMIT 1 OFFSET $1) AS beyond`, r.MaxRefusals).Scan(&oldest)
		if oldest.Valid {
			before = max(before, oldest.Int64+1)
		}
		return err
	})
	return before, err
}

// A removal describes the rows to delete from a table: the rows whose value in a time column is
// less than before.
type removal struct {
	table, key, time string
	before           int64
}

// remove deletes at most pruneRows rows that r describes, the oldest first. full is true if it
// deleted pruneRows rows, so that there may be more.
func (s *Store) remove(ctx context.Context, r removal) (full bool, err error) {
	if r.before <= 0 {
		return false, nil
	}
	err = s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `
			DELETE FROM `+r.table+`
			WHERE (`+r.key+`) IN (
				SELECT `+r.key+` FROM `+r.table+`
				WHERE `+r.time+` < $1
				ORDER BY `+r.time+`
				LIMIT $2)`, r.before, pruneRows)
		full = n == pruneRows
		return err
	})
	return full, err
}
