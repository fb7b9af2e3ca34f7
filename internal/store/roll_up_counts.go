package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// errNotDue stops a roll-up. Either another process has completed it, or counts were added
// after it began. In the second case, the roll-up stays due and starts again later.
var errNotDue = errors.New("not due")

// RollUpsDue returns at most limit hours and days that need a roll-up and are over at now.
// Hours come before days.
func (s *Store) RollUpsDue(ctx context.Context, now time.Time, limit int) ([]metrics.RollUp, error) {
	scan := func(r row) (u metrics.RollUp, err error) { err = r.Scan(&u.Step, &u.At); return u, err }
	list, err := queryAll(ctx, s, scan, `
		SELECT step, at FROM roll_ups_due
		WHERE step = 'hour' AND at <= $1 OR step = 'day' AND at <= $2
		ORDER BY step DESC, at
		LIMIT $3`, now.Add(-metrics.Hour.Duration()).Unix(), now.Add(-metrics.Day.Duration()).Unix(), limit)
	return list, s.fail(err, "list what is to be rolled up")
}

// RollUp computes the rows of an hour or a day from the rows of the next finer step, if this
// roll-up is due.
//
// The table roll_ups_due has one row for each roll-up that is due (see noteDue). This row has a
// number n, which increases whenever counts are added to the time of the roll-up. RollUp works in
// several short transactions, so that it does not block other writers of a SQLite file for long. It
// adds up the counts of a few tenants at a time, merges sketches outside of transactions, and
// writes them in pieces.
//
// Each transaction locks this row and checks n. If n has changed, counts were added. RollUp then
// stops, and the roll-up stays due. If the row is gone, another process has done the roll-up, and
// RollUp stops too. While a roll-up is due, queries read the rows of the finer step, so they never
// read a partial result.
func (s *Store) RollUp(ctx context.Context, r metrics.RollUp, merge func(name string, docs [][]byte) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 12*s.timeout)
	defer cancel()
	n, err := s.note(ctx, r)
	if err == nil {
		err = s.rollUpSketches(ctx, r, n, merge)
	}
	if err == nil {
		err = s.rollUpCounts(ctx, r, n)
	}
	if err == nil {
		err = s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error { return endRollUp(ctx, tx, r, n) })
	}
	if errors.Is(err, errNotDue) {
		return nil
	}
	return s.fail(err, "roll up the %s at %d", r.Step, r.At)
}

// below returns the step from whose rows the rows of s are computed: minutes for hours, hours for
// days.
func below(s metrics.Step) metrics.Step {
	if s == metrics.Day {
		return metrics.Hour
	}
	return metrics.Minute
}

// span returns the start and the end of the hour or day of a roll-up, in seconds since the epoch.
func span(r metrics.RollUp) (from, to int64) {
	return r.At, r.At + int64(r.Step.Duration()/time.Second)
}

// note returns the number n in the row of the table roll_ups_due that says that the roll-up r is
// due (see noteDue). If there is no such row, the error is errNotDue.
func (s *Store) note(ctx context.Context, r metrics.RollUp) (n int64, err error) {
	n, err = queryOne(ctx, s, "", scanValue[int64], `
		SELECT n FROM roll_ups_due
		WHERE step = $1 AND at = $2`, string(r.Step), r.At)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotDue
	}
	return n, err
}

// countPiece is the number of tenants whose counts one transaction adds up.
const countPiece = 50

func (s *Store) rollUpCounts(ctx context.Context, r metrics.RollUp, n int64) error {
	kept, err := s.rowsKept(ctx, r)
	if err != nil || !kept {
		return err
	}
	tenants, err := s.tenantsIn(ctx, r)
	if err != nil {
		return fmt.Errorf("list tenants: %w", err)
	}
	for piece := range slices.Chunk(tenants, countPiece) {
		err := s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := hold(ctx, tx, r, n); err != nil {
				return err
			}
			return sumCounts(ctx, tx, r, piece)
		})
		if err != nil {
			return fmt.Errorf("sum counts: %w", err)
		}
	}
	return nil
}

// tenantsIn returns the numbers of the tenants that have counts in the time of a roll-up.
func (s *Store) tenantsIn(ctx context.Context, r metrics.RollUp) ([]int64, error) {
	from, to := span(r)
	return queryAll(ctx, s, scanValue[int64], `
		SELECT DISTINCT tenant FROM `+tableOf("counts", below(r.Step))+`
		WHERE at >= $1 AND at < $2
		ORDER BY tenant`, from, to)
}

func sumCounts(ctx context.Context, tx *sql.Tx, r metrics.RollUp, tenants []int64) error {
	statement, err := tx.PrepareContext(ctx, sumInto(r.Step))
	if err != nil {
		return err
	}
	defer statement.Close()
	from, to := span(r)
	for _, tenant := range tenants {
		if _, err := statement.ExecContext(ctx, from, tenant, from, to); err != nil {
			return err
		}
	}
	return nil
}

// endRollUp deletes the record that the roll-up r is due. It then records that the roll-up to the
// next longer step is due. It omits this record if the rows that r reads are pruned, because RollUp
// has then changed nothing.
func endRollUp(ctx context.Context, tx *sql.Tx, r metrics.RollUp, n int64) error {
	ended, err := execIn(ctx, tx, `
		DELETE FROM roll_ups_due
		WHERE step = $1 AND at = $2 AND n = $3`, string(r.Step), r.At, n)
	if err != nil {
		return fmt.Errorf("end the note: %w", err)
	}
	if ended == 0 {
		return errNotDue
	}
	above, ok := aboveOf(r.Step)
	if !ok {
		return nil
	}
	kept, err := keptSince(ctx, tx)
	if err != nil || r.At < kept[below(r.Step)] {
		return err
	}
	return noteDue(ctx, tx, metrics.RollUp{Step: above, At: floor(r.At, above)})
}

// sumInto returns the SQL statement that adds up rows of one tenant to one row of the step s for
// each name. The parameters of the statement are the start of the new row, the tenant, and the
// start and the end of the time to add up. The statement lists all values of the column kind,
// because otherwise the database does not use the primary key.
func sumInto(s metrics.Step) string {
	sums := make([]string, len(metrics.Columns))
	for i, c := range metrics.Columns {
		sums[i] = "CAST(sum(" + c + ") AS BIGINT)"
	}
	return `INSERT INTO ` + tableOf("counts", s) + ` (` + strings.Join(countColumns, ", ") + `)
		SELECT CAST($1 AS BIGINT), tenant, kind, name, ` + strings.Join(sums, ", ") + `
		FROM ` + tableOf("counts", below(s)) + `
		WHERE tenant = $2 AND kind IN ('total', 'route', 'policy') AND at >= $3 AND at < $4
		GROUP BY tenant, kind, name
		` + countConflict(func(c string) string { return "excluded." + c })
}

// A sketchID identifies the sketches that have the same tenant and the same name. It includes the
// sketches of all nodes and times.
type sketchID struct {
	tenant uint32
	name   string
}

// sketchPiece is the number of merged sketches that one transaction writes.
const sketchPiece = 100

func (s *Store) rollUpSketches(ctx context.Context, r metrics.RollUp, n int64, merge func(string, [][]byte) ([]byte, error)) error {
	kept, err := s.rowsKept(ctx, r)
	if err != nil || !kept {
		return err
	}
	keys, err := s.sketchIDs(ctx, r)
	if err != nil {
		return fmt.Errorf("list sketches: %w", err)
	}
	for len(keys) > 0 {
		piece := keys[:min(sketchPiece, len(keys))]
		keys = keys[len(piece):]
		rows, err := s.mergePiece(ctx, r, piece, merge)
		if err != nil {
			return err
		}
		err = s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := hold(ctx, tx, r, n); err != nil {
				return err
			}
			return sketchesInto(r.Step).run(ctx, tx, len(rows), func(i int) []any { return rows[i] })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mergePiece reads the sketches of each ID in piece for the time of r, merges them, and returns
// the rows to write.
func (s *Store) mergePiece(ctx context.Context, r metrics.RollUp, piece []sketchID, merge func(string, [][]byte) ([]byte,
	error),
) ([][]any, error) {
	var rows [][]any
	for _, k := range piece {
		docs, err := s.sketchDocs(ctx, r, k)
		if err != nil {
			return nil, fmt.Errorf("read sketches: %w", err)
		}
		doc, err := merge(k.name, docs)
		if err != nil {
			return nil, fmt.Errorf("merge sketches %s of tenant %d: %w", k.name, k.tenant, err)
		}
		if doc != nil {
			rows = append(rows, []any{r.At, int64(k.tenant), k.name, "", string(doc)})
		}
	}
	return rows, nil
}

// hold locks the record that the roll-up r is due. The error is errNotDue if the record is gone, or
// if n is no longer the number of the record.
func hold(ctx context.Context, tx *sql.Tx, r metrics.RollUp, n int64) error {
	held, err := execIn(ctx, tx, `
		UPDATE roll_ups_due SET n = n
		WHERE step = $1 AND at = $2 AND n = $3`, string(r.Step), r.At, n)
	if err == nil && held == 0 {
		return errNotDue
	}
	return err
}

// rowsKept reports whether the rows from which the roll-up r is computed still exist. Prune does
// not delete these rows while r is due.
func (s *Store) rowsKept(ctx context.Context, r metrics.RollUp) (bool, error) {
	return queryOne(ctx, s, "", scanValue[bool], `
		SELECT before <= $1 FROM pruned
		WHERE step = $2`, r.At, string(below(r.Step)))
}

func (s *Store) sketchIDs(ctx context.Context, r metrics.RollUp) ([]sketchID, error) {
	from, to := span(r)
	scan := func(r row) (k sketchID, err error) { err = r.Scan(&k.tenant, &k.name); return k, err }
	return queryAll(ctx, s, scan, `
		SELECT DISTINCT tenant, name FROM `+tableOf("sketches", below(r.Step))+`
		WHERE at >= $1 AND at < $2
		ORDER BY tenant, name`, from, to)
}

func (s *Store) sketchDocs(ctx context.Context, r metrics.RollUp, k sketchID) ([][]byte, error) {
	from, to := span(r)
	return queryAll(ctx, s, scanValue[[]byte], `
		SELECT doc FROM `+tableOf("sketches", below(r.Step))+`
		WHERE tenant = $1 AND name = $2 AND at >= $3 AND at < $4
		ORDER BY at, node`, int64(k.tenant), k.name, from, to)
}
