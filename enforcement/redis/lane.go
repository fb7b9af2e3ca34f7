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

// A lane gathers the requests that wait for one server, or on a cluster for one
// home, into shared calls. There is no timer: while a call is in flight, the
// requests that arrive form the next one.
//
// A caller that finds no call in flight sends its own at once. Otherwise it
// queues. When a call returns, the caller at the head of the queue is woken and
// sends the next call for as many of the queue as one call may hold. So a call
// costs no goroutine of its own, and an idle lane adds no hand-off.
//
// If the last call served several callers, the leader lets other goroutines run
// before it forms the next one: callers whose requests have arrived then share it.
//
// At most depth calls are in flight. A second one starts only when a full call
// waits, or when the last one started stuckAfter ago: more calls at once would
// only be smaller.
type lane struct {
	limiter *Limiter
	depth   int

	mu       sync.Mutex
	queue    members
	charges  int // of the requests in queue
	inFlight int
	started  time.Time // when the last call was sent
	shared   bool      // the last call served several callers
}

// stuckAfter is how long a call is in flight before the next one no longer
// waits for it.
const stuckAfter = 5 * time.Millisecond

// A member is the part of one Take that one lane decides: requests in order.
type member struct {
	ctx      context.Context
	requests []enforcement.Request
	outcomes []enforcement.Outcome
	numbers  []int // which of requests are the member's; nil: all of them
	count    int   // how many
	next     int   // the first that no call has taken; guarded by lane.mu

	open    atomic.Int32 // requests whose outcome is not set yet
	wake    chan signal
	leading bool    // lead was sent and not acted on; guarded by lane.mu
	after   *member // in members
}

// A signal wakes the goroutine that waits in take for its member.
type signal uint8

const (
	finished signal = iota // every outcome is set
	lead                   // send the next call
)

var memberPool = sync.Pool{New: func() any {
	// At most one lead is pending when finished is sent.
	return &member{wake: make(chan signal, 2)}
}}

func newMember(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, numbers []int) *member {
	m := memberPool.Get().(*member)
	m.ctx, m.requests, m.outcomes, m.numbers, m.next = ctx, requests, outcomes, numbers, 0
	m.count = len(requests)
	if numbers != nil {
		m.count = len(numbers)
	}
	m.open.Store(int32(m.count))
	return m
}

func (m *member) free() {
	m.ctx, m.requests, m.outcomes, m.numbers, m.after = nil, nil, nil, nil, nil
	memberPool.Put(m)
}

func (m *member) at(i int) (*enforcement.Request, *enforcement.Outcome) {
	if m.numbers != nil {
		i = m.numbers[i]
	}
	return &m.requests[i], &m.outcomes[i]
}

// settle notes that n more outcomes are set, and wakes the caller after the last.
func (m *member) settle(n int) {
	if n > 0 && m.open.Add(int32(-n)) == 0 {
		m.wake <- finished
	}
}

// members is a queue.
type members struct{ head, tail *member }

func (q *members) push(m *member) {
	m.after = nil
	if q.head == nil {
		q.head = m
	} else {
		q.tail.after = m
	}
	q.tail = m
}

func (q *members) pop() {
	q.head = q.head.after
	if q.head == nil {
		q.tail = nil
	}
}

// lanes are those of a Limiter: one for a single server, and on a cluster one
// for each home, because one call reaches one slot.
type lanes struct {
	one  lane
	home sync.Map // home -> *lane; homes are few (Config.Tags, and those of large tenants)
}

func (ls *lanes) open(l *Limiter) { ls.one.limiter, ls.one.depth = l, l.config.Connections }

// of returns the lane of a home on a cluster.
func (ls *lanes) of(l *Limiter, home string) *lane {
	if ln, ok := ls.home.Load(home); ok {
		return ln.(*lane)
	}
	ln, _ := ls.home.LoadOrStore(home, &lane{limiter: l, depth: l.config.Connections})
	return ln.(*lane)
}

// decide sets the outcomes of the numbered requests; nil numbers are all.
func (ln *lane) decide(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, numbers []int) {
	m := newMember(ctx, requests, outcomes, numbers)
	ln.take(m)
	m.free()
}

// take decides a member's requests. It returns when every outcome is set.
func (ln *lane) take(m *member) {
	ln.mu.Lock()
	ln.enqueue(m)
	leads := ln.mayStart()
	if leads {
		ln.inFlight++
		m.leading = true // until its call is formed, it is not appointed as well
	}
	ln.mu.Unlock()
	for leads || <-m.wake == lead {
		ln.lead(m)
		leads = false
	}
}

// enqueue appends a member to the queue. ln.mu is held.
func (ln *lane) enqueue(m *member) {
	ln.queue.push(m)
	for i := m.next; i < m.count; i++ {
		r, _ := m.at(i)
		ln.charges += len(r.Charges)
	}
}

// mayStart reports whether another call may be sent now. ln.mu is held, and the
// queue is not empty.
func (ln *lane) mayStart() bool {
	switch {
	case ln.inFlight == 0:
		return true
	case ln.inFlight >= ln.depth:
		return false
	}
	return ln.charges >= callCells || time.Since(ln.started) >= stuckAfter
}

// A part is how many requests of a member are in a call.
type part struct {
	member *member
	count  int
}

// A trip is one call with the members that it serves.
type trip struct {
	*call
	parts []part
	left  []part // members whose callers left before the call was formed
	over  bool   // the call is not in flight any more
}

var trips = sync.Pool{New: func() any { return new(trip) }}

// lead sends one call for the head of the queue. The caller has counted it in
// ln.inFlight.
func (ln *lane) lead(m *member) {
	t := trips.Get().(*trip)
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
		p.member.settle(p.count)
	}
	concluded := false
	defer func() {
		if !concluded { // a panic: nobody else would wake the members
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
	ln.ended(t, err) // the next call leaves before the answers of this one are worked out
	ln.limiter.conclude(t.call, &answer, err)
	concluded = true
	t.settle(err)
	t.free()
	t.call, t.parts, t.left, t.over = nil, t.parts[:0], t.left[:0], false
	trips.Put(t)
}

var errPanic = errors.New("redis: the call ended in a panic")

// ended takes a call out of flight, queues the rest of its members, and lets the
// next call start.
func (ln *lane) ended(t *trip, err error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	ln.inFlight--
	if err == nil {
		for _, p := range t.parts {
			if p.member.next < p.member.count {
				ln.enqueue(p.member)
			}
		}
	}
	ln.appoint()
}

// settle wakes the members whose last outcome is set. After an error, the
// requests of a member that no call has taken fail too.
func (t *trip) settle(err error) {
	for _, p := range t.parts {
		if err != nil {
			p.count += p.member.abandon(earlier(err))
		}
		p.member.settle(p.count)
	}
}

// appoint wakes a member of the queue to send the next call, if one may start.
// The signal is sent under the lock: it arrives before the one that the member is
// finished. ln.mu is held.
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

// form takes requests from the head of the queue until the call is full. A member
// of which some requests remain leaves the queue as well until the call returns,
// so that its requests are decided in order. ln.mu is held.
func (ln *lane) form(t *trip) {
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

// leave takes the head of the queue out of it: its caller has left, so none of its
// requests is sent any more. ln.mu is held.
func (ln *lane) leave(t *trip, m *member, err error) {
	ln.queue.pop()
	for i := m.next; i < m.count; i++ {
		r, _ := m.at(i)
		ln.charges -= len(r.Charges)
	}
	t.left = append(t.left, part{m, m.abandon(fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err))})
}

// abandon fails the requests of a member that no call has taken: their caller has
// left, or a call before them was not decided, so that their order would not hold.
// It returns how many.
func (m *member) abandon(err error) int {
	n := m.count - m.next
	for ; m.next < m.count; m.next++ {
		_, out := m.at(m.next)
		fail(out, enforcement.Failed, err)
	}
	return n
}

// home returns the home whose server the call goes to.
func (c *call) home() string {
	if len(c.cells) == 0 {
		return ""
	}
	return c.cells[0].home
}
