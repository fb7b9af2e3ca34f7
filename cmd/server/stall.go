package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/internal/retry"
)

const (
	stallTick   = 50 * time.Millisecond
	stalledFrom = 500 * time.Millisecond // a tick that is late by as much is a stall
	stalledFor  = 2 * time.Second        // how long callers are looked at after a stall, at least
	mostStalled = time.Minute
	// closeWait is how long the end of a TLS connection may take to be read.
	closeWait = 10 * time.Millisecond
)

// stalls notices that this process did not run: it was stopped (SIGSTOP), its
// machine was suspended, or it had no processor. Its callers gave up meanwhile, and
// their requests wait in its sockets. Before such a request is decided, its
// connection is looked at. At other times that would cost a system call for nothing.
type stalls struct {
	began time.Time
	tick  atomic.Int64 // of since; when the process ran last
	wall  atomic.Int64 // in Unix nanoseconds, at tick
	until atomic.Int64 // of since; callers are looked at until then
}

func newStalls() *stalls {
	s := &stalls{began: time.Now()}
	s.wall.Store(s.began.UnixNano())
	return s
}

// run notes again and again that the process runs.
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

// gap is how long ago the process ran last. The monotonic clock stands still while
// the machine is suspended, and the wall clock does not.
func (s *stalls) gap(now time.Time) time.Duration {
	return max(now.Sub(s.began)-time.Duration(s.tick.Load()), time.Duration(now.UnixNano()-s.wall.Load()))
}

// recent reports whether the process stalled a moment ago, also if run has not
// noticed it yet.
func (s *stalls) recent() bool {
	now := time.Now()
	return int64(now.Sub(s.began)) < s.until.Load() || s.gap(now) >= stalledFrom
}

// A connCaller is the caller of the requests of one connection.
type connCaller struct {
	stalls *stalls
	left   func() bool
	secure bool
}

// connContext adds the caller of a connection to the context of its requests.
func (s *stalls) connContext(ctx context.Context, c net.Conn) context.Context {
	t, secure := c.(*tls.Conn)
	if secure {
		c = t.NetConn()
	}
	return enforcement.WithCaller(ctx, &connCaller{stalls: s, left: http1.Left(c), secure: secure})
}

// Left implements enforcement.Caller. A TLS client says that it closes before it
// closes, so its socket has bytes to read: net/http reads them and ends ctx.
func (c *connCaller) Left(ctx context.Context, wait bool) bool {
	if !c.stalls.recent() {
		return false
	}
	if !c.secure || !wait {
		return c.left()
	}
	return retry.Wait(ctx, closeWait) != nil || c.left()
}
