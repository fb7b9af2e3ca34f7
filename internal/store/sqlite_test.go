package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/store/storetest"
	"github.com/headgate/headgate/tenants"
)

// patient is a time-out that a busy machine does not reach.
const patient = time.Minute

// open opens a Store and closes it after the test.
func open(t testing.TB, c store.Config) *store.Store {
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

func migrated(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	s := open(t, c)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newFile is the URL and the path of a database that does not exist yet.
func newFile(t testing.TB) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "data", "h ?#%.db") // every character that a DSN could stumble over
	return "sqlite://" + filepath.Dir(path) + "/h%20%3F%23%25.db", path
}

// past opens a database past the Store.
func past(t testing.TB, driver, dsn string) *sql.DB {
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
func file(t testing.TB, path string) *sql.DB {
	return past(t, "sqlite", "file:"+escape(path)+"?_pragma=busy_timeout(60000)&_pragma=foreign_keys(1)")
}

func TestConformanceSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		url, path := newFile(t)
		clock := storetest.NewClock()
		c := store.Config{URL: url, Now: clock.Now}
		return storetest.Fixture{
			Store: migrated(t, c), Other: open(t, c), Clock: clock, Exec: execOn(file(t, path)),
			Unguard: []string{
				`DROP TRIGGER audit_log_not_updated`, `DROP TRIGGER audit_log_not_deleted`, `DROP TRIGGER audit_log_not_replaced`,
			},
		}
	})
}

func TestSQLiteURLs(t *testing.T) {
	t.Chdir(t.TempDir())
	s := migrated(t, store.Config{URL: "sqlite://data/h.db"})
	if err := writeOne(t.Context(), s, "acme"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{"data": 0o700, "data/h.db": 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != want {
			t.Errorf("%s has mode %o, want %o", path, mode, want)
		}
	}
	absolute, err := filepath.Abs("data/h.db")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, store.Config{URL: "sqlite://" + absolute}).Tenant(t.Context(), "acme"); err != nil {
		t.Errorf("by its absolute name: %v", err)
	}
	for _, url := range []string{
		"", "h.db", "mysql://h/db", "sqlite:", "sqlite://", "sqlite:h.db", "sqlite:///", "sqlite://data/",
		"sqlite://:memory:", "sqlite://data/h.db?mode=ro", "sqlite://%zz",
	} {
		if s, err := store.Open(t.Context(), store.Config{URL: url}); err == nil {
			t.Errorf("%q was opened", url)
			_ = s.Close()
		}
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 1 {
		t.Errorf("files beside the folder data: %v, %v", files, err)
	}
}

// A file that is not a database is rejected at once, in one line, and is not changed.
func TestSQLiteRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"text":   func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("no database", 1000)), 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "h.db")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		s, err := store.Open(t.Context(), store.Config{URL: "sqlite://" + path})
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s was opened", name)
		}
		if !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line that names the file", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", name)
		}
	}
}

// A file that was cut short, or overwritten in the middle, is not served.
func TestSQLiteRefusesToServeADamagedFile(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(f *os.File, size int64) error{
		"cut short": func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		"noise": func(f *os.File, size int64) error {
			_, err := f.WriteAt([]byte(strings.Repeat("noise", 4096/5)), size/2)
			return err
		},
	} {
		url, path := newFile(t)
		s, err := store.Open(t.Context(), store.Config{URL: url, Timeout: patient})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := writeOne(t.Context(), s, fmt.Sprint("t", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil { // which brings everything into the one file
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(f, info.Size()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = store.Open(t.Context(), store.Config{URL: url, Timeout: patient, Serve: true})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: served", what)
			continue
		}
		if !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line that names the file", what, err)
		}
	}
}

func TestOneProcessServesAFile(t *testing.T) {
	t.Parallel()
	url, _ := newFile(t)
	p := start(t, "serve", url)
	if !p.lines.Scan() {
		t.Fatal("the first process did not serve")
	}
	_, err := store.Open(t.Context(), store.Config{URL: url, Serve: true})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", p.Process.Pid)) {
		t.Errorf("second to serve: %v; want it refused with process %d", err, p.Process.Pid)
	}
	migrated(t, store.Config{URL: url}) // commands come in all the same
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	open(t, store.Config{URL: url, Serve: true})
}

// Everything acknowledged survives kill -9, each tenant with its audit line.
func TestSQLiteKeepsAcknowledgedWritesOverAKill(t *testing.T) {
	t.Parallel()
	kills := 3
	if os.Getenv("HEADGATE_TEST_FAULTS") == "full" {
		kills = 50
	}
	for range kills {
		url, path := newFile(t)
		s := migrated(t, store.Config{URL: url})
		p := start(t, "write", url)
		var acknowledged []string
		for len(acknowledged) < 40 && p.lines.Scan() {
			acknowledged = append(acknowledged, p.lines.Text())
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for p.lines.Scan() { // what it still said before it ended
			acknowledged = append(acknowledged, p.lines.Text())
		}
		_ = p.Wait() // it was killed
		for _, slug := range acknowledged {
			tenant, err := s.Tenant(t.Context(), slug)
			if err != nil {
				t.Errorf("%s was acknowledged: %v", slug, err)
			}
			if keys, err := s.Keys(t.Context(), tenant.ID, tenants.Filter{}); err != nil || len(keys) != 1 {
				t.Errorf("%s was acknowledged with its key: %d, %v", slug, len(keys), err)
			}
			if lines, err := s.AuditEntries(t.Context(), audit.Filter{TenantID: tenant.ID}); err != nil || len(lines) != 2 {
				t.Errorf("%s has %d audit lines: %v", slug, len(lines), err)
			}
		}
		var verdict string
		if err := file(t, path).QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
			t.Errorf("integrity: %s, %v", verdict, err)
		}
	}
}

// Reads are answered while somebody holds the file for writing; writes are
// unavailable in the end.
func TestSQLiteReadsWhileAnotherWrites(t *testing.T) {
	t.Parallel()
	url, path := newFile(t)
	s := migrated(t, store.Config{URL: url})
	hurried := open(t, store.Config{URL: url, Timeout: 50 * time.Millisecond})
	holder := file(t, path)
	holder.SetMaxOpenConns(1)
	if err := execOn(holder)(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tenants(t.Context(), tenants.Filter{}); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := hurried.PutSetting(t.Context(), "a", "b", audit.Entry{Action: "setting.put"}); !problem.Is(err, problem.Unavailable) {
		t.Errorf("write: %v, want Unavailable", err)
	}
	if err := execOn(holder)(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := s.PutSetting(t.Context(), "a", "b", audit.Entry{Action: "setting.put"}); err != nil {
		t.Errorf("write afterwards: %v", err)
	}
}
