//go:build !quick

package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
)

func TestPeopleDownPostgres(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	testPeopleDown(t, open(t, store.Config{URL: url}), past(t, "pgx", url))
}

func BenchmarkEditPostgres(b *testing.B) {
	benchmarkEdit(b, open(b, store.Config{URL: template.Clone(b)}))
}
