package metrics

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// Without some tenants a sketch is what the others have: to the byte while
// nothing was dropped, and within its bounds when something was.
func TestWithoutTenants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 17))
		keys, capacity := 2+random.IntN(12), 100
		if seed%2 == 1 {
			capacity = 5 + random.IntN(10)
		}
		of := func(tenants ...uint32) *topKeys { // the same whenever it is asked
			var each []*topKeys
			for _, tenant := range tenants {
				r := rand.New(rand.NewPCG(seed, uint64(tenant)))
				one := newTopKeys(capacity)
				for range 1 + r.IntN(400) {
					i := r.IntN(keys)
					x := textOf(i)
					x.tenant = tenant
					if e := one.add(x.id(), 1); e != nil {
						e.text = x
					}
				}
				each = append(each, one)
			}
			all := newTopKeys(capacity)
			all.mergeOthers(each)
			return all
		}
		got, err := WithoutTenants(SketchAllowedKeys, of(1, 2, 3, 4).encode(), []uint32{2, 4}, [][]byte{of(2).encode(), of(4).encode()})
		if err != nil {
			t.Fatal(err)
		}
		want := of(1, 3)
		if capacity == 100 {
			if !bytes.Equal(got, want.encode()) {
				t.Fatalf("seed %d: without two tenants\n%s\nwant\n%s", seed, got, want.encode())
			}
			continue
		}
		left, err := decodeTopKeys(got)
		if err != nil {
			t.Fatal(err)
		}
		if left.total != want.total {
			t.Errorf("seed %d: %d in total, want %d", seed, left.total, want.total)
		}
		truth := map[topID]int64{}
		for _, tenant := range []uint32{1, 3} {
			r := rand.New(rand.NewPCG(seed, uint64(tenant)))
			for range 1 + r.IntN(400) {
				x := textOf(r.IntN(keys))
				x.tenant = tenant
				truth[x.id()]++
			}
		}
		for _, k := range left.ranking() {
			if n := truth[k.id]; n > k.count || n < k.count-k.error {
				t.Errorf("seed %d: a key that came %d times is told as %d with an error of %d", seed, n, k.count, k.error)
			}
			delete(truth, k.id)
		}
		for _, n := range truth {
			if n > left.floor() {
				t.Errorf("seed %d: a key with %d is not there, above the floor of %d", seed, n, left.floor())
			}
		}
	}
}

// A ranking of tenants has no sketches of their own behind it.
func TestWithoutTenantsInARanking(t *testing.T) {
	t.Parallel()
	ranking := func(counts map[uint32]int64) []byte {
		top := newTopKeys(topCapacity)
		for _, tenant := range []uint32{1, 2, 3} {
			if n := counts[tenant]; n > 0 {
				x := topText{tenant: tenant}
				top.add(x.id(), n).text = x
			}
		}
		return top.encode()
	}
	got, err := WithoutTenants(SketchBusyTenants, ranking(map[uint32]int64{1: 5, 2: 700, 3: 40}), []uint32{2}, nil)
	if err != nil || !bytes.Equal(got, ranking(map[uint32]int64{1: 5, 3: 40})) {
		t.Errorf("without tenant 2: %s, error %v", got, err)
	}
	if got, err := WithoutTenants(SketchBusyTenants, ranking(map[uint32]int64{2: 700}), []uint32{2}, nil); err != nil || got != nil {
		t.Errorf("without the only one: %s, error %v; want nothing", got, err)
	}
}

func TestWithoutTenantsInAHistogram(t *testing.T) {
	t.Parallel()
	retry := func(never int64, values ...int64) *retryTimes {
		r := &retryTimes{never: never}
		for _, v := range values {
			r.histogram.add(v, 1)
		}
		return r
	}
	mine, theirs := retry(2, 1, 50, 50, 9_000), retry(1, 50, 70_000)
	all := retry(0)
	all.absorb(mine)
	all.absorb(theirs)
	got, err := WithoutTenants(SketchRetryAfter, all.encode(), []uint32{2}, [][]byte{theirs.encode()})
	if err != nil || !bytes.Equal(got, mine.encode()) {
		t.Errorf("without: %s, error %v; want %s", got, err, mine.encode())
	}
	if got, err := WithoutTenants(SketchRetryAfter, all.encode(), []uint32{1, 2}, [][]byte{mine.encode(), theirs.encode()}); err != nil || got != nil {
		t.Errorf("without all: %s, error %v; want nothing", got, err)
	}
	for name, docs := range map[string][][]byte{
		"more in a bucket": {retry(0, 1, 1).encode()}, "more that never pass": {retry(4).encode()}, "a higher bucket": {retry(0, 1<<40).encode()},
		"no document": {[]byte("{")},
	} {
		if got, err := WithoutTenants(SketchRetryAfter, all.encode(), []uint32{2}, docs); err == nil {
			t.Errorf("%s: %s, want an error", name, got)
		}
	}
}

func TestWithoutTenantsInWhatRemains(t *testing.T) {
	t.Parallel()
	shares := func(policies ...string) remainingShares {
		r := remainingShares{}
		for i, policy := range policies {
			counts := remainingCounts{20: 1}
			counts[i] = 3
			r.add(policy, &counts)
		}
		return r
	}
	mine, theirs := shares("a", "b"), shares("b", "c")
	all := remainingShares{}
	all.absorb(mine)
	all.absorb(theirs)
	got, err := WithoutTenants(SketchRemaining, all.encode(), []uint32{2}, [][]byte{theirs.encode()})
	if err != nil || !bytes.Equal(got, mine.encode()) {
		t.Errorf("without: %s, error %v; want %s", got, err, mine.encode())
	}
	if got, err := WithoutTenants(SketchRemaining, all.encode(), []uint32{1, 2}, [][]byte{mine.encode(), theirs.encode()}); err != nil || got != nil {
		t.Errorf("without all: %s, error %v; want nothing", got, err)
	}
	for _, more := range []remainingShares{shares("d"), shares("a", "a")} {
		if got, err := WithoutTenants(SketchRemaining, all.encode(), []uint32{2}, [][]byte{more.encode()}); err == nil {
			t.Errorf("more than there is: %s, want an error", got)
		}
	}
}

func TestWithoutTenantsKeepsWhatHasNone(t *testing.T) {
	t.Parallel()
	l := &latencies{}
	l.shared.add(7, 3)
	if got, err := WithoutTenants(SketchLatency, l.encode(), []uint32{1}, nil); err != nil || !bytes.Equal(got, l.encode()) {
		t.Errorf("the limiter's time: %s, error %v", got, err)
	}
	if _, err := WithoutTenants("unknown", []byte("{}"), nil, nil); err == nil {
		t.Error("a sketch of an unknown name is read")
	}
	if slices.ContainsFunc(SketchNames, func(name string) bool { _, err := decodeSketch(name, []byte(`{"nonsense": 1}`)); return err == nil }) {
		t.Error("a sketch reads nonsense")
	}
}
