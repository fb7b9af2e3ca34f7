package snapshot_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/accounts"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/snapshot"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/tenants"
)

// control is the control plane over SQLite, with a Watcher of it.
type control struct {
	plans    *plans.Service
	tenants  *tenants.Service
	accounts *accounts.Service
	watcher  *snapshot.Watcher
}

func newControl(t *testing.T) *control {
	t.Helper()
	path := filepath.Join(t.TempDir(), "h.db")
	s, err := store.Open(t.Context(), store.Config{URL: "sqlite://" + path, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &control{
		plans: plans.NewService(s, plans.Config{}), tenants: tenants.NewService(s, tenants.Config{}),
		accounts: accounts.NewService(s, accounts.Config{}),
		watcher:  snapshot.NewWatcher(s, snapshot.Config{Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}),
	}
}

// publish saves a draft with one limit of a quota and publishes it.
func (c *control) publish(t *testing.T, slug string, quota int64) plans.Plan {
	t.Helper()
	draft := plans.Document{Name: slug, Policies: []plans.Policy{{
		Slug:    "total",
		Limits:  []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: quota, Window: time.Minute}},
		CountBy: []string{"user", "ip/64"},
	}}}
	p, err := c.plans.Plan(t.Context(), slug)
	if problem.Is(err, problem.NotFound) {
		p, err = c.plans.CreatePlan(t.Context(), slug, draft)
	} else if err == nil {
		p, err = c.plans.SaveDraft(t.Context(), slug, draft, p.DraftRevision)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, _, err = c.plans.Publish(t.Context(), slug, p.DraftRevision)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *control) tenant(t *testing.T, slug, plan string) tenants.Tenant {
	t.Helper()
	got, err := c.tenants.CreateTenant(t.Context(), slug, tenants.Document{Name: slug, Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// current asks the Watcher to look, and gives what it then has.
func (c *control) current(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	if err := c.watcher.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.watcher.Current()
}

func TestFromSQLite(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	if s := c.current(t); s.Counts() != (snapshot.Counts{}) || s.HasOperatorKey() {
		t.Fatalf("an empty database: %+v", s.Counts())
	}
	first := c.publish(t, "pro", 10)
	acme := c.tenant(t, "acme", "pro")
	key, token, err := c.tenants.CreateKey(t.Context(), acme.ID, tenants.NewKey{Name: "k", Scopes: []tenants.Scope{tenants.ScopeCheck}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.accounts.CreateOperatorKey(t.Context(), tenants.NewKey{Name: "op", Scopes: []tenants.Scope{tenants.ScopeManage}}); err != nil {
		t.Fatal(err)
	}
	s := c.current(t)
	k, ok := s.Key(tenants.HashToken(token))
	if !ok || k.Subject.Tenant != "acme" || k.Subject.Home != acme.Home || !k.Valid(time.Now().UnixMicro()) || !s.HasOperatorKey() {
		t.Fatalf("key = %+v, %t; problems %v", k, ok, s.Problems())
	}
	meter := func(s *snapshot.Snapshot) *enforcement.Meter {
		t.Helper()
		subject, ok := s.Subject("acme")
		if !ok {
			t.Fatalf("no acme; problems %v", s.Problems())
		}
		return subject.Plan.Rules[0].Limits[0].Meter
	}
	if m := meter(s); m.Quota != 10 || m.Rev == 0 || len(m.Formers) != 0 {
		t.Errorf("meter = %+v", m)
	}

	// New numbers come with the old ones behind them.
	second := c.publish(t, "pro", 20)
	s = c.current(t)
	if m := meter(s); m.Quota != 20 || len(m.Formers) != 1 || m.Formers[0].Quota != 10 || m.Formers[0].Rev >= m.Rev {
		t.Errorf("after a publish: meter = %+v", m)
	}
	if second.Published <= first.Published || s.ProblemCount() != 0 {
		t.Errorf("versions %d and %d, problems %v", first.Published, second.Published, s.Problems())
	}

	// A key is revoked, and the tenant goes.
	if _, err := c.tenants.RevokeKey(t.Context(), acme.ID, key.ID); err != nil {
		t.Fatal(err)
	}
	if k, ok := c.current(t).Key(tenants.HashToken(token)); !ok || k.Valid(time.Now().Add(time.Second).UnixMicro()) {
		t.Errorf("a revoked key = %+v, %t", k, ok)
	}
	if err := c.tenants.DeleteTenant(t.Context(), acme.ID, acme.Revision); err != nil {
		t.Fatal(err)
	}
	s = c.current(t)
	if _, ok := s.Subject("acme"); ok {
		t.Error("a removed tenant is there")
	}
	if _, ok := s.Key(tenants.HashToken(token)); ok {
		t.Error("the key of a removed tenant is there")
	}
}

// Every edit is in force on the node that made it when WaitFor returns, and
// soon after without it.
func TestReadYourWritesOnSQLite(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.watcher.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	for _, quota := range []int64{1, 2, 3, 4, 5} {
		p := c.publish(t, "pro", quota)
		if quota == 1 {
			p.Revision = c.tenant(t, "acme", "pro").Revision
		}
		if err := c.watcher.WaitFor(t.Context(), p.Revision); err != nil {
			t.Fatal(err)
		}
		s := c.watcher.Current()
		if acme, ok := s.Subject("acme"); !ok || acme.Plan.Rules[0].Limits[0].Quota != quota || s.Revision() < p.Revision {
			t.Fatalf("quota %d: acme = %+v, %t at revision %d of %d", quota, acme, ok, s.Revision(), p.Revision)
		}
	}
}
