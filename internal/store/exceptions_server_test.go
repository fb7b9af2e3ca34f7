//go:build !quick

package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
)

func TestExceptionsDownPostgres(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	testExceptionsDown(t, open(t, store.Config{URL: url}), past(t, "pgx", url))
}
