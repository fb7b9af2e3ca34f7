package store_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/migrations"
)

// exceptionsStep is the migration that brought overrides, lists and blocks.
const exceptionsStep = 5

// testExceptionsDown takes the step back and forth while there is data: only what
// the step brought goes.
func testExceptionsDown(t *testing.T, s *store.Store, db *sql.DB) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	line := audit.Entry{Actor: audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}, Action: "test"}
	addExceptions := func() {
		t.Helper()
		acme, err := s.Tenant(t.Context(), "acme")
		must(err)
		end := time.Now().Add(time.Hour)
		o, err := s.CreateOverride(t.Context(), exceptions.Override{TenantID: acme.ID, Policy: "p", Factor: 1, Reason: "r", ExpiresAt: end}, line)
		must(err)
		n, err := s.CreateEntry(t.Context(), exceptions.Entry{TenantID: acme.ID, List: exceptions.Deny, Attribute: "user", Value: "u"}, line)
		must(err)
		b, err := s.CreateBlock(t.Context(), exceptions.Block{TenantID: acme.ID, Policy: "p", Reason: "r", ExpiresAt: end}, line)
		must(err)
		must(s.DeleteOverride(t.Context(), acme.ID, o.ID, line))
		must(s.DeleteEntry(t.Context(), acme.ID, n.ID, line))
		must(s.DeleteBlock(t.Context(), acme.ID, b.ID, line))
		_, err = s.CreateOverride(t.Context(), exceptions.Override{TenantID: acme.ID, Policy: "p", Factor: 1, Reason: "r", ExpiresAt: end}, line)
		must(err)
	}
	// buried has every tombstone, as kind and object.
	buried := func() (list []string) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), `SELECT kind || ' ' || object_id FROM tombstones ORDER BY revision, kind`)
		must(err)
		defer rows.Close()
		for rows.Next() {
			var stone string
			must(rows.Scan(&stone))
			list = append(list, stone)
		}
		must(rows.Err())
		return list
	}
	must(writeOne(t.Context(), s, "acme"))
	must(writeOne(t.Context(), s, "gone"))
	gone, err := s.Tenant(t.Context(), "gone")
	must(err)
	must(s.DeleteTenant(t.Context(), gone.ID, gone.Revision, line))
	before := buried()
	for range 2 {
		addExceptions()
		if n := len(buried()); n != len(before)+3 {
			t.Fatalf("%d tombstones, want %d", n, len(before)+3)
		}
		must(s.MigrateDown(t.Context(), migrations.Latest()-exceptionsStep+1))
		if after := buried(); !slices.Equal(after, before) {
			t.Fatalf("tombstones %v after the step was taken back, %v before it", after, before)
		}
		if err := execOn(db)(`INSERT INTO tombstones (revision, kind, object_id) VALUES (1, 'override', 'x')`); err == nil {
			t.Fatal("the schema before the step takes a tombstone of an override")
		}
		must(s.Migrate(t.Context()))
	}
}

func TestExceptionsDownSQLite(t *testing.T) {
	t.Parallel()
	url, path := newFile(t)
	testExceptionsDown(t, migrated(t, store.Config{URL: url}), file(t, path))
}
