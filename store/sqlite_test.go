package store_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// patient is a time-out that a busy machine does not reach.
const patient = time.Minute

// open opens a Store and closes it after the test.
func open(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = patient
	}
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func migrated(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	s := open(t, c)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newFile is the URL and the path of a database that does not exist yet.
func newFile(t *testing.T) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data", "h ?#%.db") // every character that a DSN could stumble over
	return "sqlite://" + filepath.Dir(path) + "/h%20%3F%23%25.db", path
}

// past opens a database past the Store.
func past(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execOn(db *sql.DB) func(string, ...any) error {
	return func(statement string, args ...any) error {
		_, err := db.ExecContext(context.Background(), statement, args...)
		return err
	}
}

// file opens a SQLite file past the Store.
func file(t *testing.T, path string) *sql.DB {
	return past(t, "sqlite", "file:"+escape(path)+"?_pragma=busy_timeout(60000)&_pragma=foreign_keys(1)")
}

func TestConformanceSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		url, path := newFile(t)
		clock := storetest.NewClock()
		c := store.Config{URL: url, Now: clock.Now}
		return storetest.Fixture{Store: migrated(t, c), Other: open(t, c), Clock: clock, Exec: execOn(file(t, path))}
	})
}
