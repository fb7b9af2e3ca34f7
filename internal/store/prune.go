package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/headgate/headgate/internal/metrics"
)

// pruneRows is the number of rows of a table that one call of Prune removes, so that the writer of
// a SQLite file is blocked for some tens of milliseconds only.
const pruneRows = 2000

// Prune removes old rows, in one transaction per table.
//
// Minutes and hours are given up before they are removed: from then on, no batch adds to them and
// no roll-up reads them. So removing them in pieces does not change the rows above, and later
// counts are added to those.
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
	refusals, err := s.refusalsBefore(ctx, r)
	if err != nil {
		return false, fmt.Errorf("find the oldest refusals: %w", err)
	}
	removals = append(removals,
		removal{"recent_refusals", "id", "at_us", refusals},
		removal{"flush_marks", "node", "at", r.Nodes})
	for _, each := range removals {
		full, err := s.remove(ctx, each)
		if err != nil {
			return false, fmt.Errorf("remove rows of %s: %w", each.table, err)
		}
		more = more || full
	}
	return more, nil
}

// giveUp raises the marks of the kept rows, as far as everything before is rolled up, and returns
// them. It waits for transactions that add counts, and later ones use the new marks.
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
		if kept, err = keptSince(ctx, tx); err != nil { // another process may have been quicker
			return err
		}
		kept[metrics.Minute], err = moveMark(ctx, tx, metrics.Minute, kept[metrics.Minute], minutes)
		if err != nil {
			return err
		}
		// Of an hour that is kept with its minutes, the day may still be summed again.
		most := min(hours, floor(kept[metrics.Minute], metrics.Day))
		kept[metrics.Hour], err = moveMark(ctx, tx, metrics.Hour, kept[metrics.Hour], most)
		return err
	})
	return kept, err
}

// moveMark raises the mark of a step to at most wanted, and at most to the oldest roll-up that
// reads its rows. It returns the new mark.
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

// refusalsBefore returns the instant, in microseconds, before which denials are removed: by age,
// or to keep at most MaxRefusals.
func (s *Store) refusalsBefore(ctx context.Context, r metrics.Retention) (int64, error) {
	before := r.Refusals * 1_000_000
	if r.MaxRefusals <= 0 {
		return before, nil
	}
	err := s.read(ctx, func(ctx context.Context) error {
		var oldest sql.NullInt64
		err := s.reader.QueryRowContext(ctx, `
			SELECT max(at_us) FROM (
				SELECT at_us FROM recent_refusals
				ORDER BY at_us DESC, id DESC
				LIMIT 1 OFFSET $1) AS beyond`, r.MaxRefusals).Scan(&oldest)
		if oldest.Valid {
			before = max(before, oldest.Int64+1)
		}
		return err
	})
	return before, err
}

// A removal selects rows before an instant.
type removal struct {
	table, key, time string
	before           int64
}

// remove removes the oldest rows, at most pruneRows. full reports that there may be more.
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
