package inprocess

import "github.com/headgate/headgate/enforcement"

// sumUp computes work.total, work.sum and work.count for charges[from:to].
func sumUp(charges []enforcement.Charge, ws []work, from, to int) {
	for i := from; i < to; i++ {
		w := &ws[ws[i].leader]
		w.total, w.sum, w.count = 0, 0, 0
	}
	for i := from; i < to; i++ {
		w := &ws[ws[i].leader]
		w.total += charges[i].Cost
		w.sum = w.total
		w.count++
	}
}

// takeGroup decides r.Charges[from:to], which form one group.
func (l *Limiter) takeGroup(r *enforcement.Request, o *enforcement.Outcome, ws []work, from, to int) {
	charges, now := r.Charges, o.At
	sumUp(charges, ws, from, to)
	taken, most := takenBefore(r, o, from, to)
	clearGrants(charges[from:to], o.Charges[from:to])
	fits, units := true, most
	for i := from; i < to; i++ {
		if !charges[i].Grant {
			units = min(units, l.fit(r, o, ws, span{from, to}, i, taken, most))
			fits = fits && o.Charges[i].Fits
		}
	}
	if r.Mode == enforcement.TakeUpTo {
		if fits = fits && units > 0; charges[from].Group == 0 && fits {
			o.Units = units
		}
	}
	if r.Mode == enforcement.Force {
		fits = true
	}
	if !fits && charges[from].Group == 0 {
		o.Verdict = enforcement.Refused
	}
	if fits && o.Verdict == enforcement.Granted {
		if r.Mode == enforcement.TakeUpTo {
			l.shareOut(r, o, ws, span{from, to}, taken, units, most)
		}
		l.apply(r, o, ws, from, to)
	}
	for i := from; i < to; i++ {
		if charges[i].Grant && (!fits || o.Verdict != enforcement.Granted) {
			o.Charges[i].Cost = 0
		}
		handOut(&o.Charges[i], &charges[i], &ws[ws[i].leader].state, now)
	}
}

// takenBefore returns the part of their costs that r.Charges[from:to] may charge in mode TakeUpTo. For group 0, it is
// the whole; for other groups, it is the part that group 0 took. most is the largest of these costs, reduced to this
// part. In other modes, both results are zero.
func takenBefore(r *enforcement.Request, o *enforcement.Outcome, from, to int) (taken enforcement.Taken, most int64) {
	if r.Mode != enforcement.TakeUpTo {
		return taken, 0
	}
	if r.Charges[from].Group != 0 && o.Verdict == enforcement.Granted {
		taken = enforcement.TakenOf(r.Charges, o.Units)
	}
	return taken, taken.Of(enforcement.LargestCost(r.Charges[from:to]))
}

// clearGrants sets the results of charges on grants for a group that spends no grants. If the group spends them,
// spendGrants later sets their costs.
func clearGrants(charges []enforcement.Charge, results []enforcement.Charged) {
	for i := range charges {
		if charges[i].Grant {
			results[i].Cost, results[i].Fits, results[i].Shared = 0, true, false
		}
	}
}

// A span is the range of a group in the charges of a request.
type span struct{ from, to int }

// fit compares charge i of a group with what its counter and its grants have left, and sets the result. In mode
// TakeUpTo, it returns the largest number of units for which the share of the charge fits. taken is the part of the
// costs that the group may charge, and most is the largest cost after reduction to this part.
func (l *Limiter) fit(
	r *enforcement.Request, o *enforcement.Outcome, ws []work, group span, i int, taken enforcement.Taken, most int64,
) (units int64) {
	c, w, out := &r.Charges[i], &ws[ws[i].leader], &o.Charges[i]
	left := c.Meter.LeftFor(&w.state, o.At, &w.lease)
	out.Cost, out.Shared = w.total, w.shared
	grants := enforcement.GrantsAfter(r.Charges, i, group.to)
	if grants > 0 {
		if first := firstOn(ws, group.from, i); first != i && r.Mode != enforcement.TakeUpTo {
			out.Fits = o.Charges[first].Fits // the result of the first charge on the window is for the sum of the costs
			return most
		}
		left = enforcement.WithGrants(left, grantsLeft(r.Charges, ws, i+1, grants, o.At))
	}
	switch r.Mode {
	case enforcement.Refund, enforcement.Reset, enforcement.Release:
		out.Fits = true
	case enforcement.TakeUpTo:
		cost := taken.Of(c.Cost)
		if out.Fits = c.Meter.TakesAny(left, cost, most); !out.Fits {
			return 0
		}
		return enforcement.UnitsFor(left/w.count, cost, most)
	default:
		out.Fits = c.Meter.Admits(left, w.total)
		if grants > 0 && (out.Fits || r.Mode == enforcement.Force) {
			l.spendGrants(r, o, ws, i, grants)
		}
	}
	return most
}

// shareOut replaces the costs of a group in mode TakeUpTo with their shares: units of most are granted. taken and most
// are the arguments of fit.
func (l *Limiter) shareOut(
	r *enforcement.Request, o *enforcement.Outcome, ws []work, group span, taken enforcement.Taken, units, most int64,
) {
	for i := group.from; i < group.to; i++ {
		ws[ws[i].leader].sum = 0
	}
	for i := group.from; i < group.to; i++ {
		ws[ws[i].leader].sum += enforcement.ShareOf(taken.Of(r.Charges[i].Cost), units, most)
	}
	for i := group.from; i < group.to; i++ {
		if n := enforcement.GrantsAfter(r.Charges, i, group.to); n > 0 && firstOn(ws, group.from, i) == i {
			l.spendGrants(r, o, ws, i, n)
		}
	}
}

// grantsLeft returns what the n grants from charge i on have left, after what this group has already taken from them.
func grantsLeft(charges []enforcement.Charge, ws []work, i, n int, now int64) (left int64) {
	for k := i; k < i+n; k++ {
		w := &ws[ws[k].leader]
		left += charges[k].Meter.Left(w.state, now) - w.sum
	}
	return left
}

// firstOn returns the index of the first charge of a group that is on the counter of charge i. from is
// the index of the first charge of the group.
func firstOn(ws []work, from, i int) int {
	first := from
	for ws[first].leader != ws[i].leader {
		first++
	}
	return first
}

// spendGrants charges the part of a window's cost that the window does not have left to the n grants that follow charge
// i.
func (l *Limiter) spendGrants(r *enforcement.Request, o *enforcement.Outcome, ws []work, i, n int) {
	w := &ws[ws[i].leader]
	need := w.sum - max(r.Charges[i].Meter.Left(w.state, o.At), 0)
	for k := i + 1; k <= i+n && need > 0; k++ {
		units := min(need, grantsLeft(r.Charges, ws, k, 1, o.At))
		o.Charges[k].Cost = units
		ws[ws[k].leader].sum += units
		w.sum -= units
		need -= units
	}
}
