package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// clocks estimates Redis' clock: what it last said, and the time on our
// monotonic clock since that call was sent. So it is never late, and early by
// at most the time that one request took to get there.
type clocks struct {
	byHome bool // each home may lie on a server of its own
	one    atomic.Pointer[reading]
	homes  sync.Map // home -> *reading
}

// A reading is the server's time at a moment not before sent.
type reading struct {
	sent   time.Time
	server int64
}

// learnEvery is how old a reading may be; a clock does not drift much meanwhile.
const learnEvery = 20 * time.Millisecond

// learn takes what the server said of its time in answer to a call.
func (c *clocks) learn(home string, sent time.Time, server int64) {
	if last := c.last(home); last != nil {
		off := last.at(sent) - server // the estimate should not lie far from what the server says
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

// deadline is what the server's clock will show left after started; 0 when its
// clock is not known yet.
func (c *clocks) deadline(home string, started time.Time, left time.Duration) int64 {
	last := c.last(home)
	if last == nil {
		return 0
	}
	return last.at(started) + left.Microseconds()
}

// suspended reports whether the machine slept since the reading: monotonic time
// stands still meanwhile, so at would be late.
func (r *reading) suspended(now time.Time) bool {
	skew := now.UnixMicro() - r.sent.UnixMicro() - now.Sub(r.sent).Microseconds()
	return skew > maxSkew || skew < -maxSkew
}

// maxSkew is how far, in microseconds, the wall clock and the monotonic clock may
// move apart before the estimate is not trusted. A step of the wall clock costs
// the memory of denials until the next answer, no more.
const maxSkew = 5000

func (r *reading) at(now time.Time) int64 { return r.server + now.Sub(r.sent).Microseconds() }
