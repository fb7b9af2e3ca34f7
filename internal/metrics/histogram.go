package metrics

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// There are two histograms: of retry times in milliseconds, and of durations of limiter calls in
// microseconds. Both have the same buckets. The bounds of the buckets are the powers of 2^(1/8),
// rounded to integers, up to 2^45. All nodes and releases use these bounds, so that histograms of
// several nodes can be added. A quantile is reported as the upper bound of the bucket that contains
// the quantile. So the reported value is never below the true value, and at most 9.1% above it.

const (
	perOctave = 8
	octaves   = 45 // 2^45 ms are 1,115 years; 2^45 µs are more than one year
)

// powers are 2^(i/8) in units of 2^-52, rounded down. The values are literals, because a
// computation with floats could give different bounds on different machines.
var powers = [perOctave]uint64{
	4503599627370496, 4911210218475898, 5355712719992597, 5840446135085607,
	6369051672525772, 6945500098633947, 7574121564787629, 8259638134547591,
}

// logBounds are the inclusive upper bounds of the buckets. A value above the last bound counts in
// the last bucket.
var logBounds = makeLogBounds()

func makeLogBounds() []int64 {
	bounds := []int64{0}
	for i := range perOctave * octaves {
		bound := int64(powers[i%perOctave] >> (52 - i/perOctave))
		if bound > bounds[len(bounds)-1] {
			bounds = append(bounds, bound)
		}
	}
	return append(bounds, 1<<octaves)
}

// octaveStarts has one element for each bit length: the index of the bucket that contains the
// smallest value with this bit length. bucketOf starts its search there.
var octaveStarts = makeOctaveStarts()

func makeOctaveStarts() (starts [octaves + 2]int16) {
	for n := 1; n < len(starts); n++ {
		at, _ := slices.BinarySearch(logBounds, 1<<(n-1))
		starts[n] = int16(at)
	}
	return starts
}

// bucketOf returns the index of the bucket that contains v.
func bucketOf(v int64) int {
	if v <= 0 {
		return 0
	}
	if v >= 1<<octaves {
		return len(logBounds) - 1
	}
	i := int(octaveStarts[bits.Len64(uint64(v))])
	for logBounds[i] < v {
		i++
	}
	return i
}

// A logHistogram contains the number of values in each bucket of logBounds. The zero value is
// empty. It is not safe for concurrent use.
type logHistogram struct {
	counts []int64 // number of values by bucket index, up to the highest bucket in use
}

func (h *logHistogram) add(v, n int64) { h.addTo(bucketOf(v), n) }

func (h *logHistogram) addTo(bucket int, n int64) {
	for bucket >= len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[bucket] += n
}

// reset empties h and keeps its memory for reuse.
func (h *logHistogram) reset() { h.counts = h.counts[:0] }

func (h *logHistogram) merge(o *logHistogram) {
	for i, n := range o.counts {
		if n != 0 {
			h.addTo(i, n)
		}
	}
}

// count returns the number of values in the histogram.
func (h *logHistogram) count() (n int64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// quantile returns the upper bound of the bucket that contains a quantile. permille is the quantile
// in thousandths: 990 for the 99th percentile. It returns 0 if the histogram is empty.
func (h *logHistogram) quantile(permille int64) int64 {
	all := h.count()
	want := all/1000*permille + (all%1000*permille+999)/1000 // rounded up
	for i, n := range h.counts {
		if want -= n; n > 0 && want <= 0 {
			return logBounds[i]
		}
	}
	return 0
}

// buckets returns the buckets from the first nonempty bucket to the last nonempty bucket, including
// empty buckets between them.
func (h *logHistogram) buckets() []Bucket {
	used := func(n int64) bool { return n != 0 }
	first := slices.IndexFunc(h.counts, used)
	if first < 0 {
		return nil
	}
	last := len(h.counts) - 1
	for h.counts[last] == 0 {
		last--
	}
	list := make([]Bucket, 0, last-first+1)
	for i := first; i <= last; i++ {
		b := Bucket{From: -1, To: logBounds[i], Count: h.counts[i]} // the bucket of the value 0 has the range (-1, 0]
		if i > 0 {
			b.From = logBounds[i-1]
		}
		list = append(list, b)
	}
	return list
}

// pairs are the nonempty buckets of a logHistogram in the stored form: the upper bound and the
// count of each bucket.
type pairs [][2]int64

func (h *logHistogram) pairs() pairs {
	list := pairs{}
	for i, n := range h.counts {
		if n != 0 {
			list = append(list, [2]int64{logBounds[i], n})
		}
	}
	return list
}

// histogram converts pairs to a logHistogram. It returns an error if p is not a possible result of
// logHistogram.pairs.
func (p pairs) histogram() (h logHistogram, err error) {
	for i, pair := range p {
		at, known := slices.BinarySearch(logBounds, pair[0])
		if !known || i > 0 && pair[0] <= p[i-1][0] || pair[1] < 1 || !within(pair[1]) {
			return logHistogram{}, fmt.Errorf("bucket up to %d with %d", pair[0], pair[1])
		}
		h.addTo(at, pair[1])
	}
	return h, nil
}

// A histogram has the same buckets as a logHistogram. It is safe for concurrent use without a lock.
type histogram struct {
	bucket [maxLogBuckets]atomic.Uint64
	sum    atomic.Uint64 // sum of the values, in the unit that the caller of observe uses
}

// maxLogBuckets is an upper bound of len(logBounds).
const maxLogBuckets = perOctave*octaves + 2

func (h *histogram) observe(v int64, sum uint64) {
	h.bucket[bucketOf(v)].Add(1)
	h.sum.Add(sum)
}

// observeTime counts a duration. The bucket is the one for the duration in microseconds, rounded
// up. observeTime adds the duration in nanoseconds to the sum.
func (h *histogram) observeTime(d time.Duration) {
	d = max(d, 0)
	h.observe(int64((d+time.Microsecond-1)/time.Microsecond), uint64(d))
}

// upTo returns, for each bound in bounds, the number of values that are at most the bound. all is
// the number of all values. bounds must be ascending elements of logBounds. If other goroutines
// observe values at the same time, h.sum may already include values that counts and all do not
// include.
func (h *histogram) upTo(bounds []int64) (counts []uint64, all uint64) {
	counts = make([]uint64, 0, len(bounds))
	for i, upper := range logBounds {
		for len(counts) < len(bounds) && upper > bounds[len(counts)] {
			counts = append(counts, all)
		}
		all += h.bucket[i].Load()
	}
	for len(counts) < len(bounds) {
		counts = append(counts, all)
	}
	return counts, all
}

// since returns the values that were observed since the previous call. The array before contains
// the bucket counts at that call. since then updates the array for the next call.
func (h *histogram) since(before *[maxLogBuckets]uint64) (fresh logHistogram) {
	for i := range logBounds {
		n := h.bucket[i].Load()
		if n != before[i] {
			fresh.addTo(i, int64(n-before[i]))
			before[i] = n
		}
	}
	return fresh
}
