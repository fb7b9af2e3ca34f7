package store_test

import (
	"testing"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/store/storetest"
)

func TestAnalyticsSQLite(t *testing.T) {
	t.Parallel()
	storetest.RunAnalytics(t, func(t *testing.T) storetest.Fixture {
		url, path := newFile(t)
		clock := storetest.NewClock()
		c := store.Config{URL: url, Now: clock.Now}
		return storetest.Fixture{Store: migrated(t, c), Other: open(t, c), Clock: clock, Exec: execOn(file(t, path))}
	})
}
