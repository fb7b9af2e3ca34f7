package lease

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// workers is the number of goroutines that call Draw.
const workers = 2

// Run draws quota from the shared limiter and returns unused quota to it, until ctx ends. Then it
// returns all quota.
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

// Return returns all leased quota to the shared limiter. Afterwards the Limiter neither draws
// nor spends quota. Return waits until all draws have ended, or until ctx ends.
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
	// ctx ended before all queued cells could return their units. Nothing can use these units until
	// their lots end (see lot). Checks may wait for the queued draws of these cells; remove the cells
	// from the queue and let the checks continue.
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

// each calls do with each cell while it holds the lock of the cell's shard.
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

// enqueue queues a cell for a draw by Run. The caller holds the cell's lock.
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

// gather waits a short time, so that one call of Draw can make more draws. If the queue already has
// enough draws for a full call, it does not wait.
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

// pump makes one call of Draw for cells in the queue. It returns false if the queue is empty or ctx
// has ended.
func (l *Limiter) pump(ctx context.Context) bool {
	if ctx.Err() != nil { // check before next: cells that next removes from the queue must be drawn
		return false
	}
	cells := l.next()
	if len(cells) == 0 {
		return false
	}
	sent := l.read() // read the clock before the call: new lots last from this time on
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
		draws[i] = c.draw(sent, 2*l.nodes.Load())
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

// sweep queues draws that return units, if the units were idle for too long or are no longer
// usable. It also deletes idle cells without units. It visits only the shards that are due. If the
// node's two clocks have diverged, it visits all shards.
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

// visit does the work of sweep for the cells of one shard. The caller holds the lock of the shard.
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
