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

// ErrOverloaded is the error of Enter if too few slots are free for a check and too many checks
// already wait.
var ErrOverloaded = errors.New("more checks than this node can serve")

// A Gate bounds the number of concurrent checks. It is safe for concurrent use. A nil Gate
// admits every check at once.
//
// While no check waits, Enter and Leave each do only one compare-and-swap and allocate no
// memory.
type Gate struct {
	slots, room int64

	// state is twice the sum of the weights of the checks that are being served. If checks
	// wait, 1 is added. While this lowest bit is set, only a goroutine that holds mu changes
	// state.
	state      atomic.Int64
	overloaded atomic.Int64 // number of checks that were rejected with ErrOverloaded
	waiters    sync.Pool    // of *waiter

	mu      sync.Mutex
	queues  map[uint32]*queue // by tenant number; only tenants with waiting checks have a queue
	turn    *queue            // the queue that serve visits next; nil if no check waits
	waiting int64             // sum of the weights of all waiting checks
}

// A queue contains the waiting checks of one tenant in the order of their arrival. All queues
// together form a ring, in the order in which serve visits them.
type queue struct {
	tenant      uint32
	first, last *waiter
	weight      int64 // sum of the weights of the checks in the queue
	credit      int64 // number of rounds that the first check in the queue has waited
	prev, next  *queue
}

// A waiter is one check in a queue.
type waiter struct {
	answer     chan error // has a capacity of 1; receives the result of Enter
	weight     int64
	queue      *queue // nil after the result has been sent to answer
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
// weight below 1 counts as 1. A weight above Config.Slots counts as Config.Slots, because otherwise
// the check could never be served. If Enter returns nil, the caller must call Leave with the same
// weight.
//
// If too few slots are free and too many checks already wait, Enter returns ErrOverloaded at once.
// While the check waits, it may also be rejected with ErrOverloaded to make room for another
// tenant. If ctx ends while the check waits, Enter returns the error of ctx.
//
// If the client has closed the connection while the check waited, Enter returns context.Canceled.
// Enter learns this from the method Left of ctx, which contexts of package http1 have.
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
	if !g.withdraw(w) && <-w.answer == nil { // the result was already sent
		g.Leave(weight)
	}
	return ctx.Err()
}

// TryEnter reserves weight slots like Enter, but does not wait. It returns false if too few slots are free or if checks wait.
func (g *Gate) TryEnter(weight int) bool { return g == nil || g.claim(g.bounded(weight)) }

func hasLeft(ctx context.Context) bool {
	client, ok := ctx.(interface{ Left() bool })
	return ok && client.Left()
}

// Leave releases the slots that Enter reserved. weight must be the weight that was passed to
// Enter.
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

// A Status describes the current load of a Gate.
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

// bounded returns the number of slots that a check with this weight uses: at least 1 and at
// most all slots.
func (g *Gate) bounded(weight int) int64 { return min(max(int64(weight), 1), g.slots) }

// claim reserves n slots if they are free and no check waits. Otherwise it returns false.
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

// enqueue appends a check of weight n to the queue of its tenant. It returns nil if the check
// may not wait (see makeRoom).
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
	g.serve() // slots may have become free before enqueue set the lowest bit of state
	return w
}

// makeRoom reports whether a check of weight n of a tenant may wait. If the sum of the weights
// of waiting checks would exceed its bound, the bound is divided equally among the tenants with
// waiting checks. The check may then wait only if its tenant stays within its share. To make
// room for it, makeRoom rejects the newest checks of the tenant with the highest waiting weight
// with ErrOverloaded.
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
		// The waiting checks of all tenants together exceed the bound, and those of this tenant
		// are within its share. Therefore another tenant exceeds its share.
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

// withdraw removes a check from its queue. It returns false if the result of the check was
// already sent: serve has reserved slots for it, or makeRoom has rejected it.
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

// serve gives free slots to waiting checks. It visits the queues in turn, by deficit round robin.
// In each round, a queue gains the right to one slot, and a check of weight n is served after n
// rounds. Therefore tenants get equal numbers of slots, not equal numbers of checks. If too few
// slots are free for the next check, serve stops, and all queues wait. Otherwise a heavy check
// could wait forever while lighter checks overtake it.
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

// remove removes a check from its queue. If the queue is then empty, remove removes the queue
// from the ring.
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
