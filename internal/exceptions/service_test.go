package exceptions_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A fixture is the Service on a fresh SQLite database, at a time that the test
// holds. The tenant acme is on the plan pro, bare has none, other is on a plan
// of its own.
type fixture struct {
	*exceptions.Service
	plans   *plans.Service
	tenants *tenants.Service
	store   *store.Store
	now     time.Time
	ctx     context.Context
}

var ada = audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return f.now }
	f.ctx = audit.With(t.Context(), ada, audit.Origin{RequestID: "r1", Address: "192.0.2.1"})
	st, err := store.Open(f.ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: clock, Timeout: time.Minute})
	must(t, err)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, st.Migrate(f.ctx))
	f.store, f.plans, f.tenants = st, plans.NewService(st, plans.Config{}), tenants.NewService(st, tenants.Config{Now: clock})
	f.Service = exceptions.NewService(st, f.tenants, f.plans, exceptions.Config{Now: clock})
	f.plan(t, "pro",
		policy("login", []string{"ip/64", "user"},
			enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute},
			enforcement.Limit{Name: "l2", Algorithm: enforcement.TokenBucket, Quota: 100, Burst: 200, Window: time.Second}),
		policy("per-ip", []string{"ip"}, enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 10, Window: time.Minute}),
		policy("all", nil, enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Minute}),
		policy("huge", []string{"a/b"}, enforcement.Limit{Name: "l1", Algorithm: enforcement.GCRA, Quota: 1, Burst: enforcement.MaxQuota, Window: time.Minute}),
		plans.Policy{Slug: "exempt", Match: plans.Match{Path: "/health"}, Replaces: []string{"all"}},
	)
	f.plan(t, "secret", policy("secret-policy", nil, enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Minute}))
	f.tenant(t, "acme", "pro")
	f.tenant(t, "bare", "")
	f.tenant(t, "other", "secret")
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func policy(slug string, countBy []string, limits ...enforcement.Limit) plans.Policy {
	return plans.Policy{Slug: slug, CountBy: countBy, Limits: limits}
}

func (f *fixture) plan(t *testing.T, slug string, policies ...plans.Policy) {
	t.Helper()
	p, err := f.plans.CreatePlan(f.ctx, slug, plans.New(plans.Content{Name: slug, Policies: policies}))
	must(t, err)
	_, _, err = f.plans.Publish(f.ctx, slug, plans.Publish{IfRevision: p.DraftRevision})
	must(t, err)
}

func (f *fixture) tenant(t *testing.T, slug, plan string) {
	t.Helper()
	_, err := f.tenants.CreateTenant(f.ctx, slug, tenants.Document{Name: slug, Plan: plan})
	must(t, err)
}

// last is the newest line of the audit log.
func (f *fixture) last(t *testing.T) audit.Entry {
	t.Helper()
	list, err := f.store.AuditEntries(f.ctx, audit.Filter{Limit: 1})
	must(t, err)
	return list[0]
}

// said checks the newest line of the audit log.
func (f *fixture) said(t *testing.T, action, object, before, after string) {
	t.Helper()
	l := f.last(t)
	if l.Action != action || l.Object != object || string(l.Before) != before || string(l.After) != after || l.Actor != ada || l.Origin.RequestID != "r1" {
		t.Errorf("line %s of %s by %+v %+v:\nbefore %s\nafter  %s\nwant %s of %s:\nbefore %s\nafter  %s",
			l.Action, l.Object, l.Actor, l.Origin, l.Before, l.After, action, object, before, after)
	}
}

func wantKind(t *testing.T, err error, k problem.Kind) {
	t.Helper()
	if !problem.Is(err, k) {
		t.Errorf("%v, want kind %v", err, k)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestOverrideLife(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	acme, err := f.tenants.Tenant(f.ctx, "acme")
	must(t, err)
	f.now = f.now.Add(123456 * time.Microsecond) // milliseconds are what is kept
	made, err := f.CreateOverride(f.ctx, "acme", exceptions.NewOverride{
		Policy: "login", Attribute: "ip", Prefix: "::ffff:192.0.2.0/120", Reason: "more <for> them",
		Limits: []enforcement.OverrideLimit{
			{Name: "l1", Quota: 50, Burst: enforcement.Keep, Window: 90 * time.Second},
			{Name: "l2", Quota: enforcement.Keep, Burst: 400},
		},
	})
	must(t, err)
	if made.Prefix != "192.0.2.0/24" || made.TenantID != acme.ID || made.CreatedBy != ada {
		t.Errorf("made %+v", made)
	}
	if want := f.now.Truncate(time.Millisecond).Add(exceptions.DefaultLife); !made.ExpiresAt.Equal(want) {
		t.Errorf("ends at %v, want %v", made.ExpiresAt, want)
	}
	document := `{"id":"` + made.ID + `","policy":"login","attribute":"ip","prefix":"192.0.2.0/24",` +
		`"limits":[{"name":"l1","quota":50,"window":"90s"},{"name":"l2","burst":400}],"reason":"more <for> them",` +
		`"expires_at":"2026-03-08T12:00:00.123Z","created_at":"2026-03-01T12:00:00.123Z"}`
	f.said(t, "override.create", made.ID, "", document)

	for _, tenant := range []string{"acme", acme.ID} {
		got, err := f.Override(f.ctx, tenant, made.ID)
		must(t, err)
		same(t, "read by "+tenant, got, made)
		list, err := f.Overrides(f.ctx, tenant, exceptions.Filter{Policy: "login"})
		must(t, err)
		same(t, "listed by "+tenant, list, []exceptions.Override{made})
	}
	factor, err := f.CreateOverride(f.ctx, "acme", exceptions.NewOverride{Policy: "all", Factor: 1_500, Reason: "r", ExpiresAt: f.now.Add(exceptions.MaxLife)})
	must(t, err)
	if after := string(f.last(t).After); !strings.Contains(after, `"policy":"all","factor":1.5,"reason":"r","expires_at":"2027-03-02T12:00:00.123Z"`) {
		t.Errorf("line of a factor: %s", after)
	}
	must(t, f.DeleteOverride(f.ctx, acme.ID, factor.ID))
	before, err := factor.JSON()
	must(t, err)
	f.said(t, "override.delete", factor.ID, string(before), "")
	wantKind(t, f.DeleteOverride(f.ctx, "acme", factor.ID), problem.NotFound)
}

func TestEntryLife(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for written, kept := range map[string]string{
		"::FFFF:192.0.2.7":    "192.0.2.7",
		"2001:DB8:0::/48":     "2001:db8::/48",
		"2001:db8::1/128":     "2001:db8::1",
		"::ffff:10.0.0.0/104": "10.0.0.0/8",
		"198.51.100.0/24":     "198.51.100.0/24",
	} {
		made, err := f.CreateEntry(f.ctx, "bare", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: written})
		must(t, err)
		if made.Value != kept || !made.ExpiresAt.IsZero() {
			t.Errorf("%s is kept as %+v", written, made)
		}
	}
	made, err := f.CreateEntry(f.ctx, "bare", exceptions.NewEntry{
		List: exceptions.Allow, Attribute: "user", Value: "ada & co", Reason: "ours", ExpiresAt: f.now.Add(100 * 365 * 24 * time.Hour),
	})
	must(t, err)
	document := `{"id":"` + made.ID + `","list":"allow","attribute":"user","value":"ada & co","reason":"ours",` +
		`"expires_at":"2126-02-05T12:00:00Z","created_at":"2026-03-01T12:00:00Z"}`
	f.said(t, "list_entry.create", made.ID, "", document)
	got, err := f.Entry(f.ctx, "bare", made.ID)
	must(t, err)
	same(t, "read", got, made)
	list, err := f.Entries(f.ctx, "bare", exceptions.Filter{List: exceptions.Deny})
	must(t, err)
	if len(list) != 5 {
		t.Errorf("%d on the deny list, want 5", len(list))
	}
	_, err = f.CreateEntry(f.ctx, "bare", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "::ffff:c000:207"})
	var p *problem.Problem
	if !errors.As(err, &p) || p.Code != "entry_exists" {
		t.Errorf("another spelling of a value: %v, want entry_exists", err)
	}
	must(t, f.DeleteEntry(f.ctx, "bare", made.ID))
	f.said(t, "list_entry.delete", made.ID, document, "")
	wantKind(t, f.DeleteEntry(f.ctx, "bare", made.ID), problem.NotFound)
}

func TestBlockAndResetLife(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	made, err := f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{
		Policy: "login", Key: map[string]string{"ip": "2001:DB8::7", "user": "mallory"}, Reason: "floods", ExpiresAt: f.now.Add(time.Hour),
	})
	must(t, err)
	document := `{"id":"` + made.ID + `","policy":"login","key":{"ip":"2001:db8::7","user":"mallory"},"reason":"floods",` +
		`"expires_at":"2026-03-01T13:00:00Z","created_at":"2026-03-01T12:00:00Z"}`
	f.said(t, "block.create", made.ID, "", document)
	got, err := f.Block(f.ctx, "acme", made.ID)
	must(t, err)
	same(t, "read", got, made)
	list, err := f.Blocks(f.ctx, "acme", exceptions.Filter{Policy: "login"})
	must(t, err)
	same(t, "listed", list, []exceptions.Block{made})
	must(t, f.DeleteBlock(f.ctx, "acme", made.ID))
	f.said(t, "block.delete", made.ID, document, "")
	wantKind(t, f.DeleteBlock(f.ctx, "acme", made.ID), problem.NotFound)

	// A key without its names is that of who sent none.
	whole, err := f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{Policy: "login", Reason: "r"})
	must(t, err)
	if after := string(f.last(t).After); len(whole.Key) != 0 || !strings.Contains(after, `"key":{}`) {
		t.Errorf("block %+v, line %s", whole, after)
	}

	r, err := f.PlanReset(f.ctx, "acme", "per-ip", map[string]string{"ip": "::ffff:192.0.2.1"}, "a mistake")
	must(t, err)
	if before := f.last(t); before.Action != "block.create" {
		t.Errorf("planning left the line %s", before.Action)
	}
	if r.Tenant.Slug != "acme" || r.Policy != "per-ip" || r.Key["ip"] != "192.0.2.1" {
		t.Errorf("reset %+v", r)
	}
	must(t, f.NoteReset(f.ctx, r))
	f.said(t, "counter.reset", "per-ip", "", `{"policy":"per-ip","key":{"ip":"192.0.2.1"},"reason":"a mistake"}`)
}

func TestNothingOfAnotherTenant(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	o, err := f.CreateOverride(f.ctx, "acme", exceptions.NewOverride{Policy: "all", Factor: 500, Reason: "r"})
	must(t, err)
	n, err := f.CreateEntry(f.ctx, "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "u"})
	must(t, err)
	b, err := f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{Policy: "all", Reason: "r"})
	must(t, err)
	for _, tenant := range []string{"other", "bare", "ACME", "nobody"} {
		_, err := f.Override(f.ctx, tenant, o.ID)
		wantKind(t, err, problem.NotFound)
		_, err = f.Entry(f.ctx, tenant, n.ID)
		wantKind(t, err, problem.NotFound)
		_, err = f.Block(f.ctx, tenant, b.ID)
		wantKind(t, err, problem.NotFound)
		wantKind(t, f.DeleteOverride(f.ctx, tenant, o.ID), problem.NotFound)
		wantKind(t, f.DeleteEntry(f.ctx, tenant, n.ID), problem.NotFound)
		wantKind(t, f.DeleteBlock(f.ctx, tenant, b.ID), problem.NotFound)
	}
	for _, list := range []func(context.Context, string) (int, error){
		func(ctx context.Context, tenant string) (int, error) {
			l, err := f.Overrides(ctx, tenant, exceptions.Filter{})
			return len(l), err
		},
		func(ctx context.Context, tenant string) (int, error) {
			l, err := f.Entries(ctx, tenant, exceptions.Filter{})
			return len(l), err
		},
		func(ctx context.Context, tenant string) (int, error) {
			l, err := f.Blocks(ctx, tenant, exceptions.Filter{})
			return len(l), err
		},
	} {
		if mine, err := list(f.ctx, "acme"); mine != 1 || err != nil {
			t.Errorf("the tenant itself sees %d, %v", mine, err)
		}
		if others, err := list(f.ctx, "other"); others != 0 || err != nil {
			t.Errorf("another tenant sees %d, %v", others, err)
		}
		_, err := list(f.ctx, "nobody")
		wantKind(t, err, problem.NotFound)
	}
	// A policy of another tenant's plan is as unknown as one that nobody has.
	var faults [2]string
	for i, slug := range []string{"secret-policy", "no-such-policy"} {
		_, err := f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{Policy: slug, Reason: "r"})
		wantKind(t, err, problem.Invalid)
		faults[i] = err.Error()
	}
	if faults[0] != faults[1] || strings.Contains(faults[0], "secret") {
		t.Errorf("they differ: %s / %s", faults[0], faults[1])
	}
}

// The service returns what it accepted, unchanged or in canonical form.
func TestWhatIsSetReadsBack(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	number := func(t *rapid.T, most int64) int64 {
		return rapid.OneOf(rapid.Just(enforcement.Keep), rapid.Int64Range(0, most)).Draw(t, "number")
	}
	text := rapid.StringN(1, 60, 200).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
	rapid.Check(t, func(t *rapid.T) {
		n := exceptions.NewOverride{Policy: "login", Reason: rapid.StringMatching(`[a-zA-Z<>&"'\\ äß]{0,40}x`).Draw(t, "reason")}
		if rapid.Bool().Draw(t, "of a user") {
			n.Attribute = "user"
			if value := text.Draw(t, "value"); rapid.Bool().Draw(t, "exact") {
				n.Value = value
			} else {
				n.Prefix = value
			}
		}
		if rapid.Bool().Draw(t, "factor") {
			n.Factor = rapid.Int64Range(1, enforcement.MaxFactor).Draw(t, "thousandths")
		} else {
			n.Limits = []enforcement.OverrideLimit{
				{Name: "l1", Quota: number(t, enforcement.MaxLog), Burst: enforcement.Keep, Window: time.Duration(rapid.Int64Range(1, 9_999_999_999).Draw(t, "ms")) * time.Millisecond},
				{Name: "l2", Quota: number(t, enforcement.MaxQuota), Burst: number(t, enforcement.MaxQuota), Window: time.Hour},
			}
		}
		n.ExpiresAt = f.now.Add(time.Duration(rapid.Int64Range(1, exceptions.MaxLife.Milliseconds()).Draw(t, "life")) * time.Millisecond)
		made, err := f.CreateOverride(f.ctx, "acme", n)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Override(f.ctx, "acme", made.ID)
		if diff := cmp.Diff(made, got); diff != "" || err != nil {
			t.Errorf("error %v, read (-made +read):\n%s", err, diff)
		}
		back := exceptions.NewOverride{
			Policy: got.Policy, Attribute: got.Attribute, Value: got.Value, Prefix: got.Prefix,
			Factor: got.Factor, Limits: got.Limits, Reason: got.Reason, ExpiresAt: got.ExpiresAt,
		}
		if diff := cmp.Diff(n, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("kept (-asked +kept):\n%s", diff)
		}
		if err := f.DeleteOverride(f.ctx, "acme", made.ID); err != nil {
			t.Fatal(err)
		}
	})
}
