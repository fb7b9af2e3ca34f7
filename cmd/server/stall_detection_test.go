package main

import (
	"testing"
	"time"
)

// A stall is noticed by the first that looks, before or after the tick, and callers
// are looked at for as long as the stall lasted.
func TestStalls(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		tick, wall time.Duration // before now; when the process ran last, by both clocks
		ticked     time.Duration // before now; then the tick came
		want       bool
	}{
		"none":                          {0, 0, 0, false},
		"not ticked yet":                {10 * time.Second, 10 * time.Second, 0, true},
		"suspended, not ticked yet":     {0, 10 * time.Second, 0, true},
		"ticked a moment ago":           {11 * time.Second, 11 * time.Second, time.Second, true},
		"a short stall, ticked 1 s ago": {1700 * time.Millisecond, 1700 * time.Millisecond, time.Second, true},
		"a short stall, ticked 5 s ago": {5700 * time.Millisecond, 5700 * time.Millisecond, 5 * time.Second, false},
		"a long stall, ticked 5 s ago":  {15 * time.Second, 15 * time.Second, 5 * time.Second, true},
	} {
		s := &stalls{began: now.Add(-time.Hour)}
		s.tick.Store(int64(time.Hour - test.tick))
		s.wall.Store(now.Add(-test.wall).UnixNano())
		if test.ticked > 0 {
			s.note(now.Add(-test.ticked))
			s.tick.Store(int64(time.Hour))
			s.wall.Store(now.UnixNano())
		}
		if got := s.recent(); got != test.want {
			t.Errorf("%s: recent is %t", name, got)
		}
	}
}

// The stall is known to every request, also to one that asks while run records it.
func TestStallIsKnownWhileItIsRecorded(t *testing.T) {
	t.Parallel()
	for i := range 2_000 {
		s := newStalls()
		s.began = s.began.Add(-10 * time.Second)
		s.tick.Store(int64(9 * time.Second))
		recorded := make(chan struct{})
		go func() {
			s.note(time.Now())
			close(recorded)
		}()
		for range 20 {
			if !s.recent() {
				t.Fatalf("attempt %d: the stall is not known", i)
			}
		}
		<-recorded
	}
}
