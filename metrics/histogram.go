package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// nBuckets bounded buckets, from 1 µs, each twice the one before, to 8.4 s; one
// more has what is longer. They are fixed, so that the histograms of all nodes
// and days can be added.
const nBuckets = 24

// A histogram of durations, lock-free.
type histogram struct {
	bucket [nBuckets + 1]atomic.Uint64
	nanos  atomic.Uint64
}

// bound is the upper end of a bucket, included.
func bound(i int) time.Duration { return time.Microsecond << i }

func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	if d > 0 {
		i = min(bits.Len64(uint64(d-1)/uint64(time.Microsecond)), nBuckets)
	}
	h.bucket[i].Add(1)
	h.nanos.Add(uint64(d))
}

// read gives the histogram as Prometheus has it: counts up to each bound, in
// seconds. An observation beside it may be in the sum and not yet in the count.
func (h *histogram) read() (count uint64, sum float64, upTo map[float64]uint64) {
	sum = time.Duration(h.nanos.Load()).Seconds()
	upTo = make(map[float64]uint64, nBuckets)
	for i := range nBuckets {
		count += h.bucket[i].Load()
		upTo[bound(i).Seconds()] = count
	}
	return count + h.bucket[nBuckets].Load(), sum, upTo
}
