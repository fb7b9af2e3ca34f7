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

// Writing counts changes no revision and writes no audit entry. On Postgres, edits do
// not wait for it.

// levels are the steps; each is made from the one before.
var levels = [...]metrics.Step{metrics.Minute, metrics.Hour, metrics.Day}

// tableOf returns the table of a step: counts_minutes, sketches_days.
func tableOf(what string, s metrics.Step) string { return what + "_" + string(s) + "s" }

// AddCounts applies a batch once.
//
// It first claims the mark of the batch, so that a second sender waits for the first and finds the
// batch applied. It notes each touched hour as due, also the current one: only RollUpsDue decides
// whether an hour is over, with one clock, so that clock skew between nodes loses no batch.
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
		return addBatch(ctx, tx, sortOut(b, kept))
	})
	return s.fail(err, "add batch %d of node %s to the counts", b.Seq, b.Node)
}

// change is repeat within the timeout of a method.
func (s *Store) change(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.repeat(ctx, fn)
}

// repeat runs fn in one transaction. It runs fn again after a conflict with another
// transaction and after a lost connection, also in the commit. So a repetition of fn
// must change nothing.
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

// claim moves a node's mark up to seq. It returns false if the mark is there already.
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

// keptSince returns the first instant of the rows of each step. Older counts go one step up. Days
// have no such instant.
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

// floor returns the start of the step that contains at.
func floor(at int64, s metrics.Step) int64 {
	length := int64(s.Duration() / time.Second)
	return at - at%length
}

// sorted is a batch by table, in the order in which every node locks rows, so that nodes do not
// deadlock.
type sorted struct {
	counts   map[metrics.Step][]metrics.CountRow
	sketches []metrics.SketchRow
	refusals []metrics.Refusal
	due      []metrics.RollUp
}

// sortOut finds the table of each row. Counts of a minute that was given up go to its hour or day;
// sketches of such a minute are left out.
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

// mergeSorted sorts rows and joins those with one key. Tenant 0 comes last, because every node
// adds to it and its rows should be locked for the shortest time.
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

// aboveOf returns the step that is made from s; days have none.
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

// noteDue notes that a roll-up is due, because a row of its step lacks rows of the
// step below. It locks the note until the transaction ends: a roll-up that would
// remove the note waits.
//
// The number of a new note is random. If it were always 1, a roll-up that began
// before another one removed the note would take a later note for its own.
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

var refusalsInto = upsert{
	table:   "recent_refusals",
	columns: []string{"id", "at_us", "tenant", "policy", "route", "reason", "node", "doc"},
	then:    "ON CONFLICT (id) DO NOTHING",
}

func addRefusals(ctx context.Context, tx *sql.Tx, list []metrics.Refusal) error {
	docs := make([]string, len(list))
	for i := range list {
		doc, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		docs[i] = string(doc)
	}
	return refusalsInto.run(ctx, tx, len(list), func(i int) []any {
		r := &list[i]
		return []any{r.ID[:], r.At.UnixMicro(), int64(r.Tenant), r.Policy, r.Route, string(r.Reason), r.Node, docs[i]}
	})
}

// An upsert writes rows of one table, several per statement.
type upsert struct {
	table   string
	columns []string
	then    string // ON CONFLICT …
}

// addTo adds to existing counts.
func addTo(table string) upsert {
	return upsert{table, countColumns, countConflict(func(c string) string { return table + "." + c + " + excluded." + c })}
}

// sketchesInto replaces existing sketches.
func sketchesInto(s metrics.Step) upsert {
	return upsert{
		tableOf("sketches", s),
		[]string{"at", "tenant", "name", "node", "doc"},
		"ON CONFLICT (tenant, name, at, node) DO UPDATE SET doc = excluded.doc",
	}
}

var countColumns = append([]string{"at", "tenant", "kind", "name"}, metrics.Columns...)

// countConflict returns the conflict clause; becomes returns the new value of a column.
func countConflict(becomes func(column string) string) string {
	set := make([]string, len(metrics.Columns))
	for i, c := range metrics.Columns {
		set[i] = c + " = " + becomes(c)
	}
	return "ON CONFLICT (tenant, kind, at, name) DO UPDATE SET " + strings.Join(set, ", ")
}

// pieces are the numbers of rows per statement. Few different statements are prepared once per
// transaction. More rows per statement are slower on SQLite and hardly faster on Postgres.
var pieces = [...]int{16, 1}

// run writes n rows; values returns each.
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

// runPieces writes rows [from, to) with as many statements of one size as fit.
func (u upsert) runPieces(ctx context.Context, tx *sql.Tx, size, from, to int, values func(i int) []any) error {
	statement, err := tx.PrepareContext(ctx, u.statement(size))
	if err != nil {
		return err
	}
	defer statement.Close() // with the transaction at the latest
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

// TakeLease gives a lease to one holder at a time, by the clocks of the callers. With a clock skew
// above life, two holders are possible.
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

// DropLease ends a lease if the holder still has it.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := execIn(ctx, tx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
	return s.fail(err, "drop lease %s", name)
}
