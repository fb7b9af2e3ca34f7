package enforcement

import (
	"math/rand/v2"
	"testing"
	"time"
)

// ResetBy returns the same result as ResetAfter, for every time.
func TestResetByIsResetAfter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 5))
	before, after := 0, 0
	for range 20_000 {
		m := Limit{
			Algorithm: append(allAlgorithms[:5:5], LeakyBucket)[r.IntN(6)],
			Quota:     r.Int64N(1 + r.Int64N(MaxQuota>>r.IntN(40))),
			Window:    time.Duration(1+r.Int64N(MaxWindow.Milliseconds()>>r.IntN(34))) * time.Millisecond,
			Burst:     r.Int64N(1 + r.Int64N(MaxQuota>>r.IntN(40))),
		}.Compile(1)
		now := int64(1_767_225_600_000_000)
		s, _ := m.Settle(State{}, 1, now)
		s = m.Charge(s, 1, now, r.Int64N(MaxCost>>r.IntN(31)))
		now += r.Int64N(m.Window)
		if s, _ = m.Settle(s, 1, now); s.Fresh() {
			continue
		}
		reset := m.ResetAfter(s, now)
		if reset == 0 || reset == maxForever {
			continue
		}
		at := now + reset
		for off := int64(-2); off <= 2; off++ {
			if got := m.ResetBy(&s, at+off); got != (off >= 0) {
				t.Fatalf("%+v, state %+v at %d is as new after %d: ResetBy of %+d says %t", m, s, now, reset, off, got)
			}
		}
		if m.Algorithm.Bucket() {
			before++
		} else {
			after++
		}
	}
	if before < 1000 || after < 1000 {
		t.Errorf("%d buckets and %d others were asked", before, after)
	}
}
