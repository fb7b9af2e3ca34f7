// Package latency computes quantiles of durations. The load generator and the reports of nodes use it. The package
// metrics has its own histogram, because its buckets are stored in the database and must not change.
package latency

import (
	"math/bits"
	"time"
)

// A Histogram counts durations by bucket. The width of a bucket is at most 1/128 of its lower bound. The zero value is
// empty. It is not safe for concurrent use.
type Histogram struct {
	counts []int64 // number of durations by bucket, up to the highest bucket in use
	total  int64
	most   time.Duration
}

// subBits is the base-2 logarithm of the number of buckets for each power of two.
const subBits = 7

// bucketOf returns the index of the bucket that contains v nanoseconds. If v is below 128, the
// index is v. Otherwise it consists of the position of the highest bit of v and the next 7 bits.
func bucketOf(v int64) int {
	octave := bits.Len64(uint64(v)) - 1 - subBits
	if octave <= 0 {
		return int(v)
	}
	return octave<<subBits + int(v>>octave)
}

// upper returns the largest value of a bucket, in nanoseconds.
func upper(bucket int) int64 {
	octave := bucket>>subBits - 1
	if octave <= 0 {
		return int64(bucket)
	}
	return int64(bucket-octave<<subBits+1)<<octave - 1
}

// Add counts a duration. A negative d counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	bucket := bucketOf(int64(d))
	if bucket >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, bucket+1-len(h.counts))...)
	}
	h.counts[bucket]++
	h.total++
	h.most = max(h.most, d)
}

// Merge adds the counts of o to h.
func (h *Histogram) Merge(o *Histogram) {
	if more := len(o.counts) - len(h.counts); more > 0 {
		h.counts = append(h.counts, make([]int64, more)...)
	}
	for bucket, n := range o.counts {
		h.counts[bucket] += n
	}
	h.total += o.total
	h.most = max(h.most, o.most)
}

// Count returns the number of durations.
func (h *Histogram) Count() int64 { return h.total }

// Max returns the longest duration, or 0 if none was counted.
func (h *Histogram) Max() time.Duration { return h.most }

// Quantile returns the upper bound of the bucket that contains the q-quantile, with q from 0 to 1. It is at most 1/128
// above the true value. It is 0 if no duration was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	left := int64(q * float64(h.total))
	if float64(left) < q*float64(h.total) {
		left++
	}
	left = max(left, 1)
	for bucket, n := range h.counts {
		if left -= n; left <= 0 {
			return min(time.Duration(upper(bucket)), h.most)
		}
	}
	return 0
}
