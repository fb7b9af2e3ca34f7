package traffic

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// One load serves everyone who asks the same, a load that failed is not kept, and
// the cache is bounded.
func TestOverviewCache(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	fail := errors.New("no database")
	k := overviewCache{load: func(_ context.Context, q trafficQuestion) (*overview, error) {
		loads.Add(1)
		if q.Tenant == 1 {
			return nil, fail
		}
		return &overview{}, nil
	}}
	get := func(q trafficQuestion, mark freshness) error {
		_, err := k.get(t.Context(), q, mark)
		return err
	}
	for range 3 {
		if err := get(trafficQuestion{}, freshness{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := loads.Load(); n != 1 {
		t.Errorf("%d loads of one overview", n)
	}
	for range 2 {
		if err := get(trafficQuestion{Query: metrics.Query{Tenant: 1}}, freshness{}); !errors.Is(err, fail) {
			t.Errorf("a failed load: %v", err)
		}
	}
	if n := loads.Load(); n != 3 {
		t.Errorf("%d loads, want 3: a failed load is kept", n)
	}
	// An overview that is older than freshFor is loaded again once more was counted.
	kept := k.kept[trafficQuestion{}]
	kept.loaded = kept.loaded.Add(-time.Minute)
	k.kept[trafficQuestion{}] = kept
	for _, mark := range []freshness{{}, {revision: 1}, {revision: 1}} {
		if err := get(trafficQuestion{}, mark); err != nil {
			t.Fatal(err)
		}
	}
	if n := loads.Load(); n != 4 {
		t.Errorf("%d loads, want 4: one after more was counted", n)
	}
	for tenant := range uint32(2 * maxOverviews) {
		_ = get(trafficQuestion{Query: metrics.Query{Tenant: tenant + 2}}, freshness{})
	}
	if n := len(k.kept); n > maxOverviews {
		t.Errorf("%d overviews are kept", n)
	}
}
