package main

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	stallTick   = 50 * time.Millisecond
	stalledFrom = 500 * time.Millisecond // if a tick is late by at least this much, the process has stalled
	stalledFor  = 2 * time.Second        // minimum time after a stall in which connCaller.Left checks connections
	mostStalled = time.Minute
	// closeWait is how long connCaller.Left waits until net/http has read the close message of a
	// TLS client.
	closeWait = 10 * time.Millisecond
)

// A stalls detects that the process did not run for a while: a SIGSTOP stopped it, the machine was
// suspended, or the process got no processor time. During a stall, clients may close their
// connections while their requests are still in the buffers of the sockets. So for some time after
// a stall, connCaller.Left checks the connection before each decision. At other times it does not,
// because the check costs a system call for each request.
type stalls struct {
	began time.Time
	tick  atomic.Int64 // time at which the process last ran, in nanoseconds since began
	wall  atomic.Int64 // wall clock at tick, in Unix nanoseconds
	until atomic.Int64 // time until which connections are checked, in nanoseconds since began
}

func newStalls() *stalls {
	s := &stalls{began: time.Now()}
	s.wall.Store(s.began.UnixNano())
	return s
}

// run records the current time at every tick until ctx ends.
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

// gap returns the time since the last tick. It measures this time with two clocks and returns the
// larger result: the monotonic clock stops while the machine is suspended, but the wall clock does
// not.
func (s *stalls) gap(now time.Time) time.Duration {
	return max(now.Sub(s.began)-time.Duration(s.tick.Load()), time.Duration(now.UnixNano()-s.wall.Load()))
}

// recent reports whether the process stalled recently. It also detects a stall that note has not
// recorded yet. It must read the gap before until: note sets until before it resets the gap, so
// recent always sees one of the two.
func (s *stalls) recent() bool {
	now := time.Now()
	return s.gap(now) >= stalledFrom || int64(now.Sub(s.began)) < s.until.Load()
}
