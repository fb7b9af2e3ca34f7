package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// clocks estimates the current time of the Redis server: the time in the last reply, plus the time on
// this node's monotonic clock since that call was sent. The server read its clock after the call was
// sent. Therefore the estimate is ahead of the server's clock by at most the time that the call took to
// reach the server.
type clocks struct {
	byHome bool // set for a cluster, where homes may be on different servers
	one    atomic.Pointer[reading]
	homes  sync.Map // home -> *reading
}

// A reading is the server's time from one reply, with the time on this node at which
// the call was sent.
type reading struct {
	sent   time.Time
	server int64
}

// learnEvery is the age at which a newer reply replaces a reading. Clocks drift little
// in that time.
const learnEvery = 20 * time.Millisecond

// learn records the server's time from the reply to a call that was sent at the time
// sent.
func (c *clocks) learn(home string, sent time.Time, server int64) {
	if last := c.last(home); last != nil {
		off := last.at(sent) - server // difference of the estimate from the server's time
		if sent.Sub(last.sent) < learnEvery && off < 1000 && off > -1000 {
			return
		}
	}
	r := &reading{sent: sent, server: server}
	if c.byHome {
		c.homes.Store(home, r)
		return
	}
	c.one.Store(r)
}

func (c *clocks) last(home string) *reading {
	if !c.byHome {
		return c.one.Load()
	}
	if r, ok := c.homes.Load(home); ok {
		return r.(*reading)
	}
	return nil
}

// deadline returns the server's time at which left has passed since started, or 0 if no
// reply from the server is known yet.
func (c *clocks) deadline(home string, started time.Time, left time.Duration) int64 {
	last := c.last(home)
	if last == nil {
		return 0
	}
	return last.at(started) + left.Microseconds()
}

// suspended reports whether the machine was suspended after the reading. The monotonic clock stops
// during a suspension, so the estimate of at would be behind the clock of the server.
func (r *reading) suspended(now time.Time) bool {
	skew := now.UnixMicro() - r.sent.UnixMicro() - now.Sub(r.sent).Microseconds()
	return skew > maxSkew || skew < -maxSkew
}

// maxSkew is how much, in microseconds, the wall clock and the monotonic clock may
// diverge before suspended reports a suspension. After a step of the wall clock,
// suspended is wrong. That only disables the memory of denials until the next reply.
const maxSkew = 5000

func (r *reading) at(now time.Time) int64 { return r.server + now.Sub(r.sent).Microseconds() }
