package nodes

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A Stopwatch records latencies. It is safe for concurrent use and takes no lock. The
// zero value is ready. Its buckets are microseconds, rounded up: 0 to 15 one by one,
// then eight per octave.
type Stopwatch struct {
	buckets [8*longestOctave + 16]atomic.Int64
}

// longestOctave is that of the last bucket, which counts everything above an hour.
const longestOctave = 28

// Observe adds a call. A negative time counts as 0.
func (s *Stopwatch) Observe(took time.Duration) {
	s.buckets[bucketOf((max(took, 0)+time.Microsecond-1)/time.Microsecond)].Add(1)
}

// Lap returns the latencies since the last Lap. A concurrent call of Observe counts in this one or
// the next.
func (s *Stopwatch) Lap() Latency {
	var counts [len(s.buckets)]int64
	var l Latency
	for i := range s.buckets {
		counts[i] = s.buckets[i].Swap(0)
		l.Calls += counts[i]
	}
	l.P50, l.P99 = quantile(&counts, l.Calls, 50), quantile(&counts, l.Calls, 99)
	return l
}

// quantile returns the upper end of the bucket that has the quantile; 0 without calls.
func quantile(counts *[8*longestOctave + 16]int64, all, percent int64) time.Duration {
	want := (all*percent + 99) / 100
	for i, n := range counts {
		if want -= n; n > 0 && want <= 0 {
			return upperEnd(i) * time.Microsecond
		}
	}
	return 0
}

func bucketOf(micros time.Duration) int {
	octave := max(0, bits.Len64(uint64(micros))-4)
	if octave > longestOctave {
		return 8*longestOctave + 15
	}
	return 8*octave + int(micros>>octave)
}

// upperEnd returns the largest value of a bucket in microseconds.
func upperEnd(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket)
	}
	octave := bucket/8 - 1
	return time.Duration(bucket%8+9)<<octave - 1
}
