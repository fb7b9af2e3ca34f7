package enforcement

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// shareMeter returns the meter of one node's share of a limit.
func shareMeter(l Limit, nodes int) *Meter {
	l.Quota, l.Burst = shareOf(l.Quota, nodes), shareOf(l.Burst, nodes)
	return l.Compile(1)
}

func TestStartShare(t *testing.T) {
	t.Parallel()
	const sec = int64(1_000_000)
	const now = 1000 * sec
	fixed := Limit{Algorithm: FixedWindow, Quota: 100, Window: time.Minute}
	sliding := Limit{Algorithm: SlidingWindowCounter, Quota: 100, Window: time.Minute}
	log := Limit{Algorithm: SlidingWindowLog, Quota: 100, Window: time.Minute}
	bucket := Limit{Algorithm: TokenBucket, Quota: 60, Window: time.Minute, Burst: 100} // refills one unit per second
	held := Limit{Algorithm: Concurrency, Quota: 100, Window: time.Minute}
	none := Limit{Algorithm: FixedWindow, Quota: 0, Window: time.Minute}
	for _, c := range []struct {
		name  string
		limit Limit
		nodes int
		seen  State
		want  string // state and remaining units
	}{
		{"nothing seen", fixed, 3, State{}, "{0 0 0 0 [] []} 34"},
		{"60 of 100 used, 3 nodes", fixed, 3, State{Rev: 7, A: 60, T: now - 20*sec}, "{7 20 0 980000000 [] []} 14"},
		{"all used", fixed, 3, State{Rev: 7, A: 100, T: now - 20*sec}, "{7 34 0 980000000 [] []} 0"},
		{"all used, one node", fixed, 1, State{Rev: 7, A: 100, T: now - 20*sec}, "{7 100 0 980000000 [] []} 0"},
		{"forced beyond", fixed, 3, State{Rev: 7, A: 130, T: now - 20*sec}, "{7 44 0 980000000 [] []} -10"},
		{"window open, all given back", fixed, 3, State{Rev: 7, T: now - 20*sec}, "{7 0 0 980000000 [] []} 34"},
		{"window over", fixed, 3, State{Rev: 7, A: 100, T: now - 60*sec}, "{0 0 0 0 [] []} 34"},
		{"quota 0", none, 3, State{Rev: 7, T: now - 20*sec}, "{7 0 0 980000000 [] []} 0"},

		{"current and previous", sliding, 3, State{Rev: 7, A: 30, B: 60, T: now - 30*sec}, "{7 10 20 970000000 [] []} 14"},
		{"previous, not divisible", sliding, 3, State{Rev: 7, A: 30, B: 61, T: now - 30*sec}, "{7 10 20 970000000 [] []} 14"},
		{"rolled since", sliding, 3, State{Rev: 7, A: 60, B: 60, T: now - 90*sec}, "{7 0 20 970000000 [] []} 24"},
		{"previous forced far beyond", sliding, 2, State{Rev: 7, A: 0, B: 1000, T: now - 30*sec}, "{7 0 500 970000000 [] []} -200"},
		{"over for two windows", sliding, 3, State{Rev: 7, A: 60, T: now - 120*sec}, "{0 0 0 0 [] []} 34"},

		{
			"a log becomes one entry", log, 3,
			State{Rev: 7, A: 60, B: 2, T: now - 10*sec, Log: []Entry{{now - 50*sec, 20}, {now - 10*sec, 40}}},
			"{7 20 1 990000000 [{990000000 20}] []} 14",
		},
		{
			"what has left a log", log, 3,
			State{Rev: 7, A: 60, B: 2, T: now - 10*sec, Log: []Entry{{now - 60*sec, 20}, {now - 10*sec, 40}}},
			"{7 14 1 990000000 [{990000000 14}] []} 20",
		},
		{
			"a log whose entries are not at hand", log, 3,
			State{Rev: 7, A: 60, B: 2, T: now - 10*sec},
			"{7 20 1 990000000 [{990000000 20}] []} 14",
		},
		{"a log that has ended", log, 3, State{Rev: 7, A: 60, B: 2, T: now - 60*sec}, "{0 0 0 0 [] []} 34"},

		{
			"leases become one lease", held, 3,
			State{Rev: 7, A: 60, B: now + 20*sec, T: now - 10*sec, Holders: []Holder{{[16]byte{1}, now + 10*sec, 20}, {[16]byte{2}, now + 20*sec, 40}}},
			"{7 20 1020000000 990000000 [] [{[0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 1020000000 20}]} 14",
		},
		{
			"leases that are not at hand", held, 3,
			State{Rev: 7, A: 60, B: now + 20*sec, T: now - 10*sec},
			"{7 20 1020000000 990000000 [] [{[0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] 1020000000 20}]} 14",
		},
		{"leases that have ended", held, 3, State{Rev: 7, A: 60, B: now, T: now - 10*sec}, "{0 0 0 0 [] []} 34"},

		{"a bucket", bucket, 3, State{Rev: 7, A: 40, T: now}, "{7 14 0 1000000000 [] []} 14"},
		{"a bucket refills until now", bucket, 3, State{Rev: 7, A: 40, T: now - 20*sec}, "{7 20 0 1000000000 [] []} 20"},
		{"an empty bucket", bucket, 3, State{Rev: 7, T: now}, "{7 0 0 1000000000 [] []} 0"},
		{"a bucket in debt", bucket, 3, State{Rev: 7, A: -50, T: now}, "{7 -16 0 1000000000 [] []} -16"},
		{"a bucket full again", bucket, 3, State{Rev: 7, A: 40, T: now - 60*sec}, "{0 0 0 0 [] []} 34"},
	} {
		m, share := c.limit.Compile(7), shareMeter(c.limit, c.nodes)
		got := m.StartShare(c.seen, 7, now, share, c.nodes)
		settled, _ := share.Settle(got, 7, now)
		if s := fmt.Sprint(got, share.Left(settled, now)); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
	}
}

// drawUsed draws a state after some charges, of which some were forced, and a refund.
func drawUsed(t *rapid.T, m *Meter, now int64) (State, int64) {
	var s State
	for range rapid.IntRange(0, 6).Draw(t, "charges") {
		now += rapid.Int64Range(0, m.Window).Draw(t, "elapsed")
		s, _ = m.Settle(s, 1, now)
		lease := Lease{ID: [16]byte{rapid.Byte().Draw(t, "lease"), 1}}
		s = m.ChargeFor(s, 1, now, rapid.Int64Range(0, 2+m.Quota/2).Draw(t, "cost"), &lease)
	}
	s, _ = m.Settle(s, 1, now)
	if rapid.Bool().Draw(t, "refunds") {
		s = m.RefundFor(s, rapid.Int64Range(0, 2+m.Quota/2).Draw(t, "back"), &Lease{ID: [16]byte{rapid.Byte().Draw(t, "lease"), 1}})
	}
	return s, now
}

// A share starts with at most its part of what the shared counter had left. It starts with
// exactly that unless more than the quota was used.
func TestStartShareNeverExceeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, nodes := drawLimit(t, allAlgorithms...), rapid.IntRange(1, 12).Draw(t, "nodes")
		m, share := l.Compile(1), shareMeter(l, nodes)
		seen, now := drawUsed(t, m, 1_767_225_600_000_000)
		now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3*m.Window)).Draw(t, "since")
		settled, _ := m.Settle(seen, 1, now)
		full := share.Left(share.fresh(1, now), now)
		want := min(full, (max(m.Left(settled, now), 0)+int64(nodes)-1)/int64(nodes))
		if rapid.Bool().Draw(t, "oldest entries only") && m.Algorithm == SlidingWindowLog && len(seen.Log) > 0 {
			seen.Log = seen.Log[:len(seen.Log)-1]
			want = -1 // at most that, because all entries count
		}
		start := m.StartShare(seen, 1, now, share, nodes)
		state, clamped := share.Settle(start, 1, now)
		left := share.Left(state, now)
		if left > full || want >= 0 && max(left, 0) != want || clamped {
			t.Fatalf("%+v, %d nodes: %d left of %+v, want %d of at most %d (clamped %v)", l, nodes, left, start, want, full, clamped)
		}
		if want < 0 && max(left, 0) > min(full, (max(m.Left(settled, now), 0)+int64(nodes)-1)/int64(nodes)) {
			t.Fatalf("%+v, %d nodes: %d left of a log of which not all is known", l, nodes, left)
		}
		// It ends when the shared one does, a log and the previous count at the latest.
		if ends := m.ResetAfter(settled, now); !l.Algorithm.Bucket() && share.ResetAfter(state, now) > ends && l.Algorithm != SlidingWindowLog {
			t.Fatalf("%+v: the share ends in %d, the shared counter in %d", l, share.ResetAfter(state, now), ends)
		}
	})
}

// Stricter returns the state with fewer remaining units of two states of one counter.
func TestStricter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, allAlgorithms...).Compile(1)
		a, now := drawUsed(t, m, 1_767_225_600_000_000)
		b, later := drawUsed(t, m, now-rapid.Int64Range(0, m.Window).Draw(t, "apart"))
		now = max(now, later)
		a, _ = m.Settle(a, 1, now)
		b, _ = m.Settle(b, 1, now)
		got, clamped := m.Settle(m.Stricter(a, b, 1, now), 1, now)
		left := m.Left(got, now)
		least := min(m.Left(a, now), m.Left(b, now))
		if floor := -max(m.Burst(), 1); m.Algorithm.Bucket() {
			least = max(least, floor)
		}
		if left != least || clamped {
			t.Fatalf("%+v and %+v become %+v: %d left, want %d", a, b, got, left, least)
		}
		if m.Algorithm != SlidingWindowCounter && m.ResetAfter(got, now) < max(m.ResetAfter(a, now), m.ResetAfter(b, now)) {
			t.Fatalf("%+v and %+v become %+v, which ends sooner", a, b, got)
		}
	})
}
