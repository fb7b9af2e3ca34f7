package inprocess

import (
	"context"
	"time"
)

// sweepStep is how many cells are looked at while a shard is locked.
const sweepStep = 512

// Run drops counters that are as new until ctx ends; then it returns nil.
// Without Run the Limiter decides the same, and keeps every counter it ever
// had, up to Config.MaxCells.
func (l *Limiter) Run(ctx context.Context) error {
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			l.sweep()
		}
	}
}

// tick is the number of the tick that has passed at now.
func tick(now int64) uint32 { return uint32(min(max(now>>dueBits, 0), 1<<32-1)) }

// sweep looks once at every shard that may have a cell to drop.
func (l *Limiter) sweep() {
	for i := range l.shards {
		s := &l.shards[i]
		for from, next := uint32(0), uint32(0); ; {
			s.mu.Lock()
			passed := tick(l.now())
			if from == 0 && s.next > passed {
				s.mu.Unlock()
				break
			}
			to := min(from+sweepStep, s.made)
			for ; from < to && from < s.made; from++ {
				c := s.cell(int32(from))
				switch {
				case c.rev == 0:
				case c.due <= passed:
					l.drop(s, int32(from), l.hash(&c.key))
				case next == 0 || c.due < next:
					next = c.due
				}
			}
			if done := from >= s.made; done {
				s.next = max(next, 1)
				if next == 0 {
					s.next = 1<<32 - 1
				}
				s.mu.Unlock()
				break
			}
			s.mu.Unlock()
		}
	}
}
