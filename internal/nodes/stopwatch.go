package nodes

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A Stopwatch gathers how long calls take, from any number of goroutines and
// without a lock. The zero value is ready.
//
// It counts microseconds, rounded up, in buckets: each of the first sixteen by
// itself, then eight an octave.
type Stopwatch struct {
	buckets [8*longestOctave + 16]atomic.Int64
}

// longestOctave is that of the last bucket, in which all counts that takes more
// than an hour.
const longestOctave = 28

// Observe adds a call. A negative time counts as none.
func (s *Stopwatch) Observe(took time.Duration) {
	s.buckets[bucketOf((max(took, 0)+time.Microsecond-1)/time.Microsecond)].Add(1)
}

// Lap gives what was observed since the last Lap, and forgets it. What is observed
// meanwhile is in this one or in the next.
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

// quantile gives the upper end of the bucket at or below which so many of a
// hundred are; 0 without calls.
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

// upperEnd is the largest number of microseconds in a bucket.
func upperEnd(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket)
	}
	octave := bucket/8 - 1
	return time.Duration(bucket%8+9)<<octave - 1
}
