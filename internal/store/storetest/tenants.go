package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func asProblem(err error) (*problem.Problem, bool) {
	var p *problem.Problem
	return p, errors.As(err, &p)
}

func testTenantLife(s *suite) {
	pro := s.plan("pro", policy("all", window(10)))
	d := tenants.Document{
		Name: "Äcme \"Inc\"", Status: tenants.Suspended, Plan: "pro", TimeZone: "Europe/Berlin",
		BillingAnchorDay: 31, NoPolicy: tenants.Deny, RedactValues: true, MaxKeys: 5_000_000, SampleAllowed: 100, NoTrace: true,
		RouteOptional: true,
	}
	made, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: "acme", Document: d}, entry("tenant.create"))
	s.must(err)
	if len(made.ID) != 36 || made.Number == 0 {
		s.Errorf("id %q, number %d", made.ID, made.Number)
	}
	want := tenants.Tenant{
		ID: made.ID, Slug: "acme", Number: made.Number, Home: fmt.Sprintf("%02x", made.Number%64), Document: d,
		PlanID: pro.ID, PlanRevision: s.revision(), Revision: s.revision(), CreatedAt: s.Clock.stored(), UpdatedAt: s.Clock.stored(),
	}
	s.same("made", made, want)
	for _, name := range []string{"acme", made.ID} {
		got, err := s.Store.Tenant(s.ctx, name)
		s.must(err)
		s.same("read by "+name, got, want)
	}

	s.Clock.Add(time.Hour)
	want.Document = tenantDocument("Other", "")
	changed, err := s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: made.ID, Document: want.Document}, made.Revision, entry("tenant.update"))
	s.must(err)
	want.PlanID, want.Revision, want.PlanRevision, want.UpdatedAt = "", s.revision(), s.revision(), s.Clock.stored()
	s.same("changed", changed, want)

	s.must(s.Store.DeleteTenant(s.ctx, made.ID, changed.Revision, entry("tenant.delete")))
	_, err = s.Store.Tenant(s.ctx, made.ID)
	s.wantKind(err, problem.NotFound, "")
	s.tenant("acme", "") // the slug is free again
}

func testTenantRefusals(s *suite) {
	acme := s.tenant("acme", "")
	_, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "unpublished", Draft: document("Draft")}, entry("plan.create"))
	s.must(err)
	before := s.revision()

	create := func(slug string, d tenants.Document) error {
		_, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: slug, Document: d}, entry("tenant.create"))
		return err
	}
	update := func(id string, revision int64, d tenants.Document) error {
		_, err := s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: id, Document: d}, revision, entry("tenant.update"))
		return err
	}
	bad := tenantDocument("Bad", "")
	bad.Status = "asleep"
	const nobody = "01900000-0000-7000-8000-000000000000"
	s.wantKind(create("acme", tenantDocument("Again", "")), problem.Conflict, "slug_taken")
	s.wantKind(create("new", bad), problem.Invalid, "")
	s.wantKind(update(nobody, 1, tenantDocument("N", "")), problem.NotFound, "")
	s.wantKind(update(acme.ID, acme.Revision-1, tenantDocument("N", "")), problem.Stale, "")
	s.wantKind(s.Store.DeleteTenant(s.ctx, nobody, 1, entry("tenant.delete")), problem.NotFound, "")
	s.wantKind(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision-1, entry("tenant.delete")), problem.Stale, "")
	for _, plan := range []string{"unknown", "unpublished"} {
		for _, err := range []error{create("new", tenantDocument("N", plan)), update(acme.ID, acme.Revision, tenantDocument("N", plan))} {
			s.wantKind(err, problem.Invalid, "")
			if p, ok := asProblem(err); !ok || len(p.Fields) != 1 || p.Fields[0].Pointer != "/plan" {
				s.Errorf("plan %s: %v, want the field /plan", plan, err)
			}
		}
	}
	got, err := s.Store.Tenant(s.ctx, acme.ID)
	s.must(err)
	s.same("tenant after refusals", got, acme)
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}
}

func testTenantFilter(s *suite) {
	s.plan("pro", policy("all", window(10)))
	named := func(slug, name, plan string, status tenants.Status) string {
		d := tenantDocument(name, plan)
		d.Status = status
		t, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: slug, Document: d}, entry("tenant.create"))
		s.must(err)
		return t.ID
	}
	a := named("alpha", "Ärzte 100%", "pro", tenants.Active)
	b := named("beta", `back\slash under_score`, "", tenants.Suspended)
	c := named("gamma", "ALPHA", "pro", tenants.Suspended)
	for _, test := range []struct {
		what string
		f    tenants.Filter
		want []string
	}{
		{"all", tenants.Filter{}, []string{a, b, c}},
		{"slug or name, any case", tenants.Filter{Query: "aLPha"}, []string{a, c}},
		{"letters beyond ASCII", tenants.Filter{Query: "äRZTE"}, []string{a}},
		{"a percent sign is itself", tenants.Filter{Query: "%"}, []string{a}},
		{"an underscore is itself", tenants.Filter{Query: "_"}, []string{b}},
		{"a backslash is itself", tenants.Filter{Query: `\`}, []string{b}},
		{"status", tenants.Filter{Status: tenants.Suspended}, []string{b, c}},
		{"plan", tenants.Filter{Plan: "pro"}, []string{a, c}},
		{"together", tenants.Filter{Plan: "pro", Status: tenants.Active, Query: "100"}, []string{a}},
		{"none", tenants.Filter{Query: "'; DROP TABLE tenants; --"}, nil},
	} {
		list, err := s.Store.Tenants(s.ctx, test.f)
		s.must(err)
		s.same(test.what, ids(list, tenantID), test.want)
	}
}

func testTenantPages(s *suite) {
	var made []string
	for i := range 7 {
		made = append(made, s.tenant(fmt.Sprintf("t%d", i), "").ID)
	}
	var seen []string
	for after := ""; ; {
		page, err := s.Store.Tenants(s.ctx, tenants.Filter{After: after, Limit: 3})
		s.must(err)
		if len(page) == 0 {
			break
		}
		seen = append(seen, ids(page, tenantID)...)
		after = page[len(page)-1].ID
		if len(made) < 9 {
			made = append(made, s.tenant(fmt.Sprintf("t%d", len(made)), "").ID)
		}
	}
	s.same("seen on all pages", seen, made)
}

func testNumbers(s *suite) {
	first := s.tenant("first", "")
	second := s.tenant("second", "")
	s.must(s.Store.DeleteTenant(s.ctx, second.ID, second.Revision, entry("tenant.delete")))
	s.must(s.Store.DeleteTenant(s.ctx, first.ID, first.Revision, entry("tenant.delete")))
	third := s.tenant("second", "")
	if third.Number == first.Number || third.Number == second.Number {
		s.Errorf("number %d was given again after %d and %d were deleted", third.Number, first.Number, second.Number)
	}
}

func testPlanRevision(s *suite) {
	s.plan("free", policy("all", window(1)))
	s.plan("pro", policy("all", window(10)))
	t := s.tenant("acme", "free")
	joined := t.PlanRevision
	update := func(d tenants.Document) {
		s.Helper()
		var err error
		t, err = s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: t.ID, Document: d}, t.Revision, entry("tenant.update"))
		s.must(err)
	}
	update(tenantDocument("Renamed", "free"))
	if t.PlanRevision != joined {
		s.Errorf("a new name moved the plan revision from %d to %d", joined, t.PlanRevision)
	}
	update(tenantDocument("Renamed", "pro"))
	if t.PlanRevision != t.Revision {
		s.Errorf("a new plan left the plan revision at %d, the revision is %d", t.PlanRevision, t.Revision)
	}
}

func testKeyLife(s *suite) {
	acme := s.tenant("acme", "")
	ask := s.newKey(acme.ID)
	ask.ExpiresAt = s.Clock.Now().Add(24 * time.Hour)
	ask.AllowedIPs = tenants.Networks{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128")}
	k, err := s.Store.CreateKey(s.ctx, ask, entry("key.create"))
	s.must(err)
	want := ask
	want.ID, want.CreatedAt, want.Revision = k.ID, s.Clock.stored(), s.revision()
	want.ExpiresAt = ask.ExpiresAt.UTC().Truncate(time.Microsecond)
	s.same("made", k, want)
	got, err := s.Store.Key(s.ctx, acme.ID, k.ID)
	s.must(err)
	s.same("read", got, want)

	until := s.Clock.stored().Add(time.Hour)
	next, err := s.Store.RotateKey(s.ctx, acme.ID, k.ID, until, s.newKey(""), entry("key.rotate"))
	s.must(err)
	if next.TenantID != acme.ID || next.ID == k.ID || next.Revision != s.revision() {
		s.Errorf("the next key is %+v", next)
	}
	want.RevokedAt, want.Revision = until, s.revision()
	got, err = s.Store.Key(s.ctx, acme.ID, k.ID)
	s.must(err)
	s.same("rotated", got, want)

	now := s.Clock.stored()
	got, err = s.Store.RevokeKey(s.ctx, acme.ID, k.ID, now, entry("key.revoke"))
	s.must(err)
	want.RevokedAt, want.Revision = now, s.revision()
	s.same("revoked in its overlap", got, want)
	got, err = s.Store.RevokeKey(s.ctx, acme.ID, k.ID, now.Add(time.Minute), entry("key.revoke"))
	s.must(err)
	s.same("revoked again", got, want)
	if n := s.revision(); n != want.Revision {
		s.Errorf("revoking again took the revision to %d", n)
	}
	list, err := s.Store.Keys(s.ctx, acme.ID, tenants.Filter{})
	s.must(err)
	s.same("listed, oldest first", ids(list, keyID), []string{k.ID, next.ID})
}

// testKeyUses stores the last use of keys of two owners from two nodes. The latest wins, and nothing else of a key
// changes: no revision, no audit line, nothing for a snapshot to load.
func testKeyUses(s *suite) {
	acme := s.tenant("acme", "")
	k, o := s.key(acme.ID), s.operatorKey(tenants.ScopeManage)
	unused := s.key(acme.ID)
	revision, lines := s.revision(), len(s.lines(audit.Filter{}))
	at := s.Clock.Now().UTC().Truncate(time.Millisecond)
	uses := []tenants.KeyUse{{ID: k.ID, At: at}, {ID: o.ID, At: at.Add(time.Second)}}
	for range 600 { // more keys than one statement updates, and keys that do not exist
		uses = append(uses, tenants.KeyUse{ID: audit.NewID(), At: at})
	}
	s.must(s.Store.AddKeyUses(s.ctx, nil))
	s.must(s.Store.AddKeyUses(s.ctx, uses))
	s.must(s.Other.AddKeyUses(s.ctx, []tenants.KeyUse{{ID: k.ID, At: at.Add(-time.Minute)}, {ID: o.ID, At: at.Add(time.Hour)}}))
	k.LastUsedAt, o.LastUsedAt = at, at.Add(time.Hour)
	for _, want := range []tenants.Key{k, o, unused} {
		got, err := s.Store.Key(s.ctx, want.TenantID, want.ID)
		s.must(err)
		s.same("used", got, want)
	}
	if n := s.revision(); n != revision {
		s.Errorf("the uses took the revision from %d to %d", revision, n)
	}
	if n := len(s.lines(audit.Filter{})); n != lines {
		s.Errorf("the uses wrote %d audit lines", n-lines)
	}
	c, err := s.Store.Changes(s.ctx, revision)
	s.must(err)
	s.same("changed keys", len(c.Keys), 0)
	next, err := s.Store.RotateKey(s.ctx, acme.ID, k.ID, s.Clock.Now().Add(time.Hour), s.newKey(""), entry("key.rotate"))
	s.must(err)
	s.same("use of the successor", next.LastUsedAt, time.Time{})
}

// testBrokenNetworks reads keys whose addresses were damaged in the database. They work
// from no address.
func testBrokenNetworks(s *suite) {
	acme := s.tenant("acme", "")
	for _, broken := range []string{"x", " ", "10.0.0.0/8 x"} {
		k := s.key(acme.ID)
		s.must(s.Exec(`UPDATE api_keys SET allowed_ips = $1 WHERE id = $2`, broken, k.ID))
		got, err := s.Store.Key(s.ctx, acme.ID, k.ID)
		s.must(err)
		if len(got.AllowedIPs) == 0 || got.AllowedIPs.Contains(netip.MustParseAddr("192.0.2.1")) {
			s.Errorf("%q: %v", broken, got.AllowedIPs)
		}
	}
}

func testKeyRefusals(s *suite) {
	acme := s.tenant("acme", "")
	k := s.key(acme.ID)
	const nobody = "01900000-0000-7000-8000-000000000000"
	_, err := s.Store.CreateKey(s.ctx, s.newKey(nobody), entry("key.create"))
	s.wantKind(err, problem.NotFound, "")
	double := s.newKey(acme.ID)
	double.Hash = k.Hash
	_, err = s.Store.CreateKey(s.ctx, double, entry("key.create"))
	s.wantKind(err, problem.Conflict, "key_exists")
	_, err = s.Store.RotateKey(s.ctx, acme.ID, nobody, s.Clock.Now(), s.newKey(""), entry("key.rotate"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.RevokeKey(s.ctx, acme.ID, nobody, s.Clock.Now(), entry("key.revoke"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.RevokeKey(s.ctx, acme.ID, k.ID, s.Clock.Now(), entry("key.revoke"))
	s.must(err)
	_, err = s.Store.RotateKey(s.ctx, acme.ID, k.ID, s.Clock.Now().Add(time.Hour), s.newKey(""), entry("key.rotate"))
	s.wantKind(err, problem.Conflict, "key_revoked")
}

// testKeysCreatedBy revokes a key with the keys that it created: all or none, and for a
// tenant only its own.
func testKeysCreatedBy(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	made := func(tenantID, by string, expires time.Time, scopes ...tenants.Scope) tenants.Key {
		n := s.newKey(tenantID)
		n.CreatedBy, n.ExpiresAt = by, expires
		if len(scopes) > 0 {
			n.Scopes = scopes
		}
		k, err := s.Store.CreateKey(s.ctx, n, entry("key.create"))
		s.must(err)
		return k
	}
	var never time.Time
	root := made("", "", never, tenants.ScopeManage)
	a := made(acme.ID, root.ID, never)
	expired := made(acme.ID, a.ID, s.Clock.Now().Add(time.Minute))
	b := made(acme.ID, expired.ID, never) // its creator has ended, but still counts as the creator
	c := made(other.ID, root.ID, never)
	s.key(acme.ID) // of a person
	s.Clock.Add(time.Hour)
	created := func(tenantID, id string) []string {
		list, err := s.Store.KeysCreatedBy(s.ctx, tenantID, id, s.Clock.Now())
		s.must(err)
		return ids(list, keyID)
	}
	s.same("of the operator's key", created("", root.ID), []string{a.ID, b.ID, c.ID})
	s.same("of a tenant's key", created(acme.ID, a.ID), []string{b.ID})
	s.same("for another tenant", created(other.ID, a.ID), []string(nil))

	line := func(k tenants.Key) audit.Entry {
		e := entry("key.revoke")
		e.Object, e.TenantID = k.ID, k.TenantID
		return e
	}
	revoke := func(tenantID, id string) (tenants.Key, error) {
		return s.Store.RevokeKeyAndCreated(s.ctx, tenantID, id, s.Clock.Now(), entry("key.revoke"), line)
	}
	before := s.revision()
	_, err := revoke("", root.ID) // the operator's last key
	s.wantKind(err, problem.Conflict, "last_operator_key")
	_, err = revoke(other.ID, a.ID)
	s.wantKind(err, problem.NotFound, "")
	s.same("after refusals", created("", root.ID), []string{a.ID, b.ID, c.ID})
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}
	made("", "", never, tenants.ScopeManage)
	k, err := revoke("", root.ID)
	s.must(err)
	if !k.RevokedAt.Equal(s.Clock.stored()) || k.Revision != s.revision() {
		s.Errorf("revoked %+v", k)
	}
	s.same("after the revocation", created("", root.ID), []string(nil))
	again, err := revoke("", root.ID)
	s.must(err)
	s.same("revoked again", again, k)
	if n := s.revision(); n != k.Revision {
		s.Errorf("revoking again took the revision to %d", n)
	}
}

func testIsolation(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	k := s.key(acme.ID)
	_, err := s.Store.Key(s.ctx, other.ID, k.ID)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.RotateKey(s.ctx, other.ID, k.ID, s.Clock.Now(), s.newKey(""), entry("key.rotate"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.RevokeKey(s.ctx, other.ID, k.ID, s.Clock.Now(), entry("key.revoke"))
	s.wantKind(err, problem.NotFound, "")
	for _, f := range []tenants.Filter{{}, {Query: k.Name}} {
		list, err := s.Store.Keys(s.ctx, other.ID, f)
		s.must(err)
		s.same("keys of the other tenant", list, []tenants.Key(nil))
	}
	s.must(s.Store.DeleteTenant(s.ctx, other.ID, other.Revision, entry("tenant.delete")))
	got, err := s.Store.Key(s.ctx, acme.ID, k.ID)
	s.must(err)
	s.same("the key after all that", got, k)
	// Slugs are compared by their bytes.
	for _, slug := range []string{"ACME", "acme ", "acme\u200b", ""} {
		_, err := s.Store.Tenant(s.ctx, slug)
		s.wantKind(err, problem.NotFound, "")
	}
}

func testNotify(s *suite) {
	changed := make(chan struct{}, 100)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(s.ctx)
	go func() { done <- s.Store.Notify(ctx, func() { changed <- struct{}{} }) }()
	// The first edits may happen before the Store listens for notifications. Therefore the test
	// makes edits until a notification arrives.
	for n, heard := 0, false; !heard; n++ {
		s.tenant(fmt.Sprintf("t%d", n), "")
		select {
		case <-changed:
			heard = true
		default:
		}
	}
	cancel()
	if err := <-done; err != nil {
		s.Errorf("notify ended with %v", err)
	}
}
