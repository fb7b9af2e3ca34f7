package metrics

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// Histograms of retry times (milliseconds) and of limiter calls (microseconds) use the same buckets. The bounds are
// the powers of 2^(1/8) as integers, up to 2^45. They are fixed, so that histograms of all nodes and days can be
// added. A quantile is reported as the upper bound of its bucket: at least the true value, and at most 9.1% above
// it.

const (
	perOctave = 8
	octaves   = 45 // 2^45 ms are 1,115 years; 2^45 µs are more than one year
)

// powers are 2^(i/8) in units of 2^-52, rounded down. They are constants, so that every machine has the same bounds.
var powers = [perOctave]uint64{
	4503599627370496, 4911210218475898, 5355712719992597, 5840446135085607,
	6369051672525772, 6945500098633947, 7574121564787629, 8259638134547591,
}

// logBounds are the inclusive upper bounds of the buckets. Larger values count in the last bucket.
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

// octaveStarts maps a bit length to the bucket of the smallest value with that bit length.
var octaveStarts = makeOctaveStarts()

func makeOctaveStarts() (starts [octaves + 2]int16) {
	for n := 1; n < len(starts); n++ {
		at, _ := slices.BinarySearch(logBounds, 1<<(n-1))
		starts[n] = int16(at)
	}
	return starts
}

// bucketOf returns the index of the bucket that contains a value.
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

// A logHistogram counts values by logarithmic bucket. The zero value is empty. It is not safe for concurrent use.
type logHistogram struct {
	counts []int64 // by bucket index, up to the highest bucket in use
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

// count returns the number of values.
func (h *logHistogram) count() (n int64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// quantile returns the upper bound of the bucket that contains the quantile, which is given in thousandths. It
// returns 0 if the histogram is empty.
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

// buckets returns the buckets from the first to the last nonempty one, including empty ones between them.
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
		b := Bucket{From: -1, To: logBounds[i], Count: h.counts[i]} // the value 0 has its own bucket
		if i > 0 {
			b.From = logBounds[i-1]
		}
		list = append(list, b)
	}
	return list
}

// pairs are the nonempty buckets of a histogram in its stored form. Each pair is the upper bound and the count.
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

// histogram converts pairs to a histogram. It returns an error if logHistogram.pairs cannot have written them.
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

// A sketch is one of the summaries that counts.go lists. decodeSketch decodes what encode returns.
type sketch interface {
	// absorb adds the counts of another sketch of the same name. It may keep memory of o.
	absorb(o sketch)
	encode() []byte
	// size estimates the memory of the sketch in bytes.
	size() int
}

func (t *topKeys) absorb(o sketch) { t.merge(o.(*topKeys)) }

// retryTimes is the sketch SketchRetryAfter. Its values are in milliseconds.
type retryTimes struct {
	histogram logHistogram
	never     int64 // denials for which waiting does not help; they are not in the histogram
}

type retryDoc struct {
	Buckets pairs `json:"buckets"`
	Never   int64 `json:"never,omitempty"`
}

func (r *retryTimes) absorb(o sketch) {
	other := o.(*retryTimes)
	r.histogram.merge(&other.histogram)
	r.never += other.never
}

func (r *retryTimes) encode() []byte { return mustJSON(retryDoc{r.histogram.pairs(), r.never}) }

func decodeRetryTimes(text []byte) (*retryTimes, error) {
	doc, ok := scanRetryTimes(string(text))
	if !ok {
		return nil, errDocument
	}
	if !within(doc.Never) {
		return nil, fmt.Errorf("never %d", doc.Never)
	}
	h, err := doc.Buckets.histogram()
	return &retryTimes{h, doc.Never}, err
}

// latencies is the sketch SketchLatency. Its values are in microseconds. shared is the limiter that all nodes share,
// or the only one; local is the node's own limiter that replaces it while it is unavailable.
type latencies struct{ shared, local logHistogram }

type latencyDoc struct {
	Shared pairs `json:"shared"`
	Local  pairs `json:"local"`
}

func (l *latencies) absorb(o sketch) {
	other := o.(*latencies)
	l.shared.merge(&other.shared)
	l.local.merge(&other.local)
}

func (l *latencies) encode() []byte { return mustJSON(latencyDoc{l.shared.pairs(), l.local.pairs()}) }

func decodeLatencies(text []byte) (*latencies, error) {
	doc, ok := scanLatencies(string(text))
	if !ok {
		return nil, errDocument
	}
	shared, err := doc.Shared.histogram()
	if err != nil {
		return nil, err
	}
	local, err := doc.Local.histogram()
	return &latencies{shared, local}, err
}

// remainingBuckets is the number of buckets of remaining quota: nothing left, up to 5%, up to 10%, … up to 100%.
const remainingBuckets = 21

type remainingCounts = [remainingBuckets]int64

// remainingBucket returns the index of the bucket for a remaining amount of a quota.
func remainingBucket(remaining, quota int64) int {
	if remaining <= 0 || quota <= 0 {
		return 0
	}
	if remaining >= quota {
		return remainingBuckets - 1
	}
	const steps = remainingBuckets - 1
	return int((remaining*steps + quota - 1) / quota) // does not overflow, because no quota is above 10^12
}

// remainingShares is the sketch SketchRemaining: a histogram for each policy slug.
type remainingShares map[string]*remainingCounts

type remainingDoc struct {
	Policies map[string][]int64 `json:"policies"`
}

func (r remainingShares) add(policy string, counts *remainingCounts) {
	mine := r[policy]
	if mine == nil {
		mine = new(remainingCounts)
		r[policy] = mine
	}
	for i, n := range counts {
		mine[i] += n
	}
}

func (r remainingShares) absorb(o sketch) {
	for policy, counts := range o.(remainingShares) {
		r.add(policy, counts)
	}
}

func (r remainingShares) encode() []byte {
	doc := remainingDoc{Policies: make(map[string][]int64, len(r))}
	for policy, counts := range r {
		doc.Policies[policy] = counts[:]
	}
	return mustJSON(doc)
}

func decodeRemaining(text []byte) (remainingShares, error) {
	doc, ok := scanRemaining(string(text))
	if !ok {
		return nil, errDocument
	}
	r := make(remainingShares, len(doc.Policies))
	for policy, counts := range doc.Policies {
		if len(counts) != remainingBuckets || slices.ContainsFunc(counts, func(n int64) bool { return !within(n) }) {
			return nil, fmt.Errorf("policy %q: %d buckets, or a number out of bounds", policy, len(counts))
		}
		r.add(policy, (*remainingCounts)(counts))
	}
	return r, nil
}

// decodeSketch decodes the document of a sketch. It returns an error for text that encode cannot have written.
func decodeSketch(name string, doc []byte) (s sketch, err error) {
	switch name {
	case SketchLimitedKeys, SketchAllowedKeys, SketchLimitedTenants, SketchBusyTenants:
		s, err = decodeTopKeys(doc)
	case SketchRetryAfter:
		s, err = decodeRetryTimes(doc)
	case SketchRemaining:
		s, err = decodeRemaining(doc)
	case SketchLatency:
		s, err = decodeLatencies(doc)
	default:
		err = errors.New("its name is unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("sketch %q: %w", name, err)
	}
	return s, nil
}

// mergeSketches merges the documents of several sketches with the same name into one.
func mergeSketches(name string, docs [][]byte) ([]byte, error) {
	var all sketch
	for _, doc := range docs {
		s, err := decodeSketch(name, doc)
		switch {
		case err != nil:
			return nil, err
		case all == nil:
			all = s
		default:
			all.absorb(s)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("sketch %q: nothing to merge", name)
	}
	return all.encode(), nil
}

// A histogram has the same buckets as a logHistogram, but is safe for concurrent use. It uses no lock.
type histogram struct {
	bucket [maxLogBuckets]atomic.Uint64
	sum    atomic.Uint64 // in the unit of the caller of observe
}

// maxLogBuckets is an upper bound of len(logBounds).
const maxLogBuckets = perOctave*octaves + 2

func (h *histogram) observe(v int64, sum uint64) {
	h.bucket[bucketOf(v)].Add(1)
	h.sum.Add(sum)
}

// observeTime counts a duration: in the bucket of its microseconds, rounded up, and in the sum in nanoseconds.
func (h *histogram) observeTime(d time.Duration) {
	d = max(d, 0)
	h.observe(int64((d+time.Microsecond-1)/time.Microsecond), uint64(d))
}

// upTo returns for each bound how many values are at most that bound, and the number of all values. The bounds ascend
// and are elements of logBounds. A concurrent observation may already be in the sum and not yet in the counts.
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

// since returns the values that were observed since the last call with the same before, which it updates.
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
