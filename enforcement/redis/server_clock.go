package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// clocks estimates the current time of the Redis server. It takes the time in the last reply, and adds
// the time that has passed on this node's monotonic clock since that call was sent. The server read its
// clock after the call was sent. Therefore the estimate is ahead of the server's clock, by at most the
// time that the call took to reach the server.
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

// learnEvery is the age of a reading at which a newer reply replaces it. In this time, clocks drift
// only a little.
const learnEvery = 20 * time.Millisecond

// learn records the server's time from the reply to a call that was sent at the time
// sent.
func (c *clocks) learn(home string, sent time.Time, server int64) {
	if last := c.last(home); last != nil {
		off := last.at(sent) - server // by how much the estimate differs from the server's time
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

// deadline returns the server's time at which the duration left has passed since started. It returns 0
// if no reply from the server is known yet.
func (c *clocks) deadline(home string, started time.Time, left time.Duration) int64 {
	last := c.last(home)
	if last == nil {
		return 0
	}
	return last.at(started) + left.Microseconds()
}

// suspended reports whether the machine was suspended after the reading. The monotonic clock stops
// during a suspension. The estimate that at returns would then be behind the clock of the server.
func (r *reading) suspended(now time.Time) bool {
	skew := now.UnixMicro() - r.sent.UnixMicro() - now.Sub(r.sent).Microseconds()
	return skew > maxSkew || skew < -maxSkew
}

// maxSkew is how much, in microseconds, the wall clock and the monotonic clock may diverge before
// suspended reports a suspension. If the wall clock was set, suspended is wrong. The only effect is
// that the memory of denials is disabled until the next reply.
const maxSkew = 5000

func (r *reading) at(now time.Time) int64 { return r.server + now.Sub(r.sent).Microseconds() }
