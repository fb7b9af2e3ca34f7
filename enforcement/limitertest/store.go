package limitertest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// A Store is the reference implementation of an [enforcement.Drawer]. It applies the
// reference functions to a plain map. enforcement/redis/scripts/lease.lua does the same
// as Draw, in Lua.
type Store struct {
	now func() int64

	mu      sync.Mutex
	states  map[enforcement.Key]enforcement.State
	drawn   map[enforcement.Key]*Outstanding
	records map[enforcement.Key]record
}

// A record is the outcome of a granted idempotent request.
type record struct {
	enforcement.Idempotency
	outcome enforcement.Outcome
	first   [16]byte
}

var _ enforcement.Drawer = (*Store)(nil)

// NewStore returns a Store. now returns the time in microseconds since the epoch.
func NewStore(now func() int64) *Store {
	return &Store{
		now: now, states: map[enforcement.Key]enforcement.State{}, drawn: map[enforcement.Key]*Outstanding{},
		records: map[enforcement.Key]record{},
	}
}

// Outstanding records the units that were drawn from a bucket, and were neither reported nor returned yet.
//
// Level is the sum of the units in the bucket and the outstanding units, with the fraction Part, at the time
// At. It is at most the capacity. The state of the counter has only the units in the bucket, because code that
// does not support draws reads this state. The time of the state is Shown, so the bucket does not refill before
// Shown. Shown is late enough that the bucket has at most capacity - outstanding units until the last lot ends.
type Outstanding struct {
	Rev, Level, Part, At, Shown int64
	Lots                        [2]outstandingLot // in the order of their ends
}

// An outstandingLot has the outstanding units of one epoch. They lapse at the time
// Until.
type outstandingLot struct{ Until, Units int64 }

func (o *Outstanding) units() int64 { return o.Lots[0].Units + o.Lots[1].Units }

// Take decides requests in order, each independently of the others.
func (s *Store) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range requests {
		r, o := &requests[i], &outcomes[i]
		*o = enforcement.Outcome{At: s.now(), Charges: o.Charges[:0]}
		if err := ctx.Err(); err != nil {
			o.Verdict, o.Err = enforcement.Failed, fmt.Errorf("store: %w: %w", enforcement.ErrNotReached, err)
			continue
		}
		if !r.Idempotent() {
			s.decide(r, o)
			continue
		}
		if s.repeat(r, o) {
			continue
		}
		if s.decide(r, o); r.Mode != enforcement.Peek && o.Verdict == enforcement.Granted {
			stored := *o
			stored.Charges = slices.Clone(o.Charges)
			s.records[r.Idempotency.Key] = record{*r.Idempotency, stored, r.ID}
		}
	}
}

// repeat sets the outcome of a request from the record of its idempotency key. It returns false if there is no
// record.
func (s *Store) repeat(r *enforcement.Request, o *enforcement.Outcome) bool {
	found, ok := s.records[r.Idempotency.Key]
	switch {
	case !ok || o.At >= found.outcome.At+enforcement.IdempotencyPeriod.Microseconds():
		return false
	case found.Request != r.Idempotency.Request:
		o.Verdict = enforcement.Reused
		return true
	}
	o.Verdict, o.At, o.Units, o.Replayed, o.First = enforcement.Granted, found.outcome.At, found.outcome.Units, true, found.first
	if found.Charges == r.Idempotency.Charges {
		o.Charges = append(o.Charges, found.outcome.Charges...)
	}
	return true
}

// decide decides one request. It charges a group only if all its charges fit.
func (s *Store) decide(r *enforcement.Request, o *enforcement.Outcome) {
	o.Verdict = enforcement.Granted
	for from, to := range groups(r.Charges) {
		group := s.taken(r, o, from, to)
		costs := map[enforcement.Key]int64{}
		for i := range group {
			costs[group[i].Key] += group[i].Cost
		}
		lefts := s.settleGroup(r, group, o.At)
		most := enforcement.LargestCost(group)
		spends := newGrantSplit(r.Mode, group, lefts, costs)
		fits, units := true, most
		for i := range group {
			fits = fits && chargeFits(r.Mode, &group[i], lefts[i], costs[group[i].Key], most)
			units = min(units, enforcement.UnitsFor(lefts[i], group[i].Cost, most))
		}
		switch r.Mode {
		case enforcement.Force:
			fits = true
		case enforcement.TakeUpTo:
			if fits = fits && units > 0; fits {
				if group[0].Group == 0 {
					o.Units = units
				}
				spends.shares(units, most)
			}
		}
		applied := fits && o.Verdict == enforcement.Granted
		if applied {
			s.apply(r, group, costs, spends, units, o)
		} else if !fits && group[0].Group == 0 {
			o.Verdict = enforcement.Refused
		}
		for i := range group {
			c := &group[i]
			state, _ := c.Meter.Settle(s.states[c.Key], c.Rev, o.At)
			if applied && r.Mode == enforcement.Peek {
				state = c.Meter.ChargeFor(state, c.Rev, o.At, costs[c.Key]+spends.on(c.Key), &r.Lease)
			}
			cost := costs[c.Key]
			if r.Mode == enforcement.TakeUpTo {
				cost = r.Charges[from+i].Cost // without the reduction to what group 0 took
			}
			if c.Grant && applied {
				cost = spends.spent[i]
			}
			o.Charges = append(o.Charges, enforcement.Charged{
				State: state, Cost: cost, Fits: chargeFits(r.Mode, c, lefts[i], costs[c.Key], most),
			})
		}
	}
}

// settleGroup returns how many units each charge of a group can be charged. It stores the states that Settle
// clamped.
func (s *Store) settleGroup(r *enforcement.Request, group []enforcement.Charge, now int64) (lefts []int64) {
	for i := range group {
		c := &group[i]
		settled, clamped := c.Meter.Settle(s.states[c.Key], c.Rev, now)
		if clamped && r.Mode != enforcement.Peek {
			s.states[c.Key] = settled
		}
		lefts = append(lefts, c.Meter.LeftFor(&settled, now, &r.Lease))
	}
	return lefts
}

// chargeFits returns Charged.Fits of a charge. cost is the total cost of the group for the key of the charge,
// and most is the largest cost of a charge of the group.
func chargeFits(mode enforcement.Mode, c *enforcement.Charge, left, cost, most int64) bool {
	switch mode {
	case enforcement.Refund, enforcement.Reset, enforcement.Release:
		return true
	case enforcement.TakeUpTo:
		return c.Meter.TakesAny(left, c.Cost, most)
	}
	return c.Meter.Admits(left, cost)
}

// taken returns the charges with the indexes i for which from <= i < to. In mode TakeUpTo, it reduces the costs
// of groups other than 0 to the part that group 0 took.
func (s *Store) taken(r *enforcement.Request, o *enforcement.Outcome, from, to int) []enforcement.Charge {
	group := r.Charges[from:to]
	if r.Mode != enforcement.TakeUpTo || group[0].Group == 0 || o.Verdict != enforcement.Granted {
		return group
	}
	group = slices.Clone(group)
	for i := range group {
		group[i].Cost = enforcement.TakenOf(r.Charges, o.Units).Of(group[i].Cost)
	}
	return group
}

// apply charges the counters of a group that was granted, or refunds or resets them. units is the number of
// units that the group takes in mode TakeUpTo.
func (s *Store) apply(
	r *enforcement.Request, group []enforcement.Charge, costs map[enforcement.Key]int64, spends *grantSplit, units int64,
	o *enforcement.Outcome,
) {
	for i := range group {
		c := &group[i]
		cost := spends.cost(i, costs)
		if c.Meter.Algorithm == enforcement.Concurrency { // one lease for all charges on the counter
			if cost = 0; slices.IndexFunc(group, func(o enforcement.Charge) bool { return o.Key == c.Key }) == i {
				cost = costs[c.Key]
			}
		}
		state, _ := c.Meter.Settle(s.states[c.Key], c.Rev, o.At)
		switch r.Mode {
		case enforcement.Peek:
			continue
		case enforcement.Reset:
			delete(s.states, c.Key)
			continue
		case enforcement.Refund:
			if cost > 0 && s.states[c.Key].Rev != 0 {
				s.states[c.Key] = c.Meter.RefundFor(state, cost, &r.Lease)
			}
			continue
		case enforcement.Release:
			if released, units := c.Meter.Release(state, r.Lease.ID); units > 0 {
				s.states[c.Key] = released
				o.Units += units
			}
			continue
		case enforcement.TakeUpTo:
			cost = enforcement.ShareOf(c.Cost, units, enforcement.LargestCost(group)) + spends.spent[i]
		}
		if cost > 0 {
			s.states[c.Key] = c.Meter.ChargeFor(state, c.Rev, o.At, cost, &r.Lease)
		}
	}
}

// Draw implements enforcement.Drawer.
func (s *Store) Draw(ctx context.Context, draws []enforcement.Draw, drawn []enforcement.Drawn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range draws {
		d, a := &draws[i], &drawn[i]
		*a = enforcement.Drawn{At: s.now()}
		if err := ctx.Err(); err != nil {
			a.Err = err
			continue
		}
		if d.Meter.Algorithm.Bucket() {
			s.drawBucket(d, a)
		} else {
			s.drawWindow(d, a)
		}
	}
}

// drawWindow draws units from a window and charges them to it. It first subtracts the
// units that the draw returns.
func (s *Store) drawWindow(d *enforcement.Draw, a *enforcement.Drawn) {
	m, back := d.Meter, d.Lots[0].Back+d.Lots[1].Back
	state := s.states[d.Key]
	if state.Rev == 0 {
		return
	}
	switch {
	case state.Rev > d.Rev: // the counter was carried over since the draw
	case state.T == d.Start:
		state.A = max(state.A-back, 0)
	case m.Algorithm == enforcement.SlidingWindowCounter && state.T == d.Start+m.Window:
		state.B = max(state.B-back, 0)
	}
	if d.Want > 0 && state.Rev == d.Rev && state.T == d.Start && a.At < d.Start+m.Window {
		if units := min(d.Want, max(m.Left(state, a.At), 0)/d.Part); units >= d.Least {
			state.A += units
			a.Units, a.Until = units, d.Start+m.Window
		}
	}
	s.states[d.Key] = state
	a.State, _ = m.Settle(state, max(d.Rev, state.Rev), a.At)
}

// drawBucket draws units from a bucket into a lot. It first applies the reports of the
// draw to earlier lots.
func (s *Store) drawBucket(d *enforcement.Draw, a *enforcement.Drawn) {
	m, now := d.Meter, a.At
	state := s.states[d.Key]
	if state.Rev == 0 || state.Rev != d.Rev {
		return
	}
	o := s.drawn[d.Key]
	if o == nil {
		o = &Outstanding{}
	}
	units, part := o.held(d, state, now)
	epoch := m.LeaseEpoch()
	for i := range o.Lots {
		lot := &o.Lots[i]
		if lot.Until <= now {
			lot.Units = 0 // the room returns to the bucket, which can then refill, but the units are lost
		}
		lot.Until = min(lot.Until, now+2*epoch) // shortens the lot if the clock has stepped back
	}
	level := units + o.units()
	if level >= m.Capacity {
		level, part = m.Capacity, 0
	}
	for i := range d.Lots {
		report := &d.Lots[i]
		for k := range o.Lots {
			if lot := &o.Lots[k]; lot.Until == report.Until {
				done := min(report.Spent+report.Back, lot.Units)
				lot.Units -= done
				level -= min(report.Spent, done)
			}
		}
	}
	if lot := o.open((now/epoch + 2) * epoch); lot != nil && d.Want > 0 {
		if units := min(d.Want, max(level-o.units(), 0)/d.Part); units >= d.Least {
			lot.Units += units
			a.Units, a.Until = units, lot.Until
		}
	}
	o.Rev, o.Level, o.Part, o.At = d.Rev, level, part, now
	o.show(m, now)
	s.drawn[d.Key] = o
	s.states[d.Key] = enforcement.State{Rev: d.Rev, A: level - o.units(), B: part, T: o.Shown}
	a.State = enforcement.State{Rev: d.Rev, A: level - o.units(), B: part, T: now}
}

// held returns the units in the bucket at the time now. These are the units in its state, or more if held can
// compute what was charged since the last draw. The state has fewer units than the bucket, because the state
// does not refill before Shown.
func (o *Outstanding) held(d *enforcement.Draw, state enforcement.State, now int64) (units, part int64) {
	flows := func(a, b, from, to int64) (int64, int64) {
		if to <= from {
			return a, b
		}
		s, _ := d.Meter.Settle(enforcement.State{Rev: d.Rev, A: a, B: b, T: from}, d.Rev, to)
		return s.A, s.B
	}
	units, part = flows(state.A, state.B, state.T, now)
	if o.Rev != d.Rev {
		return units, part
	}
	shown, shownPart := flows(o.Level-o.units(), o.Part, o.Shown, state.T)
	charged := shown - state.A
	if state.T < o.Shown || shownPart != state.B || charged < 0 {
		return units, part
	}
	level, levelPart, at := o.Level, o.Part, o.At
	for i := range o.Lots {
		if lot := &o.Lots[i]; lot.Units > 0 && lot.Until <= now {
			level, levelPart = flows(level, levelPart, at, lot.Until)
			level, at = level-lot.Units, max(at, lot.Until)
			lot.Units = 0
		}
	}
	level, levelPart = flows(level, levelPart, at, now)
	if level -= charged + o.units(); level > units {
		return level, levelPart
	}
	return units, part
}

// open returns the lot for units that lapse at the time until. It returns nil if both
// lots are in use for other epochs.
func (o *Outstanding) open(until int64) *outstandingLot {
	first, last := &o.Lots[0], &o.Lots[1]
	switch {
	case last.Units > 0 && last.Until == until:
	case last.Units > 0 && last.Until < until && first.Units == 0:
		*first, *last = *last, outstandingLot{Until: until}
	case last.Units == 0 && (first.Units == 0 || first.Until < until):
		last.Until = until
	default:
		return nil
	}
	return last
}

// show computes the field Shown.
func (o *Outstanding) show(m *enforcement.Meter, now int64) {
	o.Shown = now
	full := m.Capacity - o.units()
	last := int64(0)
	for _, lot := range o.Lots {
		if lot.Units > 0 {
			last = max(last, lot.Until)
		}
	}
	if last <= now {
		return
	}
	flows, _ := m.RetryAfter(enforcement.State{Rev: o.Rev, A: o.Level - o.units(), B: o.Part, T: now}, now, full)
	o.Shown = max(now, last-max(flows-1, 0))
}
