package snapshot_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// control is the control plane over SQLite, with a Watcher of it.
type control struct {
	plans   *plans.Service
	tenants *tenants.Service
	watcher *snapshot.Watcher
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
		watcher: snapshot.NewWatcher(s, snapshot.Config{Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}),
	}
}

// publish saves a draft with one limit of a quota and publishes it.
func (c *control) publish(t *testing.T, slug string, quota int64) plans.Plan {
	t.Helper()
	return c.publishLimits(t, slug, enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: quota, Window: time.Minute})
}

func (c *control) publishLimits(t *testing.T, slug string, limits ...enforcement.Limit) plans.Plan {
	t.Helper()
	draft := plans.Content{Name: slug, Policies: []plans.Policy{{Slug: "total", Limits: limits, CountBy: []string{"user", "ip/64"}}}}
	p, err := c.plans.Plan(t.Context(), slug)
	if problem.Is(err, problem.NotFound) {
		p, err = c.plans.CreatePlan(t.Context(), slug, plans.New(draft))
	} else if err == nil {
		p, err = c.plans.SaveDraft(t.Context(), slug, plans.New(draft), p.DraftRevision)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, _, err = c.plans.Publish(t.Context(), slug, plans.Publish{IfRevision: p.DraftRevision})
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

// current makes the Watcher read the source, and returns its snapshot.
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
	if _, _, err := c.tenants.CreateOperatorKey(t.Context(), tenants.NewKey{Name: "op", Scopes: []tenants.Scope{tenants.ScopeManage}}); err != nil {
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

// Exceptions reach the engine from the services, end with a tombstone, and are deleted with
// their tenant.
func TestExceptionsFromSQLite(t *testing.T) {
	t.Parallel()
	n := newExceptionsNode(t, rand.New(rand.NewPCG(1, 1)), &met{})
	n.publish(t, "pro", 10)
	acme := n.tenant(t, "acme", "pro")
	n.tenant(t, "globex", "pro")
	in := func(d time.Duration) time.Time { return time.UnixMicro(n.now.Load()).Add(d) }
	if _, err := n.exceptions.CreateOverride(t.Context(), "acme", exceptions.NewOverride{
		Policy: "total", Attribute: "ip", Prefix: "2001:db8::/48", Factor: 2500, Reason: "launch", ExpiresAt: in(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.exceptions.CreateEntry(t.Context(), acme.ID, exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "10.0.0.0/8"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.exceptions.CreateBlock(t.Context(), "acme", exceptions.NewBlock{
		Policy: "total", Key: map[string]string{"user": "kim", "ip": "2001:db8::7"}, Reason: "scraping", ExpiresAt: in(2 * time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	ask := func(tenant, user, ip string) *enforcement.Decision {
		t.Helper()
		subject, ok := n.current(t).Subject(tenant)
		if !ok {
			t.Fatalf("no %s", tenant)
		}
		addr, text, err := enforcement.CanonicalIP(ip)
		if err != nil {
			t.Fatal(err)
		}
		return n.decide(t, subject, enforcement.Check{
			Path: "/x", Attributes: []enforcement.Attribute{{Name: "user", Value: user}, {Name: "ip", Value: text}}, IP: addr, Cost: 1,
		}, enforcement.Peek)
	}
	for _, c := range []struct {
		tenant, user, ip string
		want             enforcement.Reason
		quota            int64
	}{
		{"acme", "ann", "2001:db8::7", enforcement.ReasonOK, 25},
		{"acme", "ann", "2001:db9::7", enforcement.ReasonOK, 10},
		{"acme", "ann", "10.1.2.3", enforcement.ReasonDeniedByList, 0},
		{"acme", "kim", "2001:db8::8", enforcement.ReasonBlocked, 25}, // of the same /64
		{"acme", "kim", "2001:db8:0:1::8", enforcement.ReasonOK, 25},
		{"globex", "ann", "10.1.2.3", enforcement.ReasonOK, 10},
		{"globex", "kim", "2001:db8::7", enforcement.ReasonOK, 10},
	} {
		d := ask(c.tenant, c.user, c.ip)
		if d.Reason != c.want || len(d.Limits) > 0 && d.Limits[0].Limit.Quota != c.quota {
			t.Errorf("%s from %s of %s: %s, limits %+v; want %s, quota %d", c.user, c.ip, c.tenant, d.Reason, d.Limits, c.want, c.quota)
		}
	}
	s := n.current(t)
	if got := s.Counts(); got.Overrides != 1 || got.Entries != 1 || got.Blocks != 1 || !s.NextEnd().Equal(in(time.Hour).Truncate(time.Millisecond)) {
		t.Errorf("counts %+v, next end %s", got, s.NextEnd())
	}

	// The override ends, and the plan's numbers are back before anybody swept.
	n.now.Add(time.Hour.Microseconds())
	if d := ask("acme", "ann", "2001:db8::7"); d.Limits[0].Limit.Quota != 10 {
		t.Errorf("after its end: quota %d", d.Limits[0].Limit.Quota)
	}
	if s = n.swept(t); s.Counts().Overrides != 0 || s.Counts().Blocks != 1 {
		t.Errorf("swept: %+v", s.Counts())
	}
	if err := n.tenants.DeleteTenant(t.Context(), acme.ID, acme.Revision); err != nil {
		t.Fatal(err)
	}
	if s = n.current(t); s.Counts().Entries != 0 || s.Counts().Blocks != 0 || !s.NextEnd().IsZero() || s.ProblemCount() != 0 {
		t.Errorf("without the tenant: %+v, next end %s, problems %v", s.Counts(), s.NextEnd(), s.Problems())
	}
}
