package enforcement

import "math/bits"

// UnitsFor returns the largest number of units n for which a charge's share of n units (ShareOf)
// is at most left. cost is the cost of the charge. most is the largest cost of the charge's
// group; n does not exceed it.
func UnitsFor(left, cost, most int64) int64 {
	switch {
	case left >= cost:
		return most
	case left <= 0:
		return 0
	}
	hi, lo := bits.Mul64(uint64(left), uint64(most))
	n, _ := bits.Div64(hi, lo, uint64(cost)) // left < cost, so n < most
	return int64(n)
}

// ShareOf returns a charge's share of n units: cost * n / most, rounded up. most is the largest cost of the
// charge's group.
func ShareOf(cost, n, most int64) int64 {
	if n >= most {
		return cost
	}
	hi, lo := bits.Mul64(uint64(cost), uint64(n))
	lo, carry := bits.Add64(lo, uint64(most-1), 0)
	share, _ := bits.Div64(hi+carry, lo, uint64(most)) // cost <= most, so share <= n
	return int64(share)
}

// TakesAny reports whether at least one unit of a charge fits on its counter, for a request
// with mode TakeUpTo. most is the largest cost of the charge's group.
func (m *Meter) TakesAny(left, cost, most int64) bool {
	if most > 0 {
		return m.Admits(left, min(cost, 1))
	}
	return m.Admits(left, 1)
}

// LargestCost returns the largest cost of charges.
func LargestCost(charges []Charge) (most int64) {
	for i := range charges {
		most = max(most, charges[i].Cost)
	}
	return most
}

// A Taken is the part of the costs that group 0 of a request with mode TakeUpTo took: Units units of the
// largest cost Most. The later groups charge only this part of their costs. The zero value stands for the
// whole costs.
type Taken struct{ Units, Most int64 }

// TakenOf returns the part of the costs that a granted request took. units is Outcome.Units. If charges have
// no group 0, the result stands for the whole costs.
func TakenOf(charges []Charge, units int64) Taken {
	end := 0
	for end < len(charges) && charges[end].Group == 0 {
		end++
	}
	return Taken{units, LargestCost(charges[:end])}
}

// Of returns this part of a cost, rounded up.
func (t Taken) Of(cost int64) int64 {
	if t.Units >= t.Most {
		return cost
	}
	return ShareOf(cost, t.Units, t.Most)
}
