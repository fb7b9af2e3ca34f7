package tenants_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// A fixture is the Service on a fresh SQLite database, at a time that the test
// holds.
type fixture struct {
	*tenants.Service
	store *store.Store
	now   time.Time
	ctx   context.Context
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return f.now }
	f.ctx = audit.With(t.Context(), audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}, audit.Origin{RequestID: "r1", Address: "192.0.2.1"})
	st, err := store.Open(f.ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.store, f.Service = st, tenants.NewService(st, tenants.Config{Now: clock})
	return f
}

// entries gives the audit lines so far, newest first.
func (f *fixture) entries(t *testing.T) []audit.Entry {
	t.Helper()
	list, err := f.store.AuditEntries(f.ctx, audit.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (f *fixture) tenant(t *testing.T, slug string) tenants.Tenant {
	t.Helper()
	made, err := f.CreateTenant(f.ctx, slug, tenants.Document{Name: slug})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func wantKind(t *testing.T, err error, k problem.Kind, code string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != k || code != "" && p.Code != code {
		t.Errorf("%v, want %v %s", err, k, code)
	}
}

func wantJSON(t *testing.T, got json.RawMessage, want string) {
	t.Helper()
	if string(got) != want {
		t.Errorf("audited\n%s, want\n%s", got, want)
	}
}

func TestTenantLife(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	made, err := f.CreateTenant(f.ctx, "acme", tenants.Document{Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := uuid.Parse(made.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %q: version %v, %v", made.ID, id.Version(), err)
	}
	if made.TimeZone != "UTC" || made.Status != tenants.Active || made.Number == 0 || made.Home == "" || made.Revision == 0 {
		t.Errorf("made %+v", made)
	}
	d := made.Document
	d.Name, d.TimeZone = "Acme Inc.", "Europe/Berlin"
	changed, err := f.UpdateTenant(f.ctx, "acme", d, made.Revision)
	if err != nil {
		t.Fatal(err)
	}
	if changed.Document != d || changed.Revision <= made.Revision || changed.ID != made.ID {
		t.Errorf("changed %+v", changed)
	}
	_, err = f.UpdateTenant(f.ctx, "acme", d, made.Revision)
	wantKind(t, err, problem.Stale, "")
	_, err = f.UpdateTenant(f.ctx, "acme", tenants.Document{}, changed.Revision)
	wantKind(t, err, problem.Invalid, "")
	_, err = f.UpdateTenant(f.ctx, "nobody", d, 1)
	wantKind(t, err, problem.NotFound, "")
	wantKind(t, f.DeleteTenant(f.ctx, "acme", made.Revision), problem.Stale, "")
	if err := f.DeleteTenant(f.ctx, "acme", changed.Revision); err != nil {
		t.Fatal(err)
	}
	_, err = f.Tenant(f.ctx, made.ID)
	wantKind(t, err, problem.NotFound, "")
	wantKind(t, f.DeleteTenant(f.ctx, "acme", changed.Revision), problem.NotFound, "")

	log := f.entries(t)
	if len(log) != 3 {
		t.Fatalf("%d lines in the audit log, want 3", len(log))
	}
	for i, action := range []string{"tenant.delete", "tenant.update", "tenant.create"} {
		e := log[i]
		if e.Action != action || e.Object != made.ID || e.ObjectName != "acme" || e.TenantID != made.ID ||
			e.Actor.Name != "Ada" || e.Origin.RequestID != "r1" {
			t.Errorf("line %d: %+v, want %s", i, e, action)
		}
	}
	shown := func(name, zone string) string {
		return `{"id":"` + made.ID + `","slug":"acme","tenant":{"name":"` + name + `","status":"active","time_zone":"` + zone +
			`","billing_anchor_day":1,"no_policy":"allow","redact_values":false,"require_route":true}}`
	}
	wantJSON(t, log[2].Before, "")
	wantJSON(t, log[2].After, shown("Acme", "UTC"))
	wantJSON(t, log[1].Before, shown("Acme", "UTC"))
	wantJSON(t, log[1].After, shown("Acme Inc.", "Europe/Berlin"))
	wantJSON(t, log[0].Before, shown("Acme Inc.", "Europe/Berlin"))
	wantJSON(t, log[0].After, "")
}

func TestCreateTenantRefuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.tenant(t, "acme")
	_, err := f.CreateTenant(f.ctx, "acme", tenants.Document{Name: "Other"})
	wantKind(t, err, problem.Conflict, "slug_taken")
	_, err = f.CreateTenant(f.ctx, "other", tenants.Document{Name: "Other", Plan: "none-such"})
	wantKind(t, err, problem.Invalid, "")
	var p *problem.Problem
	_, err = f.CreateTenant(f.ctx, "new", tenants.Document{Name: "New"})
	wantKind(t, err, problem.Invalid, "")
	_, err = f.CreateTenant(f.ctx, "Not A Slug", tenants.Document{TimeZone: "Local"})
	if !errors.As(err, &p) || len(p.Fields) != 3 || p.Fields[0].Pointer != "/slug" || p.Fields[1].Pointer != "/name" || p.Fields[2].Pointer != "/time_zone" {
		t.Errorf("%v", err)
	}
	if n := len(f.entries(t)); n != 1 {
		t.Errorf("%d lines in the audit log, want 1", n)
	}
}

func TestTenantsPages(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, slug := range []string{"a", "b", "c"} {
		f.tenant(t, slug)
	}
	page, err := f.Tenants(f.ctx, tenants.Filter{Limit: 2})
	if err != nil || len(page) != 2 || page[0].Slug != "a" || page[1].Slug != "b" {
		t.Fatalf("%+v, %v", page, err)
	}
	page, err = f.Tenants(f.ctx, tenants.Filter{After: page[1].ID})
	if err != nil || len(page) != 1 || page[0].Slug != "c" {
		t.Fatalf("%+v, %v", page, err)
	}
}

func TestKeyLife(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	acme := f.tenant(t, "acme")
	n := tenants.NewKey{Name: "ci", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead}, ExpiresAt: f.now.AddDate(0, 0, 90)}
	k, token, err := f.CreateKey(f.ctx, "acme", n)
	if err != nil {
		t.Fatal(err)
	}
	if !tenants.WellFormed(token) || !strings.HasPrefix(token, "hg_tn_") || k.Hash != tenants.HashToken(token) || k.Hint != tenants.TokenHint(token) {
		t.Errorf("key %+v of token %s", k, token)
	}
	if k.TenantID != acme.ID || !k.ExpiresAt.Equal(n.ExpiresAt) || !k.CreatedAt.Equal(f.now) {
		t.Errorf("key %+v", k)
	}

	f.now = f.now.AddDate(0, 0, 80)
	next, nextToken, err := f.RotateKey(f.ctx, acme.ID, k.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if nextToken == token || next.ID == k.ID || next.Name != "ci" || len(next.Scopes) != 2 || !next.ExpiresAt.Equal(f.now.AddDate(0, 0, 90)) {
		t.Errorf("successor %+v", next)
	}
	old, err := f.Key(f.ctx, "acme", k.ID)
	if err != nil || !old.RevokedAt.Equal(f.now.Add(time.Hour)) {
		t.Errorf("rotated %+v, %v", old, err)
	}
	_, _, err = f.RotateKey(f.ctx, acme.ID, k.ID, time.Hour)
	wantKind(t, err, problem.Conflict, "key_rotated")

	f.now = f.now.Add(time.Minute)
	for range 2 { // repeating it changes nothing
		ended, err := f.RevokeKey(f.ctx, "acme", k.ID)
		if err != nil || !ended.RevokedAt.Equal(time.Date(2026, 5, 20, 12, 1, 0, 0, time.UTC)) {
			t.Errorf("revoked %+v, %v", ended, err)
		}
		f.now = f.now.Add(time.Minute)
	}
	_, _, err = f.RotateKey(f.ctx, acme.ID, k.ID, 0)
	wantKind(t, err, problem.Conflict, "key_ended")
	list, err := f.Keys(f.ctx, "acme", tenants.Filter{})
	if err != nil || len(list) != 2 || list[0].ID != k.ID || list[1].ID != next.ID {
		t.Errorf("keys %+v, %v", list, err)
	}

	log := f.entries(t)
	if len(log) != 4 {
		t.Fatalf("%d lines in the audit log, want 4", len(log))
	}
	for i, action := range []string{"key.revoke", "key.rotate", "key.create"} {
		e := log[i]
		if e.Action != action || e.Object != k.ID || e.ObjectName != "ci" || e.TenantID != acme.ID {
			t.Errorf("line %d: %+v, want %s", i, e, action)
		}
		for _, secret := range []string{token, nextToken, token[10:40]} {
			if strings.Contains(string(e.Before)+string(e.After), secret) {
				t.Errorf("line %d shows a secret", i)
			}
		}
	}
	wantJSON(t, log[2].After, `{"id":"`+k.ID+`","name":"ci","hint":"`+k.Hint+`","scopes":["check","read"],`+
		`"expires_at":"2026-05-30T12:00:00Z","created_at":"2026-03-01T12:00:00Z"}`)
	if !strings.Contains(string(log[0].After), `"revoked_at":"2026-05-20T12:01:00Z"`) {
		t.Errorf("audited %s", log[0].After)
	}
}

func TestKeysRefuse(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.tenant(t, "acme")
	f.tenant(t, "globex")
	n := tenants.NewKey{Name: "ci", Scopes: []tenants.Scope{tenants.ScopeCheck}}
	_, _, err := f.CreateKey(f.ctx, "nobody", n)
	wantKind(t, err, problem.NotFound, "")
	_, token, err := f.CreateKey(f.ctx, "acme", tenants.NewKey{Name: "ci"})
	wantKind(t, err, problem.Invalid, "")
	if token != "" {
		t.Error("a token without a key")
	}
	k, _, err := f.CreateKey(f.ctx, "acme", n)
	if err != nil {
		t.Fatal(err)
	}
	// Another tenant's key is not there, whatever is done with it.
	_, err = f.Key(f.ctx, "globex", k.ID)
	wantKind(t, err, problem.NotFound, "")
	_, _, err = f.RotateKey(f.ctx, "globex", k.ID, 0)
	wantKind(t, err, problem.NotFound, "")
	_, err = f.RevokeKey(f.ctx, "globex", k.ID)
	wantKind(t, err, problem.NotFound, "")
	if list, err := f.Keys(f.ctx, "globex", tenants.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("globex has %+v, %v", list, err)
	}
	_, _, err = f.RotateKey(f.ctx, "acme", k.ID, 8*24*time.Hour)
	wantKind(t, err, problem.Invalid, "")
	if got, err := f.Key(f.ctx, "acme", k.ID); err != nil || !got.RevokedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}
