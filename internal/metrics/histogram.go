package metrics

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// Retry times (milliseconds) and the limiter's time (microseconds) use the same
// buckets: their bounds are the powers of 2^(1/8) as integers, up to 2^45. They are
// fixed, so that histograms of all nodes and days can be added. A quantile is the
// upper end of its bucket: at least the true value, and at most 9.1 % above it.

const (
	perOctave = 8
	octaves   = 45 // 2^45 ms are 1,115 years, 2^45 µs more than one
)

// powers are 2^(i/8) in units of 2^-52, rounded down, so that every machine has the same bounds.
var powers = [perOctave]uint64{
	4503599627370496, 4911210218475898, 5355712719992597, 5840446135085607,
	6369051672525772, 6945500098633947, 7574121564787629, 8259638134547591,
}

// logBounds are the upper ends of the buckets, inclusive. Larger values count in the last one.
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

// octaveStarts maps a number of bits to the bucket of the smallest value of that size.
var octaveStarts = makeOctaveStarts()

func makeOctaveStarts() (starts [octaves + 2]int16) {
	for n := 1; n < len(starts); n++ {
		at, _ := slices.BinarySearch(logBounds, 1<<(n-1))
		starts[n] = int16(at)
	}
	return starts
}

// bucketOf returns the bucket of a value.
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

// A logHistogram counts values by bucket. The zero value is empty. It is not safe for concurrent
// use.
type logHistogram struct {
	counts []int64 // by bucket, up to the highest that was used
}

func (h *logHistogram) add(v, n int64) { h.addTo(bucketOf(v), n) }

func (h *logHistogram) addTo(bucket int, n int64) {
	for bucket >= len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[bucket] += n
}

// reset empties h and keeps its memory.
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

// quantile returns the upper end of the bucket that contains the quantile, in thousandths; 0
// without values.
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

// buckets returns the buckets from the first to the last nonempty one.
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
		b := Bucket{From: -1, To: logBounds[i], Count: h.counts[i]} // 0 has a bucket of its own
		if i > 0 {
			b.From = logBounds[i-1]
		}
		list = append(list, b)
	}
	return list
}

// pairs are the nonempty buckets in a document: upper end and count.
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

// histogram reads the output of pairs and rejects anything else.
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

// A sketch is one of the summaries in counts.go. decodeSketch reads what encode returns.
type sketch interface {
	// absorb adds the counts of another sketch of the same name. It may keep parts of it.
	absorb(o sketch)
	encode() []byte
	// size estimates the memory in bytes.
	size() int
}

func (t *topKeys) absorb(o sketch) { t.merge(o.(*topKeys)) }

// retryTimes is SketchRetryAfter, in milliseconds.
type retryTimes struct {
	histogram logHistogram
	never     int64 // waiting does not help; not in the histogram
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

// latencies is SketchLatency, in microseconds: of the shared limiter (or the only one), and of the
// local one that replaces it.
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

// remainingBuckets are: nothing left, up to 5 %, up to 10 %, … up to 100 % of the quota.
const remainingBuckets = 21

type remainingCounts = [remainingBuckets]int64

// remainingBucket returns the bucket of remaining units of a quota.
func remainingBucket(remaining, quota int64) int {
	if remaining <= 0 || quota <= 0 {
		return 0
	}
	if remaining >= quota {
		return remainingBuckets - 1
	}
	const steps = remainingBuckets - 1
	return int((remaining*steps + quota - 1) / quota) // no quota is above 10^12
}

// remainingShares is SketchRemaining, by the slug of the policy.
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

// decodeSketch reads a document. It rejects text that encode did not write.
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

// mergeSketches joins documents of one name.
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

// A histogram has the same buckets and is safe for concurrent use. It takes no lock.
type histogram struct {
	bucket [maxLogBuckets]atomic.Uint64
	sum    atomic.Uint64 // in the unit of whoever observes
}

// maxLogBuckets is an upper bound of len(logBounds).
const maxLogBuckets = perOctave*octaves + 2

func (h *histogram) observe(v int64, sum uint64) {
	h.bucket[bucketOf(v)].Add(1)
	h.sum.Add(sum)
}

// observeTime adds a duration to the buckets in microseconds, rounded up, and to the sum in
// nanoseconds.
func (h *histogram) observeTime(d time.Duration) {
	d = max(d, 0)
	h.observe(int64((d+time.Microsecond-1)/time.Microsecond), uint64(d))
}

// upTo returns how many values are at most each bound, and how many there are. The bounds ascend
// and are bounds of buckets. A concurrent observation may be in the sum and not yet in the count.
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

// since returns the values since the last call with the same before.
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
