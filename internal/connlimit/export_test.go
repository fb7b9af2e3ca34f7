package connlimit

import "time"

// SetStall replaces the 10 seconds after which a write fails whose client does not read.
func (l *Listener) SetStall(d time.Duration) { l.stall = d }

// Idle returns how many connections wait for a request.
func (l *Listener) Idle() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.since.Load() > 0 {
			n++
		}
	}
	return n
}
