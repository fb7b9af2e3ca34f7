package store_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
)

// full is the id of a tenant with as many overrides, list entries and blocks as
// it may have, all but one of each.
const full = "01900000-0000-7000-8000-000000000001"

// fillTenant writes that tenant directly to the database. One of a thousand overrides and
// blocks is of policy "rare", the others are of policy "all".
func fillTenant(b *testing.B, db *sql.DB, numbers func(n int) string) {
	b.Helper()
	const who = `'reason', later, at, 'system', 'system', 'system', 1`
	const id = `'01900000-0000-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2), '` + full + `'`
	const policy = `CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'all' END`
	for _, statement := range []string{
		`INSERT INTO tenants (id, slug, number, home, name, status, plan_id, plan_revision, time_zone,
			billing_anchor_day, no_policy, redact_values, search, revision, created_at, updated_at)
		SELECT '` + full + `', 'tenant-' || n, n, '00', 'Tenant', 'active', NULL, 1, 'UTC', 1, 'allow', false, 'tenant-' || n, 1, at, at FROM ` + numbers(1),
		`INSERT INTO overrides (id, tenant_id, policy, attribute, value, prefix, factor, limits, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision)
		SELECT ` + id + `, ` + policy + `, 'user', 'user-' || n, '', 2000, '[]', ` + who + ` FROM ` + numbers(exceptions.MaxOverrides-1),
		`INSERT INTO list_entries (id, tenant_id, list, attribute, value, search, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision)
		SELECT ` + id + `, 'deny', 'user', 'user-' || n, 'user-' || n, ` + who + ` FROM ` + numbers(exceptions.MaxEntries-1),
		`INSERT INTO blocks (id, tenant_id, policy, key_values, reason, expires_at, created_at, actor_kind, actor_id, actor_name, revision)
		SELECT ` + id + `, ` + policy + `, '{"user":"user-' || n || '"}', ` + who + ` FROM ` + numbers(exceptions.MaxBlocks-1),
		`UPDATE revision SET n = 1`,
	} {
		if _, err := db.Exec(statement); err != nil {
			b.Fatal(err)
		}
	}
}

// benchmarkFullTenant reads that tenant whole, adds and ends a row, and reads
// pages of its rows.
func benchmarkFullTenant(b *testing.B, s *store.Store) {
	ctx := b.Context()
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			c, err := s.Changes(ctx, 0)
			if err != nil || len(c.Overrides) != exceptions.MaxOverrides-1 || len(c.Entries) != exceptions.MaxEntries-1 || len(c.Blocks) != exceptions.MaxBlocks-1 {
				b.Fatalf("%d overrides, %d entries, %d blocks, error %v", len(c.Overrides), len(c.Entries), len(c.Blocks), err)
			}
		}
	})
	who := audit.Actor{Kind: "system", ID: "system", Name: "system"}
	line := func(action string) audit.Entry { return audit.Entry{Actor: who, TenantID: full, Action: action} }
	b.Run("add-and-end", func(b *testing.B) {
		for b.Loop() {
			o, err := s.CreateOverride(ctx, exceptions.Override{
				TenantID: full, Policy: "all", Factor: 2000, Reason: "reason", ExpiresAt: time.Now().Add(time.Hour), CreatedBy: who,
			}, line("override.create"))
			if err == nil {
				err = s.DeleteOverride(ctx, full, o.ID, line("override.delete"))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	pages := []struct {
		name string
		read func() (int, error)
	}{
		{"page", func() (int, error) {
			l, err := s.Overrides(ctx, full, exceptions.Filter{After: fmt.Sprintf("01900000-0000-7000-8000-%012d", 50_000), Limit: 50})
			return len(l), err
		}},
		{"page-of-policy", func() (int, error) {
			l, err := s.Overrides(ctx, full, exceptions.Filter{Policy: "rare", Limit: 50})
			return len(l), err
		}},
		{"page-of-blocks-of-policy", func() (int, error) {
			l, err := s.Blocks(ctx, full, exceptions.Filter{Policy: "rare", Limit: 50})
			return len(l), err
		}},
		{"page-of-search", func() (int, error) {
			l, err := s.Entries(ctx, full, exceptions.Filter{Query: "USER-1000", Limit: 11})
			return len(l) + 39, err
		}},
	}
	for _, page := range pages {
		b.Run(page.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := page.read(); n != 50 || err != nil {
					b.Fatalf("%d rows, error %v", n, err)
				}
			}
		})
	}
}

func BenchmarkFullTenantSQLite(b *testing.B) {
	url, path := newFile(b)
	s := migrated(b, store.Config{URL: url})
	later := time.Now().Add(24 * time.Hour).UnixMicro()
	fillTenant(b, file(b, path), func(n int) string {
		return fmt.Sprintf(`(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d)
			SELECT n, 1700000000000000 AS at, %d AS later FROM r)`, n, later)
	})
	benchmarkFullTenant(b, s)
}

// benchmarkPublish publishes a plan of as many policies as it may have, with two
// limits each: a first version, and versions with other numbers.
func benchmarkPublish(b *testing.B, s *store.Store) {
	ctx := b.Context()
	who := audit.Actor{Kind: "system", ID: "system", Name: "system"}
	document := func(quota int64) plans.Document {
		d := plans.Content{Name: "Full"}
		for i := range plans.MaxPolicies {
			l := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: quota, Window: time.Minute}
			d.Policies = append(d.Policies, plans.Policy{
				Slug: fmt.Sprintf("p%d", i), Match: plans.Match{Path: fmt.Sprintf("/v1/%d/*", i)}, Limits: []enforcement.Limit{l, l},
			})
		}
		return plans.New(d)
	}
	line := func(action string) audit.Entry { return audit.Entry{Actor: who, Action: action} }
	p, err := s.CreatePlan(ctx, plans.Plan{Slug: "full", Draft: document(1)}, line("plan.create"))
	if err != nil {
		b.Fatal(err)
	}
	publish := func(b *testing.B, quota int64) {
		if p, err = s.SaveDraft(ctx, p.ID, document(quota), p.DraftRevision, line("plan.draft")); err == nil {
			p, _, err = s.Publish(ctx, p.ID, p.DraftRevision, line("plan.publish"))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		publish(b, 1)
	})
	b.Run("numbers", func(b *testing.B) {
		quota := int64(1)
		for b.Loop() {
			quota++
			publish(b, quota)
		}
	})
	b.Run("same", func(b *testing.B) {
		d, err := s.Plan(ctx, p.ID)
		for b.Loop() {
			publish(b, d.Draft.Policies()[0].Limits[0].Quota)
		}
		if c, failed := s.Changes(ctx, 0); err != nil || failed != nil || len(c.Plans) != 1 || len(c.Plans[0].Limits) != 2*plans.MaxPolicies {
			b.Fatal(err, failed)
		}
	})
}

func BenchmarkPublishSQLite(b *testing.B) {
	url, _ := newFile(b)
	benchmarkPublish(b, migrated(b, store.Config{URL: url}))
}
