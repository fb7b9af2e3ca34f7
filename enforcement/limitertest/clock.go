package limitertest

import (
	"sync/atomic"
	"time"
)

// Start is the initial time of a Clock: 2026-01-01T00:00:00Z in microseconds since the
// epoch. It is a multiple of every window that divides a day.
const Start int64 = 1_767_225_600_000_000

// A Clock is set by hand. It may be read and set from any goroutine.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock that shows Start.
func NewClock() *Clock {
	c := new(Clock)
	c.now.Store(Start)
	return c
}

// Now returns the time of the clock, in microseconds since the epoch.
func (c *Clock) Now() int64 { return c.now.Load() }

// Set sets the clock, forward or back.
func (c *Clock) Set(micros int64) { c.now.Store(micros) }

// Advance moves the clock on by d, which may be negative.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }
