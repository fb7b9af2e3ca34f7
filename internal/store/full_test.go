package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
)

// A full disk makes only writes unavailable, until there is space again. The test is inside
// the package, because only the writing connection can be limited to a number of pages.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages := func(statement string) {
		t.Helper()
		var n int
		if err := s.writer.QueryRow(statement).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	put := func(i int) error {
		return s.PutSetting(t.Context(), fmt.Sprintf("setting %d", i), fmt.Sprintf("%4096d", i), audit.Entry{Action: "setting.put"})
	}
	pages(`PRAGMA max_page_count = 1`) // SQLite makes it as many as there are
	written := 0
	for err = nil; err == nil && written < 1000; {
		if err = put(written); err == nil {
			written++
		}
	}
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("a full disk: %v, want Unavailable", err)
	}
	if r := s.WriteRefusal(); r.Code != "full" || r.Since.IsZero() || r.Answer != "the database has no space left" {
		t.Errorf("the refusal is %+v", r)
	}
	if n, err := s.Revision(t.Context()); err != nil || int(n) != written {
		t.Errorf("revision %d, error %v; want %d", n, err, written)
	}
	pages(`PRAGMA max_page_count = 1000000`)
	if err := put(written); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if r := s.WriteRefusal(); r.Since.IsZero() {
		t.Error("one small write ends the refusal")
	}
	s.refusal.last = time.Now().Add(-refusedFor)
	if err := put(written + 1); err != nil || s.WriteRefusal() != (nodes.Refusal{}) {
		t.Errorf("later, with space again: %v, %+v", err, s.WriteRefusal())
	}
}
