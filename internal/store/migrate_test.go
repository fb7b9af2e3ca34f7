package store_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/migrations"
	"github.com/headgate/headgate/tenants"
)

// A column as both engines should have it.
type column struct {
	Table, Name, Type string
	Nullable          bool
}

// columnsOf gives every column of a SQLite file, by table and name.
func columnsOf(t *testing.T, db *sql.DB) []column {
	t.Helper()
	return columnList(t, db, `
		SELECT m.name, c.name, c.type, c."notnull" = 0
		FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT IN ('schema_migrations', 'sqlite_sequence')`)
}

func columnList(t *testing.T, db *sql.DB, query string) []column {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []column
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.Table, &c.Name, &c.Type, &c.Nullable); err != nil {
			t.Fatal(err)
		}
		c.Type = strings.ToUpper(c.Type)
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b column) int { return strings.Compare(a.Table+"."+a.Name, b.Table+"."+b.Name) })
	return list
}

// testUpDownUp takes an empty database up, down and up again.
func testUpDownUp(t *testing.T, s *store.Store, columns func() []column) {
	t.Helper()
	status := func(want int) {
		t.Helper()
		m, err := s.MigrationStatus(t.Context())
		if err != nil || m.Version != want || m.Dirty || m.Latest != migrations.Latest() || m.Current() != (want == m.Latest) {
			t.Fatalf("status %+v, error %v; want version %d", m, err, want)
		}
	}
	migrate := func() {
		t.Helper()
		for range 2 { // the second time there is nothing to do
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			status(migrations.Latest())
		}
	}
	status(0)
	migrate()
	first := columns()
	if len(first) == 0 {
		t.Fatal("no tables after migrating")
	}
	if err := writeOne(t.Context(), s, "acme"); err != nil { // data does not stand in the way
		t.Fatal(err)
	}
	for version := migrations.Latest() - 1; version >= 0; version-- {
		if err := s.MigrateDown(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		status(version)
	}
	if left := columns(); len(left) != 0 {
		t.Errorf("left after taking everything back: %v", left)
	}
	migrate()
	if diff := cmp.Diff(first, columns()); diff != "" {
		t.Errorf("the second way up differs (-first +second):\n%s", diff)
	}
	if err := s.MigrateDown(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	status(0)
	if err := s.MigrateDown(t.Context(), 0); err == nil {
		t.Error("taking 0 steps back passed")
	}
}

// testOneKeyTable takes keys of a tenant and of the operator back to the schema
// with a table for each, and up again.
func testOneKeyTable(t *testing.T, s *store.Store, db *sql.DB) {
	t.Helper()
	if err := writeOne(t.Context(), s, "acme"); err != nil {
		t.Fatal(err)
	}
	made := tenants.Key{
		Name: "ops", Hash: tenants.HashToken("ops"), Hint: "hg_op_1", Scopes: []tenants.Scope{tenants.ScopeRead, tenants.ScopeManage},
		ExpiresAt: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	operator, err := s.CreateKey(t.Context(), made, audit.Entry{Action: "operator_key.create"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Changes(t.Context(), 0)
	if err != nil || len(before.Keys) != 2 {
		t.Fatalf("%d keys, error %v; want 2", len(before.Keys), err)
	}
	if err := s.MigrateDown(t.Context(), migrations.Latest()-10); err != nil {
		t.Fatal(err)
	}
	var ofTenants, ofOperator int
	var id string
	err = db.QueryRow(`SELECT (SELECT count(*) FROM api_keys), (SELECT count(*) FROM operator_keys), (SELECT max(id) FROM operator_keys)`).
		Scan(&ofTenants, &ofOperator, &id)
	if err != nil || ofTenants != 1 || ofOperator != 1 || id != operator.ID {
		t.Errorf("%d keys of tenants, %d of the operator (%s), error %v; want 1 and 1 (%s)", ofTenants, ofOperator, id, err, operator.ID)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := s.Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("down and up again (-before +after):\n%s", diff)
	}
}

// testNewer: a schema from the future is refused, untouched.
func testNewer(t *testing.T, s *store.Store, exec func(string, ...any) error) {
	t.Helper()
	if err := exec(`UPDATE schema_migrations SET version = 4711`); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"up": s.Migrate(t.Context()), "down": s.MigrateDown(t.Context(), 1)} {
		if err == nil || !strings.Contains(err.Error(), "version 4711") || !strings.Contains(err.Error(), "newer headgate") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line that names both versions", what, err)
		}
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || m.Version != 4711 || m.Current() {
		t.Errorf("status %+v, error %v", m, err)
	}
}

// testDirty: a migration that was cut off is explained, and force is the way out.
func testDirty(t *testing.T, s *store.Store, exec func(string, ...any) error) {
	t.Helper()
	if err := s.MigrateDown(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	latest := migrations.Latest()
	if err := exec(`UPDATE schema_migrations SET version = $1, dirty = true`, latest); err != nil {
		t.Fatal(err)
	}
	err := s.Migrate(t.Context())
	force := func(version int) string { return fmt.Sprintf("`headgate migrate force %d`", version) }
	if err == nil || !strings.Contains(err.Error(), force(latest)) || !strings.Contains(err.Error(), force(latest-1)) {
		t.Fatalf("dirty: %v; want it explained with the two ways out", err)
	}
	for _, outside := range []int{-1, latest + 1} {
		if err := s.MigrateForce(t.Context(), outside); err == nil {
			t.Errorf("force %d passed", outside)
		}
	}
	if err := s.MigrateForce(t.Context(), latest-1); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || !m.Current() {
		t.Errorf("status %+v, error %v", m, err)
	}
}

// testFailsInTheMiddle: a migration that fails leaves the version before it, and runs again once
// what stood in its way is gone. A killed one is rolled back in the same way.
func testFailsInTheMiddle(t *testing.T, s *store.Store, exec func(string, ...any) error) {
	t.Helper()
	// The first migration makes this table last.
	if err := exec(`CREATE TABLE audit_log (x INTEGER)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err == nil {
		t.Fatal("the migration passed although its table exists")
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || m.Version != 0 || m.Dirty {
		t.Errorf("status after a failed migration %+v, error %v; want version 0, not dirty", m, err)
	}
	if err := exec(`DROP TABLE audit_log`); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrationStatus(t.Context()); err != nil || !m.Current() {
		t.Errorf("status %+v, error %v", m, err)
	}
}

// testManyMigrate: four processes start at once on an empty database.
func testManyMigrate(t *testing.T, url string) {
	t.Helper()
	var starting []*process
	for range 4 {
		starting = append(starting, start(t, "migrate", url))
	}
	for i, p := range starting {
		if err := p.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	s := open(t, store.Config{URL: url})
	if m, err := s.MigrationStatus(t.Context()); err != nil || !m.Current() {
		t.Errorf("status %+v, error %v", m, err)
	}
	// The first step adds one row: twice would be two, or an error.
	if n, err := s.Revision(t.Context()); err != nil || n != 0 {
		t.Errorf("revision %d, error %v", n, err)
	}
}

func TestMigrateSQLite(t *testing.T) {
	t.Parallel()
	t.Run("up, down, up", func(t *testing.T) {
		t.Parallel()
		url, path := newFile(t)
		s := open(t, store.Config{URL: url})
		testUpDownUp(t, s, func() []column { return columnsOf(t, file(t, path)) })
	})
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		url, path := newFile(t)
		testNewer(t, migrated(t, store.Config{URL: url}), execOn(file(t, path)))
	})
	t.Run("dirty", func(t *testing.T) {
		t.Parallel()
		url, path := newFile(t)
		testDirty(t, migrated(t, store.Config{URL: url}), execOn(file(t, path)))
	})
	t.Run("one key table", func(t *testing.T) {
		t.Parallel()
		url, path := newFile(t)
		testOneKeyTable(t, migrated(t, store.Config{URL: url}), file(t, path))
	})
	t.Run("fails in the middle", func(t *testing.T) {
		t.Parallel()
		url, path := newFile(t)
		testFailsInTheMiddle(t, open(t, store.Config{URL: url}), execOn(file(t, path)))
	})
	t.Run("four at once", func(t *testing.T) {
		t.Parallel()
		url, _ := newFile(t)
		testManyMigrate(t, url)
	})
}
