package lease

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// workers is the largest number of concurrent calls of Draw.
const workers = 2

// Run draws quota and gives unused quota back to the shared limiter, until ctx ends.
// Then it gives back all quota.
func (l *Limiter) Run(ctx context.Context) error {
	l.running.Store(true)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-l.wake:
					l.gather()
					l.pump(ctx)
				}
			}
		})
	}
	every := time.NewTicker(sweepEvery * time.Microsecond)
	defer every.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-every.C:
			l.sweep(l.read())
		}
	}
	all.Wait()
	l.running.Store(false)
	l.Return(context.WithoutCancel(ctx))
	return nil
}

// Return gives all quota back to the shared limiter. After it, the Limiter draws and
// spends no quota. Return ends when all draws have ended, or with ctx.
func (l *Limiter) Return(ctx context.Context) {
	l.stopped.Store(true)
	ctx, cancel := context.WithTimeout(ctx, 4*l.config.Timeout)
	defer cancel()
	l.each(func(c *cell) {
		if c.held() > 0 || c.queued {
			c.closing = true
			l.enqueue(c)
		}
	})
	for l.pump(ctx) {
	}
	// Units that were not returned in time are unusable until their lots end. Checks that
	// wait for such a draw continue.
	for cells := l.next(); len(cells) > 0; cells = l.next() {
		for _, c := range cells {
			c.in.mu.Lock()
			c.queued = false
			if c.done != nil {
				close(c.done)
				c.done = nil
			}
			c.in.mu.Unlock()
		}
	}
}

// each calls do for every cell, under its lock.
func (l *Limiter) each(do func(c *cell)) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, c := range s.cells {
			do(c)
		}
		s.mu.Unlock()
	}
}

// enqueue queues a draw of the cell for Run. The caller holds the cell's lock.
func (l *Limiter) enqueue(c *cell) {
	if c.queued {
		return
	}
	c.queued = true
	l.mu.Lock()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	l.signal()
}

// gather waits a moment for more draws, unless the queue already fills a call.
func (l *Limiter) gather() {
	l.mu.Lock()
	full := len(l.queue) >= atOnce
	l.mu.Unlock()
	if !full {
		time.Sleep(gather * time.Microsecond)
	}
}

func (l *Limiter) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// next removes up to atOnce cells from the queue and returns them.
func (l *Limiter) next() []*cell {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), atOnce)
	cells := append([]*cell(nil), l.queue[:n]...)
	l.queue = append(l.queue[:0], l.queue[n:]...)
	if len(l.queue) > 0 {
		l.signal()
	}
	return cells
}

// pump makes one call of Draw. It returns false if the queue is empty or ctx has ended.
func (l *Limiter) pump(ctx context.Context) bool {
	if ctx.Err() != nil { // checked first, because cells that leave the queue must be drawn
		return false
	}
	cells := l.next()
	if len(cells) == 0 {
		return false
	}
	sent := l.read() // before the call, because the lives of the new lots count from here
	draws, drawn := l.draws(cells, sent), make([]enforcement.Drawn, len(cells))
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.Timeout)
	l.shared.Draw(call, draws, drawn)
	cancel()
	l.drew(cells, draws, drawn, sent)
	return true
}

func (l *Limiter) draws(cells []*cell, sent reading) []enforcement.Draw {
	draws := make([]enforcement.Draw, len(cells))
	for i, c := range cells {
		c.in.mu.Lock()
		draws[i] = c.draw(sent, int64(2*l.config.Nodes))
		c.in.mu.Unlock()
	}
	return draws
}

func (l *Limiter) drew(cells []*cell, draws []enforcement.Draw, drawn []enforcement.Drawn, sent reading) {
	now := l.read()
	for i, c := range cells {
		c.in.mu.Lock()
		c.drew(&draws[i], &drawn[i], sent, now)
		c.in.due = min(c.in.due, c.due())
		if c.closing || l.stopped.Load() && c.held() > 0 {
			c.closing = true
			l.enqueue(c)
		}
		c.in.mu.Unlock()
	}
}

// sweep queues the return of units that are idle or no longer usable, and deletes idle
// empty cells. It visits the shards that are due, or all shards if the wall clock and the
// monotonic clock have moved apart.
func (l *Limiter) sweep(now reading) {
	all := now.skew > l.swept+apart/2 || now.skew < l.swept-apart/2
	if all {
		l.swept = now.skew
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if all || now.mono >= s.due {
			l.visit(s, now)
		}
		s.mu.Unlock()
	}
}

// visit sweeps one shard. The caller holds its lock.
func (l *Limiter) visit(s *shard, now reading) {
	s.due = 1 << 62
	for _, c := range s.cells {
		switch unused := now.mono - c.last; {
		case c.queued:
		case c.held() == 0 && unused > slowness:
			delete(s.cells, c.key)
			continue
		case c.held() == 0 && c.lots[0].spent+c.lots[1].spent == 0:
		case unused > c.patience() || !c.sure(now):
			c.closing = true
			l.enqueue(c)
		case c.ending(now):
			l.enqueue(c)
		}
		s.due = min(s.due, c.due())
	}
}
