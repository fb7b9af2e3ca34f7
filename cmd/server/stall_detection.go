package main

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	stallTick   = 50 * time.Millisecond
	stalledFrom = 500 * time.Millisecond // a tick that is later than this is a stall
	stalledFor  = 2 * time.Second        // the minimum time after a stall in which connections are checked
	mostStalled = time.Minute
	// closeWait is how long Left waits for net/http to read the close message of a TLS client.
	closeWait = 10 * time.Millisecond
)

// stalls detects that the process did not run for a while: it was stopped (SIGSTOP), the
// machine was suspended, or it got no processor. Meanwhile callers gave up, but their requests
// are still in the socket buffers. For some time after a stall, the engine therefore checks
// before each decision whether its connection is still open. It does not check at other times,
// to save a system call per request.
type stalls struct {
	began time.Time
	tick  atomic.Int64 // when the process last ran, in nanoseconds since began
	wall  atomic.Int64 // wall clock at tick, in Unix nanoseconds
	until atomic.Int64 // when the checks of connections end, in nanoseconds since began
}

func newStalls() *stalls {
	s := &stalls{began: time.Now()}
	s.wall.Store(s.began.UnixNano())
	return s
}

// run records at every tick that the process is running.
func (s *stalls) run(ctx context.Context) {
	ticker := time.NewTicker(stallTick)
	defer ticker.Stop()
	for {
		s.note(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *stalls) note(now time.Time) {
	if gap := s.gap(now); gap >= stalledFrom {
		s.until.Store(int64(now.Sub(s.began) + min(max(gap, stalledFor), mostStalled)))
	}
	s.tick.Store(int64(now.Sub(s.began)))
	s.wall.Store(now.UnixNano())
}

// gap returns the time since the last tick. It uses the larger difference of two clocks,
// because the monotonic clock stops while the machine is suspended and the wall clock does not.
func (s *stalls) gap(now time.Time) time.Duration {
	return max(now.Sub(s.began)-time.Duration(s.tick.Load()), time.Duration(now.UnixNano()-s.wall.Load()))
}

// recent reports whether the process stalled recently. It also detects a stall that run has not
// recorded yet. The gap comes first: if note has ended it, note has set until before.
func (s *stalls) recent() bool {
	now := time.Now()
	return s.gap(now) >= stalledFrom || int64(now.Sub(s.began)) < s.until.Load()
}
