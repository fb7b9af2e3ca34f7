//go:build !quick

package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/store/storetest"
	"github.com/headgate/headgate/migrations"
	"github.com/headgate/headgate/tenants"
)

// template is a migrated database, made once.
var template = servertest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, Timeout: patient})
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	return s.Close()
})

// The suite runs as the role with which nodes serve, with the rights of
// deploy/postgres/serving-role.sql. The owner of the tables only migrates.
func TestConformancePostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		url := servingTemplate.Clone(t)
		clock := storetest.NewClock()
		c := store.Config{URL: asServingRole(t, url), Now: clock.Now}
		return storetest.Fixture{
			Store: open(t, c), Other: open(t, c), Clock: clock, Exec: execOn(past(t, "pgx", url)),
			Unguard: []string{`DROP TRIGGER audit_log_only_added ON audit_log`},
		}
	})
}

// addServingRole makes the role hg_serve in the cluster of a database, and applies
// deploy/postgres/serving-role.sql as the owner of the tables.
func addServingRole(ctx context.Context, address string) error {
	rights, err := os.ReadFile("../../deploy/postgres/serving-role.sql")
	if err != nil {
		return err
	}
	owner, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	defer owner.Close()
	_, err = owner.ExecContext(ctx, `
		DO $$ BEGIN
			CREATE ROLE hg_serve LOGIN PASSWORD 'secret';
		EXCEPTION WHEN duplicate_object OR unique_violation THEN -- another test made it
		END $$`)
	if err == nil {
		_, err = owner.ExecContext(ctx, string(rights))
	}
	return err
}

// servingTemplate is a migrated database with the rights of deploy/postgres/serving-role.sql.
var servingTemplate = servertest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, Timeout: patient})
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	if err := addServingRole(ctx, url); err != nil {
		return err
	}
	return s.Close()
})

// asServingRole returns the URL of the role with which nodes serve.
func asServingRole(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("hg_serve", "secret")
	return u.String()
}

// The serving role can neither change the audit log nor the schema, also without the triggers. It
// has the rights for tables of later migrations.
func TestServingRole(t *testing.T) {
	t.Parallel()
	address := servingTemplate.Clone(t)
	owner, role := past(t, "pgx", address), past(t, "pgx", asServingRole(t, address))
	for _, statement := range []string{
		`DROP TRIGGER audit_log_only_added ON audit_log`, `DROP TRIGGER audit_log_not_truncated ON audit_log`,
		`CREATE TABLE of_a_later_migration (id TEXT)`,
	} {
		if _, err := owner.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, statement := range []string{
		`UPDATE audit_log SET action = 'x'`, `DELETE FROM audit_log`, `TRUNCATE audit_log`, `DROP TABLE audit_log`,
		`SELECT * FROM audit_log FOR UPDATE`, `DELETE FROM tombstones`, `UPDATE plan_versions SET number = 1`,
		`UPDATE schema_migrations SET version = 1`, `CREATE TABLE x (id TEXT)`, `ALTER TABLE tenants ADD x TEXT`,
		`CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'`, `CREATE ROLE x`, `TRUNCATE tenants`,
	} {
		_, err := role.Exec(statement)
		if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if _, err := role.Exec(`INSERT INTO of_a_later_migration VALUES ('x')`); err != nil {
		t.Error(err)
	}

	s := open(t, store.Config{URL: asServingRole(t, address)})
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("with a current schema: %v", err)
	}
	if err := open(t, store.Config{URL: address}).MigrateDown(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	err := s.Migrate(t.Context())
	if err == nil || problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "headgate migrate up") {
		t.Errorf("with an older schema: %v", err)
	}
}

// New connections, also the one that listens, have the current user and password, so that
// their rotation needs no restart. This test changes both.
func TestRotatedCredentials(t *testing.T) {
	t.Parallel()
	address := template.Clone(t)
	db := past(t, "pgx", address)
	first, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	second := *first
	name := strings.ReplaceAll(strings.Trim(first.Path, "/"), "-", "_") + "_second"
	second.User = url.UserPassword(name, "secret")
	if _, err := db.Exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'secret' IN ROLE CURRENT_USER`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = db.Exec(`DROP OWNED BY ` + name + `; DROP ROLE ` + name) })
	var now atomic.Pointer[string]
	set := func(u *url.URL) {
		text := u.String()
		now.Store(&text)
	}
	set(first)
	s := open(t, store.Config{URL: address, Reread: func() (string, error) { return *now.Load(), nil }})
	changes := make(chan struct{}, 100)
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- s.Notify(ctx, func() { changes <- struct{}{} }) }()
	t.Cleanup(func() { stop(); <-done })
	listens := func() {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(patient):
			t.Fatal("the store does not listen")
		}
	}
	listens()

	set(&second)
	if _, err := db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'headgate'`); err != nil {
		t.Fatal(err)
	}
	listens()
	if _, err := s.Revision(t.Context()); err != nil {
		t.Error(err)
	}
	var others, seconds int
	err = db.QueryRow(`SELECT count(*) FILTER (WHERE usename <> $1), count(*) FILTER (WHERE usename = $1) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'headgate'`, name).Scan(&others, &seconds)
	if err != nil || others > 0 || seconds < 2 {
		t.Errorf("%d connections of the new user, %d of others, %v", seconds, others, err)
	}
}

// columnsOfServer gives every column of a Postgres database in SQLite's words.
func columnsOfServer(t *testing.T, db *sql.DB) []column {
	t.Helper()
	return columnList(t, db, `
		SELECT table_name, column_name,
			CASE data_type WHEN 'bytea' THEN 'blob' WHEN 'timestamp with time zone' THEN 'timestamp' ELSE data_type END,
			is_nullable = 'YES'
		FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name <> 'schema_migrations'`)
}

func TestMigratePostgres(t *testing.T) {
	t.Parallel()
	t.Run("up, down, up", func(t *testing.T) {
		t.Parallel()
		url := servertest.Postgres(t)
		db := past(t, "pgx", url)
		testUpDownUp(t, open(t, store.Config{URL: url}), func() []column { return columnsOfServer(t, db) })
	})
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		url := template.Clone(t)
		testNewer(t, open(t, store.Config{URL: url}), execOn(past(t, "pgx", url)))
	})
	t.Run("dirty", func(t *testing.T) {
		t.Parallel()
		url := template.Clone(t)
		testDirty(t, open(t, store.Config{URL: url}), execOn(past(t, "pgx", url)))
	})
	t.Run("one key table", func(t *testing.T) {
		t.Parallel()
		url := template.Clone(t)
		testOneKeyTable(t, open(t, store.Config{URL: url}), past(t, "pgx", url))
	})
	t.Run("fails in the middle", func(t *testing.T) {
		t.Parallel()
		url := servertest.Postgres(t)
		testFailsInTheMiddle(t, open(t, store.Config{URL: url}), execOn(past(t, "pgx", url)))
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		testKilledMigration(t, template.Clone(t))
	})
	t.Run("four at once", func(t *testing.T) {
		t.Parallel()
		testManyMigrate(t, servertest.Postgres(t))
	})
}

// testKilledMigration: a process that is killed while it migrates leaves the schema as it was or
// with the whole migration, and the next process migrates it.
func testKilledMigration(t *testing.T, url string) {
	t.Helper()
	s, db := open(t, store.Config{URL: url}), past(t, "pgx", url)
	if err := s.MigrateDown(t.Context(), migrations.Latest()-1); err != nil {
		t.Fatal(err)
	}
	block, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = block.Rollback() }() // ended below
	// The migration that changes this table waits.
	if _, err := block.Exec(`LOCK TABLE audit_log IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	killed := start(t, "migrate", url)
	for began, waiting := time.Now(), 0; waiting == 0; {
		err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil || time.Since(began) > patient {
			t.Fatalf("the migration does not wait for the lock: %v", err)
		}
	}
	_ = killed.Process.Kill()
	_ = killed.Wait() // killed
	if err := block.Rollback(); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || m.Dirty {
		t.Errorf("status after the kill %+v, error %v; want a version that is not dirty", m, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || !m.Current() {
		t.Errorf("status %+v, error %v", m, err)
	}
}

func TestBothEnginesHaveTheSameSchema(t *testing.T) {
	t.Parallel()
	url, path := newFile(t)
	migrated(t, store.Config{URL: url})
	if diff := cmp.Diff(columnsOf(t, file(t, path)), columnsOfServer(t, past(t, "pgx", template.Clone(t)))); diff != "" {
		t.Errorf("the engines differ (-sqlite +postgres):\n%s", diff)
	}
}

// An unavailable Postgres has another error than a mistake in the URL, and neither error
// contains the password.
func TestPostgresAwayAtOpen(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	server.Stop()
	for _, test := range []struct {
		what, url string
		away      bool
	}{
		{"stopped", server.URL(), true},
		{"no such host", "postgres://u:hunter2@nowhere.invalid/db", true},
		{"bad port", "postgres://u:hunter2@localhost:99999/db", false},
		{"no url", "postgres://u:hunter2@[::1/db", false},
	} {
		s, err := store.Open(t.Context(), store.Config{URL: test.url})
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s: opened", test.what)
		}
		if problem.Is(err, problem.Unavailable) != test.away || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: kind %v, %v", test.what, problem.Of(err), err)
		}
	}
	server.Start()
	migrated(t, store.Config{URL: server.URL()})
	wrong := strings.Replace(server.URL(), "://headgate:", "://headgate:hunter2", 1)
	s, err := store.Open(t.Context(), store.Config{URL: wrong, Timeout: patient})
	if err == nil {
		_ = s.Close()
		t.Fatal("a wrong password was taken")
	}
	if problem.Is(err, problem.Unavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a wrong password: kind %v, %v", problem.Of(err), err)
	}
}

// Postgres stops and comes back under a running Store.
func TestPostgresAwayAtRunTime(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	s := migrated(t, store.Config{URL: server.URL()})
	if err := writeOne(t.Context(), s, "acme"); err != nil {
		t.Fatal(err)
	}
	// Cut connections are not seen by callers.
	if err := execOn(past(t, "pgx", server.URL()))(`
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'headgate' AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tenant(t.Context(), "acme"); err != nil {
		t.Errorf("read after the connections were cut: %v", err)
	}
	if err := writeOne(t.Context(), s, "other"); err != nil {
		t.Errorf("write after the connections were cut: %v", err)
	}
	server.Stop()
	_, err := s.Tenant(t.Context(), "acme")
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("read without a server: %v, want Unavailable", err)
	}
	if err := writeOne(t.Context(), s, "third"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("write without a server: %v, want Unavailable", err)
	}
	server.Start()
	if _, err := s.Tenant(t.Context(), "other"); err != nil {
		t.Errorf("read after the server came back: %v", err)
	}
	if err := writeOne(t.Context(), s, "third"); err != nil {
		t.Errorf("write after the server came back: %v", err)
	}
}

// A commit whose reply is lost is not repeated. The caller gets an error, and finds the
// change with its one audit line.
func TestPostgresCommitUnknown(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	proxy := servertest.StartProxy(t, url)
	s := open(t, store.Config{URL: proxy.URL()})
	proxy.Lose(servertest.Loss{Request: "commit"})
	err := s.PutSetting(t.Context(), "a", "b", audit.Entry{Action: "setting.put"})
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != problem.Unavailable || p.Code != "commit_unknown" {
		t.Fatalf("%v, want Unavailable, commit_unknown", err)
	}
	if value, err := s.Setting(t.Context(), "a"); err != nil || value != "b" {
		t.Errorf("the setting is %q, error %v", value, err)
	}
	if lines, err := s.AuditEntries(t.Context(), audit.Filter{}); err != nil || len(lines) != 1 {
		t.Errorf("%d audit lines, error %v; want 1", len(lines), err)
	}
	// Before the commit nothing is lost by trying again.
	proxy.Lose(servertest.Loss{Request: "insert into settings"})
	if err := s.PutSetting(t.Context(), "a", "c", audit.Entry{Action: "setting.put"}); err != nil {
		t.Errorf("a statement whose reply was lost: %v, want it tried again", err)
	}
	if n, err := s.Revision(t.Context()); err != nil || n != 2 {
		t.Errorf("revision %d, error %v; want 2", n, err)
	}
}

// A standby, or a table that somebody holds, makes writes unavailable.
func TestPostgresRefusals(t *testing.T) {
	t.Parallel()
	put := func(s *store.Store) error {
		return s.PutSetting(t.Context(), "a", "b", audit.Entry{Action: "setting.put"})
	}
	t.Run("read-only", func(t *testing.T) {
		t.Parallel()
		url := template.Clone(t) + "&default_transaction_read_only=on"
		s := open(t, store.Config{URL: url})
		if err := put(s); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%v, want Unavailable", err)
		}
		if _, err := s.Tenants(t.Context(), tenants.Filter{}); err != nil {
			t.Errorf("reading: %v", err)
		}
	})
	t.Run("locked", func(t *testing.T) {
		t.Parallel()
		url := template.Clone(t)
		holder, err := past(t, "pgx", url).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(`LOCK TABLE revision`); err != nil {
			t.Fatal(err)
		}
		hurried := open(t, store.Config{URL: url + "&lock_timeout=50"})
		if err := put(hurried); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%v, want Unavailable", err)
		}
		if err := holder.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := put(open(t, store.Config{URL: url})); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A listener whose connection was cut listens again, and reads the changes that it missed.
func TestPostgresListensAgain(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	s := open(t, store.Config{URL: url})
	changed := make(chan struct{}, 1000)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- s.Notify(ctx, func() { changed <- struct{}{} }) }()
	<-changed // it listens
	if err := execOn(past(t, "pgx", url))(`
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query LIKE 'LISTEN%' AND datname = current_database()`); err != nil {
		t.Fatal(err)
	}
	<-changed // again
	other := open(t, store.Config{URL: url})
	if err := writeOne(t.Context(), other, "acme"); err != nil {
		t.Fatal(err)
	}
	<-changed // another node's edit
	cancel()
	if err := <-done; err != nil {
		t.Errorf("notify ended with %v", err)
	}
}

// Two transactions that cross are tried again until both are through.
func TestPostgresTriesDeadlocksAgain(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	s := open(t, store.Config{URL: url})
	// A trigger that raises what Postgres raises, the first two times.
	exec := execOn(past(t, "pgx", url))
	for _, statement := range []string{
		`CREATE SEQUENCE tries`,
		`CREATE FUNCTION crossed() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			CASE nextval('tries')
				WHEN 1 THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
				WHEN 2 THEN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
				ELSE RETURN NEW;
			END CASE;
		END $$`,
		`CREATE TRIGGER crossed BEFORE INSERT ON settings FOR EACH ROW EXECUTE FUNCTION crossed()`,
	} {
		if err := exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutSetting(t.Context(), "a", "b", audit.Entry{Action: "setting.put"}); err != nil {
		t.Errorf("%v, want it tried again", err)
	}
	if n, err := s.Revision(t.Context()); err != nil || n != 1 {
		t.Errorf("revision %d, error %v; want 1: failed tries leave nothing", n, err)
	}
}

// Each SQL state of a fault is Unavailable with a message of its own, and is tried as often as
// it may help: conflicts and lost connections four times in all, the others once.
func TestPostgresStatesOfFaults(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	s := open(t, store.Config{URL: url})
	db := past(t, "pgx", url)
	exec := execOn(db)
	for _, statement := range []string{
		`CREATE SEQUENCE tries`,
		`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('tries'); -- no rollback takes it back
			RAISE EXCEPTION 'a fault' USING ERRCODE = NEW.name;
		END $$`,
		`CREATE TRIGGER fails BEFORE INSERT ON settings FOR EACH ROW EXECUTE FUNCTION fails()`,
	} {
		if err := exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for state, want := range map[string]struct {
		tries   int
		message string
	}{
		"53100": {1, "no space"}, "53300": {4, "away"}, "57014": {1, "busy"}, "40001": {4, "busy"}, "40P01": {4, "busy"},
	} {
		if err := exec(`ALTER SEQUENCE tries RESTART`); err != nil {
			t.Fatal(err)
		}
		err := s.PutSetting(t.Context(), state, "b", audit.Entry{Action: "setting.put"})
		var refused *problem.Problem
		if !errors.As(err, &refused) || refused.Kind != problem.Unavailable || !strings.Contains(refused.Message, want.message) {
			t.Errorf("%s: %v, want Unavailable with %q", state, err, want.message)
		}
		var tries int
		if err := db.QueryRowContext(t.Context(), `SELECT last_value FROM tries`).Scan(&tries); err != nil || tries != want.tries {
			t.Errorf("%s: tried %d times, want %d: %v", state, tries, want.tries, err)
		}
	}
}
