package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// With a full disk counts wait in memory, and arrive when there is space again.
func TestCountsWaitForAFullDisk(t *testing.T) {
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
	r := metrics.NewRecorder(metrics.Config{})
	f := metrics.NewFlusher(r, s, metrics.FlusherConfig{})
	now := time.Now()
	decided := int64(0)
	decide := func() {
		decided++
		ms := now.UnixMilli()
		d := enforcement.Decision{
			ID:      [16]byte{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms), 0x70, 0, 0x80, 15: byte(decided)},
			Allowed: true, Reason: enforcement.ReasonOK, Route: fmt.Sprintf("/v1/%0200d", decided),
			Subject: &enforcement.Subject{Number: uint32(decided%50) + 1, Tenant: "acme"}, Check: &enforcement.Check{Mode: enforcement.Enforce, Cost: 1},
		}
		r.Record(&d)
	}
	total := func() (n int64) {
		t.Helper()
		rows, err := s.Counts(t.Context(), metrics.CountQuery{
			Step: metrics.Minute, From: now.Unix() - 120, To: now.Unix() + 120, Kind: metrics.KindTotal,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			n += row.Requests
		}
		return n
	}
	pages(`PRAGMA max_page_count = 1`) // SQLite makes it as many as there are
	written := int64(0)
	for err = nil; err == nil && decided < 100_000; {
		for range 100 {
			decide()
		}
		if err = f.Flush(t.Context()); err == nil {
			written = decided
		}
	}
	if !problem.Is(err, problem.Unavailable) {
		t.Fatalf("a full disk: %v, want Unavailable", err)
	}
	if n := total(); n != written {
		t.Errorf("%d are in the store, %d were written", n, written)
	}
	decide()
	if state := f.Status(); state.WaitingRows == 0 || state.Failed == 0 {
		t.Errorf("state %+v", state)
	}
	pages(`PRAGMA max_page_count = 1000000`)
	if err := f.Flush(t.Context()); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if n := total(); n != decided {
		t.Errorf("%d are in the store, %d were decided", n, decided)
	}
}
