package limitertest

import (
	"math/big"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// fit compares each charge of a group with what its counter has left. sum is the total cost of the group for each
// key. The result is true if the group can be charged.
func (w *decision) fit(charges []enforcement.Charge, answers []answered, sum map[enforcement.Key]int64) bool {
	fits, most, smallest := true, largestCost(charges), new(big.Int)
	smallest.SetInt64(most)
	for i := range charges {
		c := &charges[i]
		left := w.counters[c.Key].leftFor(c.Meter, w.now, w.request.Lease.ID)
		answers[i].Cost = sum[c.Key]
		if c.Grant {
			answers[i].Fits = true
			continue
		}
		grants := grantsOf(charges, i)
		if first := firstOf(charges, c.Key); first < i && grants > 0 {
			answers[i].Fits = answers[first].Fits // the first charge on the window has the whole cost
			continue
		}
		if more := w.grantsLeft(charges[i+1 : i+1+grants]); more > 0 {
			left = max(left, 0) + more
		}
		switch w.request.Mode {
		case enforcement.Refund, enforcement.Reset, enforcement.Release:
			answers[i].Fits = true
		case enforcement.TakeUpTo:
			least := int64(1) // what a share of one unit needs
			if most > 0 {
				least = min(c.Cost, 1)
			}
			if answers[i].Fits = left >= least && c.Meter.Quota > 0; !answers[i].Fits {
				smallest.SetInt64(0)
			} else if left < c.Cost {
				units := new(big.Int).Mul(big.NewInt(left), big.NewInt(most))
				if units.Div(units, big.NewInt(c.Cost)); units.Cmp(smallest) < 0 {
					smallest = units
				}
			}
		default:
			answers[i].Fits = c.Meter.Quota > 0 && sum[c.Key] <= left
			if answers[i].Fits || w.request.Mode == enforcement.Force {
				w.spendGrants(charges, answers, i, grants, sum[c.Key])
			}
		}
		fits = fits && answers[i].Fits
	}
	if w.request.Mode == enforcement.TakeUpTo {
		fits = w.takeUnits(charges, answers, smallest.Int64())
	}
	return fits
}

// takeUnits sets the number of units that a group takes, and spends grants for the shares of these units. It returns
// false if the group takes no units.
func (w *decision) takeUnits(charges []enforcement.Charge, answers []answered, units int64) bool {
	if w.units = units; charges[0].Group == 0 {
		w.answer.Units = units
		if most := largestCost(charges); most > 0 && units > 0 {
			w.taken = big.NewRat(units, most)
		}
	}
	for i := 0; i < len(charges) && units > 0; i++ {
		w.spendGrants(charges, answers, i, grantsOf(charges, i), shareOf(charges[i].Cost, units, charges))
	}
	return units > 0
}

// grantsOf returns the number of charges on grants that follow charge i.
func grantsOf(charges []enforcement.Charge, i int) (n int) {
	for !charges[i].Grant && i+n+1 < len(charges) && charges[i+n+1].Grant {
		n++
	}
	return n
}

// firstOf returns the index of the first charge on a key.
func firstOf(charges []enforcement.Charge, key enforcement.Key) int {
	return slices.IndexFunc(charges, func(c enforcement.Charge) bool { return c.Key == key })
}

// grantsLeft returns what grants have left after what this group has taken from them so far.
func (w *decision) grantsLeft(grants []enforcement.Charge) (left int64) {
	for i := range grants {
		left += grants[i].Meter.Quota - w.counters[grants[i].Key].current - w.spent[grants[i].Key]
	}
	return left
}

// spendGrants charges the part of a cost that the window of charge i does not have left to the n grants that follow.
func (w *decision) spendGrants(charges []enforcement.Charge, answers []answered, i, n int, cost int64) {
	window := charges[i].Key
	need := cost - max(w.counters[window].left(charges[i].Meter, w.now), 0)
	for k := i + 1; k <= i+n && need > 0; k++ {
		units := min(need, w.grantsLeft(charges[k:k+1]))
		w.spent[charges[k].Key] += units
		w.spent[window] -= units
		answers[k].spent += units
		answers[i].spent -= units
		need -= units
	}
}

// shareOf returns the share that a charge with this cost has of units, rounded up. The units are of the largest cost
// of the group.
func shareOf(cost, units int64, charges []enforcement.Charge) int64 {
	return roundedUp(new(big.Rat).Mul(big.NewRat(cost, max(largestCost(charges), 1)), big.NewRat(units, 1)))
}

func largestCost(charges []enforcement.Charge) (most int64) {
	for i := range charges {
		most = max(most, charges[i].Cost)
	}
	return most
}

func roundedUp(r *big.Rat) int64 {
	if whole := floor(r); !r.IsInt() {
		return whole.Int64() + 1
	}
	return floor(r).Int64()
}

// reduced returns the charges with the indexes i for which from <= i < to. In mode TakeUpTo, it reduces their costs
// to the part that group 0 took.
func (w *decision) reduced(from, to int) []enforcement.Charge {
	charges := w.request.Charges[from:to]
	if w.taken == nil || w.answer.Verdict != enforcement.Granted {
		return charges
	}
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Cost = roundedUp(new(big.Rat).Mul(w.taken, big.NewRat(charges[i].Cost, 1)))
	}
	return charges
}
