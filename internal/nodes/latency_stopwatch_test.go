package nodes

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A quantile is never below the true one, and at most an eighth and a
// microsecond above it.
func TestStopwatchQuantiles(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s Stopwatch
		all := make([]time.Duration, 1+random.IntN(400))
		for i := range all {
			all[i] = time.Duration(random.Int64N(1 << (1 + random.IntN(40)))) // up to 18 minutes
			s.Observe(all[i])
		}
		slices.Sort(all)
		l := s.Lap()
		if l.Calls != int64(len(all)) {
			t.Fatalf("%d calls, want %d", l.Calls, len(all))
		}
		for percent, got := range map[int]time.Duration{50: l.P50, 99: l.P99} {
			want := all[(len(all)*percent+99)/100-1]
			if got < want || got > want+want/8+time.Microsecond {
				t.Fatalf("p%d of %d calls is %s, want %s or an eighth more", percent, len(all), got, want)
			}
		}
	}
}

func TestStopwatchEnds(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	for took, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Microsecond, time.Microsecond: time.Microsecond, time.Microsecond + 1: 2 * time.Microsecond,
		15 * time.Microsecond: 15 * time.Microsecond, 16 * time.Microsecond: 16 * time.Microsecond, century: century,
	} {
		var s Stopwatch
		s.Observe(took)
		if l := s.Lap(); l != (Latency{want, want, 1}) {
			t.Errorf("%s gives %+v, want %s", took, l, want)
		}
		if l := s.Lap(); l != (Latency{}) {
			t.Errorf("the second lap gives %+v", l)
		}
	}
}

// No call is lost or counted twice between laps.
func TestStopwatchLaps(t *testing.T) {
	t.Parallel()
	var s Stopwatch
	const goroutines, each = 4, 5_000
	var wait sync.WaitGroup
	for i := range goroutines {
		wait.Go(func() {
			for n := range each {
				s.Observe(time.Duration(i*n) * time.Microsecond)
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	var calls int64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		calls += s.Lap().Calls
	}
	if calls += s.Lap().Calls; calls != goroutines*each {
		t.Errorf("%d calls, want %d", calls, goroutines*each)
	}
}

func BenchmarkStopwatch(b *testing.B) {
	var s Stopwatch
	b.ReportAllocs()
	for b.Loop() {
		s.Observe(250 * time.Microsecond)
	}
}
