package preview

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// The functions of this file compute bounds of the number of requests that limits deny. Their
// input is the number of requests in each minute. The order of the requests within a minute and
// the earlier state of the counters are unknown, so the true number lies between two bounds.
// Each request costs 1.
//
//   - Lower bound (mustRefuse): the requests that a limit admits always conform to a certain
//     token bucket, which is at least as permissive as the limit. So all requests that do not
//     pass this bucket are denied.
//   - Upper bound (canRefuse): before a limit denies a request, it must have admitted its whole
//     quota within a known time.
//
// docs/preview.md has the proofs. The bounds also hold if other policies deny some of the
// requests before they reach the limit.

// A series contains the number of requests in each minute, oldest first. The first warm minutes
// only serve to find the state of the counters. Denials in these minutes are not counted.
type series struct {
	start time.Time
	warm  int
	n     []int64
	// forced says that some requests may have been sent in mode force. Such requests can charge a
	// bucket below zero.
	forced bool
}

func sum(n []int64) (total int64) {
	for _, v := range n {
		total += v
	}
	return total
}

// warmUp returns the number of minutes before a time range that can affect decisions in the
// range. If no request was charged to a counter for that long, its state is the same as that of
// a new counter.
func warmUp(limits []enforcement.Limit) int {
	longest := 0
	for _, l := range limits {
		memory := blockOf(l)
		if l.Period != enforcement.NoPeriod {
			memory = 2 * 366 * 24 * 60 // no trace is that long
		}
		if flow, _ := perMinute(l); l.Algorithm.Bucket() && flow > 0 {
			memory = int(min(capacity(l)/flow, math.MaxInt32)) + 2
		}
		longest = max(longest, memory)
	}
	return longest
}

// calm returns the largest number of requests of one key that no limit denies, whatever the
// order and the times of the requests.
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

// mustRefuse returns a lower bound of the number of requests in s that the limits deny after
// the warm minutes.
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

// canRefuse returns an upper bound of the number of requests in s that the limits deny after
// the warm minutes.
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

// aligned reports whether each window of a limit begins and ends at the start of a minute. If
// so, the order of the requests within a minute does not matter.
func aligned(l enforcement.Limit) bool {
	return l.Algorithm == enforcement.FixedWindow && l.Anchor == enforcement.Clock && l.Window%time.Minute == 0
}

// refusedByClock returns the number of requests in s above the quota of an aligned limit. If a
// window began before s, it is unknown how much of its quota was used before. refusedByClock
// assumes that all of it was used if most is true, and none of it otherwise.
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

// Levels of buckets are floating-point numbers and multiples of 1/grain. Up to exactLevel, sums of
// such numbers are exact.
const (
	grain      = 1 << 20
	exactLevel = 1 << 32
)

// slack returns the largest rounding error that a level of this size can have. Up to
// exactLevel, it is 0.
func slack(level float64) float64 {
	if math.Abs(level) <= exactLevel {
		return 0
	}
	return 1e-9 * math.Abs(level)
}

func floor(level float64) int64 { return int64(math.Floor(level)) }

// perMinute returns a lower and an upper bound of the units that flow back to a limit in one
// minute.
func perMinute(l enforcement.Limit) (low, high float64) {
	flow := float64(l.Quota) * float64(time.Minute) / float64(l.Window)
	return math.Floor(flow*grain) / grain, math.Ceil(flow*grain) / grain
}

// capacity returns the capacity of the token bucket of a limit (see mustRefuse), which is
// refilled at the rate of quota per window. It is the smallest capacity for which all admitted
// requests conform to the bucket. For a window, that is twice the quota, because a window can
// admit its quota just before and again just after its start. For a log, it is the quota. For a
// bucket, it is the burst.
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

// mostAdmitted returns an upper bound of the number of requests that a limit admits. n is the
// number of requests in each minute. The bound is the number that the token bucket of the limit
// (see capacity) admits if it starts full and the requests of each minute come at the best
// time.
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

// mostRefusedByBucket returns an upper bound of the number of requests that a bucket denies. It
// assumes that all requests of a minute come at its start, and that the bucket starts empty. If
// requests may have been forced, it assumes that the bucket starts as far below zero as
// possible. During the warm minutes, the true level can only be higher than the assumed one.
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

// blockOf returns a number of minutes. Within this time before a denial, the limit must have
// admitted its whole quota. The time is one window, or two windows for a sliding window
// counter.
func blockOf(l enforcement.Limit) int {
	memory := l.Window
	if l.Algorithm == enforcement.SlidingWindowCounter {
		memory *= 2
	}
	return int((memory+time.Minute-1)/time.Minute) + 1
}

// mostRefusedInBlocks returns an upper bound of the number of requests that a window or a log
// denies. It divides the time into disjoint blocks of the length blockOf that contain all
// denials. In each block, the limit admits its quota. The number of denials in a block is a
// convex function of the requests in the block. Therefore a minute at the edge of two blocks
// can be assigned wholly to one of them, and blocks of the maximum length give the maximum.
func mostRefusedInBlocks(l enforcement.Limit, s series) int64 {
	block := blockOf(l)
	// The element j of each list is a sum over the first j minutes: came of all requests, asked
	// of the requests after the warm minutes, and best of the most possible denials.
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
