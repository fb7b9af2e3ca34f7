package store_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/migrations"
	"github.com/headgate/headgate/tenants"
)

// The migrations that brought people and the chain of the audit log.
const (
	peopleStep = 7
	chainStep  = 8
)

// testPeopleDown takes the steps back and forth while there is data: lines of
// the log stay, and those from before the chain are counted.
func testPeopleDown(t *testing.T, s *store.Store, db *sql.DB) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := func() (n int) {
		t.Helper()
		must(db.QueryRowContext(t.Context(), `SELECT count(*) FROM audit_log`).Scan(&n))
		return n
	}
	line := audit.Entry{Actor: audit.Actor{Kind: "system", ID: "system", Name: "system"}, Action: "test"}
	populate := func(email string) {
		t.Helper()
		u, err := s.CreateUser(t.Context(), accounts.User{Email: email, Name: "N", Role: accounts.Owner, Password: "x"}, false, line)
		must(err)
		_, err = s.CreateSession(t.Context(), accounts.Session{Hash: [32]byte{1}, UserID: u.ID}, line)
		must(err)
		_, err = s.CreateInvitation(t.Context(), accounts.Invitation{
			Hash: [32]byte{2}, Email: u.Email, Role: u.Role, UserID: u.ID, ExpiresAt: time.Now().Add(time.Hour),
		}, line)
		must(err)
	}
	verify := func(chained, outside int64) {
		t.Helper()
		v, err := s.VerifyAudit(t.Context(), audit.Verification{})
		must(err)
		if v.Broken != nil || v.Lines != chained || v.Head.Outside != outside {
			t.Fatalf("%d lines, %d outside, broken: %v; want %d and %d", v.Lines, v.Head.Outside, v.Broken, chained, outside)
		}
	}
	must(s.WriteAudit(t.Context(), line)) // revision 0, which the schema before did not take
	must(writeOne(t.Context(), s, "acme"))
	populate("a@example.com")
	verify(6, 0)

	must(s.MigrateDown(t.Context(), migrations.Latest()-chainStep+1))
	if n := lines(); n != 6 {
		t.Fatalf("%d lines after the chain was taken back, want 6", n)
	}
	for _, statement := range []string{`DELETE FROM audit_log`, `UPDATE audit_log SET action = 'x'`} {
		if err := execOn(db)(statement); err == nil {
			t.Errorf("%s passed after the chain was taken back", statement)
		}
	}
	var people int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM users WHERE email = 'a@example.com'`).Scan(&people); err != nil || people != 1 {
		t.Errorf("the step of the chain took people: %d are left, %v", people, err)
	}
	must(s.Migrate(t.Context()))
	verify(0, 6)
	must(s.WriteAudit(t.Context(), line))
	verify(1, 6)

	must(s.MigrateDown(t.Context(), migrations.Latest()-peopleStep+1))
	must(s.Migrate(t.Context()))
	verify(0, 7)
	populate("a@example.com") // nothing is left of the first one
	verify(3, 7)
	if list, err := s.Tenants(t.Context(), tenants.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("%d tenants, %v", len(list), err)
	}
}

func TestPeopleDownSQLite(t *testing.T) {
	t.Parallel()
	url, path := newFile(t)
	testPeopleDown(t, migrated(t, store.Config{URL: url}), file(t, path))
}

// An edit pays for its line: two updates of the head, and a hash.
func benchmarkEdit(b *testing.B, s *store.Store) {
	for b.Loop() {
		if err := s.PutSetting(b.Context(), "title", "x", audit.Entry{Action: "setting.put"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEditSQLite(b *testing.B) {
	url, _ := newFile(b)
	benchmarkEdit(b, migrated(b, store.Config{URL: url}))
}
