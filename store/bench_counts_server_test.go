//go:build !quick

package store_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/store"
)

func BenchmarkAnalyticsPostgres(b *testing.B) {
	url := template.Clone(b)
	s := open(b, store.Config{URL: url})
	w := newCountedWorld(1000)
	began := time.Now()
	w.fill(b, past(b, "pgx", url))
	b.Logf("filled in %v", time.Since(began).Round(time.Second))
	w.benchmark(b, s)
}
