package limitertest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// ReservationSequences plays n random sequences of reservations between random checks, and
// compares each result with the model and the reference functions. The arguments are those
// of Sequences.
func ReservationSequences(t *testing.T, factory Factory, n int, seed uint64) {
	t.Helper()
	playEach(t, factory, n, seed, playReservations)
}

// An outstanding is a reservation in a random sequence. It is outstanding from its grant to its end.
type outstanding struct {
	reserved
	ask ask
	n   byte // its number
	key byte // the number of its idempotency key; 0 stands for the key of the reservation
	// first has the outcome that granted the reservation. For each charge, after has a copy of the model's counter
	// after the charge; it is nil if the group was not charged.
	first *record
	after []*counter
}

// A part is one request of a call. verify compares its outcome with the model. The verify functions are called
// in the order of the requests.
type part struct {
	request enforcement.Request
	verify  func(o *enforcement.Outcome) error
}

// A reserver is a player that plays reservations too.
type reserver struct {
	*player
	s   *sequence
	all []*outstanding // also those that were denied or have ended
}

const (
	mostOutstanding  = 5  // the bound of the tenant
	mostReservations = 90 // of a sequence, so that each of them and each key has a number
	// forever is the life of a reservation, longer than a sequence. A time after it is below 1<<53.
	forever = 1 << 52
)

// playReservations plays a sequence. After each move, it makes one call with random requests:
// new reservations, repetitions and conflicts of earlier ones, changes, and checks.
func playReservations(w *harness, r *rand.Rand, s *sequence) error {
	p := &reserver{player: s.player(w), s: s}
	p.grants = nil // grantTests have reservations with grants
	for i := range s.steps {
		if err := p.move(&s.steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, &s.steps[i], err)
		}
		p.end()
		var parts []part
		for range 1 + r.IntN(4) {
			parts = append(parts, p.parts(r)...)
		}
		requests := make([]enforcement.Request, len(parts))
		for k := range parts {
			requests[k] = parts[k].request
		}
		outcomes := w.ask(requests...)
		for k := range parts {
			if err := parts[k].verify(&outcomes[k]); err != nil {
				return fmt.Errorf("step %d, request %d of %d: %w", i, k, len(parts), err)
			}
		}
	}
	return nil
}

// parts returns one or two random requests.
func (p *reserver) parts(r *rand.Rand) []part {
	if len(p.all) == 0 || len(p.all) < mostReservations && r.IntN(4) == 0 {
		v := p.add(p.s.randomAsk(r, p.s.limits))
		if r.IntN(4) > 0 {
			return []part{p.reserve(v, 1)}
		}
		other := p.add(v.ask)
		v.key, other.key = 255-v.n, 255-v.n
		return []part{p.reserve(v, 1), p.reserve(other, byte(1+r.IntN(4)/3))}
	}
	v := p.all[r.IntN(len(p.all))]
	switch what := r.IntN(8); {
	case what < 2 && v.key == 0: // otherwise the record of its key may have ended
		return []part{p.reserve(v, byte(1+what))}
	case what < 5 && v.first != nil:
		return []part{p.change(r, v)}
	case what == 5:
		return []part{p.read(v)}
	}
	a := p.s.randomAsk(r, p.s.limits)
	request := p.request(&a)
	return []part{{request, func(o *enforcement.Outcome) error { return p.verify(&request, o) }}}
}

// add adds a reservation with the charges of a. All its charges have different keys.
func (p *reserver) add(a ask) *outstanding {
	if a.mode != force {
		a.mode = enforce
	}
	a.key = 0
	used := map[[2]int]bool{}
	a.charges = slices.DeleteFunc(slices.Clone(a.charges), func(c askCharge) bool {
		key := [2]int{c.limit, int(c.partition)}
		twice := used[key]
		used[key] = true
		return twice
	})
	v := &outstanding{ask: a, n: byte(len(p.all) + 1)}
	p.all = append(p.all, v)
	return v
}

// reserve returns a request that creates the reservation v. If v exists, the request is a repetition, or a
// conflict if what differs.
func (p *reserver) reserve(v *outstanding, what byte) part {
	request := p.w.idempotent(p.request(&v.ask), v.n, what)
	request.Reservation = &enforcement.Reservation{
		Key: p.w.key(enforcement.ReservationCell, v.n), Most: mostOutstanding, Life: forever, Kept: forever, Data: []byte{v.n, what},
	}
	request.Idempotency.Key, request.Idempotency.Charges = request.Reservation.Key, hashOf(request.Charges)
	if v.key != 0 {
		request.Idempotency.Key = p.w.key(enforcement.IdempotencyCell, v.key)
	}
	return part{request, func(o *enforcement.Outcome) error { return p.reserved(v, &request, o) }}
}

// reserved compares the outcome of a request to create the reservation v.
func (p *reserver) reserved(v *outstanding, request *enforcement.Request, o *enforcement.Outcome) error {
	switch {
	case v.first != nil && v.first.Request != request.Idempotency.Request:
		return refused(o, enforcement.Reused)
	case v.first != nil:
		if err := v.sameRecord(o); err != nil {
			return err
		}
		return v.first.repeatedBy(request, o)
	}
	if known, err := p.repeats(request, o); known || err != nil {
		return err
	}
	if p.open() >= mostOutstanding {
		return refused(o, enforcement.Full)
	}
	plain := *request
	plain.Idempotency = nil // the model has no records
	modeled, err := p.decided(&plain, o)
	if err != nil || o.Verdict != enforcement.Granted {
		return err
	}
	v.first = &record{*request.Idempotency, *o, request.ID}
	if v.key != 0 {
		p.records[request.Idempotency.Key] = *v.first
	}
	v.reserved = reserved{w: p.w, record: *o.Record, charges: request.Charges, most: mostOutstanding}
	v.after = make([]*counter, len(request.Charges))
	for from, to := range groups(request.Charges) {
		charged := true
		for j := from; j < to; j++ {
			charged = charged && (o.Charges[j].Fits || v.ask.mode == force)
		}
		for j := from; j < to && charged; j++ {
			v.after[j] = modeled.Charges[j].counter
		}
	}
	return nil
}

// open returns the number of outstanding reservations.
func (p *reserver) open() (n int) {
	for _, v := range p.all {
		if v.first != nil && v.record.Open {
			n++
		}
	}
	return n
}

// refused returns an error unless the outcome has the verdict, and nothing else.
func refused(o *enforcement.Outcome, want enforcement.Verdict) error {
	if o.Verdict != want || o.Err != nil || o.Record != nil || len(o.Charges) != 0 {
		return fmt.Errorf("verdict %s, record %v, %d charges, error %w; want %s alone", o.Verdict, o.Record, len(o.Charges), o.Err, want)
	}
	return nil
}

// sameRecord returns an error unless the outcome has the record of v.
func (v *outstanding) sameRecord(o *enforcement.Outcome) error {
	if o.Verdict != enforcement.Granted || o.Record == nil || fmt.Sprint(*o.Record) != fmt.Sprint(v.record) {
		return fmt.Errorf("verdict %s, record %+v, error %w; want %+v", o.Verdict, o.Record, o.Err, v.record)
	}
	return nil
}

// read returns a request that reads the record of v.
func (p *reserver) read(v *outstanding) part {
	request := p.w.request(peek)
	request.Reservation = &enforcement.Reservation{Key: p.w.key(enforcement.ReservationCell, v.n)}
	return part{request, func(o *enforcement.Outcome) error {
		if v.first == nil {
			return refused(o, enforcement.Stale)
		}
		return v.sameRecord(o)
	}}
}

// change returns a request that settles or extends the reservation v with random costs.
func (p *reserver) change(r *rand.Rand, v *outstanding) part {
	ends := r.IntN(4) > 0
	again := p.request(&v.ask) // with the numbers in force now
	costs := make([]int64, len(v.charges))
	for i := range costs {
		costs[i] = randomCost(r, v.charges[i].Cost)
		if r.IntN(4) == 0 {
			costs[i] = randomCost(r, 2*again.Charges[i].Meter.Quota)
		}
	}
	request := v.reserved.change(ends, costs...)
	request.Reservation.Life, request.Reservation.Kept = forever, forever
	request.Lease = again.Lease
	var kept []enforcement.Charge
	for i := range request.Charges {
		request.Charges[i].Meter, request.Charges[i].Rev = again.Charges[i].Meter, again.Charges[i].Rev
		if v.after[i] != nil && ends {
			kept = append(kept, request.Charges[i])
		}
	}
	request.Charges = kept
	return part{request, func(o *enforcement.Outcome) error { return p.changed(v, &request, o) }}
}

// changed compares the outcome of a request that changes the reservation v.
func (p *reserver) changed(v *outstanding, request *enforcement.Request, o *enforcement.Outcome) error {
	if !v.record.Open || v.record.Version != request.Reservation.Version {
		return refused(o, enforcement.Stale)
	}
	now := p.w.clock.Now()
	if err := check(request, o, now); err != nil {
		return err
	}
	for i := range request.Charges {
		c := &request.Charges[i]
		delta := p.model.adjust(c, v.after[c.Receipt.Index], now, request.Lease)
		if got := o.Charges[i].Cost - c.Receipt.Cost; got != delta || !o.Charges[i].Fits {
			return fmt.Errorf("charge %d from %d to %d changed by %d, the model says %d", i, c.Receipt.Cost, c.Cost, got, delta)
		}
		settled, clamped := c.Meter.Settle(p.reference.states[c.Key], c.Rev, now)
		after, _ := c.Meter.Adjust(settled, c.Rev, now, c.Cost, c.Receipt, &request.Lease)
		if delta != 0 || clamped || c.Meter.Algorithm == enforcement.Concurrency {
			p.reference.states[c.Key] = after
		}
		if err := same(&o.Charges[i].State, &after); err != nil {
			return fmt.Errorf("charge %d: %w", i, err)
		}
	}
	v.record = *v.record.After(request, o)
	return nil
}

// adjustBucket changes the level of a bucket by delta units. If delta is below 0, it returns units, but not
// those that the charge alone has refilled since. It returns the number of units by which the bucket changed.
func (n *counter) adjustBucket(c *enforcement.Charge, after *counter, now, delta int64, lease enforcement.Lease) int64 {
	before := floor(n.level).Int64()
	if delta > 0 {
		n.charge(c.Meter, c.Rev, now, delta, lease)
	} else {
		// alone is the bucket as it would be without later charges, and full is a bucket that was full at the time of
		// the charge.
		alone, _ := after.at(c.Meter, c.Rev, now)
		full := after.clone()
		full.level = new(big.Rat).SetInt64(c.Receipt.Capacity)
		full, _ = full.at(c.Meter, c.Rev, now)
		room := min(floor(full.level).Int64(), c.Meter.Capacity) - floor(alone.level).Int64()
		n.refund(c.Meter, min(-delta, max(room, 0)), lease.ID)
	}
	return before - floor(n.level).Int64()
}

// lastEntryAt returns the index of the last entry with the time t, or -1.
func lastEntryAt(entries []enforcement.Entry, t int64) int {
	at := -1
	for i := range entries {
		if entries[i].T == t {
			at = i
		}
	}
	return at
}

// adjustLease is adjust for a concurrency limit.
func (n *counter) adjustLease(c *enforcement.Charge, now int64, lease enforcement.Lease) (delta int64) {
	own := n.leases[lease.ID].Units
	switch {
	case own == 0 && c.Receipt.Cost != 0:
	case c.Cost == 0:
		n.refund(c.Meter, own, lease.ID)
	default:
		n.charge(c.Meter, c.Rev, now, c.Cost, lease)
	}
	return n.leases[lease.ID].Units - own
}

// adjust changes what a charge has in the window of its receipt. after is the counter after
// the charge. It returns the number of units by which the charge changed.
func (d *model) adjust(c *enforcement.Charge, after *counter, now int64, lease enforcement.Lease) (delta int64) {
	stored := d.counters[c.Key]
	if stored == nil {
		stored = new(counter)
	}
	n, clamped := stored.at(c.Meter, c.Rev, now)
	if clamped {
		d.counters[c.Key] = n.clone()
	}
	if c.Meter.Algorithm == enforcement.Concurrency {
		d.counters[c.Key] = n
		return n.adjustLease(c, now, lease)
	}
	if delta = n.change(c); delta == 0 {
		return 0
	}
	add := func(count *int64) {
		was := *count
		*count = min(max(was+delta, 0), countStops)
		delta = *count - was
	}
	algorithm := c.Meter.Algorithm
	switch {
	case c.Receipt.Cost == 0:
		n.charge(c.Meter, c.Rev, now, delta, lease)
	case algorithm.Bucket():
		delta = n.adjustBucket(c, after, now, delta, lease)
		if delta < 0 && d.counters[c.Key] == nil {
			return 0
		}
	case !n.open:
		return 0
	case algorithm == enforcement.SlidingWindowLog:
		at := lastEntryAt(n.entries, after.start)
		if at < 0 {
			return 0
		}
		add(&n.entries[at].Units)
		n.entries = slices.DeleteFunc(n.entries, func(e enforcement.Entry) bool { return e.Units == 0 })
		if len(n.entries) == 0 {
			delete(d.counters, c.Key)
			return delta
		}
		n.start = n.entries[len(n.entries)-1].T
	case c.Meter.Period != enforcement.NoPeriod:
		window := after.clone()
		window.align(c.Meter, after.start)
		if window.start != n.start {
			return 0
		}
		add(&n.current)
	case n.start == after.start:
		add(&n.current)
	case algorithm == enforcement.SlidingWindowCounter && n.start == after.start+c.Meter.Window:
		add(&n.previous)
	default:
		return 0
	}
	if delta != 0 {
		d.counters[c.Key] = n
	}
	return delta
}
