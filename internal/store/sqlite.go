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

// embedded is the engine for a SQLite file. One connection writes, others read; in WAL mode
// neither waits for the other.
type embedded struct {
	path           string
	writer, reader *sql.DB
	serving        *lockFile // nil unless this process serves

	mu       sync.Mutex
	watchers map[chan struct{}]bool // one hint may wait in each
}

// openSQLite opens the file, and creates it with its folder if needed.
func (s *Store) openSQLite(ctx context.Context, address string, serve bool) (err error) {
	path, err := SQLitePath(address)
	if err != nil {
		return err
	}
	if err := makeFile(path); err != nil {
		return err
	}
	e := &embedded{path: path, watchers: make(map[chan struct{}]bool)}
	defer func() {
		if err != nil {
			_ = e.close() // the first error says more
		}
	}()
	if serve {
		if e.serving, err = lockServing(path); err != nil {
			return err
		}
	}
	// Turning WAL on needs the file alone, and does not wait by itself.
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

// look returns an error for a damaged file: serving it could make the damage worse.
func (e *embedded) look(ctx context.Context) error {
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

// SQLitePath returns the path of the file that a database URL names:
// sqlite://data/h.db (relative) or sqlite:///abs/h.db.
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

// SQLiteFiles returns the names of the files that a SQLite database can consist
// of, without their folder. path is that of the database file.
func SQLiteFiles(path string) []string {
	name := filepath.Base(path)
	return []string{name, name + "-wal", name + "-shm", name + "-journal", name + ".migrate.lock", name + ".serve.lock"}
}

// DeleteSQLite deletes the files of a SQLite database. It fails if a process
// serves the database.
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

// makeFile creates the folder and an empty file, readable by the owner only. It does not change
// existing ones.
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

// openFile opens a pool on the file and tests it. Times are stored as microseconds. synchronous is
// FULL because NORMAL could lose acknowledged edits in a power failure.
func openFile(ctx context.Context, path string, busy time.Duration, options ...string) (*sql.DB, error) {
	options = append(options,
		"_time_integer_format=unix_micro", "_inttotime=1", "_dqs=0",
		"_pragma=foreign_keys(1)", "_pragma=synchronous(FULL)",
		fmt.Sprintf("_pragma=busy_timeout(%d)", busy.Milliseconds()))
	// With file: the path's own ? and # stay part of it.
	location := "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	db, err := sql.Open("sqlite", location+"?"+strings.Join(options, "&"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// The first page is read, so that what is no database is found now.
	var tables int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&tables); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

func (e *embedded) close() error {
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

func (e *embedded) oneMoment() *sql.TxOptions { return &sql.TxOptions{ReadOnly: true} }

// clock returns this machine's time in milliseconds.
func (e *embedded) clock() string { return `CAST(round(unixepoch('subsec') * 1000) * 1000 AS INTEGER)` }

// announce does nothing before the commit.
func (e *embedded) announce(context.Context, *sql.Tx, int64) error { return nil }

func (e *embedded) announced() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		select {
		case w <- struct{}{}:
		default: // a hint is waiting already
		}
	}
}

func (e *embedded) notify(ctx context.Context, changed func()) error {
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

// lockCounts does nothing: a writing transaction locks the file.
func (e *embedded) lockCounts(context.Context, *sql.Tx, bool) error { return nil }

func (e *embedded) fault(err error) (fault, string) {
	var refused *sqlite.Error
	if !errors.As(err, &refused) {
		return faultOther, ""
	}
	switch refused.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return faultUnique, "" // it does not say which: statements that care use ON CONFLICT
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

// migrations returns a driver with its own pool, which the driver's Close closes.
func (e *embedded) migrations() (fs.FS, string, database.Driver, error) {
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

// lockMigrations waits for a lock file: golang-migrate's lock for SQLite works within one process
// only.
func (e *embedded) lockMigrations(ctx context.Context) (unlock func(), err error) {
	f, err := openLockFile(e.path + ".migrate.lock")
	if err != nil {
		return nil, err
	}
	for {
		held, err := f.tryLock()
		if err == nil && held {
			return func() { _ = f.unlock() }, nil // a lock ends with its file at the latest
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

func (e *embedded) hasTable(ctx context.Context, name string) (bool, error) {
	var has bool
	err := e.reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1)`, name).Scan(&has)
	return has, err
}
