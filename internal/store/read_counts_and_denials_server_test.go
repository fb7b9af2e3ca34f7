//go:build !quick

package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/store/storetest"
)

func TestAnalyticsPostgres(t *testing.T) {
	t.Parallel()
	storetest.RunAnalytics(t, func(t *testing.T) storetest.Fixture {
		url := template.Clone(t)
		clock := storetest.NewClock()
		c := store.Config{URL: url, Now: clock.Now}
		return storetest.Fixture{Store: open(t, c), Other: open(t, c), Clock: clock, Exec: execOn(past(t, "pgx", url))}
	})
}
