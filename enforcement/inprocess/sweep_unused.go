package inprocess

import (
	"context"
	"time"
)

// sweepStep is the number of cells that sweepTable looks at before it releases the lock
// of the shard.
const sweepStep = 512

// Run deletes counters that are as if unused, until ctx ends. Then it returns nil.
// Without Run, the decisions are the same, but the Limiter keeps all counters, up to
// Config.MaxCells.
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

// tick returns the number of the tick that contains the time now.
func tick(now int64) uint32 { return uint32(min(max(now>>dueBits, 0), 1<<32-1)) }

// sweep visits each table that may have a cell to delete.
func (l *Limiter) sweep() {
	for i := range l.shards {
		s := &l.shards[i]
		l.sweepTable(s, &s.table, l.drop)
		l.sweepTable(s, &s.seen, l.forget)
		l.sweepRecords(s)
	}
	l.sweepReservations()
}

// sweepTable deletes the cells of one table that are as if unused.
func (l *Limiter) sweepTable(s *shard, t *table, drop func(s *shard, i int32, hash uint64)) {
	for from := uint32(0); ; {
		s.lock()
		passed := tick(l.now())
		if from == 0 {
			if t.next > passed {
				s.unlock()
				return
			}
			t.next = lastTick // for cells that are inserted while the shard is not locked, write sets an earlier tick
		}
		to := min(from+sweepStep, t.made)
		for ; from < to && from < t.made; from++ {
			c := t.cell(int32(from))
			switch {
			case c.rev == 0:
			case c.due <= passed:
				drop(s, int32(from), l.hash(&c.key))
			default:
				t.next = min(t.next, c.due)
			}
		}
		done := from >= t.made
		s.unlock()
		if done {
			return
		}
	}
}
