package store_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/store"
)

// benchmarkAddCounts adds batches of rows of one minute: of a busy node, which
// adds to the same rows every second.
func benchmarkAddCounts(b *testing.B, s *store.Store) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			batch := metrics.Batch{Node: fmt.Sprintf("node %d", n), Counts: make([]metrics.CountRow, n)}
			for i := range batch.Counts {
				r := &batch.Counts[i]
				r.CountKey = metrics.CountKey{At: 1_700_000_040, Tenant: uint32(i / 10), Kind: metrics.KindRoute, Name: fmt.Sprintf("/v1/objects/%d", i%10)}
				r.Counts = metrics.Counts{Requests: 10, OK: 9, OverLimit: 1, Cost: 9}
			}
			for b.Loop() {
				batch.Seq++
				if err := s.AddCounts(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAddCountsSQLite(b *testing.B) {
	url, _ := newFile(b)
	benchmarkAddCounts(b, migrated(b, store.Config{URL: url}))
}
