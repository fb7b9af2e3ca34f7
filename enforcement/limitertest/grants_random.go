package limitertest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A granted is a grant in a random sequence.
type granted struct {
	limit     int
	partition int // of the keys that it is for; -1 stands for all
	units     int64
	from      int64 // after Start, microseconds
	until     int64
}

// randomGrants returns random grants for the fixed windows among limits, in the order in which they
// are spent. now is the time of the first move. Half of the results are empty.
func randomGrants(r *rand.Rand, limits []enforcement.Limit, now int64) (list []granted) {
	if r.IntN(2) == 0 {
		return nil
	}
	for i := range limits {
		if !limits[i].Grantable() {
			continue
		}
		for range r.IntN(4) {
			g := granted{limit: i, partition: r.IntN(3) - 1, units: 1 + randomCost(r, limits[i].Quota), from: now - r.Int64N(1000)}
			g.until = now + 1 + min(r.Int64N(20*limits[i].Window.Microseconds()), (365*24*time.Hour).Microseconds())
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b granted) int { return cmp.Compare(a.until, b.until) })
	return list
}

// addGrants appends charges on the grants of a charge that have not ended by the clock of the caller.
func (p *player) addGrants(charges []enforcement.Charge, a *ask, c *askCharge) []enforcement.Charge {
	for i, g := range p.grants {
		all := g.partition < 0 && a.mode != takeUpTo // the charges of TakeUpTo have different keys
		if g.limit != c.limit || !all && g.partition != int(c.partition) || p.w.clock.Now()+a.skew >= Start+g.until {
			continue
		}
		charges = append(charges, enforcement.Charge{
			Key: p.w.key(enforcement.GrantCell, byte(i)), Meter: p.w.grantMeter(i, &g), Rev: 1, Group: c.group, Grant: true,
		})
	}
	return charges
}

// grantMeter returns the meter of grant number i. It returns the same meter each time.
func (w *harness) grantMeter(i int, g *granted) *enforcement.Meter {
	if w.granted == nil {
		w.granted = map[int]*enforcement.Meter{}
	}
	if w.granted[i] == nil {
		w.granted[i] = enforcement.GrantMeter(g.units, Start+g.from, Start+g.until, 1)
	}
	return w.granted[i]
}

// shareGrants reports whether two charges of a request have a grant in common.
func (p *player) shareGrants(r *enforcement.Request) bool {
	seen := map[enforcement.Key]bool{}
	for i := range r.Charges {
		if key := r.Charges[i].Key; r.Charges[i].Grant && seen[key] {
			return true
		}
		seen[r.Charges[i].Key] = true
	}
	return false
}
