package usage

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A NearLimit is a limit that one key is near to using up. Policy has the limit.
type NearLimit struct {
	Policy *PolicyUsage
	Key    *KeyUsage
	Limit  *LimitUsage
}

// Nearest returns the limits that are nearest to exhaustion, at most most. Limits that will
// be exceeded at the current pace come first, in the order in which they will. The others follow, the
// one with the smallest fraction left first. Nearest leaves out unused limits, and the limits
// of policies that are not enforced.
func (u *Usage) Nearest(most int) []NearLimit {
	var list []NearLimit
	for i := range u.Policies {
		p := &u.Policies[i]
		if !p.Mode.InForce() {
			continue
		}
		for k := range p.Keys {
			for l := range p.Keys[k].Limits {
				if limit := &p.Keys[k].Limits[l]; limit.Used > 0 || limit.Remaining == 0 {
					list = append(list, NearLimit{p, &p.Keys[k], limit})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b NearLimit) int {
		return cmp.Or(cmp.Compare(a.Limit.exhausted(), b.Limit.exhausted()), cmp.Compare(b.Limit.Share(), a.Limit.Share()))
	})
	return list[:min(most, len(list))]
}

// exhausted returns ExhaustedAfter, or the largest duration if ExhaustedAfter is nil.
func (l *LimitUsage) exhausted() time.Duration {
	if l.ExhaustedAfter == nil {
		return math.MaxInt64
	}
	return *l.ExhaustedAfter
}

// NearLimit returns the largest warning threshold of the limit that its used units have reached,
// in percent; 0 if there is none. Decisions have the same number as near_limit.
func (l *LimitUsage) NearLimit() int {
	if l.Capacity == 0 {
		return 0
	}
	return l.Limit.WarnAt.Reached(l.Capacity-l.Remaining, l.Capacity)
}

// Share returns the used fraction of the limit: from 0 to 1, or above 1 after a forced charge.
func (l *LimitUsage) Share() float64 {
	return float64(l.Capacity-l.Remaining) / float64(max(l.Capacity, 1))
}
