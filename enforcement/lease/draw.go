package lease

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// workers is how many calls of draws may be under way at once.
const workers = 2

// Run draws quota and returns what is not used until ctx ends. Then it returns
// everything.
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

// Return gives back all quota that the node holds, and holds none from now on.
// It ends when that is done, with ctx, or when draws fail.
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
	// What could not be given back in time ends with its lease. A check that waits
	// for such a draw goes on.
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

// enqueue has the cell's draw done by Run. The caller holds the cell's lock.
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

// gather waits until the queue fills a call, or for a moment.
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

// next takes cells off the queue.
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

// pump makes one call of draws; false: there is nothing to draw, or ctx has ended.
func (l *Limiter) pump(ctx context.Context) bool {
	if ctx.Err() != nil { // before cells leave the queue: they would be lost
		return false
	}
	cells := l.next()
	if len(cells) == 0 {
		return false
	}
	sent := l.read() // before the call: the life of what it brings counts from here
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

// sweep gives back what was not used for a while, or cannot be used any more,
// and forgets cells that hold nothing. It visits the shards that are due, and all if
// the clocks have moved apart.
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

// visit is sweep for one shard, which is locked.
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
