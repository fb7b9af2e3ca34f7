package inprocess

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// reservations has the records of reservations. A request with a Reservation first locks the
// shards of its counters, and then mu. It unlocks both after its decision. Other requests do
// not lock mu.
type reservations struct {
	mu      sync.Mutex
	byKey   map[enforcement.Key]*reservation
	tenants map[uint32]map[*reservation]struct{} // the listed reservations that have not ended, by tenant
	due     queue                                // the same reservations, ordered by Until
	forget  queue                                // all records, ordered by Forgotten
}

// A reservation is one stored record. Outcomes point to the record, so a change replaces it
// instead of modifying it.
type reservation struct {
	key    enforcement.Key
	home   string
	record *enforcement.Record
	cells  int64  // number of cells as which the record counts in a budget
	places [2]int // positions in the queues due and forget; negative if it is not in the queue
}

// A queue is a heap of reservations. number selects the element of reservation.places in which
// the queue stores positions: 0 for the queue due, 1 for forget.
type queue struct {
	number int
	all    []*reservation
}

func (q *queue) time(i int) int64 {
	r := q.all[i].record
	if q.number == 0 {
		return r.Until
	}
	return r.Forgotten()
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q *queue) Len() int           { return len(q.all) }
func (q *queue) Less(i, j int) bool { return q.time(i) < q.time(j) }
func (q *queue) Swap(i, j int) {
	q.all[i], q.all[j] = q.all[j], q.all[i]
	q.all[i].places[q.number], q.all[j].places[q.number] = i, j
}

func (q *queue) Push(r any) {
	added := r.(*reservation)
	added.places[q.number] = len(q.all)
	q.all = append(q.all, added)
}

func (q *queue) Pop() any {
	last := len(q.all) - 1
	r := q.all[last]
	q.all[last] = nil
	q.all = q.all[:last]
	r.places[q.number] = -1
	return r
}

func (q *queue) remove(r *reservation) {
	if at := r.places[q.number]; at >= 0 {
		heap.Remove(q, at)
	}
}

// cellBytes is the size of a cell. In a budget, a record counts as many cells as its size
// divided by cellBytes.
const cellBytes = 85

// find returns the reservation with a key, or nil. The caller holds mu.
func (rs *reservations) find(key enforcement.Key, now int64) *reservation {
	r := rs.byKey[key]
	if r == nil || now >= r.record.Forgotten() {
		return nil
	}
	return r
}

// outstanding returns the number of listed reservations of a tenant whose time has not passed.
// If the tenant has fewer than most listed reservations, it returns their number without
// checking their times. The caller must hold mu.
func (rs *reservations) outstanding(tenant uint32, now, most int64) (n int64) {
	if n = int64(len(rs.tenants[tenant])); n < most {
		return n
	}
	n = 0
	for r := range rs.tenants[tenant] {
		if now < r.record.Until {
			n++
		}
	}
	return n
}

// reserveFirst decides a request if the stored records are enough to decide it: a repetition, a
// read, or a request whose record is missing. It returns true if the outcome is complete. The
// caller must hold mu of the reservations.
func (l *Limiter) reserveFirst(r *enforcement.Request, o *enforcement.Outcome, now int64) bool {
	rs, v := &l.reservations, r.Reservation
	found := rs.find(v.Key, now)
	o.Verdict, o.At, o.Charges = enforcement.Granted, now, o.Charges[:0]
	switch {
	case r.Mode == enforcement.Peek && found != nil:
		o.Record = found.record
	case r.Mode == enforcement.Peek || r.Mode == enforcement.Adjust && (found == nil || !v.Changes(found.record, now)):
		o.Verdict = enforcement.Stale
	case r.Mode == enforcement.Adjust:
		return false
	case found != nil && found.record.Request != r.Idempotency.Request:
		o.Verdict = enforcement.Reused
	case found != nil:
		o.At, o.Replayed, o.First, o.Record = found.record.At, true, found.record.ID, found.record
		l.repeatCharges(r, o)
	case v.Most > 0 && rs.outstanding(v.Key.Tenant, now, v.Most) >= v.Most:
		o.Verdict = enforcement.Full
	default:
		return false
	}
	return true
}

// repeatCharges sets the results of the charges of a request that repeats o.Record.
func (l *Limiter) repeatCharges(r *enforcement.Request, o *enforcement.Outcome) {
	if o.Record.Numbers != r.Idempotency.Charges {
		return
	}
	for i := range o.Record.Charged {
		charged := o.Record.Charged[i]
		charged.Cost = r.Charges[i].Cost
		o.Charges = append(o.Charges, charged)
	}
}

// reserveLast stores the record of a granted request with a Reservation. Take calls it after
// the charges. The caller must hold l.reservations.mu.
func (l *Limiter) reserveLast(r *enforcement.Request, o *enforcement.Outcome) {
	rs, v := &l.reservations, r.Reservation
	stored := rs.byKey[v.Key]
	var record *enforcement.Record
	if r.Mode == enforcement.Adjust {
		record = stored.record.After(r, o)
	} else {
		record = enforcement.NewRecord(r, o)
		o.Record = record
	}
	if stored != nil {
		rs.remove(l, stored)
	}
	rs.add(l, &reservation{key: v.Key, home: r.Home, record: record, places: [2]int{-1, -1}}, v.Most > 0)
}

// add inserts a record. The caller holds mu.
func (rs *reservations) add(l *Limiter, r *reservation, listed bool) {
	if rs.byKey == nil {
		rs.byKey, rs.tenants = map[enforcement.Key]*reservation{}, map[uint32]map[*reservation]struct{}{}
		rs.forget.number = 1
	}
	rs.byKey[r.key] = r
	heap.Push(&rs.forget, r)
	r.cells = 1 + int64(len(r.record.Data)+cellBytes*len(r.record.Charged))/cellBytes
	l.counted.add(&r.key, r.cells)
	if !listed || !r.record.Open {
		return
	}
	heap.Push(&rs.due, r)
	if rs.tenants[r.key.Tenant] == nil {
		rs.tenants[r.key.Tenant] = map[*reservation]struct{}{}
	}
	rs.tenants[r.key.Tenant][r] = struct{}{}
}

// remove deletes a record. The caller holds mu.
func (rs *reservations) remove(l *Limiter, r *reservation) {
	delete(rs.byKey, r.key)
	rs.due.remove(r)
	rs.forget.remove(r)
	if of := rs.tenants[r.key.Tenant]; of != nil {
		if delete(of, r); len(of) == 0 {
			delete(rs.tenants, r.key.Tenant)
		}
	}
	l.counted.add(&r.key, -r.cells)
}

// sweepReservations deletes the records that no longer have an effect.
func (l *Limiter) sweepReservations() {
	rs := &l.reservations
	for swept := sweepStep; swept == sweepStep; {
		rs.mu.Lock()
		now := l.now()
		for swept = 0; swept < sweepStep && rs.forget.Len() > 0 && now >= rs.forget.time(0); swept++ {
			rs.remove(l, rs.forget.all[0])
		}
		if len(rs.byKey) == 0 {
			rs.byKey, rs.tenants, rs.due.all, rs.forget.all = nil, nil, nil, nil // maps keep their largest size
		}
		rs.mu.Unlock()
	}
}

// Due implements enforcement.Reserver.
func (l *Limiter) Due(_ context.Context, most int) (due []enforcement.ReservationEntry, _ error) {
	rs := &l.reservations
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := l.now()
	// In the heap, the children of a reservation end later than the reservation itself. So the
	// loop visits only the children of reservations that are due.
	for next := []int{0}; len(next) > 0 && len(due) < most; next = next[1:] {
		at := next[0]
		if at >= rs.due.Len() || now < rs.due.time(at) {
			continue
		}
		due = append(due, rs.due.all[at].entry())
		next = append(next, 2*at+1, 2*at+2)
	}
	return due, nil
}

func (r *reservation) entry() enforcement.ReservationEntry {
	return enforcement.ReservationEntry{Home: r.home, Key: r.key, Until: r.record.Until}
}

// Outstanding implements enforcement.Reserver.
func (l *Limiter) Outstanding(_ context.Context, _ string, tenant uint32, until int64, partition [16]byte, most int) (
	list []enforcement.ReservationEntry, _ error,
) {
	rs := &l.reservations
	rs.mu.Lock()
	for r := range rs.tenants[tenant] {
		list = append(list, r.entry())
	}
	rs.mu.Unlock()
	after := func(e enforcement.ReservationEntry) int {
		return cmp.Or(cmp.Compare(e.Until, until), bytes.Compare(e.Key.Partition[:], partition[:]))
	}
	list = slices.DeleteFunc(list, func(e enforcement.ReservationEntry) bool { return after(e) <= 0 })
	slices.SortFunc(list, func(a, b enforcement.ReservationEntry) int {
		return cmp.Or(cmp.Compare(a.Until, b.Until), bytes.Compare(a.Key.Partition[:], b.Key.Partition[:]))
	})
	return list[:min(len(list), most)], nil
}

// OutstandingTotal implements enforcement.Reserver.
func (l *Limiter) OutstandingTotal(context.Context) (int64, error) {
	l.reservations.mu.Lock()
	defer l.reservations.mu.Unlock()
	return int64(l.reservations.due.Len()), nil
}

// adjust changes what an earlier request charged to a counter. It does not reduce an overflow
// counter, because other keys are counted there too. The caller holds the lock of the counter's
// shard.
func (l *Limiter) adjust(w *work, c *enforcement.Charge, now int64) (delta int64) {
	held := c.Meter.Algorithm == enforcement.Concurrency
	if w.shared && c.Cost < c.Receipt.Cost && !held {
		return 0
	}
	if c.Receipt.Cost == 0 && !held {
		l.charge(w, c, c.Cost, now)
		return c.Cost
	}
	after, delta := c.Meter.Adjust(w.state, c.Rev, now, c.Cost, c.Receipt, &w.lease)
	if delta == 0 && (!held || w.cell == none) {
		return 0
	}
	l.insertIfMissing(w)
	w.state = after
	l.keepReduced(w, c.Meter, now)
	return delta
}

// adjustAll changes the counters of all charges of a request with mode Adjust.
func (l *Limiter) adjustAll(r *enforcement.Request, o *enforcement.Outcome, ws []work) {
	o.Charges = slices.Grow(o.Charges[:0], len(r.Charges))[:len(r.Charges)]
	costs := enforcement.AdjustedCosts(r.Charges, func(i int) int64 {
		return r.Charges[i].Meter.Left(ws[ws[i].leader].state, o.At)
	})
	for i := range r.Charges {
		c, w, out := &r.Charges[i], &ws[ws[i].leader], &o.Charges[i]
		if costs != nil {
			changed := *c
			changed.Cost = costs[i]
			c = &changed
		}
		delta := l.adjust(w, c, o.At)
		out.Cost, out.Fits = c.Receipt.Cost+delta, true
		handOut(out, c, &w.state, o.At)
	}
}
