package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/store"
)

// benchmarkNodes is one report among a hundred nodes, and reading all of them.
func benchmarkNodes(b *testing.B, s *store.Store) {
	now := time.Now()
	var n nodes.Node
	for i := range 100 {
		n = nodes.Node{
			ID: uuid.NewString(), Name: fmt.Sprintf("node-%d:8080", i), Version: "1.2.3", GoVersion: "go1.26", StartedAt: now, At: now, Limiter: nodes.LimiterRedis,
			Redis:    nodes.Redis{Reachable: true, Since: now, RoundTrips: nodes.Latency{P50: time.Millisecond, P99: time.Second, Calls: 1000}},
			Snapshot: nodes.Snapshot{Revision: 1000, ConfirmedAt: now, Listening: true},
			Counts:   nodes.Counts{Decisions: 10_000, Interval: nodes.Every, WaitingRows: 100, FlushedAt: now},
		}
		if err := s.PutNode(b.Context(), n); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("put", func(b *testing.B) {
		for b.Loop() {
			if err := s.PutNode(b.Context(), n); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("census", func(b *testing.B) {
		for b.Loop() {
			if c, err := s.Census(b.Context()); err != nil || len(c.Nodes) != 100 {
				b.Fatalf("%d nodes, error %v", len(c.Nodes), err)
			}
		}
	})
}

func BenchmarkNodesSQLite(b *testing.B) {
	url, _ := newFile(b)
	benchmarkNodes(b, migrated(b, store.Config{URL: url}))
}
