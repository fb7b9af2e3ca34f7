package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
)

// DeleteSetting removes a setting. One that is not there is no error, and
// leaves no line.
func (s *Store) DeleteSetting(ctx context.Context, name string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		ed.concerns("", name, name)
		n, err := ed.exec(ctx, `DELETE FROM settings WHERE name = $1`, name)
		if err == nil && n == 0 {
			err = errUnchanged
		}
		return err
	})
	return s.fail(err, "delete setting %s", name)
}

// DropLease gives a lease back, if its holder still has it.
func (s *Store) DropLease(ctx context.Context, name, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := execIn(ctx, tx, `DELETE FROM leases WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
	return s.fail(err, "drop lease %s", name)
}

// ForgetCounts removes everything that was counted of tenants, by their numbers:
// their counts, sketches and kept refusals. From the rows of all tenants together
// their part is taken, and a row with nothing left goes. Of nodes whose name
// begins with a prefix, which counted nobody else, the marks and sketches go as
// well; "" is none. What is left of the tenants is, where others were counted in
// the same hour, the limiter's time in its histogram of that hour.
//
// It is one transaction for a stretch of time of each table, so that the one
// writer of a SQLite file is never held for long. What fails can be repeated:
// rows that are gone are not taken off twice.
func (s *Store) ForgetCounts(ctx context.Context, numbers []uint32, nodes string, without metrics.Without) (metrics.Forgotten, error) {
	ctx, cancel := context.WithTimeout(ctx, 24*s.timeout)
	defer cancel()
	f := forgetting{store: s, numbers: numbers, without: without}
	for _, step := range levels {
		if err := f.table(ctx, step); err != nil {
			return f.gone, s.fail(err, "forget counts of %ss", step)
		}
	}
	if err := f.refusals(ctx); err != nil {
		return f.gone, s.fail(err, "forget refusals")
	}
	return f.gone, s.fail(f.nodes(ctx, nodes), "forget nodes")
}

// forgetStretch is how long a stretch is that one transaction goes through.
var forgetStretch = map[metrics.Step]int64{
	metrics.Minute: int64(time.Hour / time.Second),
	metrics.Hour:   int64(4 * 24 * time.Hour / time.Second),
	metrics.Day:    int64(90 * 24 * time.Hour / time.Second),
}

// A forgetting is one call of ForgetCounts.
type forgetting struct {
	store   *Store
	numbers []uint32
	without metrics.Without
	gone    metrics.Forgotten
}

// table goes through the tables of a step, oldest rows first.
func (f *forgetting) table(ctx context.Context, step metrics.Step) error {
	from, to, err := f.span(ctx, step)
	if err != nil {
		return err
	}
	for stretch := forgetStretch[step]; from < to; from += stretch {
		var gone metrics.Forgotten
		err := f.store.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			if err := f.store.engine.lockCounts(ctx, tx, false); err != nil {
				return err
			}
			gone, err = f.stretch(ctx, tx, step, from, from+stretch)
			return err
		})
		if err != nil {
			return err
		}
		jitter(ctx, 20*time.Millisecond) // for others who wait to write the same file
		f.gone.Counts += gone.Counts
		f.gone.Sketches += gone.Sketches
	}
	return nil
}

// span is the time of which a step has rows of the tenants; from is the
// beginning of a step above.
func (f *forgetting) span(ctx context.Context, step metrics.Step) (from, to int64, err error) {
	first := true
	for _, table := range []string{tableOf("counts", step), tableOf("sketches", step)} {
		for _, number := range f.numbers {
			var oldest, newest sql.NullInt64
			err := f.store.read(ctx, func(ctx context.Context) error {
				return f.store.reader.QueryRowContext(ctx, `
					SELECT min(at), max(at) FROM `+table+`
					WHERE tenant = $1`, int64(number)).Scan(&oldest, &newest)
			})
			if err != nil {
				return 0, 0, err
			}
			if oldest.Valid && (first || oldest.Int64 < from) {
				from = oldest.Int64
			}
			if oldest.Valid {
				to, first = max(to, newest.Int64+1), false
			}
		}
	}
	if above, ok := aboveOf(step); ok {
		from = floor(from, above)
	}
	return from, to, nil
}

// stretch forgets what lies in [from, to).
func (f *forgetting) stretch(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64) (gone metrics.Forgotten, err error) {
	touched := make(map[int64]bool) // times at which they have something
	if gone.Counts, err = f.counts(ctx, tx, step, from, to, touched); err != nil {
		return gone, fmt.Errorf("counts: %w", err)
	}
	if gone.Sketches, err = f.sketches(ctx, tx, step, from, to, touched); err != nil {
		return gone, fmt.Errorf("sketches: %w", err)
	}
	return gone, f.renote(ctx, tx, step, from, to)
}

// counts removes the tenants' rows, and takes them off those of all together.
func (f *forgetting) counts(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64, touched map[int64]bool) (n int64, err error) {
	sums := make(map[metrics.CountKey]*metrics.Counts)
	for _, number := range f.numbers {
		rows, err := countsOf(ctx, tx, step, number, from, to)
		if err != nil {
			return n, err
		}
		for i := range rows {
			key := rows[i].CountKey
			key.Tenant = 0
			touched[key.At] = true
			if sums[key] == nil {
				sums[key] = new(metrics.Counts)
			}
			sums[key].Add(&rows[i].Counts)
		}
		gone, err := execIn(ctx, tx, `
			DELETE FROM `+tableOf("counts", step)+`
			WHERE tenant = $1 AND kind IN ('total', 'route', 'policy') AND at >= $2 AND at < $3`, int64(number), from, to)
		if err != nil {
			return n, err
		}
		n += gone
	}
	keys := slices.SortedFunc(maps.Keys(sums), compareKeys)
	err = addTo(tableOf("counts", step)).run(ctx, tx, len(keys), func(i int) []any {
		key := keys[i]
		values := append(make([]any, 0, len(countColumns)), key.At, int64(0), string(key.Kind), key.Name)
		for _, field := range sums[key].Fields() {
			values = append(values, -*field.(*int64))
		}
		return values
	})
	if err != nil {
		return n, err
	}
	_, err = execIn(ctx, tx, `
		DELETE FROM `+tableOf("counts", step)+`
		WHERE tenant = $1 AND kind IN ('total', 'route', 'policy') AND at >= $2 AND at < $3 AND requests <= 0`, int64(0), from, to)
	return n, err
}

// compareKeys orders rows as every node locks them.
func compareKeys(a, b metrics.CountKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
}

func countsOf(ctx context.Context, tx *sql.Tx, step metrics.Step, number uint32, from, to int64) ([]metrics.CountRow, error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT `+strings.Join(countColumns, ", ")+`
		FROM `+tableOf("counts", step)+`
		WHERE tenant = $1 AND kind IN ('total', 'route', 'policy') AND at >= $2 AND at < $3`, int64(number), from, to)
	return collect(rows, err, func(r row) (c metrics.CountRow, err error) {
		err = r.Scan(append([]any{&c.At, &c.Tenant, &c.Kind, &c.Name}, c.Fields()...)...)
		return c, err
	})
}

// sketches removes the tenants' own, and makes those of all together anew.
func (f *forgetting) sketches(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64, touched map[int64]bool) (n int64, err error) {
	theirs := make(map[metrics.SketchKey][][]byte) // of tenant 0
	for _, number := range f.numbers {
		for _, name := range metrics.SketchNames {
			rows, err := sketchesOf(ctx, tx, step, number, name, from, to)
			if err != nil {
				return n, err
			}
			for _, r := range rows {
				r.Tenant = 0
				theirs[r.SketchKey] = append(theirs[r.SketchKey], r.Doc)
				touched[r.At] = true
			}
			gone, err := execIn(ctx, tx, `
				DELETE FROM `+tableOf("sketches", step)+`
				WHERE tenant = $1 AND name = $2 AND at >= $3 AND at < $4`, int64(number), name, from, to)
			if err != nil {
				return n, err
			}
			n += gone
		}
	}
	if len(touched) == 0 {
		return n, nil
	}
	return n, f.together(ctx, tx, step, from, to, theirs, touched)
}

// together makes the sketches of all tenants anew where tenants had some. Where
// nobody has anything left they go.
func (f *forgetting) together(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64, theirs map[metrics.SketchKey][][]byte, touched map[int64]bool) error {
	left, err := timesLeft(ctx, tx, step, from, to)
	if err != nil {
		return err
	}
	var changed []metrics.SketchRow
	for _, name := range metrics.SketchNames {
		rows, err := sketchesOf(ctx, tx, step, 0, name, from, to)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !touched[r.At] {
				continue
			}
			r.Doc, err = f.rest(r, theirs[r.SketchKey], left[r.At])
			if err != nil {
				return err
			}
			changed = append(changed, r)
		}
	}
	for _, r := range changed {
		statement := `
			UPDATE ` + tableOf("sketches", step) + ` SET doc = $5
			WHERE tenant = $1 AND name = $2 AND at = $3 AND node = $4`
		args := []any{int64(0), r.Name, r.At, r.Node, string(r.Doc)}
		if r.Doc == nil {
			statement = `
				DELETE FROM ` + tableOf("sketches", step) + `
				WHERE tenant = $1 AND name = $2 AND at = $3 AND node = $4`
			args = args[:4]
		}
		if _, err := execIn(ctx, tx, statement, args...); err != nil {
			return err
		}
	}
	return nil
}

// rest of a sketch of all tenants; nil when there is none.
func (f *forgetting) rest(r metrics.SketchRow, theirs [][]byte, left bool) ([]byte, error) {
	if !left {
		return nil, nil
	}
	doc, err := f.without(r.Name, r.Doc, f.numbers, theirs)
	if err != nil {
		return nil, fmt.Errorf("take tenants out of %s at %d: %w", r.Name, r.At, err)
	}
	return doc, nil
}

// timesLeft are those at which somebody has counts.
func timesLeft(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64) (map[int64]bool, error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT at FROM `+tableOf("counts", step)+`
		WHERE tenant = $1 AND kind = 'total' AND at >= $2 AND at < $3`, int64(0), from, to)
	times, err := collect(rows, err, func(r row) (at int64, err error) { err = r.Scan(&at); return at, err })
	left := make(map[int64]bool, len(times))
	for _, at := range times {
		left[at] = true
	}
	return left, err
}

func sketchesOf(ctx context.Context, tx *sql.Tx, step metrics.Step, number uint32, name string, from, to int64) ([]metrics.SketchRow, error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT at, tenant, name, node, doc
		FROM `+tableOf("sketches", step)+`
		WHERE tenant = $1 AND name = $2 AND at >= $3 AND at < $4`, int64(number), name, from, to)
	return collect(rows, err, func(r row) (s metrics.SketchRow, err error) {
		err = r.Scan(&s.At, &s.Tenant, &s.Name, &s.Node, &s.Doc)
		return s, err
	})
}

// renote has roll-ups that read the rows before begin anew, and ends notes of
// steps below which nobody has anything left.
func (f *forgetting) renote(ctx context.Context, tx *sql.Tx, step metrics.Step, from, to int64) error {
	above, ok := aboveOf(step)
	if !ok {
		return nil
	}
	_, err := execIn(ctx, tx, `
		UPDATE roll_ups_due SET n = n + 1
		WHERE step = $1 AND at >= $2 AND at < $3`, string(above), from, to)
	if err != nil {
		return err
	}
	_, err = execIn(ctx, tx, `
		DELETE FROM roll_ups_due
		WHERE step = $1 AND at >= $2 AND at < $3 AND NOT EXISTS (
			SELECT 1 FROM `+tableOf("counts", step)+` c
			WHERE c.tenant = $4 AND c.kind = 'total' AND c.at >= roll_ups_due.at AND c.at < roll_ups_due.at + $5)`,
		string(above), from, to, int64(0), int64(above.Duration()/time.Second))
	return err
}

// nodes removes what nodes that counted nobody else wrote of all tenants, such as
// their limiter's time, and their marks.
func (f *forgetting) nodes(ctx context.Context, prefix string) error {
	if prefix == "" {
		return nil
	}
	return f.store.repeat(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := execIn(ctx, tx, `DELETE FROM sketches_minutes WHERE tenant = $1 AND node LIKE $2`, int64(0), prefix+"%")
		if err == nil {
			_, err = execIn(ctx, tx, `DELETE FROM flush_marks WHERE node LIKE $1`, prefix+"%")
		}
		return err
	})
}

// refusals removes those of the tenants in pieces.
func (f *forgetting) refusals(ctx context.Context) error {
	for _, number := range f.numbers {
		for more := true; more; {
			var n int64
			err := f.store.repeat(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
				n, err = execIn(ctx, tx, `
					DELETE FROM recent_refusals
					WHERE tenant = $1 AND id IN (
						SELECT id FROM recent_refusals WHERE tenant = $1 LIMIT $2)`, int64(number), pruneRows)
				return err
			})
			if err != nil {
				return err
			}
			more = n == pruneRows
			f.gone.Refusals += n
		}
	}
	return nil
}
