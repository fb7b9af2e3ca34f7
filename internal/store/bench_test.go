package store_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/store"
)

// many is the number of tenants, with a key each, in a world of the benchmarks.
const many = 100_000

// fill makes the tenants past the Store, from numbers 1 to many. The id of the
// key and of its tenant end in the number; hash makes 32 bytes of the number n.
func fill(b *testing.B, db *sql.DB, numbers, hash string) {
	b.Helper()
	for _, statement := range []string{
		`INSERT INTO tenants (id, slug, number, home, name, status, plan_id, plan_revision, time_zone,
			billing_anchor_day, no_policy, redact_values, search, revision, created_at, updated_at)
		SELECT '01900000-0000-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2), 'tenant-' || n, n, '00', 'Tenant', 'active', NULL, 1, 'UTC',
			1, 'allow', false, 'tenant-' || n, 1, at, at FROM ` + numbers,
		`INSERT INTO api_keys (id, tenant_id, name, hash, hint, scopes, expires_at, revoked_at, created_at, revision)
		SELECT '01900000-0000-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2), '01900000-0000-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2),
			'Key', ` + hash + `, 'hg_tn_0000…0000', 'check read', NULL, NULL, at, 1 FROM ` + numbers,
		`UPDATE revision SET n = 1`,
	} {
		if _, err := db.Exec(statement); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkChanges(b *testing.B, s *store.Store) {
	b.ReportAllocs()
	for b.Loop() {
		c, err := s.Changes(b.Context(), 0)
		if err != nil || len(c.Tenants) != many || len(c.Keys) != many {
			b.Fatalf("%d tenants, %d keys, error %v", len(c.Tenants), len(c.Keys), err)
		}
	}
	b.ReportMetric(float64(many*b.N)/b.Elapsed().Seconds(), "tenants/s")
}

func BenchmarkChangesSQLite(b *testing.B) {
	url, path := newFile(b)
	s := migrated(b, store.Config{URL: url})
	fill(b, file(b, path), fmt.Sprintf(`(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d)
		SELECT n, 1700000000000000 AS at FROM r)`, many), `CAST(substr('00000000000000000000000000000000' || n, -32) AS BLOB)`)
	benchmarkChanges(b, s)
}
