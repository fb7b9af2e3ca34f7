package admission

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Config has the bounds of a Gate. The zero value selects the defaults.
type Config struct {
	// Slots is the maximum sum of the weights of the checks that are served at the same time.
	// Default: 128.
	Slots int
	// Waiting is the maximum sum of the weights of the checks that wait. If it is negative, no
	// check waits. Default: 8192.
	Waiting int
}

// ErrOverloaded is the error of Enter for a check for which no slot is free and that may not wait.
var ErrOverloaded = errors.New("more checks than this node can serve")

// A Gate bounds the number of concurrent checks. It is safe for concurrent use. A nil Gate admits
// every check at once.
//
// While no check waits, Enter and Leave only do one compare-and-swap each and allocate no memory.
type Gate struct {
	slots, room int64

	// state is twice the sum of the weights of the checks that are being served, plus 1 while
	// checks wait. While that lowest bit is set, only a goroutine that holds mu changes state.
	state      atomic.Int64
	overloaded atomic.Int64 // number of checks that ended with ErrOverloaded
	waiters    sync.Pool    // of *waiter

	mu      sync.Mutex
	queues  map[uint32]*queue // queues of the tenants with waiting checks
	turn    *queue            // the queue that is served next; nil: no check waits
	waiting int64             // sum of the weights of all waiting checks
}

// A queue has the waiting checks of one tenant in the order of their arrival. All queues together
// form a ring, in the order in which serve visits them.
type queue struct {
	tenant      uint32
	first, last *waiter
	weight      int64 // of its checks
	credit      int64 // number of rounds that the first check has waited for
	prev, next  *queue
}

// A waiter is one check in a queue.
type waiter struct {
	answer     chan error // has capacity 1; receives the result of Enter
	weight     int64
	queue      *queue // nil after the result was sent
	prev, next *waiter
}

// New returns a Gate with the bounds of cfg.
func New(cfg Config) *Gate {
	if cfg.Slots <= 0 {
		cfg.Slots = 128
	}
	cfg.Waiting = cmp.Or(cfg.Waiting, 8192)
	g := &Gate{slots: int64(cfg.Slots), room: int64(max(cfg.Waiting, 0)), queues: map[uint32]*queue{}}
	g.waiters.New = func() any { return &waiter{answer: make(chan error, 1)} }
	return g
}

// Enter reserves weight slots for a check of a tenant. If too few slots are free, it waits. A
// weight below 1 counts as 1. A weight above Config.Slots counts as Config.Slots, so that every
// check can be served. If Enter returns nil, the caller must call Leave with the same weight.
//
// If the check may not wait because too many checks already do, Enter returns ErrOverloaded at
// once. If ctx ends while the check waits, Enter returns the error of ctx.
//
// After a wait, Enter returns context.Canceled if the client has left meanwhile. It uses the method
// Left of ctx for this, which contexts of package http1 have.
func (g *Gate) Enter(ctx context.Context, tenant uint32, weight int) error {
	if g == nil {
		return nil
	}
	n := g.bounded(weight)
	if g.claim(n) {
		return nil
	}
	w := g.enqueue(tenant, n)
	if w == nil {
		g.overloaded.Add(1)
		return ErrOverloaded
	}
	defer g.waiters.Put(w)
	select {
	case err := <-w.answer:
		if err != nil {
			g.overloaded.Add(1)
		} else if hasLeft(ctx) {
			g.Leave(weight)
			return context.Canceled
		}
		return err
	case <-ctx.Done():
	}
	if !g.withdraw(w) && <-w.answer == nil { // answered meanwhile
		g.Leave(weight)
	}
	return ctx.Err()
}

func hasLeft(ctx context.Context) bool {
	client, ok := ctx.(interface{ Left() bool })
	return ok && client.Left()
}

// Leave releases the slots that Enter reserved. weight must be the same as for Enter.
func (g *Gate) Leave(weight int) {
	if g == nil {
		return
	}
	n := g.bounded(weight)
	for {
		s := g.state.Load()
		if s&1 != 0 {
			break
		}
		if g.state.CompareAndSwap(s, s-2*n) {
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Add(-2 * n)
	g.serve()
}

// A Status contains the current load of a Gate: the slots in use and the waiting checks.
type Status struct {
	InService  int64 // sum of the weights of the checks in service
	Waiting    int64 // sum of the weights of the checks that wait
	Overloaded int64 // number of checks that ended with ErrOverloaded since the start
}

// Status returns the current load.
func (g *Gate) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{InService: g.state.Load() / 2, Waiting: g.waiting, Overloaded: g.overloaded.Load()}
}

// bounded returns the number of slots that a check with the given weight uses: at least 1 and at
// most all.
func (g *Gate) bounded(weight int) int64 { return min(max(int64(weight), 1), g.slots) }

// claim reserves n slots and returns true, if they are free and no check waits. Otherwise it
// returns false.
func (g *Gate) claim(n int64) bool {
	for {
		s := g.state.Load()
		if s&1 != 0 || s/2+n > g.slots {
			return false
		}
		if g.state.CompareAndSwap(s, s+2*n) {
			return true
		}
	}
}

// enqueue appends a check to the queue of its tenant. If the check may not wait, it returns nil.
func (g *Gate) enqueue(tenant uint32, n int64) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.makeRoom(tenant, n) {
		return nil
	}
	q := g.queues[tenant]
	if q == nil {
		q = &queue{tenant: tenant}
		g.queues[tenant] = q
		g.link(q)
	}
	w := g.waiters.Get().(*waiter)
	w.weight, w.queue, w.prev, w.next = n, q, q.last, nil
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.weight += n
	g.waiting += n
	g.state.Or(1)
	g.serve() // slots may have become free before the lowest bit of state was set
	return w
}

// makeRoom reports whether a check of a tenant may wait. If the bound of waiting checks is reached,
// each tenant with waiting checks has an equal share of the bound, and the check may wait only if
// its tenant stays within its share. To make room, the newest checks of the tenant with the most
// waiting checks get ErrOverloaded.
func (g *Gate) makeRoom(tenant uint32, n int64) bool {
	for g.waiting+n > g.room {
		own, tenants := n, int64(len(g.queues))
		if q := g.queues[tenant]; q != nil {
			own += q.weight
		} else {
			tenants++
		}
		if own*tenants > g.room {
			return false
		}
		// The waiting checks of all tenants exceed the bound, and those of this tenant are within
		// its share. Therefore another tenant exceeds its share.
		var most *queue
		for _, q := range g.queues {
			if most == nil || q.weight > most.weight {
				most = q
			}
		}
		w := most.last
		g.remove(w)
		w.answer <- ErrOverloaded
	}
	return true
}

// withdraw removes a check from its queue. If serve has already given slots to the check, or
// rejected it, withdraw returns false.
func (g *Gate) withdraw(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.queue == nil {
		return false
	}
	g.remove(w)
	g.serve()
	return true
}

// serve gives free slots to waiting checks, one queue after the other, by deficit round robin. In
// each round, a queue gains the right to one slot, and a check of weight n is served after n
// rounds. So tenants get equal shares of the slots, not of the number of checks. If too few slots
// are free for the next check, all queues wait. Otherwise lighter checks could overtake a heavy one
// forever.
func (g *Gate) serve() {
	for g.turn != nil {
		q := g.turn
		w := q.first
		if q.credit < w.weight {
			if q.credit++; q.credit < w.weight {
				g.turn = q.next
				continue
			}
		}
		if g.state.Load()/2+w.weight > g.slots {
			return
		}
		g.state.Add(2 * w.weight)
		q.credit, g.turn = 0, q.next
		g.remove(w)
		w.answer <- nil
	}
	g.state.And(^1)
}

// remove removes a check from its queue. If the queue is then empty, remove also removes it from
// the ring.
func (g *Gate) remove(w *waiter) {
	q := w.queue
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.queue, w.prev, w.next = nil, nil, nil
	q.weight -= w.weight
	g.waiting -= w.weight
	if q.first != nil {
		return
	}
	delete(g.queues, q.tenant)
	if q.next == q {
		g.turn = nil
		return
	}
	q.prev.next, q.next.prev = q.next, q.prev
	if g.turn == q {
		g.turn = q.next
	}
}

// link adds a queue to the ring, at the position that serve visits last.
func (g *Gate) link(q *queue) {
	if g.turn == nil {
		q.prev, q.next, g.turn = q, q, q
		return
	}
	q.prev, q.next = g.turn.prev, g.turn
	q.prev.next, g.turn.prev = q, q
}
