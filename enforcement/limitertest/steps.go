package limitertest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Short names, for the tables.
const (
	second = time.Second
	minute = time.Minute
	micro  = time.Microsecond

	enforce  = enforcement.Enforce
	peek     = enforcement.Peek
	force    = enforcement.Force
	refund   = enforcement.Refund
	reset    = enforcement.Reset
	takeUpTo = enforcement.TakeUpTo
)

func fixedWindow(quota int64, window time.Duration, anchor enforcement.Anchor) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: quota, Window: window, Anchor: anchor}
}

func slidingLog(quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowLog, Quota: quota, Window: window}
}

func slidingCounter(quota int64, window time.Duration, anchor enforcement.Anchor) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowCounter, Quota: quota, Window: window, Anchor: anchor}
}

func tokenBucket(quota int64, window time.Duration, burst int64) enforcement.Limit {
	return enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: quota, Window: window, Burst: burst}
}

func gcra(quota int64, window time.Duration, burst int64) enforcement.Limit {
	l := tokenBucket(quota, window, burst)
	l.Algorithm = enforcement.GCRA
	return l
}

// stepTests hold the promises of each algorithm, one counter at a time.
var stepTests = []test{
	{"FixedWindow/HalfOpen", func(w *world) {
		w.play(fixedWindow(3, 10*second, enforcement.FirstHit), []step{
			{at: 1 * second, cost: 2, left: 1, reset: 10 * second, what: "the first charge opens the window"},
			{at: 4 * second, cost: 2, no: true, left: 1, reset: 7 * second, retry: 7 * second, what: "what is left is said"},
			{at: 4 * second, cost: 1, left: 0, reset: 7 * second},
			{at: 11*second - micro, cost: 1, no: true, left: 0, reset: micro, retry: micro, what: "the last instant"},
			{at: 11 * second, cost: 1, left: 2, reset: 10 * second, what: "half open: over at its end"},
		})
	}},
	{"TokenBucket/Refill", func(w *world) {
		w.play(tokenBucket(2, 1*second, 4), []step{
			{cost: 4, left: 0, reset: 2 * second, what: "full at first"},
			{cost: 1, no: true, left: 0, reset: 2 * second, retry: second / 2},
			{at: second/2 - micro, cost: 1, no: true, left: 0, reset: 3*second/2 + micro, retry: micro},
			{at: second / 2, cost: 1, left: 0, reset: 2 * second},
		})
	}},
}
