package limitertest

import (
	"sync/atomic"
	"time"
)

// Start is the initial time of a Clock: 2026-01-01T00:00:00Z, in microseconds since the
// epoch. It is a multiple of each window that divides a day.
const Start int64 = 1_767_225_600_000_000

// A Clock shows a time that the test sets. It is safe for concurrent use.
type Clock struct{ now atomic.Int64 }

// NewClock returns a Clock whose time is Start.
func NewClock() *Clock {
	c := new(Clock)
	c.now.Store(Start)
	return c
}

// Now returns the time of the clock, in microseconds since the epoch.
func (c *Clock) Now() int64 { return c.now.Load() }

// Set sets the clock to a later or earlier time.
func (c *Clock) Set(micros int64) { c.now.Store(micros) }

// Advance adds d to the time of the clock. d may be negative.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }
