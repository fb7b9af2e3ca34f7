package metrics

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

func TestBucketsAreAnEighthOfAnOctave(t *testing.T) {
	t.Parallel()
	if n := len(logBounds); n > maxLogBuckets || logBounds[0] != 0 || logBounds[n-1] != 1<<octaves {
		t.Fatalf("%d bounds up to %d", n, logBounds[n-1])
	}
	for i := 1; i < len(logBounds); i++ {
		low, high := logBounds[i-1], logBounds[i]
		if high <= low {
			t.Fatalf("bound %d: %d after %d", i, high, low)
		}
		// The middle is within 4.4% of every whole number of the bucket.
		smallest := low + 1
		if ratio := float64(high) / float64(smallest); ratio > 1.0906 {
			t.Errorf("bucket %d to %d: %.4f", smallest, high, ratio)
		}
		if bucketOf(smallest) != i || bucketOf(high) != i {
			t.Errorf("bucket %d has %d to %d, but they count in %d and %d", i, smallest, high, bucketOf(smallest), bucketOf(high))
		}
	}
	for v := range int64(15) {
		if logBounds[bucketOf(v)] != v {
			t.Errorf("%d has no bucket of its own", v)
		}
	}
	for n := range octaves + 1 {
		if logBounds[bucketOf(1<<n)] != 1<<n {
			t.Errorf("2^%d is no bound", n)
		}
	}
	if bucketOf(-5) != 0 || bucketOf(1<<62) != len(logBounds)-1 {
		t.Error("values out of range")
	}
	if last := logBounds[len(logBounds)-1]; last < enforcement.MaxWindow.Microseconds() {
		t.Errorf("the longest window is beyond %d", last)
	}
}

func TestQuantilesAreNearTheTruth(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h logHistogram
		values := make([]int64, 1+random.IntN(2_000))
		for i := range values {
			values[i] = random.Int64N(1 << (1 + random.IntN(44)))
			h.add(values[i], 1)
		}
		slices.Sort(values)
		for _, permille := range []int64{1, 500, 950, 990, 1000} {
			truth := values[(int64(len(values))*permille+999)/1000-1]
			got := h.quantile(permille)
			if got < truth || float64(got) > float64(truth)*1.0906 {
				t.Errorf("quantile %d of %d values = %d, want %d", permille, len(values), got, truth)
			}
		}
		if h.count() != int64(len(values)) {
			t.Errorf("count = %d", h.count())
		}
	}
	if new(logHistogram).quantile(500) != 0 || new(logHistogram).buckets() != nil {
		t.Error("an empty histogram has values")
	}
}

func TestHistogramsAddUp(t *testing.T) {
	t.Parallel()
	var a, b, both logHistogram
	for v := range int64(5_000) {
		half := &a
		if v%3 == 0 {
			half = &b
		}
		half.add(v*v, v%7+1)
		both.add(v*v, v%7+1)
	}
	a.merge(&b)
	if !slices.Equal(a.counts, both.counts) {
		t.Error("the sum of two is not the histogram of all")
	}
	list := both.buckets()
	sum := int64(0)
	for i, bucket := range list {
		sum += bucket.Count
		if i > 0 && bucket.From != list[i-1].To {
			t.Errorf("bucket %v after %v", bucket, list[i-1])
		}
	}
	if sum != both.count() || list[0].From != -1 || list[0].To != 0 {
		t.Errorf("%d in buckets from %v, want %d", sum, list[0], both.count())
	}
}

func TestWhatRemainsOfAQuota(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remaining, quota int64
		want             int
	}{
		{0, 100, 0},
		{1, 100, 1},
		{5, 100, 1},
		{6, 100, 2},
		{50, 100, 10},
		{95, 100, 19},
		{96, 100, 20},
		{100, 100, 20},
		{150, 100, 20},
		{0, 0, 0},
		{1, 1, 20},
		{1, enforcement.MaxQuota, 1},
		{enforcement.MaxQuota - 1, enforcement.MaxQuota, 20},
	} {
		if got := remainingBucket(c.remaining, c.quota); got != c.want {
			t.Errorf("%d of %d: bucket %d, want %d", c.remaining, c.quota, got, c.want)
		}
	}
}

func TestSketchesSurviveTheirDocuments(t *testing.T) {
	t.Parallel()
	retry := &retryTimes{never: 7}
	latency := &latencies{}
	remaining := remainingShares{}
	for v := range int64(1_000) {
		retry.histogram.add(v*v*v, v+1)
		latency.shared.add(v, 1)
		latency.local.add(v*3, 2)
		var counts remainingCounts
		counts[v%remainingBuckets] = v
		remaining.add([]string{"login", "search"}[v%2], &counts)
	}
	for name, s := range map[string]sketch{
		SketchRetryAfter: retry, SketchLatency: latency, SketchRemaining: remaining, SketchLimitedKeys: stream(5_000, 400, 9),
	} {
		doc := s.encode()
		read, err := decodeSketch(name, doc)
		if err != nil {
			t.Fatal(err)
		}
		if again := read.encode(); string(again) != string(doc) {
			t.Errorf("%s: %s\nbecame %s", name, doc, again)
		}
		twice, err := mergeSketches(name, [][]byte{doc, doc})
		if err != nil {
			t.Fatal(err)
		}
		s.absorb(read)
		if string(s.encode()) != string(twice) {
			t.Errorf("%s: merged from documents %s\nin memory %s", name, twice, s.encode())
		}
	}
}

func TestBadSketchesAreErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, doc string }{
		{"elsewhere", `{}`},
		{SketchRetryAfter, ``},
		{SketchRetryAfter, `{"buckets":[]} {}`},
		{SketchRetryAfter, `{"bucket":[]}`},
		{SketchRetryAfter, `{"buckets":[[15,1]]}`},
		{SketchRetryAfter, `{"buckets":[[2,1],[1,1]]}`},
		{SketchRetryAfter, `{"buckets":[[2,1],[2,1]]}`},
		{SketchRetryAfter, `{"buckets":[[2,0]]}`},
		{SketchRetryAfter, `{"buckets":[[2,-1]]}`},
		{SketchRetryAfter, `{"buckets":[[2,1e300]]}`},
		{SketchRetryAfter, `{"buckets":[],"never":-1}`},
		{SketchLatency, `{"shared":[[15,1]],"local":[]}`},
		{SketchLatency, `{"shared":[],"local":[[15,1]]}`},
		{SketchRemaining, `{"policies":{"p":[1,2,3]}}`},
		{SketchRemaining, `{"policies":{"p":[` + strings.Repeat("0,", 20) + `-1]}}`},
		{SketchLimitedKeys, `{"capacity":0,"total":0,"policies":[],"keys":[]}`},
		{SketchLimitedKeys, `{"capacity":1000000,"total":0,"policies":[],"keys":[]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":-1,"policies":[],"keys":[]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":0,"floor":-1,"policies":[],"keys":[]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":1,"policies":[],"keys":[{"t":1,"p":0,"v":[],"c":1}]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":1,"policies":[{"policy":"a","count_by":["ip"]}],"keys":[{"t":1,"p":0,"v":[],"c":1}]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":1,"policies":[{"policy":"a","count_by":[]}],"keys":[{"t":1,"p":-1,"v":[],"c":1}]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":1,"policies":[{"policy":"a","count_by":[]}],"keys":[{"t":1,"p":0,"v":[],"c":0}]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":1,"policies":[{"policy":"a","count_by":[]}],"keys":[{"t":1,"p":0,"v":[],"c":1,"e":2}]}`},
		{SketchLimitedKeys, `{"capacity":10,"total":2,"policies":[{"policy":"a","count_by":[]}],"keys":[{"t":1,"p":0,"v":[],"c":1},{"t":1,"p":0,"v":[],"c":1}]}`},
		{SketchLimitedKeys, `{"capacity":1,"total":2,"policies":[{"policy":"a","count_by":[]}],"keys":[{"t":1,"p":0,"v":[],"c":1},{"t":2,"p":0,"v":[],"c":1}]}`},
	} {
		if s, err := decodeSketch(c.name, []byte(c.doc)); err == nil {
			t.Errorf("%s %s is read as %v", c.name, c.doc, s)
		}
	}
	if _, err := mergeSketches(SketchLatency, nil); err == nil {
		t.Error("nothing is merged")
	}
}

// FuzzDecodeSketch checks that every document is an error or can be merged and written.
func FuzzDecodeSketch(f *testing.F) {
	names := []string{SketchLimitedKeys, SketchRetryAfter, SketchRemaining, SketchLatency}
	f.Add(0, stream(500, 30, 3).encode())
	f.Add(1, (&retryTimes{never: 1}).encode())
	f.Add(2, remainingShares{"p": new(remainingCounts)}.encode())
	f.Add(3, []byte(`{"shared":[[1,2],[16,3]],"local":[[0,1]]}`))
	f.Fuzz(func(t *testing.T, n int, doc []byte) {
		name := names[uint(n)%uint(len(names))]
		s, err := decodeSketch(name, doc)
		if err != nil {
			return
		}
		once := s.encode()
		again, err := decodeSketch(name, once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if string(again.encode()) != string(once) {
			t.Fatalf("%s became %s", once, again.encode())
		}
		if _, err := mergeSketches(name, [][]byte{doc, once, doc}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLockFreeHistogram(t *testing.T) {
	t.Parallel()
	var h histogram
	longest := time.Duration(latencyBounds[len(latencyBounds)-1]) * time.Microsecond
	for _, d := range []time.Duration{-time.Second, 0, 1, time.Microsecond, time.Microsecond + 1, 3 * time.Microsecond, longest, time.Hour} {
		h.observeTime(d)
	}
	upTo, count := h.upTo(latencyBounds)
	if count != 8 || len(upTo) != len(latencyBounds) {
		t.Errorf("count = %d with %d bounds", count, len(upTo))
	}
	if sum := time.Duration(h.sum.Load()); sum != time.Hour+longest+5*time.Microsecond+2 {
		t.Errorf("sum = %s", sum)
	}
	for i, want := range map[int]uint64{0: 4, 1: 5, 2: 6, len(upTo) - 2: 6, len(upTo) - 1: 7} {
		if upTo[i] != want {
			t.Errorf("up to %d µs: %d, want %d", latencyBounds[i], upTo[i], want)
		}
	}
	var before [maxLogBuckets]uint64
	first := h.since(&before)
	h.observeTime(time.Second)
	second, third := h.since(&before), h.since(&before)
	if first.count() != 8 || second.count() != 1 || third.count() != 0 {
		t.Errorf("since: %d, %d, %d", first.count(), second.count(), third.count())
	}
}
