package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A lane is the queue of the requests that wait for the next script call. There is one lane for a
// server; on a cluster, there is one for each home. One call carries the requests of several
// callers. There is no timer: the requests that arrive while a call is in flight form the next
// call.
//
// If no call is in flight, a caller sends its own call at once. Otherwise it waits in the queue.
// When a call returns, the caller at the head of the queue wakes up. It sends the next call with as
// many queued requests as fit. Therefore a call needs no goroutine besides those of the callers,
// and a lane with an empty queue adds no switch between goroutines.
//
// If the last call served several callers, the caller that sends the next call first lets other
// goroutines run. Callers whose requests have just arrived can then share the call.
//
// At most depth calls are in flight. A second call starts only if the waiting requests fill half of
// a call, or if the last call was sent longer than stuckAfter ago. Then this process forms one call
// while Redis runs the other. With more concurrent calls, each call would only have fewer requests.
type lane struct {
	limiter *Limiter
	depth   int

	mu       sync.Mutex
	queue    waiters
	charges  int // number of charges of the queued requests
	inFlight int
	started  time.Time // when the last call was sent
	shared   bool      // the last call had requests of several callers
}

// secondCall is the number of waiting charges that is enough to start a call while another call is
// in flight.
const secondCall = callCells / 2

// stuckAfter is the time after which a call in flight no longer delays the next call.
const stuckAfter = 5 * time.Millisecond

// A waiter is one call of Take that waits in a lane, with its requests in order.
type waiter struct {
	ctx      context.Context
	requests []enforcement.Request
	outcomes []enforcement.Outcome
	numbers  []int // indexes of the requests that belong to this lane; nil: all of them
	count    int   // how many
	next     int   // index of the first request that is not in a call yet; guarded by lane.mu

	open    atomic.Int32 // number of requests without an outcome
	wake    chan signal
	leading bool    // the lead signal was sent and not yet handled; guarded by lane.mu
	after   *waiter // in waiters
}

// A signal tells the goroutine that waits in lane.take what to do.
type signal uint8

const (
	finished signal = iota // all outcomes are set
	lead                   // send the next call
)

var waiterPool = sync.Pool{New: func() any {
	// A send on this channel never blocks: when finished is sent, at most one lead is still in the
	// buffer.
	return &waiter{wake: make(chan signal, 2)}
}}

func newWaiter(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, numbers []int) *waiter {
	m := waiterPool.Get().(*waiter)
	m.ctx, m.requests, m.outcomes, m.numbers, m.next = ctx, requests, outcomes, numbers, 0
	m.count = len(requests)
	if numbers != nil {
		m.count = len(numbers)
	}
	m.open.Store(int32(m.count))
	return m
}

func (m *waiter) free() {
	m.ctx, m.requests, m.outcomes, m.numbers, m.after = nil, nil, nil, nil, nil
	waiterPool.Put(m)
}

func (m *waiter) at(i int) (*enforcement.Request, *enforcement.Outcome) {
	if m.numbers != nil {
		i = m.numbers[i]
	}
	return &m.requests[i], &m.outcomes[i]
}

// settle records that n more outcomes of the waiter are set. If all of them are set, it wakes the
// goroutine of the waiter.
func (m *waiter) settle(n int) {
	if n > 0 && m.open.Add(int32(-n)) == 0 {
		m.wake <- finished
	}
}

// waiters is a linked queue of the waiters of a lane.
type waiters struct{ head, tail *waiter }

func (q *waiters) push(m *waiter) {
	m.after = nil
	if q.head == nil {
		q.head = m
	} else {
		q.tail.after = m
	}
	q.tail = m
}

func (q *waiters) pop() {
	q.head = q.head.after
	if q.head == nil {
		q.tail = nil
	}
}

// lanes has the lanes of a Limiter. A single server has one lane. A cluster has a lane for each
// home, because all keys of one call must be in the same hash slot.
type lanes struct {
	one  lane
	home sync.Map // home -> *lane; there are few homes: Config.Tags, and one for each large tenant
}

func (ls *lanes) open(l *Limiter) { ls.one.limiter, ls.one.depth = l, l.config.Connections }

// of returns the lane of a home on a cluster. It creates the lane if it does not exist.
func (ls *lanes) of(l *Limiter, home string) *lane {
	if ln, ok := ls.home.Load(home); ok {
		return ln.(*lane)
	}
	ln, _ := ls.home.LoadOrStore(home, &lane{limiter: l, depth: l.config.Connections})
	return ln.(*lane)
}

// decide sets the outcomes of the requests whose indexes are in numbers. If numbers is nil, it sets
// the outcomes of all requests.
func (ln *lane) decide(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, numbers []int) {
	m := newWaiter(ctx, requests, outcomes, numbers)
	ln.take(m)
	m.free()
}

// take adds a waiter to the queue and returns when all its outcomes are set. Until then, it sends a
// call for the lane each time that it receives a lead signal.
func (ln *lane) take(m *waiter) {
	ln.mu.Lock()
	ln.enqueue(m)
	leads := ln.mayStart()
	if leads {
		ln.inFlight++
		m.leading = true // no lead signal goes to this waiter until its call is formed
	}
	ln.mu.Unlock()
	for leads || <-m.wake == lead {
		ln.lead(m)
		leads = false
	}
}

// enqueue appends a waiter to the queue. The caller holds ln.mu.
func (ln *lane) enqueue(m *waiter) {
	ln.queue.push(m)
	for i := m.next; i < m.count; i++ {
		r, _ := m.at(i)
		ln.charges += len(r.Charges)
	}
}

// mayStart reports whether another call may be sent now. The caller holds ln.mu, and
// the queue is not empty.
func (ln *lane) mayStart() bool {
	switch {
	case ln.inFlight == 0:
		return true
	case ln.inFlight >= ln.depth:
		return false
	}
	return ln.charges >= secondCall || time.Since(ln.started) >= stuckAfter
}

// A part says how many requests of one waiter are in a call.
type part struct {
	waiter *waiter
	count  int
}

// A sharedCall is one call with the waiters whose requests it carries.
type sharedCall struct {
	*call
	parts []part
	left  []part // waiters whose callers closed the connection before the call was formed
	over  bool   // the call is no longer in flight
}

var sharedCalls = sync.Pool{New: func() any { return new(sharedCall) }}

// lead forms one call from the head of the queue, sends it, and sets the outcomes. The
// caller has already counted the call in ln.inFlight.
func (ln *lane) lead(m *waiter) {
	if ln.limiter.live.overdue.Load() {
		ln.limiter.reportOverdue()
	}
	t := sharedCalls.Get().(*sharedCall)
	t.call = newCall()
	ln.mu.Lock()
	if ln.shared {
		ln.mu.Unlock()
		runtime.Gosched()
		ln.mu.Lock()
	}
	m.leading = false
	ln.form(t)
	ln.started, ln.shared = time.Now(), len(t.parts) > 1
	ln.mu.Unlock()
	for _, p := range t.left {
		p.waiter.settle(p.count)
	}
	concluded := false
	defer func() {
		if !concluded { // after a panic, nothing else wakes the waiters
			ln.ended(t, errPanic)
			t.fail(enforcement.Unknown, errPanic)
			t.settle(errPanic)
		}
	}()
	var answer reply
	var err error
	if len(t.requests) > 0 {
		answer, err = ln.limiter.exchange(t.call)
	}
	ln.ended(t, err) // the next call can start before the outcomes of this one are computed
	ln.limiter.conclude(t.call, &answer, err)
	concluded = true
	t.settle(err)
	t.free()
	t.call, t.parts, t.left, t.over = nil, t.parts[:0], t.left[:0], false
	sharedCalls.Put(t)
}

var errPanic = errors.New("redis: the call ended in a panic")

// ended records that a call has returned. Waiters with requests that did not fit into the call join
// the queue again, and the next call may start.
func (ln *lane) ended(t *sharedCall, err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	ln.inFlight--
	if err == nil {
		for _, p := range t.parts {
			if p.waiter.next < p.waiter.count {
				ln.enqueue(p.waiter)
			}
		}
	}
	ln.appoint()
}

// settle wakes the waiters whose outcomes are all set. After an error, it first sets outcomes for
// the requests of these waiters that are in no call yet: they fail.
func (t *sharedCall) settle(err error) {
	for _, p := range t.parts {
		if err != nil {
			p.count += p.waiter.abandon(earlier(err))
		}
		p.waiter.settle(p.count)
	}
}

// appoint wakes a waiter in the queue to send the next call, if another call may start. It sends
// the signal lead while it holds the lock, so that the waiter receives lead before finished. The
// caller holds ln.mu.
func (ln *lane) appoint() {
	m := ln.queue.head
	for m != nil && m.leading {
		m = m.after
	}
	if m == nil || !ln.mayStart() {
		return
	}
	ln.inFlight++
	m.leading = true
	m.wake <- lead
}

// form moves requests from the head of the queue to the call until the call is full. A waiter
// leaves the queue even if some of its requests do not fit. When the call returns, the waiter joins
// the queue again, so that its requests are decided in order. The caller holds ln.mu.
func (ln *lane) form(t *sharedCall) {
	for m := ln.queue.head; m != nil; m = ln.queue.head {
		if err := enforcement.HasLeft(m.ctx, false); err != nil {
			ln.leave(t, m, err)
			continue
		}
		from := m.next
		full := false
		for ; m.next < m.count && !full; m.next++ {
			r, out := m.at(m.next)
			if full = !t.takes(r); full {
				break
			}
			t.add(r, out)
			t.special = t.special || ln.limiter.live.full(r)
			ln.charges -= len(r.Charges)
		}
		if m.next > from {
			t.parts = append(t.parts, part{m, m.next - from})
			ln.queue.pop()
			for i := m.next; i < m.count; i++ {
				r, _ := m.at(i)
				ln.charges -= len(r.Charges)
			}
		}
		if full {
			return
		}
	}
}

// leave removes the waiter at the head of the queue, because its caller has closed the connection.
// It sends none of the waiter's remaining requests. The caller holds ln.mu.
func (ln *lane) leave(t *sharedCall, m *waiter, err error) {
	ln.queue.pop()
	for i := m.next; i < m.count; i++ {
		r, _ := m.at(i)
		ln.charges -= len(r.Charges)
	}
	t.left = append(t.left, part{m, m.abandon(fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err))})
}

// abandon fails the requests of a waiter that are in no call yet, and returns their number. There
// are two reasons for this: the caller has closed the connection, or an earlier call was not
// decided, so that later requests would be decided out of order.
func (m *waiter) abandon(err error) int {
	n := m.count - m.next
	for ; m.next < m.count; m.next++ {
		_, out := m.at(m.next)
		fail(out, enforcement.Failed, err)
	}
	return n
}

// home returns the home of the first cell. The home selects the server for the call, and the last
// reading of this server's clock.
func (c *call) home() string {
	switch {
	case len(c.cells) > 0:
		return c.cells[0].home
	case len(c.records) > 0:
		return c.records[0].home
	}
	return ""
}
