//go:build !quick

package store_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/store"
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
