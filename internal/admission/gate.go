package admission

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Config of a Gate; the zero value is usable.
type Config struct {
	// Slots is the total weight of the checks that are served at once. Default 128.
	Slots int
	// Waiting is the total weight of the checks that may wait for a slot.
	// A negative value lets no check wait. Default 8192.
	Waiting int
}

// ErrOverloaded is the answer to a check for which the queue has no room.
var ErrOverloaded = errors.New("more checks than this node can serve")

// A Gate admits checks. It is safe for any number of goroutines. A nil Gate
// admits every check at once.
//
// While no check waits, Enter and Leave are one compare-and-swap each, and
// allocate nothing.
type Gate struct {
	slots, room int64

	// state is twice the weight in service, plus 1 while checks wait. While
	// that bit is set, only holders of mu change state.
	state      atomic.Int64
	overloaded atomic.Int64 // checks that got ErrOverloaded
	waiters    sync.Pool    // of *waiter

	mu      sync.Mutex
	queues  map[uint32]*queue // of the tenants that wait, by tenant
	turn    *queue            // the next one to be served; nil: no check waits
	waiting int64             // weight of all queues
}

// A queue holds the waiting checks of one tenant, in order of arrival. The
// queues form a ring in the order in which they are served.
type queue struct {
	tenant      uint32
	first, last *waiter
	weight      int64 // of its checks
	credit      int64 // turns that the first check has waited for
	prev, next  *queue
}

// A waiter is one waiting check.
type waiter struct {
	answer     chan error // capacity 1; receives the one result of Enter
	weight     int64
	queue      *queue // nil once it is answered
	prev, next *waiter
}

// New makes a Gate.
func New(cfg Config) *Gate {
	if cfg.Slots <= 0 {
		cfg.Slots = 128
	}
	if cfg.Waiting == 0 {
		cfg.Waiting = 8192
	}
	g := &Gate{slots: int64(cfg.Slots), room: int64(max(cfg.Waiting, 0)), queues: map[uint32]*queue{}}
	g.waiters.New = func() any { return &waiter{answer: make(chan error, 1)} }
	return g
}

// Enter takes weight slots for a check of a tenant, and waits for them if it
// must. Weights below 1 count as 1, and those above Config.Slots as
// Config.Slots, so that every check can be served. After nil, the caller calls
// Leave with the same weight.
//
// Enter returns ErrOverloaded if the queue is full, without waiting, and the
// error of ctx if ctx ends before the slots are free. If ctx has a method Left, as
// that of package http1 has, Enter calls it when the slots are free for a check
// that waited, and returns context.Canceled if the client has left.
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

// Leave frees the slots of an Enter.
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

// A Status is the load of a Gate.
type Status struct {
	InService  int64 // weight of the checks in service
	Waiting    int64 // weight of the checks that wait
	Overloaded int64 // checks that got ErrOverloaded since the start
}

// Status returns the load now.
func (g *Gate) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{InService: g.state.Load() / 2, Waiting: g.waiting, Overloaded: g.overloaded.Load()}
}

// bounded returns the weight as it counts.
func (g *Gate) bounded(weight int) int64 { return min(max(int64(weight), 1), g.slots) }

// claim takes slots if enough are free and no check waits.
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

// enqueue adds a check to the queue of its tenant. It returns nil if there is
// no room.
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
	g.serve() // slots may have become free before the bit was set
	return w
}

// makeRoom reports whether a check of a tenant may wait. If the room is full,
// it may do so only while its tenant holds at most its share, which is the
// room divided by the number of tenants that wait. The newest checks of the
// tenants that hold most then get ErrOverloaded in its place.
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
		// The sum is above the room and the newcomer is within its share, so
		// that another tenant is above it.
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

// withdraw takes a check out of its queue. It reports false if the check has
// its answer already.
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

// serve gives free slots to the queues in turn (deficit round robin: a check
// of weight n waits for n turns, so that tenants share weight, not checks).
// A check whose turn has come but for which too few slots are free holds up
// the others: it is not overtaken for ever by lighter ones.
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

// remove takes a check out of its queue, and an empty queue out of the ring.
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

// link puts a queue behind all others: it is served last in this round.
func (g *Gate) link(q *queue) {
	if g.turn == nil {
		q.prev, q.next, g.turn = q, q, q
		return
	}
	q.prev, q.next = g.turn.prev, g.turn
	q.prev.next, g.turn.prev = q, q
}
