package metrics_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/store"
)

// A kept world is an Analytics over a real database, with a clock that the test sets.
type kept struct {
	*testing.T
	*metrics.Analytics
	store *store.Store
	now   time.Time
	seq   int64
}

func newKept(t *testing.T) *kept {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := &kept{T: t, store: s, now: time.Date(2026, 11, 21, 14, 23, 37, 0, time.UTC)}
	k.Analytics = metrics.NewAnalytics(s, metrics.AnalyticsConfig{Now: func() time.Time { return k.now }})
	return k
}

func (k *kept) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *kept) add(counts []metrics.CountRow, sketches ...metrics.SketchRow) {
	k.Helper()
	k.seq++
	k.must(k.store.AddCounts(k.Context(), metrics.Batch{Node: "n", Seq: k.seq, Counts: counts, Sketches: sketches}))
}

func (k *kept) rollUp() {
	k.Helper()
	for {
		due, err := k.store.RollUpsDue(k.Context(), k.now, 100)
		k.must(err)
		if len(due) == 0 {
			return
		}
		for _, r := range due {
			k.must(k.store.RollUp(k.Context(), r, metrics.MergeSketches))
		}
	}
}

// back is a query of the time up to now.
func (k *kept) back(d time.Duration) metrics.Query {
	return metrics.Query{From: k.now.Add(-d), To: k.now}
}

func sketchRow(at time.Time, tenant uint32, name, node string, doc []byte) metrics.SketchRow {
	key := metrics.SketchKey{At: at.Truncate(time.Minute).Unix(), Tenant: tenant, Name: name, Node: node}
	return metrics.SketchRow{SketchKey: key, Doc: doc}
}

// Two nodes count keys for two days. The bounds contain the true counts, before and after
// minutes are rolled up to hours and hours to days.
func TestKeysOverTime(t *testing.T) {
	t.Parallel()
	k, random := newKept(t), rand.New(rand.NewPCG(5, 5))
	truth, total := map[string]int64{}, int64(0)
	for minutes := 7; minutes < 45*60; minutes += 90 {
		for _, node := range []string{"a", "b"} {
			var users []string
			for range random.IntN(60) {
				user := fmt.Sprint("u", int(random.ExpFloat64()*10))
				users = append(users, user)
				truth[user]++
				total++
			}
			at := k.now.Add(-time.Duration(minutes) * time.Minute)
			k.add(nil, sketchRow(at, 1, metrics.SketchLimitedKeys, node, metrics.TopDoc(20, 1, users)))
		}
	}
	check := func(what string) {
		t.Helper()
		q := k.back(48 * time.Hour)
		q.Tenant, q.Limit = 1, 5
		top, err := k.Keys(t.Context(), q, metrics.LimitedKeys)
		k.must(err)
		if top.Total != total || len(top.Keys) != 5 {
			t.Fatalf("%s: %d keys of %d, want 5 of %d", what, len(top.Keys), top.Total, total)
		}
		shown := map[string]bool{}
		for _, key := range top.Keys {
			n := truth[key.Values[0]]
			if n > key.Count || n < key.Count-key.Error {
				t.Errorf("%s: %v has %d, told %d-%d", what, key.Values, n, key.Count, key.Error)
			}
			shown[key.Values[0]] = true
			one, err := k.Key(t.Context(), q, key, metrics.LimitedKeys)
			k.must(err)
			var points metrics.KeyPoint
			for _, p := range one.Points {
				points.Count, points.Error = points.Count+p.Count, points.Error+p.Error
			}
			if n > one.Count || n < one.Count-one.Error || points.Count != one.Count || points.Error != one.Error {
				t.Errorf("%s: %v has %d, told %d-%d by itself, %d-%d by its points", what, key.Values, n, one.Count, one.Error, points.Count, points.Error)
			}
		}
		for user, n := range truth {
			if !shown[user] && n > top.Floor {
				t.Errorf("%s: %s has %d and is not there, floor %d", what, user, n, top.Floor)
			}
		}
		q.Policy = "other"
		none, err := k.Keys(t.Context(), q, metrics.LimitedKeys)
		k.must(err)
		if len(none.Keys) != 0 {
			t.Errorf("%s: %d keys of a policy that nobody counted", what, len(none.Keys))
		}
	}
	check("minutes")
	k.rollUp()
	check("rolled up")
}

func TestTenantsRanked(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	type numbers struct{ requests, limited int64 }
	tenants := map[uint32]numbers{1: {1000, 10}, 2: {500, 400}, 3: {5000, 50}, 4: {900, 0}, 5: {600, 300}}
	for _, at := range []time.Time{k.now.Add(-20 * time.Hour), k.now} {
		var rows []metrics.CountRow
		busy, limited := map[uint32]int64{}, map[uint32]int64{}
		for tenant, n := range tenants {
			rows = append(rows, metrics.CountRow{
				CountKey: metrics.CountKey{At: at.Truncate(time.Minute).Unix(), Tenant: tenant, Kind: metrics.KindTotal},
				Counts:   metrics.Counts{Requests: n.requests, OK: n.requests - n.limited, OverLimit: n.limited},
			})
			busy[tenant] = n.requests
			if n.limited > 0 {
				limited[tenant] = n.limited
			}
		}
		k.add(rows, sketchRow(at, 0, metrics.SketchBusyTenants, "n", metrics.TenantsDoc(busy)), sketchRow(at, 0, metrics.SketchLimitedTenants, "n", metrics.TenantsDoc(limited)))
		k.rollUp()
	}
	for by, want := range map[metrics.Measure][]uint32{
		metrics.ByRequests: {3, 1, 4, 5, 2}, metrics.ByLimited: {2, 5, 3, 1}, metrics.ByRate: {2, 5, 3, 1}, // 3 and 1 have the same rate
	} {
		list, err := k.Tenants(t.Context(), k.back(24*time.Hour), by)
		k.must(err)
		var got []uint32
		for _, each := range list.Tenants {
			got = append(got, each.Tenant)
			if n := tenants[each.Tenant]; each.Requests != 2*n.requests || each.Limited() != 2*n.limited {
				t.Errorf("tenant %d has %d requests, %d limited; want twice %+v", each.Tenant, each.Requests, each.Limited(), n)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %v, want %v", by, got, want)
		}
	}
	q := k.back(24 * time.Hour)
	q.Limit = 1
	list, err := k.Tenants(t.Context(), q, metrics.ByLimited)
	k.must(err)
	if len(list.Tenants) != 1 || list.Tenants[0].Tenant != 2 || list.Floor < 0 {
		t.Errorf("the first: %+v", list)
	}
}

// Quantiles are those of all values of all nodes, to the width of the buckets.
func TestTimesOverTime(t *testing.T) {
	t.Parallel()
	k, random := newKept(t), rand.New(rand.NewPCG(6, 6))
	var retries, times, local []int64
	for minutes := 3; minutes < 30*60; minutes += 61 {
		for _, node := range []string{"a", "b"} {
			var r, s, l []int64
			for range 1 + random.IntN(40) {
				r, s = append(r, int64(random.ExpFloat64()*60_000)), append(s, 100+random.Int64N(2000))
			}
			l = append(l, random.Int64N(20))
			at := k.now.Add(-time.Duration(minutes) * time.Minute)
			k.add(nil, sketchRow(at, 1, metrics.SketchRetryAfter, node, metrics.RetryDoc(2, r...)),
				sketchRow(at, 0, metrics.SketchLatency, node, metrics.LatencyDoc(s, l)))
			retries, times, local = append(retries, r...), append(times, s...), append(local, l...)
		}
	}
	for _, rolled := range []bool{false, true} {
		if rolled {
			k.rollUp()
		}
		q := k.back(36 * time.Hour)
		q.Tenant = 1
		h, err := k.RetryAfter(t.Context(), q)
		k.must(err)
		wantTimes(t, "retry-after", h, retries)
		if want := int64(2 * len(local)); h.Never != want {
			t.Errorf("never %d, want %d", h.Never, want)
		}
		q.Tenant = 0
		l, err := k.Latency(t.Context(), q)
		k.must(err)
		wantTimes(t, "shared", l.Shared, times)
		wantTimes(t, "local", l.Local, local)
		wantTimes(t, "latency", l.Histogram, append(slices.Clone(times), local...))
		var inPoints int64
		for _, p := range l.Points {
			inPoints += p.Count
		}
		if inPoints != l.Count {
			t.Errorf("points have %d, want %d", inPoints, l.Count)
		}
	}
}

func wantTimes(t *testing.T, what string, h metrics.Histogram, values []int64) {
	t.Helper()
	slices.Sort(values)
	at := func(percent int) int64 { return metrics.BucketEnd(values[(len(values)*percent+99)/100-1]) }
	got, want := [4]int64{h.Count, h.P50, h.P95, h.P99}, [4]int64{int64(len(values)), at(50), at(95), at(99)}
	if got != want {
		t.Errorf("%s: count, p50, p95, p99 are %v, want %v", what, got, want)
	}
	var all int64
	for _, b := range h.Buckets {
		all += b.Count
	}
	if all != h.Count || !slices.IsSortedFunc(h.Buckets, func(a, b metrics.Bucket) int { return cmp.Compare(a.From, b.From) }) {
		t.Errorf("%s: buckets hold %d of %d, or are not in order", what, all, h.Count)
	}
}

// A sketch that cannot be read is skipped; the others count.
func TestBrokenSketch(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.add(nil, sketchRow(k.now, 1, metrics.SketchRetryAfter, "a", []byte(`{"buckets":[[3,1]],"more":1}`)),
		sketchRow(k.now, 1, metrics.SketchRetryAfter, "b", metrics.RetryDoc(0, 5, 6)))
	q := k.back(time.Hour)
	q.Tenant = 1
	h, err := k.RetryAfter(t.Context(), q)
	if err != nil || h.Count != 2 {
		t.Errorf("%d values, error %v; want the 2 that can be read", h.Count, err)
	}
}
