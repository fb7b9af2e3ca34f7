package usage

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A NearLimit is a limit that one key has nearly used up. Policy is the policy of the limit.
type NearLimit struct {
	Policy *PolicyUsage
	Key    *KeyUsage
	Limit  *LimitUsage
}

// Nearest returns the limits that are nearest to exhaustion, at most most. First come the limits
// that will be used up at the current pace, the earliest first. Then come the others, the one with
// the smallest part left first. Nearest leaves out unused limits, and limits of policies that are
// not enforced.
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

// NearLimit returns the largest warning threshold in percent that the used part of the limit has
// reached. It returns 0 if the used part has reached none. Decisions contain the same number as
// near_limit.
func (l *LimitUsage) NearLimit() int {
	if l.Capacity == 0 {
		return 0
	}
	return l.Limit.WarnAt.Reached(l.Capacity-l.Remaining, l.Capacity)
}

// Share returns the used part of the limit as a number from 0 to 1. After a forced charge, it can
// be above 1.
func (l *LimitUsage) Share() float64 {
	return float64(l.Capacity-l.Remaining) / float64(max(l.Capacity, 1))
}
