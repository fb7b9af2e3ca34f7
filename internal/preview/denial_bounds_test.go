package preview

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// The number of denials of a limit is within its bounds for every order of the requests
// within minutes and for every earlier state of the counter: for requests that come evenly,
// at once, at the edges of minutes, and in separate windows.
func TestBoundsHoldEveryOrder(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := enforcement.Limit{
			Algorithm: enforcement.FixedWindow + enforcement.Algorithm(r.IntN(5)), Quota: 1 + r.Int64N(12),
			Window: []time.Duration{time.Minute, time.Minute, 90 * time.Second, 2 * time.Minute, 5 * time.Minute}[r.IntN(5)],
		}
		if l.Algorithm.Bucket() && r.IntN(2) == 0 {
			l.Burst = 1 + r.Int64N(20)
		}
		if l.Algorithm.Windowed() && r.IntN(2) == 0 {
			l.Anchor = enforcement.Clock
		}
		m, state := l.Compile(1), enforcement.State{}
		s := series{start: start, warm: r.IntN(8), n: make([]int64, 20)}
		refused := int64(0)
		// Something before what is known, and then the minutes.
		for minute := -3; minute < len(s.n); minute++ {
			n := r.Int64N(3)
			if r.IntN(3) == 0 {
				n = r.Int64N(3 * l.Quota)
			}
			at, step := r.Int64N(60_000_000), int64(0)
			switch r.IntN(4) {
			case 0:
				at = 0
			case 1:
				at = 59_999_999
			case 2:
				at, step = 0, 60_000_000/max(1, n)
			}
			for range n {
				now := start.UnixMicro() + int64(minute)*60_000_000 + at
				state, _ = m.Settle(state, 1, now)
				if m.Admits(m.Left(state, now), 1) {
					state = m.Charge(state, 1, now, 1)
				} else if minute >= s.warm {
					refused++
				}
				at += step
			}
			if minute >= 0 {
				s.n[minute] = n
			}
		}
		limits := []enforcement.Limit{l}
		low, high := mustRefuse(limits, s), canRefuse(limits, s)
		if refused < low || refused > high {
			t.Fatalf("seed %d: %+v refuses %d of %v after %d, not within %d and %d", seed, l, refused, s.n, s.warm, low, high)
		}
	}
}

// The worst cases that the bounds are made for are reached.
func TestBoundsAreReached(t *testing.T) {
	t.Parallel()
	s := func(n ...int64) series {
		return series{start: time.Unix(0, 0), warm: 4, n: append(make([]int64, 4), n...)}
	}
	fixed := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10, Window: time.Minute}
	bucket := enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 10, Window: time.Minute}
	clock := fixed
	clock.Anchor = enforcement.Clock
	for _, test := range []struct {
		name      string
		limit     enforcement.Limit
		s         series
		low, high int64
	}{
		{"calm", fixed, s(3, 3, 4), 0, 0},
		{"one window of two minutes", fixed, s(10, 10), 0, 10},
		{"two windows in one minute", fixed, s(30), 0, 20},
		{"by the clock", clock, s(30, 5, 11), 21, 21},
		{"a full bucket", bucket, s(25), 5, 15},
		{"steadily over", bucket, s(30, 30, 30, 30), 70, 100},
	} {
		limits := []enforcement.Limit{test.limit}
		if low, high := mustRefuse(limits, test.s), canRefuse(limits, test.s); low != test.low || high != test.high {
			t.Errorf("%s: from %d to %d, not from %d to %d", test.name, low, high, test.low, test.high)
		}
		if guess := replay(limits, test.s); guess < test.low || guess > test.high {
			t.Errorf("%s: replayed %d", test.name, guess)
		}
	}
}
