package inprocess

// Sweep is one sweep of Run.
func (l *Limiter) Sweep() { l.sweep() }

// Used is how much memory is counted, in cells.
func (l *Limiter) Used() int64 { return l.used.Load() }
