//go:build !linux

package load

import "time"

// A sleeper sleeps as exactly as the runtime's timers do.
type sleeper struct{}

func (*sleeper) open() error           { return nil }
func (*sleeper) sleep(d time.Duration) { time.Sleep(d) }
func (*sleeper) close()                {}
