//go:build !quick

package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
)

func BenchmarkNodesPostgres(b *testing.B) {
	benchmarkNodes(b, open(b, store.Config{URL: template.Clone(b)}))
}
