//go:build !quick

package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/store"
)

func BenchmarkAnalyticsPostgres(b *testing.B) {
	url := template.Clone(b)
	s := open(b, store.Config{URL: url})
	w := fullWorld()
	began := time.Now()
	w.fill(b, past(b, "pgx", url))
	b.Logf("filled in %v", time.Since(began).Round(time.Second))
	w.benchmark(b, s)
}

func BenchmarkRefusalsPostgres(b *testing.B) {
	url := template.Clone(b)
	s := open(b, store.Config{URL: url})
	benchmarkRefusals(b, s, past(b, "pgx", url), `convert_to(lpad(n::TEXT, 16, '0'), 'UTF8')`)
}

func leanWorld() countedWorld {
	return countedWorld{tenants: 3, sketched: 1, keys: 36, hours: 2 * day, minutes: 2 * time.Hour, now: seenAt}
}

// No query reads more than 5,000 rows, for any time range, and neither does the whole
// Overview. Both engines are equal. The world is small enough to be filled with the race
// detector.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	url := template.Clone(t)
	s := open(t, store.Config{URL: url})
	w := leanWorld()
	w.fill(t, past(t, "pgx", url))
	a, c := w.counted(s)
	for _, length := range []time.Duration{15 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, day, 7 * day, 30 * day, 90 * day} {
		for _, q := range questions {
			before := c.rows.Load()
			if err := q.ask(t.Context(), a, w.over(length)); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			if rows := c.rows.Load() - before; rows > 5000 || rows == 0 {
				t.Errorf("%s of %v reads %d rows", q.name, length, rows)
			}
		}
	}
	w.checkOverview(t, s)
}

// checkOverview holds the Overview to the answers of its questions alone.
func (w countedWorld) checkOverview(t *testing.T, s *store.Store) {
	t.Helper()
	a := metrics.NewAnalytics(s, metrics.AnalyticsConfig{Now: func() time.Time { return w.now }})
	q := w.over(15 * time.Minute)
	before := metrics.Query{From: q.From.Add(-15 * time.Minute), To: q.From}
	var want metrics.Overview
	var errs [8]error
	want.Traffic, errs[0] = a.Traffic(t.Context(), q)
	want.Before, errs[1] = a.Total(t.Context(), before)
	want.Limited, errs[2] = a.Keys(t.Context(), q, metrics.LimitedKeys)
	want.Allowed, errs[3] = a.Keys(t.Context(), q, metrics.AllowedKeys)
	want.Routes, errs[4] = a.Routes(t.Context(), q)
	want.RetryAfter, errs[5] = a.RetryAfter(t.Context(), q)
	want.Latency, errs[6] = a.Latency(t.Context(), q)
	want.Tenants, errs[7] = a.Tenants(t.Context(), q, metrics.ByRate)
	got, err := a.Overview(t.Context(), q)
	if err := errors.Join(append(errs[:], err)...); err != nil {
		t.Fatal(err)
	}
	// Only the Overview has the trends of keys.
	for i := range got.Limited.Keys {
		k := &got.Limited.Keys[i]
		sum := int64(0)
		for _, n := range k.Trend {
			sum += n
		}
		if len(k.Trend) == 0 || sum > k.Count || sum < k.Count-k.Error || k.Allowed < 0 || k.AllowedMost < k.Allowed {
			t.Errorf("key %d: %d requests, a trend of %v, %d to %d allowed", i, k.Count, k.Trend, k.Allowed, k.AllowedMost)
		}
		k.Trend, k.Allowed, k.AllowedMost = nil, 0, 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the Overview differs from its answers (-want +got):\n%s", diff)
	}
	if want.Traffic.Total.Requests == 0 || len(want.Limited.Keys) == 0 || len(want.Tenants.Tenants) == 0 {
		t.Error("nothing was compared")
	}
	if _, err := a.Overview(t.Context(), metrics.Query{From: w.now, To: w.now}); err == nil {
		t.Error("an Overview of no time was given")
	}
}
