package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// Kept says which rows of counts still exist, and which roll-ups are due on the days of [from, to).
// One SQL query reads both facts, so that they belong to the same moment.
func (s *Store) Kept(ctx context.Context, from, to int64) (metrics.Kept, error) {
	type line struct {
		due  bool
		step metrics.Step
		at   int64
	}
	scan := func(r row) (l line, err error) { err = r.Scan(&l.due, &l.step, &l.at); return l, err }
	list, err := queryAll(ctx, s, scan, `
		SELECT 0, step, before FROM pruned
		UNION ALL
		SELECT 1, step, at FROM roll_ups_due
		WHERE step IN ('hour', 'day') AND at >= $1 AND at < $2`, floor(from, metrics.Day), dayAfter(to))
	var k metrics.Kept
	for _, l := range list {
		switch {
		case l.due:
			k.Due = append(k.Due, metrics.RollUp{Step: l.step, At: l.at})
		case l.step == metrics.Minute:
			k.Minutes = l.at
		case l.step == metrics.Hour:
			k.Hours = l.at
		}
	}
	return k, s.fail(err, "read which counts are kept")
}

// dayAfter returns the first start of a day that is at or after the time at. Both times are Unix
// seconds.
func dayAfter(at int64) int64 {
	return floor(at+int64(metrics.Day.Duration()/time.Second)-1, metrics.Day)
}

// Mark returns a value that changes whenever AddCounts adds a batch. To compute it, Mark reads
// one row for each process that added a batch in the last 30 days.
func (s *Store) Mark(ctx context.Context) (m metrics.Mark, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		return s.reader.QueryRowContext(ctx, `
			SELECT count(*), CAST(coalesce(sum(seq), 0) AS BIGINT), CAST(coalesce(sum(at), 0) AS BIGINT)
			FROM flush_marks`).Scan(&m.Nodes, &m.Batches, &m.Times)
	})
	return m, s.fail(err, "read the mark of the counts")
}

// Counts returns the rows of the step q.Step that match q, newest first.
func (s *Store) Counts(ctx context.Context, q metrics.CountQuery) ([]metrics.CountRow, error) {
	where, err := countsWhere(q)
	if err != nil {
		return nil, err
	}
	query := `
		SELECT at, tenant, kind, name, ` + strings.Join(countFields(q), ", ") + `
		FROM ` + tableOf("counts", q.Step) + ` ` + where.where() + `
		ORDER BY at DESC, name DESC`
	return s.countRows(ctx, query, where, q)
}

// SumCounts adds up the rows that match q. It returns one row for each pair of tenant and name. The
// name is the name of a policy or of a route, as q selects. The field At of each row is q.From.
func (s *Store) SumCounts(ctx context.Context, q metrics.CountQuery) ([]metrics.CountRow, error) {
	where, err := countsWhere(q)
	if err != nil {
		return nil, err
	}
	fields := countFields(q)
	sums := make([]string, len(fields))
	for i, c := range fields {
		sums[i] = "CAST(sum(" + c + ") AS BIGINT) AS " + c
	}
	order := ""
	if slices.Contains(fields, "requests") {
		order = "requests DESC, "
	}
	where.args = append(where.args, q.From)
	query := fmt.Sprintf(`
		SELECT CAST($%d AS BIGINT), tenant, kind, name, `, len(where.args)) + strings.Join(sums, ", ") + `
		FROM ` + tableOf("counts", q.Step) + ` ` + where.where() + `
		GROUP BY tenant, kind, name
		ORDER BY ` + order + `tenant, name`
	return s.countRows(ctx, query, where, q)
}

// countFields returns the names of the columns of counts that q selects.
func countFields(q metrics.CountQuery) []string {
	if len(q.Fields) == 0 {
		return metrics.Columns
	}
	return q.Fields
}

func (s *Store) countRows(ctx context.Context, query string, where filter, q metrics.CountQuery) ([]metrics.CountRow, error) {
	if q.Limit > 0 {
		query += " " + where.limit(q.Limit)
	}
	list, err := queryAll(ctx, s, countScanner(countFields(q)), query, where.args...)
	return list, s.fail(err, "read counts")
}

// countScanner returns a function that scans a row of counts. To save allocations, the function
// reuses the scan targets for all rows and returns a copy of the result.
func countScanner(fields []string) func(row) (metrics.CountRow, error) {
	var c metrics.CountRow
	into, _ := c.FieldsOf(fields) // countsWhere has checked the names
	into = append([]any{&c.At, &c.Tenant, &c.Kind, &c.Name}, into...)
	return func(r row) (metrics.CountRow, error) {
		err := r.Scan(into...)
		return c, err
	}
}

func countsWhere(q metrics.CountQuery) (where filter, err error) {
	if !slices.Contains(levels[:], q.Step) {
		return where, fmt.Errorf("there are no counts by %q", q.Step)
	}
	if _, known := new(metrics.Counts).FieldsOf(q.Fields); !known {
		return where, fmt.Errorf("%q contains a name that is no column of counts", q.Fields)
	}
	if len(q.Tenants) == 0 {
		where.and(`tenant = ?`, int64(q.Tenant))
	} else {
		anyOf(&where, "tenant", q.Tenants, func(n uint32) any { return int64(n) })
	}
	where.and(`kind = ?`, string(q.Kind))
	where.and(`at >= ? AND at < ?`, q.From, q.To)
	if len(q.Names) > 0 {
		anyOf(&where, "name", q.Names, func(n string) any { return n })
	}
	return where, nil
}

// anyOf adds the condition that the column has one of the values. arg converts each value to an
// argument of the statement.
func anyOf[T any](f *filter, column string, values []T, arg func(T) any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = arg(v)
	}
	f.and(column+" IN ("+strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ")+")", args...)
}

// Sketches returns the sketches that match q, oldest first.
func (s *Store) Sketches(ctx context.Context, q metrics.SketchQuery) ([]metrics.SketchRow, error) {
	if !slices.Contains(levels[:], q.Step) {
		return nil, fmt.Errorf("there are no sketches by %q", q.Step)
	}
	var where filter
	where.and(`tenant = ? AND name = ?`, int64(q.Tenant), q.Name)
	where.and(`at >= ? AND at < ?`, q.From, q.To)
	query := `
		SELECT at, tenant, name, node, doc
		FROM ` + tableOf("sketches", q.Step) + ` ` + where.where() + `
		ORDER BY at, node`
	if q.Limit > 0 {
		query += " " + where.limit(q.Limit)
	}
	scan := func(r row) (k metrics.SketchRow, err error) {
		err = r.Scan(&k.At, &k.Tenant, &k.Name, &k.Node, &k.Doc)
		return k, err
	}
	list, err := queryAll(ctx, s, scan, query, where.args...)
	return list, s.fail(err, "read sketches")
}

// A refusalRow is a row with a kept denial or a kept allowed request. The JSON document in the row
// is not decoded yet.
type refusalRow struct {
	id     []byte
	tenant uint32
	doc    string
}

const refusalColumns = "id, tenant, doc"

func scanRefusal(r row) (f refusalRow, err error) { return f, r.Scan(&f.id, &f.tenant, &f.doc) }

// refusal decodes the document of a kept denial. It returns an error if the document has members
// that this release does not know, because an explanation that ignores such a member might be
// wrong.
func (f *refusalRow) refusal() (r metrics.Refusal, err error) {
	if err := readJSON(f.doc, &r); err != nil {
		return metrics.Refusal{}, err
	}
	if string(r.ID[:]) != string(f.id) || r.Tenant != f.tenant {
		return metrics.Refusal{}, errors.New("the document is of another decision or tenant than its row")
	}
	r.At = r.At.UTC()
	return r, nil
}

// Refusal returns a kept decision by its ID. The error is problem.NotFound if the decision is
// not kept, or if tenant is not 0 and the decision belongs to another tenant.
func (s *Store) Refusal(ctx context.Context, id [16]byte, tenant uint32) (metrics.Refusal, error) {
	var where filter
	where.and(`id = ?`, id[:])
	if tenant != 0 {
		where.and(`tenant = ?`, int64(tenant))
	}
	query := `
		SELECT ` + refusalColumns + `
		FROM ` + deniedTable + ` ` + where.where() + `
		UNION ALL
		SELECT ` + refusalColumns + `
		FROM ` + allowedTable + ` ` + where.where()
	found, err := queryOne(ctx, s, "", scanRefusal, query, where.args...)
	var r metrics.Refusal
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = problem.New(problem.NotFound, "no kept decision has this id")
	case err == nil:
		r, err = found.refusal()
	}
	return r, s.fail(err, "read the refusal %x", id)
}

const (
	refusalsUsual = 100
	// refusalsLooked is the maximum number of rows that one call of Refusals decodes. Refusals
	// decodes many rows if the filter has a condition that is not on a column. It must then decode
	// each row to check whether the row matches.
	refusalsLooked = 5000
	refusalsPiece  = 500
)

// Refusals returns the stored denials and sampled allowed decisions that match f, newest first.
// Refusals leaves out rows that it cannot decode, and logs one line about all such rows together.
func (s *Store) Refusals(ctx context.Context, f metrics.RefusalFilter) ([]metrics.Refusal, error) {
	if f.Limit <= 0 {
		f.Limit = refusalsUsual
	}
	piece := f.Limit
	if len(f.Attributes) > 0 || f.Degraded || f.RetryAfter != nil || f.Policy != "" && mayBeAllowed(f.Outcome) {
		piece = max(piece, refusalsPiece)
	}
	list := []metrics.Refusal{}
	var broken []error
	for looked := 0; len(list) < f.Limit && looked < refusalsLooked; looked += piece {
		found, err := s.refusalRows(ctx, f, piece)
		if err != nil {
			return nil, s.fail(err, "list refusals")
		}
		for i := range found {
			r, err := found[i].refusal()
			switch {
			case err != nil:
				broken = append(broken, fmt.Errorf("refusal %x: %w", found[i].id, err))
			case len(list) < f.Limit && (r.Degraded || !f.Degraded) && retriesIn(&r, f.RetryAfter) && hasAttributes(&r, f.Attributes) &&
				concerns(&r, f.Policy):
				list = append(list, r)
			}
		}
		if len(found) < piece {
			break
		}
		f.Before = [16]byte(found[len(found)-1].id)
	}
	if len(broken) > 0 {
		s.log.ErrorContext(ctx, "kept refusals cannot be read; they are left out", "rows", len(broken), "first", broken[0])
	}
	return list, nil
}

// mayBeAllowed reports whether the filter by outcome selects allowed requests.
func mayBeAllowed(o metrics.Outcome) bool {
	return o == metrics.OutcomeAllowed || o == metrics.OutcomeAny
}

// concerns reports whether a kept decision matches the filter by policy: the policy denied the
// request, or applied to the allowed request. An empty filter matches every decision.
func concerns(r *metrics.Refusal, policy string) bool {
	if policy == "" || !r.Allowed {
		return policy == "" || r.Policy == policy
	}
	return slices.ContainsFunc(r.Policies, func(p metrics.RefusalPolicy) bool { return p.Policy == policy && p.Applies })
}

// refusalRows returns the newest rows that match the conditions of f on columns. It runs one query
// for each table and reason. The index contains the rows of one reason in the order of their IDs,
// so each query reads only the first rows. One query for all reasons would have to sort every row.
func (s *Store) refusalRows(ctx context.Context, f metrics.RefusalFilter, limit int) (list []refusalRow, err error) {
	tables := []string{deniedTable}
	switch f.Outcome {
	case metrics.OutcomeAllowed:
		tables = []string{allowedTable}
	case metrics.OutcomeAny:
		tables = append(tables, allowedTable)
	}
	reasons := slices.Compact(slices.Sorted(slices.Values(f.Reasons)))
	if len(reasons) == 0 {
		reasons = []enforcement.Reason{f.Reason}
	}
	for _, table := range tables {
		for _, reason := range reasons {
			if f.Reason != "" && f.Reason != reason {
				continue
			}
			rows, err := s.refusalRowsFor(ctx, table, f, reason, limit)
			if err != nil {
				return nil, err
			}
			list = append(list, rows...)
		}
	}
	slices.SortFunc(list, func(a, b refusalRow) int { return bytes.Compare(b.id, a.id) })
	return list[:min(limit, len(list))], nil
}

// retriesIn reports whether the retry time of a denial is in the range wait, as
// metrics.RefusalFilter.RetryAfter defines it.
func retriesIn(r *metrics.Refusal, wait *metrics.Bucket) bool {
	switch {
	case wait == nil:
		return true
	case wait.To == enforcement.Never || r.RetryAfterMS == enforcement.Never:
		return wait.To == r.RetryAfterMS
	}
	return r.RetryAfterMS > wait.From && r.RetryAfterMS <= wait.To
}

func hasAttributes(r *metrics.Refusal, asked []enforcement.Attribute) bool {
	for _, a := range asked {
		if !slices.ContainsFunc(r.Attributes, func(has enforcement.Attribute) bool { return has == a || within(has, a) }) {
			return false
		}
	}
	return true
}

// within reports whether asked is an IP network, and has is an IP address in this network.
func within(has, asked enforcement.Attribute) bool {
	if has.Name != "ip" || asked.Name != "ip" || !strings.Contains(asked.Value, "/") {
		return false
	}
	network, err := netip.ParsePrefix(asked.Value)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(has.Value)
	return err == nil && network.Contains(address)
}

// refusalRowsFor returns the newest rows of a table that have the given reason and match the
// conditions of f on columns. If the reason is "", rows of every reason match.
func (s *Store) refusalRowsFor(
	ctx context.Context, table string, f metrics.RefusalFilter, reason enforcement.Reason, limit int,
) (list []refusalRow, err error) {
	var where filter
	if f.Tenant != 0 {
		where.and(`tenant = ?`, int64(f.Tenant))
	}
	if f.Policy != "" && table == deniedTable { // several policies apply to an allowed request, and the column contains only one of them
		where.and(`policy = ?`, f.Policy)
	}
	if f.Route != "" {
		where.and(`route = ?`, f.Route)
	}
	if reason != "" {
		where.and(`reason = ?`, string(reason))
	}
	if !f.From.IsZero() {
		where.and(`at_us >= ?`, f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		where.and(`at_us < ?`, f.To.UnixMicro())
	}
	if f.Before != [16]byte{} {
		where.and(`id < ?`, f.Before[:])
	}
	if f.After != [16]byte{} {
		where.and(`id > ?`, f.After[:])
	}
	return queryPage(ctx, s, scanRefusal, page{refusalColumns, table, where, `id DESC`, limit})
}
