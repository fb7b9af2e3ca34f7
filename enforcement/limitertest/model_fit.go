package limitertest

import (
	"math/big"

	"github.com/headgate/headgate/enforcement"
)

// fit compares each charge of a group with what is left of its counter. sum is the
// total cost of the group for each key. The result is true if the group can be charged.
func (w *decision) fit(charges []enforcement.Charge, answers []answered, sum map[enforcement.Key]int64) bool {
	fits, most, smallest := true, int64(0), new(big.Int)
	for i := range charges {
		most = max(most, charges[i].Cost)
	}
	smallest.SetInt64(most)
	for i := range charges {
		c := &charges[i]
		left := w.counters[c.Key].leftFor(c.Meter, w.now, w.request.Lease.ID)
		answers[i].Cost = sum[c.Key]
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
		}
		fits = fits && answers[i].Fits
	}
	if w.request.Mode == enforcement.TakeUpTo {
		w.units = smallest.Int64()
		if fits = w.units > 0; charges[0].Group == 0 {
			w.answer.Units = w.units
		}
	}
	return fits
}

// shareOf returns the share of a cost of units, rounded up: as much of it as the units are of the largest
// cost of the group.
func shareOf(cost, units int64, charges []enforcement.Charge) int64 {
	most := int64(0)
	for i := range charges {
		most = max(most, charges[i].Cost)
	}
	share := new(big.Rat).Mul(big.NewRat(cost, max(most, 1)), big.NewRat(units, 1))
	whole := floor(share)
	if share.IsInt() {
		return whole.Int64()
	}
	return whole.Int64() + 1
}
