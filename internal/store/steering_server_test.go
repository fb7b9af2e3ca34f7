//go:build !quick

package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
)

func TestSteeringDownPostgres(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	testSteeringDown(t, open(t, store.Config{URL: url}), past(t, "pgx", url))
}
