package limitertest

import (
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// extremes are the values that each number of a limit and the cost take.
var extremes = []int64{-1, 0, 1, 2, 1<<31 - 1, 1<<31 + 1, 1<<53 - 1, 1<<53 + 1, math.MaxInt64, enforcement.MaxQuota}

// Extremes tries every combination of extreme quotas, windows (in milliseconds,
// including the longest), costs and bursts with every algorithm. It skips limits that
// Validate rejects, and costs above MaxCost. It plays every other combination with the
// model and the reference: two enforced requests at once, a forced one after half a
// window, and an enforced one after a whole window.
func Extremes(t *testing.T, factory Factory) {
	t.Helper()
	for _, k := range []kind{fixedFirst, fixedClock, logs, counterFirst, counterClock, tokens, gcras} {
		t.Run(k.algorithm.String()+"/"+k.anchor.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, factory)
			all, played := 0, 0
			for _, quota := range extremes {
				for _, window := range append([]int64{enforcement.MaxWindow.Milliseconds()}, extremes...) {
					for _, burst := range extremes {
						l := enforcement.Limit{Name: "l", Algorithm: k.algorithm, Anchor: k.anchor, Quota: quota, Burst: burst}
						valid := window <= math.MaxInt64/int64(time.Millisecond) // a document cannot name a longer one
						if valid {
							l.Window = time.Duration(window) * time.Millisecond
							faults := l.Validate()
							valid = faults.Err() == nil
						}
						for _, cost := range extremes {
							if all++; !valid || cost < 0 || cost > enforcement.MaxCost {
								continue
							}
							played++
							if err := extreme(l, cost).playOn(w); err != nil {
								t.Errorf("%s, cost %d: %v", describe(l), cost, err)
							}
						}
					}
				}
			}
			if all != 11_000 || played < 50 {
				t.Errorf("%d combinations, %d of them played", all, played)
			}
		})
	}
}

// extreme returns the sequence of one combination.
func extreme(l enforcement.Limit, cost int64) *sequence {
	take := func(mode enforcement.Mode) []ask {
		return []ask{{mode: mode, follow: true, charges: []askCharge{{cost: cost}}}}
	}
	window := l.Window.Microseconds()
	return &sequence{limits: []enforcement.Limit{l}, steps: []move{
		{at: 0, change: -1, requests: take(enforce)},
		{at: 0, change: -1, requests: take(enforce)},
		{at: window / 2, change: -1, requests: take(force)},
		{at: window, change: -1, requests: take(enforce)},
	}}
}
