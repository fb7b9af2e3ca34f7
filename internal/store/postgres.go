package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/migrations"
)

// channel is the name of the Postgres channel (LISTEN and NOTIFY) on which each edit is announced.
const channel = "headgate_revision"

// postgresEngine is the engine for Postgres.
type postgresEngine struct {
	pool *pgxpool.Pool
	db   *sql.DB // uses the connections of pool
	log  *slog.Logger
}

// openPostgres opens a connection pool and checks that the server responds. Parameters in the
// URL replace the defaults that this function sets.
func (s *Store) openPostgres(ctx context.Context, address string, reread func() (string, error)) error {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		// The original error may contain the password, so the new error does not include it.
		return errors.New("the database url cannot be read: it should be postgres://user:password@host:5432/database")
	}
	setDefault(config, "application_name", "headgate")
	// lock_timeout is shorter than the timeout of the caller, so that the caller gets Postgres's
	// error about the lock. statement_timeout is longer. It ends statements whose client has
	// disconnected.
	setDefault(config, "lock_timeout", milliseconds(s.timeout*4/5))
	setDefault(config, "statement_timeout", milliseconds(12*s.timeout))
	setDefault(config, "idle_in_transaction_session_timeout", milliseconds(12*s.timeout))
	if !strings.Contains(address, "pool_max_conns") {
		config.MaxConns = 10
	}
	if !strings.Contains(address, "connect_timeout") {
		config.ConnConfig.ConnectTimeout = s.timeout
	}
	if reread != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { return setCredentials(c, reread) }
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	e := &postgresEngine{pool: pool, db: stdlib.OpenDBFromPool(pool), log: s.log}
	s.engine, s.writer, s.reader = e, e.db, e.db
	err = s.read(ctx, pool.Ping)
	if err != nil {
		_ = e.close()
	}
	return s.fail(err, "connect to %s:%d", config.ConnConfig.Host, config.ConnConfig.Port)
}

// setCredentials sets the user and the password of a new connection. It takes both from the URL
// that reread returns.
func setCredentials(c *pgx.ConnConfig, reread func() (string, error)) error {
	address, err := reread()
	if err != nil {
		return fmt.Errorf("read the database's password again: %w", err)
	}
	now, err := pgx.ParseConfig(address)
	if err != nil {
		return errors.New("the database url was changed and cannot be read: it should be postgres://user:password@host:5432/database")
	}
	c.User, c.Password = now.User, now.Password
	return nil
}

func setDefault(c *pgxpool.Config, name, value string) {
	if _, ok := c.ConnConfig.RuntimeParams[name]; !ok {
		c.ConnConfig.RuntimeParams[name] = value
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

func (e *postgresEngine) close() error {
	err := e.db.Close()
	e.pool.Close()
	return err
}

func (e *postgresEngine) oneMoment() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}

// clock returns the SQL expression for the current time. It does not use now(), because now()
// returns the time at which the transaction began.
func (e *postgresEngine) clock() string {
	return `CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)`
}

func (e *postgresEngine) version() string { return `current_setting('server_version')` }

// announce sends the notification about an edit. Postgres delivers it when the transaction commits.
func (e *postgresEngine) announce(ctx context.Context, tx *sql.Tx, revision int64) error {
	_, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, strconv.FormatInt(revision, 10))
	return err
}

func (e *postgresEngine) announced() {}

// notify listens for notifications on a separate connection, and connects again after a lost
// connection. It calls changed for each notification. It also calls changed after each connect,
// because notifications may have been missed before.
func (e *postgresEngine) notify(ctx context.Context, changed func()) error {
	retries := retry.Backoff{First: 500 * time.Millisecond, Longest: 30 * time.Second}
	for ctx.Err() == nil {
		err := e.listen(ctx, func() {
			retries.Reset()
			changed()
		})
		if wait := retries.Next(); ctx.Err() == nil {
			e.log.WarnContext(ctx, "not listening to the database; it is polled meanwhile", "error", err, "retry", wait)
			_ = retry.Wait(ctx, wait)
		}
	}
	return nil
}

// listen connects to the database and waits for notifications until the connection fails. It
// calls changed when it has started to listen, and then for each notification.
func (e *postgresEngine) listen(ctx context.Context, changed func()) error {
	config := e.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // the connection is not used again, even if Close returns an error
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		changed()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// countsLock is the number of the advisory lock for the tables of counts.
const countsLock = 0x6865616467617465

// lockCounts acquires an advisory lock until tx ends. If shared is true, other transactions can
// hold a shared lock at the same time. Unlike a lock of a row, an advisory lock causes no disk
// write.
func (e *postgresEngine) lockCounts(ctx context.Context, tx *sql.Tx, shared bool) error {
	lock := `SELECT pg_advisory_xact_lock($1)`
	if shared {
		lock = `SELECT pg_advisory_xact_lock_shared($1)`
	}
	_, err := tx.ExecContext(ctx, lock, int64(countsLock))
	return err
}

// sqlStates maps error codes of Postgres to faults. A key of two characters stands for all codes
// that begin with these characters.
var sqlStates = map[string]fault{
	"08":    faultAway,      // connection exception
	"57P01": faultAway,      // admin shutdown
	"57P02": faultAway,      // crash shutdown
	"57P03": faultAway,      // cannot connect now: starting up
	"53300": faultAway,      // too many connections
	"53":    faultBusy,      // insufficient resources
	"53100": faultFull,      // disk full
	"40001": faultAgain,     // serialization failure
	"40P01": faultAgain,     // deadlock
	"55P03": faultBusy,      // lock not available
	"57014": faultBusy,      // canceled: statement time-out
	"25006": faultReadOnly,  // read-only transaction: a standby
	"42501": faultForbidden, // insufficient privilege
	"25P03": faultAway,      // idle in transaction
	"23505": faultUnique,    // unique violation
	"23503": faultReference, // foreign key violation
	"23001": faultReference, // restrict violation
	"23514": faultCheck,     // check violation
	"23502": faultCheck,     // not null violation
	"22":    faultCheck,     // data exceptions, such as a number out of range or a NUL in a text
}

func (e *postgresEngine) fault(err error) (fault, string) {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		f, ok := sqlStates[refused.Code]
		if !ok && len(refused.Code) == 5 {
			f = sqlStates[refused.Code[:2]]
		}
		return f, refused.ConstraintName
	}
	var connecting *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return faultOther, ""
	case errors.As(err, &connecting), errors.As(err, &network), pgconn.SafeToRetry(err),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, sql.ErrConnDone):
		return faultAway, ""
	}
	return faultOther, ""
}

// migrations returns the files of the migrations, their folder, and a migration driver. The
// driver has its own connection without timeouts. Close of the driver closes the connection.
func (e *postgresEngine) migrations() (fs.FS, string, database.Driver, error) {
	config := e.pool.Config().ConnConfig
	for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
		config.RuntimeParams[name] = "0"
	}
	db := stdlib.OpenDB(*config)
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{})
	if err != nil {
		db.Close()
		return nil, "", nil, err
	}
	return migrations.Postgres, "postgres", driver, nil
}

// lockMigrations does nothing, because golang-migrate itself locks the database with an advisory
// lock.
func (e *postgresEngine) lockMigrations(context.Context) (unlock func(), err error) {
	return func() {}, nil
}

func (e *postgresEngine) hasTable(ctx context.Context, name string) (bool, error) {
	var has bool
	err := e.db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&has)
	return has, err
}
