package limitertest

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A reference applies the reference functions of package enforcement to a plain map. A
// Limiter must store and return exactly the same states. The comparison with the model
// shows that the functions are correct. The comparison with the reference shows that a
// Limiter applies them correctly.
type reference struct {
	states map[enforcement.Key]enforcement.State
}

// take applies a request to the counters at the time now, and returns the resulting state for each charge. a is the
// answer of the model, which says which groups are charged.
func (f *reference) take(r *enforcement.Request, a *answer, now int64) []enforcement.State {
	work, write := map[enforcement.Key]enforcement.State{}, map[enforcement.Key]bool{}
	for i := range r.Charges {
		c := &r.Charges[i]
		if _, ok := work[c.Key]; !ok {
			work[c.Key], write[c.Key] = c.Meter.Settle(f.states[c.Key], c.Rev, now)
		}
	}
	states := make([]enforcement.State, len(r.Charges))
	for from, to := range groups(r.Charges) {
		charged := a.Verdict == enforcement.Granted
		for i := from; i < to && (r.Mode == enforcement.Enforce || r.Mode == enforcement.Peek); i++ {
			charged = charged && a.Charges[i].Fits
		}
		held := map[enforcement.Key]bool{}
		for i := from; i < to && charged; i++ {
			c := r.Charges[i]
			if c.Meter.Algorithm == enforcement.Concurrency { // one lease for the sum of the costs
				if held[c.Key] {
					continue
				}
				c.Cost, held[c.Key] = a.Charges[i].Cost, true
			}
			if r.Mode == enforcement.TakeUpTo {
				var taken enforcement.Taken
				if c.Group != 0 {
					taken = enforcement.TakenOf(r.Charges, a.Units)
				}
				c.Cost = enforcement.ShareOf(taken.Of(c.Cost), a.Charges[i].units, taken.Of(enforcement.LargestCost(r.Charges[from:to])))
			}
			if !divide(&c, r.Charges[from:to], i-from, &a.Charges[i], r.Mode) {
				continue
			}
			f.apply(r, &c, now, work, write)
		}
		for i := from; i < to; i++ {
			states[i] = work[r.Charges[i].Key]
		}
	}
	if r.Mode != enforcement.Peek {
		for key, do := range write {
			if do {
				f.states[key] = work[key]
			}
		}
	}
	return states
}

// divide sets the cost of c, which is charge i of a group, to what is charged to its window or its grant. It returns
// false if an earlier charge on the same window has the whole cost.
func divide(c *enforcement.Charge, group []enforcement.Charge, i int, a *answered, mode enforcement.Mode) bool {
	if grantsOf(group, i) == 0 && !c.Grant {
		return true
	}
	if !c.Grant && firstOf(group, c.Key) < i {
		return false
	}
	if !c.Grant && mode != enforcement.TakeUpTo {
		c.Cost = a.Cost
	}
	c.Cost += a.spent
	return true
}

// apply performs the mode of a request on the state of one charge in work. It sets write if the state must be stored.
// In mode TakeUpTo, the cost of c is its share of what was granted.
func (f *reference) apply(r *enforcement.Request, c *enforcement.Charge, now int64,
	work map[enforcement.Key]enforcement.State, write map[enforcement.Key]bool,
) {
	cost := c.Cost
	switch r.Mode {
	case enforcement.Refund:
		write[c.Key] = write[c.Key] || cost > 0 && f.states[c.Key].Rev > 0
		work[c.Key] = c.Meter.RefundFor(work[c.Key], cost, &r.Lease)
		return
	case enforcement.Reset:
		delete(f.states, c.Key)
		work[c.Key], write[c.Key] = c.Meter.Settle(enforcement.State{}, c.Rev, now)
		return
	case enforcement.Release:
		released, places := c.Meter.Release(work[c.Key], r.Lease.ID)
		work[c.Key], write[c.Key] = released, write[c.Key] || places > 0
		return
	}
	work[c.Key] = c.Meter.ChargeFor(work[c.Key], c.Rev, now, cost, &r.Lease)
	write[c.Key] = write[c.Key] || cost > 0
}

// same returns an error if a state that a Limiter returned differs from the state of
// the reference. The Limiter may return only the oldest entries of a log.
func same(got, want *enforcement.State) error {
	if got.Rev != want.Rev || got.A != want.A || got.B != want.B || got.T != want.T || len(got.Log) > len(want.Log) {
		return fmt.Errorf("state %+v, the reference functions say %+v", *got, *want)
	}
	for i, e := range got.Log {
		if e != want.Log[i] {
			return fmt.Errorf("log entry %d is %+v, want %+v", i, e, want.Log[i])
		}
	}
	if !slices.Equal(got.Holders, want.Holders) {
		return fmt.Errorf("leases %v, the reference functions say %v", got.Holders, want.Holders)
	}
	return nil
}
