//go:build !quick

package store_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/store"
)

func BenchmarkChangesPostgres(b *testing.B) {
	url := template.Clone(b)
	s := open(b, store.Config{URL: url})
	fill(b, past(b, "pgx", url), fmt.Sprintf(`(SELECT n, now() AS at FROM generate_series(1, %d) n) AS numbers`, many),
		`decode(lpad(to_hex(n), 64, '0'), 'hex')`)
	benchmarkChanges(b, s)
}

func BenchmarkAddCountsPostgres(b *testing.B) {
	benchmarkAddCounts(b, open(b, store.Config{URL: template.Clone(b)}))
}

func BenchmarkFullTenantPostgres(b *testing.B) {
	url := template.Clone(b)
	s := open(b, store.Config{URL: url})
	fillTenant(b, past(b, "pgx", url), func(n int) string {
		return fmt.Sprintf(`(SELECT n, now() AS at, now() + interval '1 day' AS later FROM generate_series(1, %d) n) AS numbers`, n)
	})
	benchmarkFullTenant(b, s)
}

func BenchmarkPublishPostgres(b *testing.B) {
	benchmarkPublish(b, open(b, store.Config{URL: template.Clone(b)}))
}
