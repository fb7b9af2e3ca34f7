package preview

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// How much limits refuse of requests of which only the number in each minute is
// known. The order within a minute is not, nor what a counter held before; so
// there are two numbers, and every order and every counter gives one between
// them. Every request costs 1. docs/preview.md has the proofs in short.
//
// What both rest on holds also when other policies refuse some of the requests
// first, which then charge nothing:
//
//   - must: whatever is admitted conforms to a token bucket that is at least as
//     wide as the limit, so no more is admitted than that bucket lets through.
//   - can: a limit that refuses a request has admitted its quota within a known
//     time before it, so of all that came in that time the quota passed.

// A series is how many requests came in each minute, oldest first. The first
// warm minutes only tell what counters may hold: what is refused in them is not
// asked.
type series struct {
	start time.Time
	warm  int
	n     []int64
	// forced tells that some may have been charged whatever was left: then a
	// bucket may be in debt.
	forced bool
}

func sum(n []int64) (total int64) {
	for _, v := range n {
		total += v
	}
	return total
}

// warmUp is how long before a span requests matter to it, in minutes: a counter
// that nobody charges for so long is as new, whatever it held.
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

// calm is how many requests of one key never fill a limit, however they come.
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

// mustRefuse is the least that limits refuse of s after its warm minutes.
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

// canRefuse is the most that limits refuse of s after its warm minutes.
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

// aligned reports whether a limit's windows are whole minutes of the clock: then
// the order within a minute makes no difference.
func aligned(l enforcement.Limit) bool {
	return l.Algorithm == enforcement.FixedWindow && l.Anchor == enforcement.Clock && l.Window%time.Minute == 0
}

// refusedByClock is what a window by the clock refuses: what comes beyond its
// quota. most says whether a window that began before s was used up then; for
// the least, nothing was charged before what is asked about.
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

// Levels of buckets are floating point numbers in steps of 1/grain, so that sums
// of them are exact up to exactLevel.
const (
	grain      = 1 << 20
	exactLevel = 1 << 32
)

// slack is what rounding may make of a level that is too high to be exact.
func slack(level float64) float64 {
	if math.Abs(level) <= exactLevel {
		return 0
	}
	return 1e-9 * math.Abs(level)
}

func floor(level float64) int64 { return int64(math.Floor(level)) }

// perMinute is how much of a limit's quota flows in a minute, between two steps.
func perMinute(l enforcement.Limit) (low, high float64) {
	flow := float64(l.Quota) * float64(time.Minute) / float64(l.Window)
	return math.Floor(flow*grain) / grain, math.Ceil(flow*grain) / grain
}

// capacity is the least bucket that everything which a limit admits conforms to,
// filled at its quota a window. Windows admit their quota twice within a short
// time, around an edge; logs and, of buckets, the burst once.
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

// mostAdmitted is the most that a limit admits: what its bucket, full at first,
// lets through when each minute's requests come as late as helps, and nothing
// flows over but at the end of a minute.
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

// mostRefusedByBucket is the most that a bucket refuses: when each minute's
// requests come at its beginning, and what flows in then flows over as if they
// had come at its end. It begins empty or in the deepest debt, or where the warm
// minutes leave it at least.
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

// blockOf is how many minutes a limit's memory touches at most: a refusal means
// that its quota was admitted in the window before it, or in two windows of a
// sliding counter, whose previous window fades.
func blockOf(l enforcement.Limit) int {
	memory := l.Window
	if l.Algorithm == enforcement.SlidingWindowCounter {
		memory *= 2
	}
	return int((memory+time.Minute-1)/time.Minute) + 1
}

// mostRefusedInBlocks is the most that windows and logs refuse. All refusals lie
// in blocks of time that do not overlap, in each of which the quota was admitted.
// A minute at the edge of two blocks counts best for one of them alone, since
// what is refused of a block is a convex function of what came; and of all
// blocks that end at a minute the longest is best.
func mostRefusedInBlocks(l enforcement.Limit, s series) int64 {
	block := blockOf(l)
	// Up to each minute: what came, what of it is asked about, and the answer.
	came, asked, best := make([]int64, len(s.n)+1), make([]int64, len(s.n)+1), make([]int64, len(s.n)+1)
	for i, n := range s.n {
		j := i + 1
		came[j], asked[j] = came[i]+n, asked[i]
		if i >= s.warm {
			asked[j] += n
		}
		if j < block {
			best[j] = asked[j] // the quota may have been admitted before s
			continue
		}
		from := j - block
		best[j] = max(best[i], best[from]+min(asked[j]-asked[from], came[j]-came[from]-l.Quota))
	}
	return best[len(s.n)]
}
