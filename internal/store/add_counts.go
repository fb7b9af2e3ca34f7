package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/retry"
)

// A transaction that adds counts does not raise the revision and writes no audit line. On Postgres,
// edits do not wait for such transactions.

// levels lists the lengths of time that one row of counts can cover, the shortest first: a minute,
// an hour, or a day. The code calls such a length a step. A roll-up computes the rows of hours from
// the rows of minutes, and the rows of days from the rows of hours.
var levels = [...]metrics.Step{metrics.Minute, metrics.Hour, metrics.Day}

// tableOf returns the name of a table. For example, the prefix "counts" and the step Minute
// give "counts_minutes".
func tableOf(what string, s metrics.Step) string { return what + "_" + string(s) + "s" }

// AddCounts writes a batch of counts, at most once.
//
// AddCounts first stores the number of the batch. If the node sends the batch again at the same
// time, the second transaction waits for the first one, and then finds that the batch is already
// added.
//
// AddCounts marks each hour that it changes as due for a roll-up, even the current hour, and does
// not read a clock. RollUpsDue decides later whether an hour is over. It compares all hours with
// the clock of one node. Therefore no counts are lost if the clocks of two nodes differ.
func (s *Store) AddCounts(ctx context.Context, b metrics.Batch) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := claim(ctx, tx, b.Node, b.Seq, s.now())
		if err != nil || !claimed {
			return err
		}
		if err := s.engine.lockCounts(ctx, tx, true); err != nil {
			return fmt.Errorf("share the counts: %w", err)
		}
		kept, err := keptSince(ctx, tx)
		if err != nil {
			return err
		}
		if b.Sketches, err = withoutOptedOut(ctx, tx, b.Sketches); err != nil {
			return err
		}
		return addBatch(ctx, tx, sortOut(b, kept))
	})
	return s.fail(err, "add batch %d of node %s to the counts", b.Seq, b.Node)
}

// withoutOptedOut returns the sketches without the traces of tenants with no_trace. A node can have traced
// requests before it had this setting.
func withoutOptedOut(ctx context.Context, tx *sql.Tx, list []metrics.SketchRow) ([]metrics.SketchRow, error) {
	if !slices.ContainsFunc(list, func(r metrics.SketchRow) bool { return r.Name == metrics.SketchTrace }) {
		return list, nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT number FROM tenants WHERE no_trace ORDER BY number`)
	numbers, err := collect(rows, err, scanValue[int64])
	if err != nil {
		return nil, fmt.Errorf("read which tenants are not traced: %w", err)
	}
	out := make([]metrics.SketchRow, 0, len(list))
	for _, r := range list {
		if _, no := slices.BinarySearch(numbers, int64(r.Tenant)); !no || r.Name != metrics.SketchTrace {
			out = append(out, r)
		}
	}
	return out, nil
}

// change calls repeat. The store's timeout applies to all attempts together.
func (s *Store) change(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.repeat(ctx, fn)
}

// repeat runs fn in one transaction. After a conflict with another transaction or a lost
// connection, repeat runs fn again in a new transaction, up to maxTries times in total. If the
// connection was lost during the commit, the first transaction may be committed. Therefore fn must
// have no further effect when it runs again after a commit.
func (s *Store) repeat(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := s.attempt(ctx, fn)
		f, _ := s.engine.fault(err)
		s.refusal.note(f, err)
		if f != faultAgain && f != faultAway || try == maxTries || ctx.Err() != nil {
			return err
		}
		_ = retry.Wait(ctx, retry.Jitter(time.Duration(try)*20*time.Millisecond))
	}
}

func (s *Store) attempt(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// claim stores seq as the number of the last batch that the node added. It returns false and stores
// nothing if the stored number is already seq or higher.
func claim(ctx context.Context, tx *sql.Tx, node string, seq int64, now time.Time) (bool, error) {
	n, err := execIn(ctx, tx, `
		INSERT INTO flush_marks (node, seq, at)
		VALUES ($1, $2, $3)
		ON CONFLICT (node) DO UPDATE SET seq = excluded.seq, at = excluded.at
		WHERE flush_marks.seq < excluded.seq`, node, seq, now.Unix())
	if err != nil {
		return false, fmt.Errorf("claim the batch: %w", err)
	}
	return n > 0, nil
}

// execIn runs a statement and returns the number of affected rows.
func execIn(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// keptSince returns, for the steps Minute and Hour, the time before which rows are pruned. Counts
// that belong to an earlier time are added to the rows of the next longer step instead. The result
// has no entry for Day.
func keptSince(ctx context.Context, tx *sql.Tx) (map[metrics.Step]int64, error) {
	rows, err := tx.QueryContext(ctx, `SELECT step, before FROM pruned`)
	type mark struct {
		step   metrics.Step
		before int64
	}
	list, err := collect(rows, err, func(r row) (m mark, err error) { err = r.Scan(&m.step, &m.before); return m, err })
	if err != nil {
		return nil, fmt.Errorf("read what was pruned: %w", err)
	}
	kept := make(map[metrics.Step]int64, len(list))
	for _, m := range list {
		kept[m.step] = m.before
	}
	return kept, nil
}

// floor returns the start of the minute, hour or day that contains the time at. Both times are
// Unix seconds.
func floor(at int64, s metrics.Step) int64 {
	length := int64(s.Duration() / time.Second)
	return at - at%length
}

// sorted contains the rows of a batch by table. Within a table, the rows are sorted, because every
// node must lock rows in the same order. Otherwise, two transactions could deadlock.
type sorted struct {
	counts   map[metrics.Step][]metrics.CountRow
	sketches []metrics.SketchRow
	refusals []metrics.Refusal
	due      []metrics.RollUp
}

// sortOut assigns each row of a batch to a table. Minute rows may already be pruned at the time of
// a row. sortOut then adds the counts of this row to the hour or the day that contains the time,
// and drops the sketches of the time.
func sortOut(b metrics.Batch, kept map[metrics.Step]int64) sorted {
	out := sorted{counts: make(map[metrics.Step][]metrics.CountRow), refusals: b.Refusals}
	due := make(map[metrics.RollUp]bool)
	for _, r := range b.Counts {
		step := metrics.Minute
		for i := 0; i < len(levels)-1 && r.At < kept[step]; i++ {
			step = levels[i+1]
			r.At = floor(r.At, step)
		}
		out.counts[step] = append(out.counts[step], r)
		if above, ok := aboveOf(step); ok {
			due[metrics.RollUp{Step: above, At: floor(r.At, above)}] = true
		}
	}
	for _, r := range b.Sketches {
		if r.At >= kept[metrics.Minute] {
			out.sketches = append(out.sketches, r)
			due[metrics.RollUp{Step: metrics.Hour, At: floor(r.At, metrics.Hour)}] = true
		}
	}
	for step, rows := range out.counts {
		out.counts[step] = mergeSorted(rows)
	}
	slices.SortFunc(out.sketches, func(a, b metrics.SketchRow) int {
		return cmp.Or(cmp.Compare(b.Tenant, a.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.At, b.At))
	})
	out.due = slices.SortedFunc(maps.Keys(due), func(a, b metrics.RollUp) int {
		return cmp.Or(cmp.Compare(b.Step, a.Step), cmp.Compare(a.At, b.At))
	})
	return out
}

// mergeSorted sorts rows and adds up rows with the same key. The rows of tenant 0 come last. Every
// node writes these rows, so each transaction should lock them as late as possible.
func mergeSorted(rows []metrics.CountRow) []metrics.CountRow {
	slices.SortFunc(rows, func(a, b metrics.CountRow) int {
		return cmp.Or(cmp.Compare(b.Tenant, a.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
	})
	out := rows[:0]
	for _, r := range rows {
		if n := len(out); n > 0 && out[n-1].CountKey == r.CountKey {
			out[n-1].Add(&r.Counts)
			continue
		}
		out = append(out, r)
	}
	return out
}

// aboveOf returns the next longer step, whose rows are computed from the rows of s: hours for
// minutes, days for hours. It returns false for days.
func aboveOf(s metrics.Step) (metrics.Step, bool) {
	i := slices.Index(levels[:], s)
	if i < 0 || i+1 == len(levels) {
		return "", false
	}
	return levels[i+1], true
}

func addBatch(ctx context.Context, tx *sql.Tx, b sorted) error {
	for _, step := range levels {
		rows := b.counts[step]
		err := addTo(tableOf("counts", step)).run(ctx, tx, len(rows), func(i int) []any {
			r := &rows[i]
			values := append(make([]any, 0, len(countColumns)), r.At, int64(r.Tenant), string(r.Kind), r.Name)
			for _, f := range r.Fields() {
				values = append(values, *f.(*int64))
			}
			return values
		})
		if err != nil {
			return fmt.Errorf("add counts of a %s: %w", step, err)
		}
	}
	err := sketchesInto(metrics.Minute).run(ctx, tx, len(b.sketches), func(i int) []any {
		r := &b.sketches[i]
		return []any{r.At, int64(r.Tenant), r.Name, r.Node, string(r.Doc)}
	})
	if err != nil {
		return fmt.Errorf("write sketches: %w", err)
	}
	if err := addRefusals(ctx, tx, b.refusals); err != nil {
		return fmt.Errorf("write refusals: %w", err)
	}
	for _, r := range b.due {
		if err := noteDue(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// noteDue records that the roll-up r is due, because rows of the next finer step have changed. The
// record is a row of the table roll_ups_due. It stays locked until tx ends, so no roll-up deletes
// it before the changed rows are visible.
//
// A roll-up compares the number n of the record with the number that it read at its start. A new
// record gets a random n. If n always started at 1, a roll-up could not detect that another process
// has deleted the record and then added a new record.
func noteDue(ctx context.Context, tx *sql.Tx, r metrics.RollUp) error {
	_, err := tx.ExecContext(ctx, `
		INSERT INTO roll_ups_due (step, at, n)
		VALUES ($1, $2, $3)
		ON CONFLICT (step, at) DO UPDATE SET n = roll_ups_due.n + 1`, string(r.Step), r.At, 1+rand.Int64N(1<<62))
	if err != nil {
		return fmt.Errorf("note what is to be rolled up: %w", err)
	}
	return nil
}

// Kept denials are in one table, and kept allowed requests are in another table with the same
// columns. Therefore many allowed requests neither displace denials nor slow down the queries of
// denials.
const (
	deniedTable  = "recent_refusals"
	allowedTable = "recent_allowed"
)

func refusalsInto(table string) upsert {
	return upsert{
		table:   table,
		columns: []string{"id", "at_us", "tenant", "policy", "route", "reason", "node", "doc"},
		then:    "ON CONFLICT (id) DO NOTHING",
	}
}

// addRefusals writes kept decisions to their tables.
func addRefusals(ctx context.Context, tx *sql.Tx, list []metrics.Refusal) error {
	var denied, allowed []metrics.Refusal
	for i := range list {
		if list[i].Allowed {
			allowed = append(allowed, list[i])
		} else {
			denied = append(denied, list[i])
		}
	}
	if err := addRefusalsTo(ctx, tx, deniedTable, denied); err != nil {
		return err
	}
	return addRefusalsTo(ctx, tx, allowedTable, allowed)
}

func addRefusalsTo(ctx context.Context, tx *sql.Tx, table string, list []metrics.Refusal) error {
	docs := make([]string, len(list))
	for i := range list {
		doc, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		docs[i] = string(doc)
	}
	return refusalsInto(table).run(ctx, tx, len(list), func(i int) []any {
		r := &list[i]
		return []any{r.ID[:], r.At.UnixMicro(), int64(r.Tenant), r.Policy, r.Route, string(r.Reason), r.Node, docs[i]}
	})
}

// An upsert is an INSERT … ON CONFLICT statement for one table. It writes several rows at once.
type upsert struct {
	table   string
	columns []string
	then    string // the ON CONFLICT clause
}

// addTo returns the upsert that adds counts to the rows of a table, and inserts the rows that
// do not exist yet.
func addTo(table string) upsert {
	return upsert{table, countColumns, countConflict(func(c string) string { return table + "." + c + " + excluded." + c })}
}

// sketchesInto returns the upsert that writes the sketches of a step. A new sketch replaces the
// stored one with the same tenant, name, time and node.
func sketchesInto(s metrics.Step) upsert {
	return upsert{
		tableOf("sketches", s),
		[]string{"at", "tenant", "name", "node", "doc"},
		"ON CONFLICT (tenant, name, at, node) DO UPDATE SET doc = excluded.doc",
	}
}

var countColumns = append([]string{"at", "tenant", "kind", "name"}, metrics.Columns...)

// countConflict returns the ON CONFLICT clause for rows of counts. The function becomes returns an
// SQL expression for the new value of a column.
func countConflict(becomes func(column string) string) string {
	set := make([]string, len(metrics.Columns))
	for i, c := range metrics.Columns {
		set[i] = c + " = " + becomes(c)
	}
	return "ON CONFLICT (tenant, kind, at, name) DO UPDATE SET " + strings.Join(set, ", ")
}

// pieces are the two numbers of rows that one statement may write: 16 rows, or one row. With only
// two numbers, a transaction prepares at most two statements. More rows per statement are slower on
// SQLite and hardly faster on Postgres.
var pieces = [...]int{16, 1}

// run writes n rows. values returns the column values of the row with index i.
func (u upsert) run(ctx context.Context, tx *sql.Tx, n int, values func(i int) []any) error {
	done := 0
	for _, size := range pieces {
		if n-done < size {
			continue
		}
		if err := u.runPieces(ctx, tx, size, done, n, values); err != nil {
			return err
		}
		done = n - (n-done)%size
	}
	return nil
}

// runPieces writes the rows [from, to) with statements of size rows. If the last rows are fewer
// than size, runPieces does not write them.
func (u upsert) runPieces(ctx context.Context, tx *sql.Tx, size, from, to int, values func(i int) []any) error {
	statement, err := tx.PrepareContext(ctx, u.statement(size))
	if err != nil {
		return err
	}
	defer statement.Close() // the end of the transaction would close the statement too
	args := make([]any, 0, size*len(u.columns))
	for ; to-from >= size; from += size {
		args = args[:0]
		for i := range size {
			args = append(args, values(from+i)...)
		}
		if _, err := statement.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (u upsert) statement(rows int) string {
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s %s", u.table, strings.Join(u.columns, ", "), placeholders(rows, len(u.columns)), u.then)
}

// TakeLease acquires or renews the lease called name for holder. The lease then ends after
// life. TakeLease returns false if another holder has the lease and it has not ended. Each
// caller compares the end with its own clock. If two clocks differ by more than life, two
// holders can have the lease at the same time.
func (s *Store) TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error) {
	var taken bool
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := s.now()
		n, err := execIn(ctx, tx, `
			INSERT INTO leases (name, holder, ends_us)
			VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, ends_us = excluded.ends_us
			WHERE leases.holder = excluded.holder OR leases.ends_us <= $4`,
			name, holder, now.Add(life).UnixMicro(), now.UnixMicro())
		taken = n > 0
		return err
	})
	return taken && err == nil, s.fail(err, "take lease %s", name)
}

// DropLease ends the lease if holder has it, so that another node can acquire it immediately.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := execIn(ctx, tx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
	return s.fail(err, "drop lease %s", name)
}
