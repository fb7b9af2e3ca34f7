package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

var (
	_ tenants.Store        = (*Store)(nil)
	_ plans.Store          = (*Store)(nil)
	_ exceptions.Store     = (*Store)(nil)
	_ accounts.PeopleStore = (*Store)(nil)
	_ audit.Store          = (*Store)(nil)
	_ audit.Verifier       = (*Store)(nil)
	_ nodes.Store          = (*Store)(nil)
	_ snapshot.Source      = (*Store)(nil)
)

// Config of a Store.
type Config struct {
	// URL of the database: sqlite://data/h.db (relative), sqlite:///abs/h.db
	// (absolute) or postgres://…. Required.
	URL string
	// Serve means that this process serves checks. On SQLite, Open then takes a
	// lock file, so that no other process serves the same file, and checks the
	// file for damage. The check takes about one second for 100,000 tenants.
	// Default false.
	Serve bool
	// Timeout bounds every method except Changes, which may take twelve times
	// as long. Default 5 s.
	Timeout time.Duration
	// Logger reports lost connections. Default: none.
	Logger *slog.Logger
	// Now returns the time for created, updated and audited times. Default
	// time.Now.
	Now func() time.Time
}

// A Store is a database with the schema of the package migrations. It is safe
// for concurrent use.
type Store struct {
	engine  engine
	writer  *sql.DB
	reader  *sql.DB // the writer too on Postgres
	timeout time.Duration
	log     *slog.Logger
	now     func() time.Time
	refusal refusal
}

// An engine has the differences between the databases.
type engine interface {
	// oneMoment returns the options of a transaction whose reads all see the
	// same state.
	oneMoment() *sql.TxOptions
	// clock returns an SQL expression for the database's own time, in
	// microseconds since the epoch.
	clock() string
	// announce sends the notification that the revision rose, in the edit's
	// transaction. announced is called after the commit.
	announce(ctx context.Context, tx *sql.Tx, revision int64) error
	announced()
	// notify is snapshot.Source.Notify.
	notify(ctx context.Context, changed func()) error
	// lockCounts locks the counts until tx ends: shared for transactions that
	// add counts, exclusive for one that moves the marks.
	lockCounts(ctx context.Context, tx *sql.Tx, shared bool) error
	// fault classifies a driver's error.
	fault(err error) (f fault, constraint string)
	// migrations returns the steps and a driver with its own connection, which
	// the driver's Close closes.
	migrations() (steps fs.FS, folder string, driver database.Driver, err error)
	// lockMigrations prevents other processes from migrating until unlock is
	// called.
	lockMigrations(ctx context.Context) (unlock func(), err error)
	// hasTable reports whether the database has a table of that name.
	hasTable(ctx context.Context, name string) (bool, error)
	close() error
}

// Open connects to the database. It neither reads nor changes the schema: see
// Migrate. If a Postgres server is unavailable, the error has the kind
// problem.Unavailable, and a retry may help. All other errors need a person.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{timeout: c.Timeout, log: c.Logger, now: c.Now}
	s.timeout = cmp.Or(s.timeout, 5*time.Second)
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	if s.now == nil {
		s.now = time.Now
	}
	scheme, _, _ := strings.Cut(c.URL, ":")
	var err error
	switch scheme {
	case "sqlite":
		err = s.openSQLite(ctx, c.URL, c.Serve)
	case "postgres", "postgresql":
		err = s.openPostgres(ctx, c.URL)
	default:
		return nil, errors.New("the database url begins with neither sqlite:// nor postgres://")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes all connections and releases locks. No method may be running.
func (s *Store) Close() error { return s.engine.close() }

// Notify runs until ctx ends and calls changed when the database reports that
// the revision rose: on Postgres by LISTEN, also for edits of other nodes; on
// SQLite after edits of this process. Some calls may be lost.
func (s *Store) Notify(ctx context.Context, changed func()) error {
	return s.engine.notify(ctx, changed)
}

// read runs fn within the timeout of a method. It runs fn again if the
// connection was lost.
func (s *Store) read(ctx context.Context, fn func(context.Context) error) error {
	return s.readWithin(ctx, s.timeout, fn)
}

func (s *Store) readWithin(ctx context.Context, most time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := fn(ctx)
	if f, _ := s.engine.fault(err); f == faultAway && ctx.Err() == nil {
		err = fn(ctx)
	}
	return err
}

// stored returns a time in the precision of the databases.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// nullable returns a time for a column that is NULL for the zero time.
func nullable(t time.Time) sql.NullTime {
	return sql.NullTime{Time: stored(t), Valid: !t.IsZero()}
}

// instant returns the time of a column that may be NULL.
func instant(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// A row is a *sql.Row or a *sql.Rows.
type row interface{ Scan(dest ...any) error }

// collect scans all rows and closes them.
func collect[T any](rows *sql.Rows, err error, scan func(row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// scanValue scans a row of one column.
func scanValue[T any](r row) (T, error) {
	var v T
	err := r.Scan(&v)
	return v, err
}

// queryAll returns all rows of a query. It reads outside of any transaction.
func queryAll[T any](ctx context.Context, s *Store, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	var list []T
	err := s.read(ctx, func(ctx context.Context) error {
		rows, err := s.reader.QueryContext(ctx, query, args...)
		list, err = collect(rows, err, scan)
		return err
	})
	return list, err
}

// queryOne returns the one row of a query. Without one the error is NotFound, with
// what as the name of the object, or sql.ErrNoRows if what is "". It reads outside
// of any transaction.
func queryOne[T any](ctx context.Context, s *Store, what string, scan func(row) (T, error), query string, args ...any) (T, error) {
	var v T
	err := s.read(ctx, func(ctx context.Context) (err error) {
		v, err = scan(s.reader.QueryRowContext(ctx, query, args...))
		if what != "" {
			err = missing(err, what)
		}
		return err
	})
	return v, err
}

// A page selects rows of a listing: at most limit rows of a table, or the default
// number if limit is 0.
type page struct {
	columns, table string
	where          filter
	order          string
	limit          int
}

// queryPage returns the rows of a page.
func queryPage[T any](ctx context.Context, s *Store, scan func(row) (T, error), p page) ([]T, error) {
	query := `SELECT ` + p.columns + ` FROM ` + p.table + ` ` + p.where.where() + ` ORDER BY ` + p.order + ` ` + p.where.limit(p.limit)
	return queryAll(ctx, s, scan, query, p.where.args...)
}

// A filter collects the conditions of a WHERE clause.
type filter struct {
	conditions []string
	args       []any
}

// and adds a condition that has a ? for each of args.
func (f *filter) and(condition string, args ...any) {
	for _, arg := range args {
		f.args = append(f.args, arg)
		condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(f.args)), 1)
	}
	f.conditions = append(f.conditions, condition)
}

// tenant restricts a reading to the rows of one tenant, or of the operator if id
// is "". Postgres uses an index for these conditions, but not for IS NOT DISTINCT
// FROM.
func (f *filter) tenant(id string) {
	if id == "" {
		f.conditions = append(f.conditions, `tenant_id IS NULL`)
		return
	}
	f.and(`tenant_id = ?`, id)
}

// where returns the WHERE clause, or "" without conditions.
func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(f.conditions, " AND ")
}

// limit returns a LIMIT clause: of n rows, or of the default page if n is 0.
func (f *filter) limit(n int) string {
	const usual = 100
	if n <= 0 {
		n = usual
	}
	f.args = append(f.args, n)
	return fmt.Sprintf("LIMIT $%d", len(f.args))
}

// contains returns a LIKE pattern, with ESCAPE '\', for a text anywhere in a
// column in lower case.
func contains(text string) string { return "%" + escaped(strings.ToLower(text)) + "%" }

// escaped returns a LIKE pattern, with ESCAPE '\', that matches only the text
// itself.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// searchText returns the text in which contains searches.
func searchText(slug, name string) string { return strings.ToLower(slug + "\n" + name) }
