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

// Config configures a Store.
type Config struct {
	// URL is the address of the database: sqlite://data/h.db (relative path), sqlite:///abs/h.db (absolute path) or
	// postgres://…. Required.
	URL string
	// Reread returns the URL with the current user and password. The store calls it for each new
	// connection to Postgres, possibly concurrently. Default: the user and password in URL.
	Reread func() (string, error)
	// Serve says that this process serves checks. With SQLite, Open then locks a file, so that no
	// other process serves the same database, and checks the database for damage, which takes about
	// one second for 100,000 tenants. Default: false.
	Serve bool
	// Timeout is the maximum duration of each method call. Changes, Exceptions, Prune, RollUp
	// and Together may take twelve times as long. Default: 5 s.
	Timeout time.Duration
	// Logger logs lost connections. Default: no logging.
	Logger *slog.Logger
	// Now returns the current time. Edits store it as the time of the change. Default: time.Now.
	Now func() time.Time
}

// A Store is a connection to a database that has the schema of the package migrations. It is safe for concurrent use.
type Store struct {
	engine  engine
	writer  *sql.DB
	reader  *sql.DB // on Postgres the same pool as writer
	timeout time.Duration
	log     *slog.Logger
	now     func() time.Time
	refusal refusal
}

// An engine contains the differences between Postgres and SQLite.
type engine interface {
	// oneMoment returns the options of a read-only transaction whose queries all see the same state
	// of the database.
	oneMoment() *sql.TxOptions
	// clock returns an SQL expression for the current time of the database, in microseconds since the epoch.
	clock() string
	// version returns an SQL expression for the version of the server or the library.
	version() string
	// announce sends the notification about an edit, within its transaction tx. The store calls
	// announced after the commit.
	announce(ctx context.Context, tx *sql.Tx, revision int64) error
	announced()
	// notify implements snapshot.Source.Notify.
	notify(ctx context.Context, changed func()) error
	// lockCounts locks the tables of counts until tx ends. Transactions that add counts use a
	// shared lock. The transaction that raises the times before which rows are deleted (see
	// giveUp) uses an exclusive lock.
	lockCounts(ctx context.Context, tx *sql.Tx, shared bool) error
	// fault returns the class of a driver's error, and the name of the violated constraint if the
	// error has one.
	fault(err error) (f fault, constraint string)
	// migrations returns the files of the migrations, their folder, and a migration driver. The
	// driver has a connection of its own. Close of the driver closes the connection.
	migrations() (steps fs.FS, folder string, driver database.Driver, err error)
	// lockMigrations prevents other processes from migrating until unlock is called.
	lockMigrations(ctx context.Context) (unlock func(), err error)
	// hasTable reports whether the database has a table with this name.
	hasTable(ctx context.Context, name string) (bool, error)
	close() error
}

// Open connects to the database. It does not create or change tables; Migrate does. If the error
// has the kind problem.Unavailable, the Postgres server was not reachable, and the caller may try
// again. After any other error, an operator must change the configuration or repair the database.
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
		err = s.openPostgres(ctx, c.URL, c.Reread)
	default:
		return nil, errors.New("the database url begins with neither sqlite:// nor postgres://")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes all connections and releases the lock files. The caller must wait for all other
// methods first.
func (s *Store) Close() error { return s.engine.close() }

// Notify calls changed after edits until ctx ends. On Postgres, it calls changed for the edits
// of all nodes (LISTEN). On SQLite, it does so only for the edits of this process.
// Notifications can be lost, so callers must also poll Revision.
func (s *Store) Notify(ctx context.Context, changed func()) error {
	return s.engine.notify(ctx, changed)
}

// read calls fn with the store's timeout. If the connection is lost, read calls fn once more
// within the same timeout.
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

// stored rounds a time down to microseconds, the precision of the databases.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// nullable returns the value for a column that is NULL if the time is zero.
func nullable(t time.Time) sql.NullTime {
	return sql.NullTime{Time: stored(t), Valid: !t.IsZero()}
}

// instant returns the time in a column that may be NULL. For NULL it returns the zero time.
func instant(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// A row is a row of a query result: a *sql.Row or the current row of a *sql.Rows.
type row interface{ Scan(dest ...any) error }

// collect scans all rows into a list and closes rows. err is the error of the query that returned
// rows. If err is not nil, collect returns it.
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

// queryAll runs a query and returns all its rows. Within Together, the query runs in the
// transaction of Together.
func queryAll[T any](ctx context.Context, s *Store, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	var list []T
	err := s.read(ctx, func(ctx context.Context) error {
		rows, err := s.from(ctx).QueryContext(ctx, query, args...)
		list, err = collect(rows, err, scan)
		return err
	})
	return list, err
}

// queryOne runs a query and returns its only row. Within Together, the query runs in the
// transaction of Together. If there is no row, the error is problem.NotFound, and its message
// contains what as the name of the missing object. If what is "", the error is sql.ErrNoRows
// instead.
func queryOne[T any](ctx context.Context, s *Store, what string, scan func(row) (T, error), query string, args ...any) (T, error) {
	var v T
	err := s.read(ctx, func(ctx context.Context) (err error) {
		v, err = scan(s.from(ctx).QueryRowContext(ctx, query, args...))
		if what != "" {
			err = missing(err, what)
		}
		return err
	})
	return v, err
}

// A page describes a list query: columns, table, conditions, order, and the maximum number of rows.
// The maximum 0 stands for the default number.
type page struct {
	columns, table string
	where          filter
	order          string
	limit          int
}

// queryPage runs the list query p and returns its rows.
func queryPage[T any](ctx context.Context, s *Store, scan func(row) (T, error), p page) ([]T, error) {
	query := `SELECT ` + p.columns + ` FROM ` + p.table + ` ` + p.where.where() + ` ORDER BY ` + p.order + ` ` + p.where.limit(p.limit)
	return queryAll(ctx, s, scan, query, p.where.args...)
}

// A filter collects the conditions and the arguments of a WHERE clause.
type filter struct {
	conditions []string
	args       []any
}

// and adds a condition to the filter. The condition contains one ? for each element of args.
func (f *filter) and(condition string, args ...any) {
	for _, arg := range args {
		f.args = append(f.args, arg)
		condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(f.args)), 1)
	}
	f.conditions = append(f.conditions, condition)
}

// tenant adds the condition that a row belongs to the tenant with the given ID, or to the operator
// if id is "". The condition does not use the SQL operator IS NOT DISTINCT FROM, because Postgres
// does not use an index for this operator.
func (f *filter) tenant(id string) {
	if id == "" {
		f.conditions = append(f.conditions, `tenant_id IS NULL`)
		return
	}
	f.and(`tenant_id = ?`, id)
}

// where returns the WHERE clause, or "" if the filter has no conditions.
func (f *filter) where() string {
	if len(f.conditions) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(f.conditions, " AND ")
}

// limit returns a LIMIT clause with n rows, or with the default number if n is 0.
func (f *filter) limit(n int) string {
	const usual = 100
	if n <= 0 {
		n = usual
	}
	f.args = append(f.args, n)
	return fmt.Sprintf("LIMIT $%d", len(f.args))
}

// contains returns a LIKE pattern for ESCAPE '\'. The pattern matches a column that contains
// the text anywhere. The column must be in lower case; the text may be in any case.
func contains(text string) string { return "%" + escaped(strings.ToLower(text)) + "%" }

// escaped returns a LIKE pattern for ESCAPE '\' that matches only the text itself.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// searchText returns the text that is stored with an object for the search in lists: its slug and
// name in lower case.
func searchText(slug, name string) string { return strings.ToLower(slug + "\n" + name) }
