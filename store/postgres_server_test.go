//go:build !quick

package store_test

import (
	"context"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/servertest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// template is a migrated database, made once.
var template = servertest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := store.Open(ctx, store.Config{URL: url, Timeout: patient})
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	return s.Close()
})

func TestConformancePostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		url := template.Clone(t)
		clock := storetest.NewClock()
		c := store.Config{URL: url, Now: clock.Now}
		return storetest.Fixture{Store: open(t, c), Other: open(t, c), Clock: clock, Exec: execOn(past(t, "pgx", url))}
	})
}
