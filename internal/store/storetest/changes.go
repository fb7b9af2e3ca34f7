package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func (s *suite) lines(f audit.Filter) []audit.Entry {
	s.Helper()
	list, err := s.Store.AuditEntries(s.ctx, f)
	s.must(err)
	return list
}

func testAuditLines(s *suite) {
	written := 0
	// wrote checks the audit line that the last change wrote.
	wrote := func(action, tenant, object, name string) {
		s.Helper()
		written++
		list := s.lines(audit.Filter{})
		if len(list) != written {
			s.Fatalf("%s: %d lines after %d writes", action, len(list), written)
		}
		want := entry(action)
		want.ID, want.At, want.Revision = list[0].ID, s.Clock.stored(), s.revision()
		want.Seq, want.Hash = int64(written), list[0].Hash
		want.TenantID, want.Object, want.ObjectName = tenant, object, name
		s.same("the line of "+action, list[0], want)
		s.Clock.Add(time.Second)
	}
	p, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "pro", Draft: document("Pro")}, entry("plan.create"))
	s.must(err)
	wrote("plan.create", "", p.ID, "pro")
	p, err = s.Store.SaveDraft(s.ctx, p.ID, document("Pro", policy("all", window(1))), p.DraftRevision, entry("plan.save_draft"))
	s.must(err)
	wrote("plan.save_draft", "", p.ID, "pro")
	p = s.publish(p)
	wrote("plan.publish", "", p.ID, "pro")
	p, _, err = s.Store.PublishVersion(s.ctx, p.ID, 1, plans.AnyVersion, entry("plan.publish_version"))
	s.must(err)
	wrote("plan.publish_version", "", p.ID, "pro")
	t := s.tenant("acme", "pro")
	wrote("tenant.create", t.ID, t.ID, "acme")
	t, err = s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: t.ID, Document: tenantDocument("Acme", "")}, t.Revision, entry("tenant.update"))
	s.must(err)
	wrote("tenant.update", t.ID, t.ID, "acme")
	k := s.key(t.ID)
	wrote("key.create", t.ID, k.ID, k.Name)
	_, err = s.Store.RotateKey(s.ctx, t.ID, k.ID, s.Clock.Now().Add(time.Hour), s.newKey(""), entry("key.rotate"))
	s.must(err)
	wrote("key.rotate", t.ID, k.ID, k.Name)
	for range 2 { // the second call changes nothing and writes no audit line
		_, err = s.Store.RevokeKey(s.ctx, t.ID, k.ID, s.Clock.stored().Add(-time.Minute), entry("key.revoke"))
		s.must(err)
	}
	wrote("key.revoke", t.ID, k.ID, k.Name)
	s.must(s.Store.DeleteTenant(s.ctx, t.ID, t.Revision, entry("tenant.delete")))
	wrote("tenant.delete", t.ID, t.ID, "acme")
	s.must(s.Store.DeletePlan(s.ctx, p.ID, p.Revision, entry("plan.delete")))
	wrote("plan.delete", "", p.ID, "pro")
	s.operatorKey(tenants.ScopeManage)
	o := s.operatorKey(tenants.ScopeManage)
	written++
	wrote("operator_key.create", "", o.ID, o.Name)
	_, err = s.Store.RotateKey(s.ctx, "", o.ID, s.Clock.Now().Add(time.Hour), s.newOperatorKey(tenants.ScopeManage),
		entry("operator_key.rotate"))
	s.must(err)
	wrote("operator_key.rotate", "", o.ID, o.Name)
	_, err = s.Store.RevokeKey(s.ctx, "", o.ID, s.Clock.Now(), entry("operator_key.revoke"))
	s.must(err)
	wrote("operator_key.revoke", "", o.ID, o.Name)
	s.must(s.Store.PutSetting(s.ctx, "title", "x", entry("setting.put")))
	wrote("setting.put", "", "title", "title")
}

func testAuditFailure(s *suite) {
	p := s.plan("pro", policy("all", window(1)))
	p, err := s.Store.SaveDraft(s.ctx, p.ID, document("pro", policy("all", window(2))), p.DraftRevision, entry("plan.save_draft"))
	s.must(err)
	t := s.tenant("acme", "pro")
	k := s.key(t.ID)
	before, lines := s.world(), s.lines(audit.Filter{})
	unwritable := audit.Entry{Actor: entry("").Actor} // a line without an action
	until := s.Clock.Now().Add(time.Hour)
	for what, write := range map[string]func() error{
		"create tenant": func() error {
			_, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: "new", Document: tenantDocument("N", "")}, unwritable)
			return err
		},
		"delete tenant": func() error { return s.Store.DeleteTenant(s.ctx, t.ID, t.Revision, unwritable) },
		"create key": func() error {
			_, err := s.Store.CreateKey(s.ctx, s.newKey(t.ID), unwritable)
			return err
		},
		"rotate key": func() error {
			_, err := s.Store.RotateKey(s.ctx, t.ID, k.ID, until, s.newKey(""), unwritable)
			return err
		},
		"publish": func() error {
			_, _, err := s.Store.Publish(s.ctx, p.ID, p.DraftRevision, unwritable)
			return err
		},
		"put setting": func() error { return s.Store.PutSetting(s.ctx, "title", "x", unwritable) },
	} {
		if err := write(); err == nil {
			s.Errorf("%s passed without its line", what)
		}
	}
	s.same("the world", s.world(), before)
	s.same("the log", s.lines(audit.Filter{}), lines)
}

func testAuditOnlyAdded(s *suite) {
	s.tenant("acme", "")
	before := s.lines(audit.Filter{})
	for _, statement := range []string{
		`UPDATE audit_log SET action = 'nothing'`, `UPDATE audit_log SET seq = NULL, hash = NULL`, `DELETE FROM audit_log`,
		`TRUNCATE audit_log`, // no word of SQLite's
		`INSERT OR REPLACE INTO audit_log SELECT * FROM audit_log`, // no words of Postgres'
	} {
		if err := s.Exec(statement); err == nil {
			s.Errorf("%s passed", statement)
		}
	}
	s.same("the log", s.lines(audit.Filter{}), before)
}

func testAuditFilter(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	start := s.Clock.Now()
	s.Clock.Add(time.Hour)
	e := entry("tenant.update")
	e.Before, e.After = json.RawMessage(`{"name":"acme"}`), json.RawMessage(`{"name": "Acme <&>"}`)
	acme, err := s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: acme.ID, Document: tenantDocument("Acme", "")}, acme.Revision, e)
	s.must(err)
	for i := range 5 {
		s.Clock.Add(-time.Minute) // the clocks of nodes differ, so lines are ordered by revision
		s.must(s.Store.PutSetting(s.ctx, fmt.Sprint("s", i), "x", entry("setting.put")))
	}
	all := s.lines(audit.Filter{})
	if !slices.IsSortedFunc(all, func(a, b audit.Entry) int { return int(b.Revision - a.Revision) }) || len(all) != 8 {
		s.Fatalf("%d lines, newest first: %v", len(all), ids(all, entryID))
	}
	if got := s.lines(audit.Filter{Action: "tenant.update"})[0]; string(got.Before) != string(e.Before) ||
		string(got.After) != string(e.After) {
		s.Errorf("before %s, after %s", got.Before, got.After)
	}
	for _, test := range []struct {
		what string
		f    audit.Filter
		want int
	}{
		{"tenant", audit.Filter{TenantID: acme.ID}, 2},
		{"other tenant", audit.Filter{TenantID: other.ID}, 1},
		{"no tenant", audit.Filter{TenantID: "nobody"}, 0},
		{"tenant and another's object", audit.Filter{TenantID: acme.ID, Object: other.ID}, 0},
		{"action", audit.Filter{Action: "tenant.create"}, 2},
		{"object", audit.Filter{Object: "s3"}, 1},
		{"one line", audit.Filter{ID: all[0].ID}, 1},
		{"one line of another tenant", audit.Filter{ID: all[0].ID, TenantID: acme.ID}, 0},
		{"group", audit.Filter{Group: "tenant"}, 3},
		{"part of a group", audit.Filter{Group: "ten"}, 0},
		{"a group with a wildcard", audit.Filter{Group: "t_nant"}, 0},
		{"a group that is all", audit.Filter{Group: "%"}, 0},
		{"named by id", audit.Filter{Named: acme.ID}, 2},
		{"part of a name", audit.Filter{Named: "s"}, 0},
		{"from", audit.Filter{From: start.Add(time.Minute)}, 6},
		{"to", audit.Filter{To: start.Add(time.Minute)}, 2},
		{"an empty stretch", audit.Filter{From: start.Add(time.Hour), To: start.Add(time.Hour)}, 0},
	} {
		if got := len(s.lines(test.f)); got != test.want {
			s.Errorf("%s: %d lines, want %d", test.what, got, test.want)
		}
	}
	var paged []string
	for after := ""; ; {
		page := s.lines(audit.Filter{After: after, Limit: 3})
		if len(page) == 0 {
			break
		}
		paged = append(paged, ids(page, entryID)...)
		after = page[len(page)-1].ID
		s.must(s.Store.PutSetting(s.ctx, "meanwhile", "x", entry("setting.put")))
	}
	s.same("paged", paged, ids(all, entryID))
}

func testChangesWhole(s *suite) {
	pro := s.plan("pro", policy("all", window(10)))
	_, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "draft", Draft: document("Draft")}, entry("plan.create"))
	s.must(err)
	t := s.tenant("acme", "pro")
	gone := s.tenant("gone", "")
	s.must(s.Store.DeleteTenant(s.ctx, gone.ID, gone.Revision, entry("tenant.delete")))
	k := s.key(t.ID)
	k, err = s.Store.RevokeKey(s.ctx, t.ID, k.ID, s.Clock.Now(), entry("key.revoke"))
	s.must(err)
	o := s.operatorKey(tenants.ScopeManage)
	l := s.inForce(pro.ID)["all"]
	s.same("the world", s.world(), snapshot.Changes{
		Revision: s.revision(),
		Plans: []snapshot.PublishedPlan{{
			ID: pro.ID, Slug: "pro", Version: 1, Revision: pro.Revision, Document: pro.Draft, Limits: []plans.Published{l},
		}},
		Tenants: []tenants.Tenant{t}, Keys: []tenants.Key{k, o},
	})
	s.same("nothing is newer", s.since(s.revision()), snapshot.Changes{Revision: s.revision()})
}

func testChangesSince(s *suite) {
	pro := s.plan("pro", policy("all", window(10)))
	unused := s.plan("unused", policy("all", window(10)))
	t, other := s.tenant("acme", "pro"), s.tenant("other", "pro")
	k, stays := s.key(t.ID), s.key(other.ID)
	at := s.revision()

	stays, err := s.Store.RevokeKey(s.ctx, other.ID, stays.ID, s.Clock.Now(), entry("key.revoke"))
	s.must(err)
	s.must(s.Store.DeleteTenant(s.ctx, t.ID, t.Revision, entry("tenant.delete")))
	s.must(s.Store.DeletePlan(s.ctx, unused.ID, unused.Revision, entry("plan.delete")))
	c := s.since(at)
	s.same("keys", c.Keys, []tenants.Key{stays})
	s.same("removed", c.Removed, []snapshot.Tombstone{{Kind: "key", ID: k.ID}, {Kind: "tenant", ID: t.ID}, {Kind: "plan", ID: unused.ID}})
	if len(c.Tenants)+len(c.Plans) != 0 || c.Revision != s.revision() {
		s.Errorf("more changed than was changed: %+v", c)
	}

	at = s.revision()
	s.revise(pro, policy("all", window(20)))
	c = s.since(at)
	if len(c.Plans) != 1 || c.Plans[0].Version != 2 || len(c.Plans[0].Limits) != 1 || c.Plans[0].Limits[0].Limit.Quota != 20 {
		s.Errorf("plans: %+v", c.Plans)
	}
	if len(c.Tenants) != 0 {
		s.Errorf("publishing changed tenants: %v", c.Tenants)
	}
}

func testChangesBroken(s *suite) {
	good := s.plan("good", policy("all", window(10)))
	for slug, statement := range map[string]string{
		"syntax":  `{"form":1,`,
		"unknown": `{"form":1,"name":"x","colour":"red"}`,
		"future":  `{"form":2,"name":"x"}`,
		"twice":   `{"form":1,"name":"x","name":"y"}`,
		"null":    `{"form":1,"name":null}`,
		"numberless": `{"form":1,"name":"x","policies":[{"slug":"p",` +
			`"limits":[{"name":"l1","algorithm":"gcra","quota":1,"window_ms":1,"anchor":"first_hit"}]}]}`,
		"algorithm": `{"form":1,"name":"x","policies":[{"slug":"p",` +
			`"limits":[{"name":"l1","algorithm":"guess","quota":1,"window_ms":1,"anchor":"first_hit"}]}]}`,
	} {
		p := s.plan(slug, policy("all", window(10)))
		s.must(s.Exec(`INSERT INTO plan_versions (plan_id, number, document, published_at, actor_kind, actor_id, actor_name, revision)
			SELECT plan_id, 2, $1, published_at, actor_kind, actor_id, actor_name, revision FROM plan_versions WHERE plan_id = $2`, statement, p.ID))
		s.must(s.Exec(`UPDATE plans SET published = 2, latest = 2 WHERE id = $1`, p.ID))
	}
	formers := s.plan("formers", policy("all", window(10)))
	s.must(s.Exec(`UPDATE plan_limits SET formers = '[{"quota":-1}]' WHERE plan_id = $1`, formers.ID))
	for _, p := range s.world().Plans {
		switch {
		case p.ID == good.ID && (p.Broken != "" || len(p.Limits) != 1):
			s.Errorf("the good plan: %+v", p)
		case p.ID != good.ID && (p.Broken == "" || len(p.Limits)+len(p.Document.Policies()) != 0):
			s.Errorf("plan %s was read: %+v", p.Slug, p)
		}
	}
}

// Eight goroutines edit through two processes, while another goroutine reads the changes.
func testConcurrentEdits(s *suite) {
	const people, edits = 8, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	revisions := make(map[int64]bool)
	for person := range people {
		at := s.Store
		if person%2 == 1 {
			at = s.Other
		}
		wg.Go(func() {
			for i := range edits {
				slug := fmt.Sprintf("t-%d-%d", person, i)
				t, err := at.CreateTenant(s.ctx, tenants.Tenant{Slug: slug, Document: tenantDocument(slug, "")}, entry("tenant.create"))
				mu.Lock()
				if err != nil || revisions[t.Revision] {
					s.Errorf("%s: revision %d, error %v", slug, t.Revision, err)
				}
				revisions[t.Revision] = true
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen := make(map[string]bool)
	for at, last := int64(0), false; ; {
		select {
		case <-done:
			last = true
		default:
		}
		c := s.since(at)
		if c.Revision < at {
			s.Fatalf("the revision went back from %d to %d", at, c.Revision)
		}
		for _, t := range c.Tenants {
			seen[t.ID] = true
		}
		if at = c.Revision; last {
			break
		}
	}
	if len(revisions) != people*edits || s.revision() != people*edits {
		s.Errorf("%d revisions, the last is %d; want %d", len(revisions), s.revision(), people*edits)
	}
	all := ids(s.world().Tenants, tenantID)
	slices.Sort(all)
	s.same("tenants that the following node saw", slices.Sorted(maps.Keys(seen)), all)
	numbers := make(map[uint32]bool)
	for _, t := range s.world().Tenants {
		numbers[t.Number] = true
	}
	if len(numbers) != people*edits {
		s.Errorf("%d different numbers for %d tenants", len(numbers), people*edits)
	}
}

func testFailedEdit(s *suite) {
	s.tenant("acme", "")
	before := s.revision()
	_, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: "acme", Document: tenantDocument("Again", "")}, entry("tenant.create"))
	s.wantKind(err, problem.Conflict, "slug_taken")
	if after := s.tenant("next", ""); after.Revision != before+1 {
		s.Errorf("the next edit has revision %d, want %d", after.Revision, before+1)
	}
	// If the schema rejects a change, the error also has a kind, and nothing is stored.
	long := plans.Plan{ID: "short", Slug: "pro", Draft: document("Pro", policy("all", enforcement.Limit{
		Algorithm: enforcement.GCRA,
		Quota:     1, Window: time.Second,
	}))}
	_, err = s.Store.CreatePlan(s.ctx, long, entry("plan.create"))
	s.wantKind(err, problem.Invalid, "")
	if n := s.revision(); n != before+1 {
		s.Errorf("the revision is %d, want %d", n, before+1)
	}
}
