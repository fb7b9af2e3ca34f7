package metrics

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// One scheme of buckets serves everything that spreads over orders of
// magnitude: retry times in milliseconds and the limiter's time in microseconds.
// Bounds are the powers of 2^(1/8), eight an octave, as whole numbers: 0, 1, 2,
// 3, 4, … each by itself up to 14, then (14, 16], (16, 17], (17, 19], and so on up to
// 2^45. They are fixed, so that histograms of all nodes and days add up.
//
// A quantile is told as the upper end of its bucket: never below the true value,
// and at most 9.1 % above it. The middle of a bucket is within 4.4 % of what is in it.

const (
	perOctave = 8
	octaves   = 45 // 2^45 ms are 1,115 years, 2^45 µs more than one
)

// powers are 2^(i/8) in units of 2^-52, rounded down: integers, so that every
// machine has the same bounds.
var powers = [perOctave]uint64{
	4503599627370496, 4911210218475898, 5355712719992597, 5840446135085607,
	6369051672525772, 6945500098633947, 7574121564787629, 8259638134547591,
}

// logBounds are the upper ends of the buckets, included. A value beyond the last
// one counts as that.
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

// octaveStarts has, for each number of bits, the bucket of the smallest value of
// so many.
var octaveStarts = makeOctaveStarts()

func makeOctaveStarts() (starts [octaves + 2]int16) {
	for n := 1; n < len(starts); n++ {
		at, _ := slices.BinarySearch(logBounds, 1<<(n-1))
		starts[n] = int16(at)
	}
	return starts
}

// bucketOf gives the bucket of a value.
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

// A logHistogram counts values by bucket. The zero value is empty. It is not for
// concurrent use.
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

// reset empties h; it keeps its memory.
func (h *logHistogram) reset() { h.counts = h.counts[:0] }

func (h *logHistogram) merge(o *logHistogram) {
	for i, n := range o.counts {
		if n != 0 {
			h.addTo(i, n)
		}
	}
}

// count of all values.
func (h *logHistogram) count() (n int64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// quantile gives the upper end of the bucket that has the value below which, or
// at which, permille thousandths of all are; 0 without values.
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

// buckets gives the buckets from the first to the last that has something.
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

// pairs are the buckets of a histogram in a document: upper end and number.
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

// histogram reads what pairs wrote, and nothing else.
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

// A sketch is one of the summaries that counts.go names. Each encodes itself as
// JSON; decodeSketch reads it.
type sketch interface {
	// absorb adds what another one of the same name counted, and may keep parts
	// of it.
	absorb(o sketch)
	encode() []byte
	// size is about how many bytes it keeps.
	size() int
}

func (t *topKeys) absorb(o sketch) { t.merge(o.(*topKeys)) }

// retryTimes is SketchRetryAfter: in milliseconds.
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
		doc = retryDoc{}
		if err := strictJSON(text, &doc); err != nil {
			return nil, err
		}
	}
	if !within(doc.Never) {
		return nil, fmt.Errorf("never %d", doc.Never)
	}
	h, err := doc.Buckets.histogram()
	return &retryTimes{h, doc.Never}, err
}

// latencies is SketchLatency, in microseconds: of the limiter that all nodes
// share (or that a node alone has), and of the one that stands in for it.
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
		doc = latencyDoc{}
		if err := strictJSON(text, &doc); err != nil {
			return nil, err
		}
	}
	shared, err := doc.Shared.histogram()
	if err != nil {
		return nil, err
	}
	local, err := doc.Local.histogram()
	return &latencies{shared, local}, err
}

// remainingBuckets are those of what remains of a quota: nothing, up to 5 %, up
// to 10 %, … up to all of it.
const remainingBuckets = 21

type remainingCounts = [remainingBuckets]int64

// remainingBucket of remaining units of a quota.
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

// remainingShares is SketchRemaining: by policy's slug.
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
		doc = remainingDoc{}
		if err := strictJSON(text, &doc); err != nil {
			return nil, err
		}
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

// decodeSketch reads a document of a name. What encode did not write is an error.
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

// mergeSketches joins documents of one name into one.
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

// A histogram in the same buckets that any number of goroutines may add to. It
// takes no lock.
type histogram struct {
	bucket [maxLogBuckets]atomic.Uint64
	sum    atomic.Uint64 // in the unit of whoever observes
}

// maxLogBuckets is more than there are.
const maxLogBuckets = perOctave*octaves + 2

func (h *histogram) observe(v int64, sum uint64) {
	h.bucket[bucketOf(v)].Add(1)
	h.sum.Add(sum)
}

// observeTime adds a duration in microseconds, rounded up; its sum is in
// nanoseconds.
func (h *histogram) observeTime(d time.Duration) {
	d = max(d, 0)
	h.observe(int64((d+time.Microsecond-1)/time.Microsecond), uint64(d))
}

// upTo gives, of each bound, how many values are not above it, and how many
// there are. The bounds ascend, and are bounds of buckets. An observation beside
// it may be in the sum and not yet in the count.
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

// since gives what came since the last call with the same before.
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
