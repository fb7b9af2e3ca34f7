package limitertest

import (
	"fmt"
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

// An outstanding reservation of a sequence. after has, for each charge, a copy of the
// counter in the model after the charge. It is nil if the group was not charged.
type outstanding struct {
	reserved
	ask   ask
	after []*counter
}

// playReservations plays a sequence. After each move, it creates or changes a reservation.
func playReservations(w *harness, r *rand.Rand, s *sequence) error {
	p := s.player(w)
	p.grants = nil // grantTests have reservations with grants
	var open []*outstanding
	for i := range s.steps {
		if err := p.move(&s.steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, &s.steps[i], err)
		}
		if len(open) < 4 && i < 200 {
			made, err := p.reserve(byte(i+1), s.randomAsk(r, s.limits))
			if err != nil {
				return fmt.Errorf("step %d: reserve: %w", i, err)
			}
			if made != nil {
				open = append(open, made)
			}
		}
		if len(open) > 0 && r.IntN(3) == 0 {
			k := r.IntN(len(open))
			if err := p.change(r, open[k]); err != nil {
				return fmt.Errorf("step %d: change: %w", i, err)
			}
			if !open[k].record.Open {
				open = slices.Delete(open, k, k+1)
			}
		}
	}
	return nil
}

// reserve creates a reservation with the charges of a. All its charges have different keys.
// It returns nil if the reservation is denied.
func (p *player) reserve(n byte, a ask) (*outstanding, error) {
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
	request := p.w.idempotent(p.request(&a), n, 1)
	request.Idempotency.Key.Cell = enforcement.ReservationCell
	request.Reservation = &enforcement.Reservation{
		Key: request.Idempotency.Key, Most: 100, Life: 1 << 55, Kept: 1 << 50, Data: []byte{n},
	}
	idempotency := request.Idempotency
	request.Idempotency = nil // take must not expect a record of an idempotent check
	modeled := p.model.Take(&request, p.w.clock.Now())
	states := p.reference.take(&request, &modeled, p.w.clock.Now())
	request.Idempotency = idempotency
	o := p.w.ask(request)[0]
	if err := check(&request, &o, p.w.clock.Now()); err != nil {
		return nil, err
	}
	if o.Verdict != modeled.Verdict {
		return nil, fmt.Errorf("%s, the model says %s", o.Verdict, modeled.Verdict)
	}
	made := &outstanding{ask: a, after: make([]*counter, len(request.Charges))}
	for j := range request.Charges {
		if err := compare(&request, &o, j, &modeled.Charges[j], &states[j]); err != nil {
			return nil, fmt.Errorf("charge %d: %w", j, err)
		}
	}
	if o.Verdict != enforcement.Granted {
		return nil, nil
	}
	for from, to := range groups(request.Charges) {
		charged := true
		for j := from; j < to; j++ {
			charged = charged && (o.Charges[j].Fits || a.mode == force)
		}
		for j := from; j < to && charged; j++ {
			made.after[j] = modeled.Charges[j].counter
		}
	}
	made.reserved = reserved{w: p.w, record: *o.Record, charges: request.Charges, most: 100}
	return made, nil
}

// change settles or extends a reservation with random costs.
func (p *player) change(r *rand.Rand, v *outstanding) error {
	now, ends := p.w.clock.Now(), r.IntN(4) > 0
	again := p.request(&v.ask) // with the numbers in force now
	costs := make([]int64, len(v.charges))
	for i := range costs {
		costs[i] = randomCost(r, v.charges[i].Cost)
		if r.IntN(4) == 0 {
			costs[i] = randomCost(r, 2*again.Charges[i].Meter.Quota)
		}
	}
	request := v.reserved.change(ends, costs...)
	request.Reservation.Life, request.Reservation.Kept = 1<<55, 1<<50
	request.Lease = again.Lease
	var kept []enforcement.Charge
	for i := range request.Charges {
		request.Charges[i].Meter, request.Charges[i].Rev = again.Charges[i].Meter, again.Charges[i].Rev
		if v.after[i] != nil && ends {
			kept = append(kept, request.Charges[i])
		}
	}
	request.Charges = kept
	o := p.w.ask(request)[0]
	if err := check(&request, &o, now); err != nil {
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
	v.record = *v.record.After(&request, &o)
	return nil
}

// adjustBucket charges delta units, or returns as many of -delta as the charge alone has not refilled since. It
// returns the number of units by which the bucket changed.
func (n *counter) adjustBucket(c *enforcement.Charge, after *counter, now, delta int64, lease enforcement.Lease) int64 {
	before := floor(n.level).Int64()
	if delta > 0 {
		n.charge(c.Meter, c.Rev, now, delta, lease)
	} else {
		// The level that the bucket would have if nothing else had been charged.
		alone, _ := after.at(c.Meter, c.Rev, now)
		room := min(c.Receipt.Capacity, c.Meter.Capacity) - floor(alone.level).Int64()
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
