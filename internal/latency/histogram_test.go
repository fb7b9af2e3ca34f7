package latency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsHoldTheirValues(t *testing.T) {
	t.Parallel()
	for v := int64(0); v < 1<<40; v += max(1, v/300) {
		top := upper(bucketOf(v))
		if top < v || float64(top) > float64(v)*(1+1.0/128)+1 {
			t.Fatalf("%d is in a bucket up to %d", v, top)
		}
		if bucketOf(top) != bucketOf(v) || bucketOf(top+1) != bucketOf(v)+1 {
			t.Fatalf("the bucket of %d does not end at %d", v, top)
		}
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	var h, other Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("an empty histogram has quantiles")
	}
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		want := all[int(q*float64(len(all)))-1]
		if got := h.Quantile(q); got < want || float64(got) > float64(want)*(1+1.0/128)+1 {
			t.Errorf("the %g-quantile is %s, want %s", q, got, want)
		}
	}
	if h.Max() != all[len(all)-1] || h.Count() != 10_000 {
		t.Errorf("max %s of %d", h.Max(), h.Count())
	}
}
