package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A tenant that was created before its slug was reserved is found by its ID.
func TestOldSlugsAreReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entry := func() audit.Entry {
		return audit.Entry{ID: uuid.Must(uuid.NewV7()).String(), Actor: audit.Actor{Kind: "system"}, Action: "test.made"}
	}
	made, err := w.store.CreateTenant(t.Context(), tenants.Tenant{
		ID: uuid.Must(uuid.NewV7()).String(), Slug: "new", Document: tenants.Normalise(tenants.Document{Name: "Old tenant"}),
	}, entry())
	must(t, err)
	plan, err := w.store.CreatePlan(t.Context(), plans.Plan{ID: uuid.Must(uuid.NewV7()).String(), Slug: "new", Draft: plans.Sample()}, entry())
	must(t, err)
	for list, first := range map[string]string{"/tenants": "/tenants/" + made.ID, "/plans": "/plans/" + plan.ID, "/tenants/new/keys": "/tenants/" + made.ID} {
		if page := w.get(list, "owner"); page.Code != http.StatusOK || !strings.Contains(page.body, `href="`+first+`"`) {
			t.Errorf("%s leads to no %s: %d", list, first, page.Code)
		}
		if page := w.get(first, "owner"); page.Code != http.StatusOK {
			t.Errorf("%s: %d", first, page.Code)
		}
	}
}
