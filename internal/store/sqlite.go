package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/migrations"
)

// sqliteEngine is the engine for a SQLite file. One connection writes and the others read. The file
// is in WAL mode, so readers and the writer do not wait for each other.
type sqliteEngine struct {
	path           string
	writer, reader *sql.DB
	serving        *lockFile // nil if this process does not serve checks

	mu       sync.Mutex
	watchers map[chan struct{}]bool // each channel has room for one notification
}

// openSQLite opens the database file. It creates the file and its folder if they do not exist.
func (s *Store) openSQLite(ctx context.Context, address string, serve bool) (err error) {
	path, err := SQLitePath(address)
	if err != nil {
		return err
	}
	if err := makeFile(path); err != nil {
		return err
	}
	e := &sqliteEngine{path: path, watchers: make(map[chan struct{}]bool)}
	defer func() {
		if err != nil {
			_ = e.close() // err is more useful than an error of close
		}
	}()
	if serve {
		if e.serving, err = lockServing(path); err != nil {
			return err
		}
	}
	// To switch a file to WAL mode, SQLite needs exclusive access to the file. If another process
	// uses the file, SQLite returns an error instead of waiting. Therefore this lock lets only one
	// process at a time switch it.
	unlock, err := e.lockMigrations(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if e.writer, err = openFile(ctx, path, s.timeout, "_txlock=immediate", "_pragma=journal_mode(WAL)"); err != nil {
		return err
	}
	e.writer.SetMaxOpenConns(1)
	if e.reader, err = openFile(ctx, path, s.timeout, "_pragma=query_only(1)"); err != nil {
		return err
	}
	readers := max(4, runtime.GOMAXPROCS(0))
	e.reader.SetMaxOpenConns(readers)
	e.reader.SetMaxIdleConns(readers)
	if serve {
		if err := e.look(ctx); err != nil {
			return err
		}
	}
	s.engine, s.writer, s.reader = e, e.writer, e.reader
	return nil
}

// look runs a quick check of the file. It returns an error if the file is damaged, because serving
// a damaged file could increase the damage.
func (e *sqliteEngine) look(ctx context.Context) error {
	var verdict string
	if err := e.reader.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return fmt.Errorf("the database %s is damaged: restore a backup: %w", e.path, err)
	}
	if verdict != "ok" {
		verdict, _, _ = strings.Cut(strings.ReplaceAll(verdict, "***", ""), "\n")
		return fmt.Errorf("the database %s is damaged: restore a backup: %s", e.path, strings.TrimSpace(verdict))
	}
	return nil
}

// SQLitePath returns the path of the database file that a URL names. The URL is like
// sqlite://data/h.db (relative path) or sqlite:///abs/h.db (absolute path).
func SQLitePath(address string) (string, error) {
	escaped, ok := strings.CutPrefix(address, "sqlite://")
	path, err := url.PathUnescape(escaped)
	switch {
	case !ok || err != nil || path == "" || strings.HasSuffix(path, "/"):
		return "", fmt.Errorf("the database url %q is not of the form sqlite://folder/file.db or sqlite:///folder/file.db", address)
	case strings.Contains(escaped, "?"):
		return "", fmt.Errorf("the database url %q has options: sqlite takes none", address)
	case path == ":memory:":
		return "", errors.New("sqlite://:memory: is not supported: name a file")
	}
	return filepath.FromSlash(path), nil
}

// SQLiteFiles returns the names, without folder, of all files that belong to the SQLite database
// file at path.
func SQLiteFiles(path string) []string {
	name := filepath.Base(path)
	return []string{name, name + "-wal", name + "-shm", name + "-journal", name + ".migrate.lock", name + ".serve.lock"}
}

// DeleteSQLite deletes all files of a SQLite database. It returns an error if a process serves the database.
func DeleteSQLite(path string) error {
	lock, err := lockServing(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range SQLiteFiles(path) {
		if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, lock.unlock())...)
}

// makeFile creates the folder and an empty file that only the owner can read. If the file exists,
// it changes nothing.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of the database: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	return f.Close()
}

// openFile opens a pool of connections to the file and runs a test query. busy is how long a
// statement waits for a lock of the file. openFile sets synchronous to FULL, because with
// NORMAL a power failure could lose committed edits. Times are stored in microseconds.
func openFile(ctx context.Context, path string, busy time.Duration, options ...string) (*sql.DB, error) {
	options = append(options,
		"_time_integer_format=unix_micro", "_inttotime=1", "_dqs=0",
		"_pragma=foreign_keys(1)", "_pragma=synchronous(FULL)",
		fmt.Sprintf("_pragma=busy_timeout(%d)", busy.Milliseconds()))
	// With the prefix file:, a ? or # in the path is part of the path.
	location := "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	db, err := sql.Open("sqlite", location+"?"+strings.Join(options, "&"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// This query reads the first page of the file. If the file is not a database, the query returns
	// an error now, not later.
	var tables int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

func (e *sqliteEngine) close() error {
	var errs []error
	for _, db := range []*sql.DB{e.reader, e.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if e.serving != nil {
		errs = append(errs, e.serving.unlock())
	}
	return errors.Join(errs...)
}

func (e *sqliteEngine) oneMoment() *sql.TxOptions { return &sql.TxOptions{ReadOnly: true} }

// clock returns the SQL expression for the time of this machine in microseconds. Its precision is
// one millisecond.
func (e *sqliteEngine) clock() string {
	return `CAST(round(unixepoch('subsec') * 1000) * 1000 AS INTEGER)`
}

func (e *sqliteEngine) version() string { return `sqlite_version()` }

// announce does nothing, because SQLite has no notifications between processes. The method
// announced notifies this process after the commit.
func (e *sqliteEngine) announce(context.Context, *sql.Tx, int64) error { return nil }

func (e *sqliteEngine) announced() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		select {
		case w <- struct{}{}:
		default: // a notification is already waiting
		}
	}
}

func (e *sqliteEngine) notify(ctx context.Context, changed func()) error {
	w := make(chan struct{}, 1)
	e.mu.Lock()
	e.watchers[w] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w:
			changed()
		}
	}
}

// lockCounts does nothing, because a writing transaction locks the whole file.
func (e *sqliteEngine) lockCounts(context.Context, *sql.Tx, bool) error { return nil }

func (e *sqliteEngine) fault(err error) (fault, string) {
	var refused *sqlite.Error
	if !errors.As(err, &refused) {
		return faultOther, ""
	}
	switch refused.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return faultUnique, "" // SQLite does not name the constraint; statements that need the name use ON CONFLICT
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, sqlite3.SQLITE_CONSTRAINT_TRIGGER:
		return faultReference, ""
	case sqlite3.SQLITE_CONSTRAINT_CHECK, sqlite3.SQLITE_CONSTRAINT_NOTNULL:
		return faultCheck, ""
	}
	switch refused.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT:
		return faultBusy, ""
	case sqlite3.SQLITE_FULL:
		return faultFull, ""
	case sqlite3.SQLITE_READONLY:
		return faultReadOnly, ""
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return faultAway, ""
	}
	return faultOther, ""
}

// migrations returns the files of the migrations, their folder, and a migration driver. The
// driver has its own connection pool. Close of the driver closes the pool.
func (e *sqliteEngine) migrations() (fs.FS, string, database.Driver, error) {
	db, err := openFile(context.Background(), e.path, time.Minute, "_txlock=immediate")
	if err != nil {
		return nil, "", nil, err
	}
	db.SetMaxOpenConns(1)
	driver, err := migratesqlite.WithInstance(db, &migratesqlite.Config{})
	if err != nil {
		db.Close()
		return nil, "", nil, err
	}
	return migrations.SQLite, "sqlite", driver, nil
}

// lockMigrations locks a file. If another process holds the lock, lockMigrations waits until the
// lock is free or ctx ends. The lock of golang-migrate is not enough, because for SQLite it
// excludes only goroutines of the same process.
func (e *sqliteEngine) lockMigrations(ctx context.Context) (unlock func(), err error) {
	f, err := openLockFile(e.path + ".migrate.lock")
	if err != nil {
		return nil, err
	}
	for {
		held, err := f.tryLock()
		if err == nil && held {
			return func() { _ = f.unlock() }, nil // closing the file releases the lock in any case
		}
		if err == nil {
			err = retry.Wait(ctx, retry.Jitter(50*time.Millisecond))
		}
		if err != nil {
			_ = f.unlock()
			return nil, fmt.Errorf("wait for another headgate to migrate %s: %w", e.path, err)
		}
	}
}

func (e *sqliteEngine) hasTable(ctx context.Context, name string) (bool, error) {
	var has bool
	err := e.reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1)`, name).Scan(&has)
	return has, err
}
