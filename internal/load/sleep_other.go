//go:build !linux

package load

import "time"

// A sleeper sleeps with the timers of the Go runtime. It is used on operating systems other
// than Linux.
type sleeper struct{}

func (*sleeper) open() error           { return nil }
func (*sleeper) sleep(d time.Duration) { time.Sleep(d) }
func (*sleeper) close()                {}
