package connlimit

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
