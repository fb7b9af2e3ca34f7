package enforcement

import (
	"testing"
	"time"
)

// A node that has an old version of a limit stores the fraction of a bucket with the denominator Q
// of that version, but the stored state keeps the newer revision. Read with the newer Q, such a
// fraction could become whole units that nobody had.
func TestStaleCallerMintsNothing(t *testing.T) {
	t.Parallel()
	slow := Limit{Algorithm: TokenBucket, Quota: 7, Window: 24 * time.Hour, Burst: 1_000_000}
	fast := Limit{Algorithm: TokenBucket, Quota: 1_000_000, Window: time.Second, Burst: 1_000_000}
	old, now := slow.Compile(1), fast.Compile(2)
	now.Formers = []Former{{Numbers: old.Numbers, Rev: 1, Until: 0}}

	s, _ := now.Settle(State{}, 2, 0)
	s = now.Charge(s, 2, 0, 1_000_000)
	s, _ = old.Settle(s, 1, 1000) // a millisecond later, by a node with an old snapshot
	s = old.Charge(s, 1, 1000, 1)
	if s, _ = now.Settle(s, 2, 1001); s.A > 0 {
		t.Errorf("%d units came from a fraction", s.A) // without the revision, there were 7000
	}
}
