package preview

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// The functions of this file bound how many requests limits deny if only the number of requests in each minute is
// known. The order within a minute and the earlier state of the counter are unknown. The true number is between the
// two bounds. Each request costs 1. docs/preview.md has the proofs. They also hold if other policies deny some of the
// requests first:
//
//	- Lower bound (mustRefuse): the admitted requests conform to a token bucket that is at least as permissive as the
//	  limit. So at most the requests that pass this bucket are admitted.
//	- Upper bound (canRefuse): a limit that denies a request has admitted its whole quota within a known time before it.

// A series contains the number of requests in each minute, oldest first. The first warm minutes only determine the
// state of the counters; their denials are not counted.
type series struct {
	start time.Time
	warm  int
	n     []int64
	// forced means that some requests may have had mode force, so that a bucket may be below zero.
	forced bool
}

func sum(n []int64) (total int64) {
	for _, v := range n {
		total += v
	}
	return total
}

// warmUp returns how many minutes before a span can affect its decisions. A counter without charges for that time is
// in the same state as a new one.
func warmUp(limits []enforcement.Limit) int {
	longest := 0
	for _, l := range limits {
		memory := blockOf(l)
		if flow, _ := perMinute(l); l.Algorithm.Bucket() && flow > 0 {
			memory = int(min(capacity(l)/flow, math.MaxInt32)) + 2
		}
		longest = max(longest, memory)
	}
	return longest
}

// calm returns the largest number of requests of one key that no limit denies, in any order and within any time.
func calm(limits []enforcement.Limit) int64 {
	least := int64(math.MaxInt64)
	for _, l := range limits {
		switch {
		case l.Quota == 0:
			least = 0
		case l.Algorithm.Bucket():
			least = min(least, int64(capacity(l)))
		default:
			least = min(least, l.Quota)
		}
	}
	return least
}

// mustRefuse returns the smallest possible number of denials of s after its warm minutes.
func mustRefuse(limits []enforcement.Limit, s series) int64 {
	all, most := sum(s.n[s.warm:]), int64(0)
	for _, l := range limits {
		var refused int64
		if aligned(l) {
			refused = refusedByClock(l, s, false)
		} else {
			refused = all - mostAdmitted(l, s.n[s.warm:])
		}
		most = max(most, refused)
	}
	return most
}

// canRefuse returns the largest possible number of denials of s after its warm minutes.
func canRefuse(limits []enforcement.Limit, s series) int64 {
	var total int64
	for _, l := range limits {
		switch {
		case l.Quota == 0:
			return sum(s.n[s.warm:])
		case aligned(l):
			total += refusedByClock(l, s, true)
		case l.Algorithm.Bucket():
			total += mostRefusedByBucket(l, s)
		default:
			total += mostRefusedInBlocks(l, s)
		}
	}
	return min(total, sum(s.n[s.warm:]))
}

// aligned reports whether the windows of a limit consist of whole minutes of the clock. Then the order within a
// minute has no effect.
func aligned(l enforcement.Limit) bool {
	return l.Algorithm == enforcement.FixedWindow && l.Anchor == enforcement.Clock && l.Window%time.Minute == 0
}

// refusedByClock returns the number of requests that exceed the quota of an aligned limit. If most is true, it
// assumes that a window which began before s was already used up; otherwise, that it was unused.
func refusedByClock(l enforcement.Limit, s series, most bool) (refused int64) {
	minutes := int64(l.Window / time.Minute)
	first := s.start.Unix() / 60
	left, window := l.Quota, int64(math.MinInt64)
	for i, n := range s.n {
		at := first + int64(i)
		if i < s.warm && !most {
			continue
		}
		if w := at / minutes; w != window {
			left, window = l.Quota, w
			if i == 0 && at%minutes != 0 && most {
				left = 0
			}
		}
		if i >= s.warm {
			refused += max(0, n-left)
		}
		left = max(0, left-n)
	}
	return refused
}

// Levels of buckets are floating-point numbers. They are multiples of 1/grain, so that sums up to exactLevel are
// exact.
const (
	grain      = 1 << 20
	exactLevel = 1 << 32
)

// slack returns the possible rounding error of a level. It is 0 up to exactLevel.
func slack(level float64) float64 {
	if math.Abs(level) <= exactLevel {
		return 0
	}
	return 1e-9 * math.Abs(level)
}

func floor(level float64) int64 { return int64(math.Floor(level)) }

// perMinute returns a lower and an upper bound of the quota that becomes available in one minute.
func perMinute(l enforcement.Limit) (low, high float64) {
	flow := float64(l.Quota) * float64(time.Minute) / float64(l.Window)
	return math.Floor(flow*grain) / grain, math.Ceil(flow*grain) / grain
}

// capacity returns the size of the smallest bucket to which the admitted requests always conform, if it is refilled
// at the rate of the quota per window. A window can admit twice its quota around its start; a log admits it once; a
// bucket admits its burst.
func capacity(l enforcement.Limit) float64 {
	switch {
	case l.Quota == 0:
		return 0
	case l.Algorithm.Bucket() && l.Burst > 0:
		return float64(l.Burst)
	case l.Algorithm.Windowed():
		return 2 * float64(l.Quota)
	}
	return float64(l.Quota)
}

// mostAdmitted returns the largest number of requests that a limit can admit. It is the number that passes the
// limit's bucket (see capacity), which starts full, if the requests of each minute come at the best time.
func mostAdmitted(l enforcement.Limit, n []int64) (admitted int64) {
	room := capacity(l)
	_, flow := perMinute(l)
	level := room
	for _, came := range n {
		level += flow
		passed := min(came, floor(level+slack(level)))
		admitted += passed
		level = min(room, max(0, level-float64(passed)))
	}
	return admitted
}

// mostRefusedByBucket returns the largest number of denials of a bucket. It assumes that the requests of each minute
// come at the start of the minute. The bucket starts empty; if requests may have been forced, it starts as far below
// zero as possible. The warm minutes can only raise that level.
func mostRefusedByBucket(l enforcement.Limit, s series) (refused int64) {
	room := capacity(l)
	flow, _ := perMinute(l)
	least := 0.0
	if s.forced {
		least = -room
	}
	level := least
	for i, came := range s.n {
		if i < s.warm {
			level = max(least, min(room, level+flow)-float64(came)-slack(level))
			continue
		}
		passed := max(0, min(came, floor(level-slack(level))))
		refused += came - passed
		level = min(room, level+flow) - float64(passed)
	}
	return refused
}

// blockOf returns the number of minutes that can affect a decision of a limit. A denial means that the quota was
// admitted in the window before it, or in the two windows before it for a sliding window counter.
func blockOf(l enforcement.Limit) int {
	memory := l.Window
	if l.Algorithm == enforcement.SlidingWindowCounter {
		memory *= 2
	}
	return int((memory+time.Minute-1)/time.Minute) + 1
}

// mostRefusedInBlocks returns the largest number of denials of windows and logs. All denials lie in disjoint blocks
// of time, and each block admitted the quota. The number of denials is a convex function of the requests in a block.
// So a minute at the edge of two blocks can be counted for one of them, and the longest block gives the maximum.
func mostRefusedInBlocks(l enforcement.Limit, s series) int64 {
	block := blockOf(l)
	// Sums up to each minute: all requests, the requests after the warm minutes, and the most denials.
	came, asked, best := make([]int64, len(s.n)+1), make([]int64, len(s.n)+1), make([]int64, len(s.n)+1)
	for i, n := range s.n {
		j := i + 1
		came[j], asked[j] = came[i]+n, asked[i]
		if i >= s.warm {
			asked[j] += n
		}
		if j < block {
			best[j] = asked[j] // the quota may have been admitted before the first minute of s
			continue
		}
		from := j - block
		best[j] = max(best[i], best[from]+min(asked[j]-asked[from], came[j]-came[from]-l.Quota))
	}
	return best[len(s.n)]
}
