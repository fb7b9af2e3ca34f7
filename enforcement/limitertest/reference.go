package limitertest

import (
	"fmt"

	"github.com/headgate/headgate/enforcement"
)

// A reference is the reference functions of enforcement over a plain map: what
// a Limiter must keep and hand out to the last digit. Model says whether the
// functions are right; this says whether a Limiter uses them as they are meant.
type reference struct {
	states map[enforcement.Key]enforcement.State
}

// take decides the request at now and gives the state for each of its charges.
func (f *reference) take(r *enforcement.Request, a *Answer, now int64) []enforcement.State {
	work, write := map[enforcement.Key]enforcement.State{}, map[enforcement.Key]bool{}
	for i := range r.Charges {
		c := &r.Charges[i]
		if _, ok := work[c.Key]; !ok {
			work[c.Key], write[c.Key] = c.Meter.Settle(f.states[c.Key], c.Rev, now)
		}
	}
	states := make([]enforcement.State, len(r.Charges))
	for from, to := 0, 0; from < len(r.Charges); from = to {
		for to < len(r.Charges) && r.Charges[to].Group == r.Charges[from].Group {
			to++
		}
		// Which groups are charged is the model's word: it is compared elsewhere.
		charged := a.Verdict == enforcement.Granted
		for i := from; i < to && r.Mode == enforcement.Enforce || i < to && r.Mode == enforcement.Peek; i++ {
			charged = charged && a.Charges[i].Fits
		}
		for i := from; i < to && charged; i++ {
			c := &r.Charges[i]
			cost := c.Cost
			switch r.Mode {
			case enforcement.Refund:
				write[c.Key] = write[c.Key] || cost > 0 && f.states[c.Key].Rev > 0
				work[c.Key] = c.Meter.Refund(work[c.Key], cost)
				continue
			case enforcement.Reset:
				delete(f.states, c.Key)
				work[c.Key], write[c.Key] = c.Meter.Settle(enforcement.State{}, c.Rev, now)
				continue
			case enforcement.TakeUpTo:
				cost = a.Units
			}
			work[c.Key] = c.Meter.Charge(work[c.Key], c.Rev, now, cost)
			write[c.Key] = write[c.Key] || cost > 0
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

// same compares what a Limiter handed out with the reference. Of a log it may
// have handed out the oldest entries only.
func same(got, want *enforcement.State) error {
	if got.Rev != want.Rev || got.A != want.A || got.B != want.B || got.T != want.T || len(got.Log) > len(want.Log) {
		return fmt.Errorf("state %+v, the reference functions say %+v", *got, *want)
	}
	for i, e := range got.Log {
		if e != want.Log[i] {
			return fmt.Errorf("log entry %d is %+v, want %+v", i, e, want.Log[i])
		}
	}
	return nil
}
