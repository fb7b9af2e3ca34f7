package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/web"
)

// The members of a tenant together can use a bounded number of slots for downloads and
// playgrounds. Others are not affected.
func TestOneTenantDoesNotTakeANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(cfg *config) { cfg.shell.Timeout = 3 * time.Second }) // a request waits so long for a slot
	acme, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	for range admission.MaxSlotsEach {
		w.shell.TakeSlot(t, acme.ID)
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
	if w.shell.SlotsTaken() != admission.MaxSlotsEach {
		t.Errorf("%d turns are taken", w.shell.SlotsTaken())
	}
	if got := w.get("/tenants/acme", "acme-viewer"); got.Code != http.StatusOK {
		t.Errorf("an ordinary page: %d", got.Code)
	}
}

// Pages that need much work wait for a slot. The test contains every such page.
func TestHeavyPagesHaveTurns(t *testing.T) {
	t.Parallel()
	for _, r := range newWorld(t).shell.Table() {
		download := strings.HasSuffix(r.Path, ".csv") || strings.HasSuffix(r.Path, "/preview") || r.Path == "/audit/verify"
		if download && r.Kind != web.SlowExpensive || r.Action == accounts.Simulate && r.Kind != web.Expensive {
			t.Errorf("%s %s has no turns", r.Method, r.Path)
		}
	}
}
