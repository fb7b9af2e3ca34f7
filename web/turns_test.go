package web

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/headgate/headgate/internal/accounts"
)

// Heavy pages have few turns: nobody takes those of others, whoever waits gets
// the next one, and every turn comes back.
func TestTurns(t *testing.T) {
	t.Parallel()
	var shared turns
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(party string) func() {
		end, err := shared.take(t.Context(), party)
		must(t, err)
		return end
	}
	var ends []func()
	for range maxTurnsEach {
		ends = append(ends, take("acme"))
	}
	if _, err := shared.take(gone, "acme"); err == nil {
		t.Error("one party has more than its turns")
	}
	for len(ends) < maxTurns {
		ends = append(ends, take(strings.Repeat("x", len(ends))))
	}
	if _, err := shared.take(gone, "globex"); err == nil {
		t.Error("a node has more than its turns")
	}
	waited := make(chan error)
	for range maxTurnsEach {
		go func() {
			end, err := shared.take(t.Context(), "globex")
			if err == nil {
				end()
				end() // once is enough
			}
			waited <- err
		}()
	}
	ends[0]()
	for range maxTurnsEach {
		must(t, <-waited)
	}
	for _, end := range ends {
		end()
	}
	if shared.taken != 0 || len(shared.of) != 0 {
		t.Errorf("%d turns are still taken: %v", shared.taken, shared.of)
	}
}

// A tenant's people together have a bounded share of downloads and playgrounds;
// others go on.
func TestOneTenantDoesNotTakeANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(cfg *Config) { cfg.Timeout = 3 * time.Second }) // so long it waits for a turn
	acme, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	for range maxTurnsEach {
		_, err := w.pages.turns.take(t.Context(), acme.ID)
		must(t, err)
	}
	for _, path := range []string{"/tenants/acme/usage.csv", "/tenants/acme/audit.csv", "/playground"} {
		got := w.get(path, "acme-viewer")
		if got.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, got.Code)
		}
		if got.Header().Get("Retry-After") == "" {
			t.Errorf("%s does not say when to come again", path)
		}
	}
	for _, by := range []string{"owner", "viewer"} {
		if got := w.get("/tenants/acme/usage.csv", by); got.Code != http.StatusOK {
			t.Errorf("%s: %d", by, got.Code)
		}
	}
	if w.pages.turns.taken != maxTurnsEach {
		t.Errorf("%d turns are taken", w.pages.turns.taken)
	}
	if got := w.get("/tenants/acme", "acme-viewer"); got.Code != http.StatusOK {
		t.Errorf("an ordinary page: %d", got.Code)
	}
}

// What is much work has turns: a new page of the kind is not left out.
func TestHeavyPagesHaveTurns(t *testing.T) {
	t.Parallel()
	for _, r := range newWorld(t).pages.rows {
		download := strings.HasSuffix(r.path, ".csv") || strings.HasSuffix(r.path, "/preview") || r.path == "/audit/verify"
		if download && r.kind != heavy || r.action == accounts.Simulate && r.kind != dear {
			t.Errorf("%s %s has no turns", r.method, r.path)
		}
	}
}

// A carriage return in a text begins no event of its own.
func TestReturnsInStreams(t *testing.T) {
	t.Parallel()
	to := httptest.NewRecorder()
	s := &sender{to: to, control: http.NewResponseController(to), sent: map[string][sha256.Size]byte{}}
	_, err := s.send(t.Context(), fragment{"list", templ.Raw("a\rdata: b\r\revent: other\r\nc\n\rid: 7")})
	must(t, err)
	if got, want := to.Body.String(), "event: list\ndata: a\ndata: data: b\ndata: \ndata: event: other\ndata: c\ndata: \ndata: id: 7\n\n"; got != want {
		t.Errorf("%q", got)
	}
}
