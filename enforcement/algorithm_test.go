package enforcement

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The models in this file are independent of algorithm.go. Levels are exact fractions. Windows
// and logs are lists of admitted units.

const (
	second = int64(1_000_000)
	noon   = int64(1_700_000_000) * second
)

var allAlgorithms = []Algorithm{FixedWindow, SlidingWindowLog, SlidingWindowCounter, TokenBucket, GCRA, Concurrency, LeakyBucket}

// drawLimit draws a limit within the bounds. Extreme values are frequent.
func drawLimit(t *rapid.T, algorithms ...Algorithm) Limit {
	amount := rapid.OneOf(
		rapid.Int64Range(0, 20),
		rapid.Int64Range(1, MaxQuota),
		rapid.SampledFrom([]int64{1, 3, 7, 700_000, 104_249, 999_999_999_989, MaxQuota - 1, MaxQuota}),
	)
	l := Limit{
		Name:      "l1",
		Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
		Quota:     amount.Draw(t, "quota"),
		Window: time.Duration(rapid.OneOf(
			rapid.Int64Range(1, 5_000),
			rapid.Int64Range(1, MaxWindow.Milliseconds()),
			rapid.SampledFrom([]int64{1, 1_000, 60_000, 86_400_000, MaxWindow.Milliseconds()}),
		).Draw(t, "window")) * time.Millisecond,
	}
	if l.Algorithm.Bucket() && rapid.Bool().Draw(t, "burst") {
		l.Burst = max(amount.Draw(t, "capacity"), 1)
	}
	if l.Algorithm == Concurrency {
		l.Quota = min(l.Quota, MaxLeases)
	}
	if l.Algorithm.Windowed() && rapid.Bool().Draw(t, "clock") {
		l.Anchor = Clock
	}
	return l
}

// drawCost draws a cost from 0 to slightly above the largest cost that can be admitted.
func drawCost(t *rapid.T, m *Meter) int64 {
	most := m.Quota
	if m.Algorithm.Bucket() {
		most = m.Burst()
	}
	most = min(most+most/8+1, MaxCost)
	return rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, most), rapid.Int64Range(0, most/4+1)).Draw(t, "cost")
}

// drawGap draws the time until the next check: less than the time of one unit, or up to three
// windows.
func drawGap(t *rapid.T, m *Meter) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 3*m.Window),
		rapid.Int64Range(0, m.Window/4+1),
		rapid.Int64Range(0, 2000),
		rapid.SampledFrom([]int64{0, 1, m.Window - 1, m.Window, m.Window + 1, 2*m.Window - 1, 2 * m.Window}),
	).Draw(t, "gap")
}

func TestMulAddDiv(t *testing.T) {
	t.Parallel()
	any63 := rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Int64Range(0, 1<<20), rapid.Int64Range(1<<52-2, 1<<54))
	rapid.Check(t, func(t *rapid.T) {
		a, b, c, m := any63.Draw(t, "a"), any63.Draw(t, "b"), any63.Draw(t, "c"), max(any63.Draw(t, "m"), 1)
		sum := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want, wantRem := new(big.Int).QuoRem(sum.Add(sum, big.NewInt(c)), big.NewInt(m), new(big.Int))
		quo, rem, ok := mulAddDiv(a, b, c, m)
		if ok != want.IsInt64() || ok && (quo != want.Int64() || rem != wantRem.Int64()) {
			t.Fatalf("(%d*%d + %d) / %d = %d, %d, %v; want %v, %v", a, b, c, m, quo, rem, ok, want, wantRem)
		}
	})
}

func TestFlow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, GCRA)
		if l.Quota == 0 {
			l.Quota = 1
		}
		m := l.Compile(1)
		need := rapid.Int64Range(1, 3*MaxQuota).Draw(t, "need")
		b := rapid.Int64Range(0, m.Q-1).Draw(t, "b")
		x := new(big.Int).Mul(big.NewInt(need), big.NewInt(m.Q))
		x.Sub(x, big.NewInt(b)).Add(x, big.NewInt(m.P-1)).Quo(x, big.NewInt(m.P))
		if x.Cmp(big.NewInt(maxForever)) > 0 {
			x.SetInt64(maxForever)
		}
		if got := m.flow(need, b); got != x.Int64() {
			t.Fatalf("flow(%d, %d) at %d/%d = %d, want %v", need, b, m.P, m.Q, got, x)
		}
	})
}

// A level is the exact content of a bucket at a time.
type level struct {
	units *big.Rat
	at    int64
}

// fill refills a bucket until a time.
func (v *level) fill(n Numbers, until int64) {
	if elapsed := until - v.at; elapsed > 0 {
		flow := new(big.Rat).Mul(new(big.Rat).SetInt64(elapsed), big.NewRat(n.Quota, n.Window))
		v.units.Add(v.units, flow)
		v.at = until
	}
	if full := new(big.Rat).SetInt64(n.Capacity); v.units.Cmp(full) > 0 {
		v.units.Set(full)
	}
}

// until returns the time in microseconds, rounded up, until the bucket has units.
func (v *level) until(n Numbers, units, now int64) int64 {
	missing := new(big.Rat).Sub(new(big.Rat).SetInt64(units), v.units)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Mul(missing, big.NewRat(n.Window, n.Quota))
	whole := new(big.Int).Add(missing.Num(), new(big.Int).Sub(missing.Denom(), big.NewInt(1)))
	whole.Quo(whole, missing.Denom()).Add(whole, big.NewInt(v.at-now))
	if whole.Cmp(big.NewInt(maxForever)) > 0 {
		return maxForever
	}
	return whole.Int64()
}

// exact returns the state of a bucket as a fraction.
func exact(s State, q int64) *big.Rat {
	return new(big.Rat).Add(new(big.Rat).SetInt64(s.A), big.NewRat(s.B, q))
}

func TestBucketIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, TokenBucket, GCRA).Compile(1)
		if m.Quota == 0 {
			return
		}
		now := noon
		var s State
		stored := level{new(big.Rat).SetInt64(m.Capacity), now - 40*m.Window} // has been full for a long time
		for range 30 {
			now += drawGap(t, m)
			if rapid.IntRange(0, 9).Draw(t, "back") == 0 {
				now = max(now-rapid.Int64Range(0, m.Window).Draw(t, "step"), stored.at-m.horizon())
			}
			cost := drawCost(t, m)
			settled, clamped := m.Settle(s, 1, now)
			model := level{new(big.Rat).Set(stored.units), stored.at}
			model.fill(m.Numbers, now)
			if clamped {
				t.Fatalf("%v clamped at %d", s, now)
			}
			if exact(settled, m.Q).Cmp(model.units) != 0 {
				t.Fatalf("%+v holds %v, want %v", settled, exact(settled, m.Q), model.units)
			}
			whole := new(big.Int).Div(model.units.Num(), model.units.Denom()) // rounded down
			if left := m.Left(settled, now); left != whole.Int64() {
				t.Fatalf("left %d of %v", left, model.units)
			}
			if got, want := m.ResetAfter(settled, now), model.until(m.Numbers, m.Capacity, now); got != want {
				t.Fatalf("reset after %d, want %d", got, want)
			}
			retry, ok := m.RetryAfter(settled, now, cost)
			if ok != (cost <= m.Capacity) {
				t.Fatalf("cost %d of capacity %d possible: %v", cost, m.Capacity, ok)
			}
			if want := model.until(m.Numbers, cost, now); ok && retry != want {
				t.Fatalf("retry after %d, want %d", retry, want)
			}
			force := rapid.IntRange(0, 9).Draw(t, "force") == 0
			if cost > 0 && (force || m.Admits(m.Left(settled, now), cost)) {
				s = m.Charge(settled, 1, now, cost)
				model.units.Sub(model.units, new(big.Rat).SetInt64(cost))
				if debt := new(big.Rat).SetInt64(-m.Capacity); model.units.Cmp(debt) < 0 {
					// The debt is at most one capacity. The fraction is kept.
					model.units.Add(debt, big.NewRat(s.B, m.Q))
				}
				stored = model
			}
		}
	})
}

// Promise j: in any period, a bucket admits at most one burst plus the units that were refilled
// in the period.
func TestBucketDoesNotDrift(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{Quota: 700_000, Window: time.Second},
		{Quota: 3, Window: 7 * time.Millisecond},
		{Quota: 7, Window: 3 * time.Second, Burst: 1},
		{Quota: 999_983, Window: 366 * 24 * time.Hour, Burst: 10},
		{Quota: 1, Window: time.Millisecond, Burst: 5},
	} {
		l.Algorithm = TokenBucket
		m := l.Compile(1)
		var s State
		now, admitted, gap := noon, int64(0), int64(1)
		for range 200_000 {
			settled, _ := m.Settle(s, 1, now)
			if left := m.Left(settled, now); left > 0 {
				s = m.Charge(settled, 1, now, left)
				admitted += left
			}
			gap = (gap*1_103_515_245 + 12_345) % 1_000_003
			now += gap % max(m.flow(min(2, m.Capacity), 0)-1, 1)
		}
		elapsed := now - noon
		settled, _ := m.Settle(s, 1, now)
		admitted += m.Left(settled, now)
		flowed, _, _ := mulAddDiv(elapsed, m.Quota, 0, m.Window)
		// Only the units that a full bucket cannot take may be missing. A bucket of one unit
		// that is checked many times in its interval is sometimes full.
		if admitted > m.Capacity+flowed {
			t.Errorf("%+v: %d admitted of %d", l, admitted, m.Capacity+flowed)
		}
		if m.Capacity > 2 && admitted < m.Capacity+flowed {
			t.Errorf("%+v: only %d admitted of %d", l, admitted, m.Capacity+flowed)
		}
	}
}

// A bucket whose numbers changed refilled at each former rate for as long as that rate was
// in force. Converting the fraction to the new rate loses less than one part of each.
func TestFormerNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := []Numbers{}
		for range rapid.IntRange(2, 5).Draw(t, "changes") {
			numbers = append(numbers, drawLimit(t, GCRA).Numbers())
		}
		last := len(numbers) - 1
		m := &Meter{Numbers: numbers[last], Algorithm: GCRA, Rev: int64(10 * (last + 1))}
		until := noon
		for i, n := range numbers[:last] {
			until += rapid.Int64Range(0, n.Window).Draw(t, "held")
			m.Formers = append(m.Formers, Former{Numbers: n, Rev: int64(10 * (i + 1)), Until: until})
		}
		written := rapid.IntRange(0, last).Draw(t, "written")
		n := numbers[written]
		s := State{Rev: int64(10 * (written + 1)), A: rapid.Int64Range(-n.Capacity, n.Capacity).Draw(t, "units"), T: noon - rapid.Int64Range(0, n.Window).Draw(t, "since")}
		if s.A < n.Capacity {
			s.B = rapid.Int64Range(0, n.Q-1).Draw(t, "fraction")
		}
		now := until + rapid.Int64Range(0, numbers[last].Window).Draw(t, "now")

		model := level{exact(s, n.Q), s.T}
		lost := new(big.Rat)
		for i := written; i < last; i++ {
			model.fill(numbers[i], m.Formers[i].Until)
			lost.Add(lost, big.NewRat(1, numbers[i+1].Q))
		}
		model.fill(numbers[last], now)
		got, _ := m.Settle(s, m.Rev, now)
		diff := new(big.Rat).Sub(model.units, exact(got, m.Q))
		if diff.Sign() < 0 || diff.Cmp(lost) > 0 || got.Rev != m.Rev || got.T != now || got.B < 0 || got.B >= m.Q {
			t.Fatalf("%+v became %+v = %v, want %v", s, got, exact(got, m.Q), model.units)
		}
		if again, _ := m.Settle(got, m.Rev, now); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("%+v became %+v at the same instant", got, again)
		}
	})
}

// Two nodes with different snapshots decide in turns. No units are created, and the revision
// does not decrease.
func TestOlderNumbersMintNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		old := drawLimit(t, GCRA).Compile(1)
		next := drawLimit(t, GCRA).Compile(2)
		next.Formers = []Former{{Numbers: old.Numbers, Rev: 1, Until: noon}}
		s := old.Charge(old.fresh(1, noon), 1, noon, rapid.Int64Range(1, max(old.Capacity, 1)).Draw(t, "cost"))
		now := noon
		s, _ = next.Settle(s, 2, now)
		model := level{exact(s, next.Q), now}
		for range 20 {
			now += rapid.Int64Range(0, 3000).Draw(t, "gap")
			m := rapid.SampledFrom([]*Meter{old, next}).Draw(t, "node")
			s, _ = m.Settle(s, m.Rev, now)
			if m == old && model.units.Cmp(big.NewRat(old.Capacity, 1)) >= 0 { // a level of later numbers stays
				model.at = now
			} else {
				model.fill(m.Numbers, now)
			}
			if m.Left(s, now) > m.Capacity {
				t.Fatalf("%+v has more than the capacity %d of revision %d left", s, m.Capacity, m.Rev)
			}
			if s.Rev != 2 || exact(s, next.Q).Cmp(model.units) > 0 {
				t.Fatalf("%+v of revision %d holds %v, more than %v", s, m.Rev, exact(s, next.Q), model.units)
			}
		}
	})
}

func TestChangedNumbersKeepWhatWasUsed(t *testing.T) {
	t.Parallel()
	for _, a := range allAlgorithms {
		old := Limit{Algorithm: a, Quota: 10, Window: time.Minute}.Compile(1)
		s, _ := old.Settle(State{}, 1, noon)
		s = old.Charge(s, 1, noon, 4)
		for quota, want := range map[int64]int64{100: 96, 10: 6, 5: 1, 3: -1, 0: -4} {
			next := Limit{Algorithm: a, Quota: quota, Window: time.Minute}.Compile(2)
			next.Formers = []Former{{Numbers: old.Numbers, Rev: 1, Until: noon}}
			if a.Bucket() && a != LeakyBucket { // keeps its units, up to the capacity
				want = min(6, quota)
			}
			got, _ := next.Settle(s, 2, noon)
			if left := next.Left(got, noon); left != want || got.Rev != 2 || got.T != s.T {
				t.Errorf("%v 10 -> %d: left %d, want %d: %+v", a, quota, left, want, got)
			}
			if got := next.Remaining(got, noon); got != max(want, 0) {
				t.Errorf("%v 10 -> %d: remaining %d", a, quota, got)
			}
		}
	}
}

// An admission is an entry of the models of windows and logs.
type admission struct{ at, units int64 }

// windowModel computes what is left from a list of admissions.
type windowModel struct {
	m     *Meter
	start int64 // start of the current window; 0: none
	list  []admission
}

// at returns the list and the start of the window at a time.
func (w *windowModel) at(now int64) (list []admission, start int64) {
	size := w.m.Window
	switch {
	case w.m.Algorithm == SlidingWindowLog || w.start == 0 || now < w.start+size:
		return w.list, w.start
	case w.m.Algorithm == SlidingWindowCounter && now < w.start+2*size && sum(w.list, w.start, math.MaxInt64) > 0:
		return w.list, w.start + size
	}
	return nil, 0
}

// left returns the rest of the quota. A time before the start of the window, or before the
// newest entry of a log, counts as that time.
func (w *windowModel) left(now int64) int64 {
	list, start := w.at(now)
	switch w.m.Algorithm {
	case FixedWindow:
		return w.m.Quota - sum(list, math.MinInt64, math.MaxInt64)
	case SlidingWindowLog:
		if n := len(list); n > 0 {
			now = max(now, list[n-1].at)
		}
		return w.m.Quota - sum(list, now-w.m.Window+1, math.MaxInt64)
	}
	size := w.m.Window
	weighted := big.NewInt(sum(list, start-size, start))
	weighted.Mul(weighted, big.NewInt(size-(max(now, start)-start))).Quo(weighted, big.NewInt(size))
	return w.m.Quota - sum(list, start, math.MaxInt64) - weighted.Int64()
}

// sum returns the units admitted in [from, to).
func sum(list []admission, from, to int64) (sum int64) {
	for _, a := range list {
		if a.at >= from && a.at < to {
			sum += a.units
		}
	}
	return sum
}

func (w *windowModel) charge(now, cost int64) {
	w.list, w.start = w.at(now)
	switch n := len(w.list); {
	case w.m.Algorithm == SlidingWindowLog && n > 0:
		now = max(now, w.list[n-1].at)
	case w.start == 0 && w.m.Anchor == Clock:
		w.start = now / w.m.Window * w.m.Window
	case w.start == 0:
		w.start = now
	}
	w.list = append(w.list, admission{max(now, w.start), cost})
}

func TestWindowsAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, FixedWindow, SlidingWindowLog, SlidingWindowCounter).Compile(1)
		if m.Quota == 0 {
			return
		}
		now := noon
		var s State
		model := &windowModel{m: m}
		for range 30 {
			now += drawGap(t, m)
			if rapid.IntRange(0, 9).Draw(t, "back") == 0 {
				now = max(now-rapid.Int64Range(0, m.Window).Draw(t, "step"), s.T-m.Window)
			}
			cost := drawCost(t, m)
			settled, clamped := m.Settle(s, 1, now)
			want := model.left(now)
			if left := m.Left(settled, now); left != want || clamped {
				t.Fatalf("left %d, want %d, clamped %v: %+v of %+v at %d", left, want, clamped, settled, *m, now)
			}
			if cost > 0 && m.Admits(want, cost) {
				s = m.Charge(settled, 1, now, cost)
				model.charge(now, cost)
			}
		}
	})
}

// drawState draws a state that can result from checks, also above the limit.
func drawState(t *rapid.T, m *Meter) (State, int64) {
	now := noon + rapid.Int64Range(0, m.Window).Draw(t, "begin")
	var s State
	for range rapid.IntRange(0, 8).Draw(t, "charges") {
		now += drawGap(t, m)
		s, _ = m.Settle(s, 1, now)
		cost := drawCost(t, m)
		if m.Admits(m.Left(s, now), cost) || rapid.IntRange(0, 4).Draw(t, "force") == 0 {
			s = m.Charge(s, 1, now, cost)
		}
	}
	now += rapid.Int64Range(-min(m.Window, m.horizon())/2, m.Window).Draw(t, "later")
	s, _ = m.Settle(s, 1, now)
	return s, now
}

// Promise e: a denied check is admitted at its retry time and denied a microsecond earlier. For
// a retry time in milliseconds, rounded up, it is the same.
func TestRetryAfterIsTheFirstInstant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, allAlgorithms...).Compile(1)
		s, now := drawState(t, m)
		cost := drawCost(t, m)
		admitted := func(at int64) bool {
			settled, _ := m.Settle(s, 1, at)
			return m.Admits(m.Left(settled, at), cost)
		}
		retry, ok := m.RetryAfter(s, now, cost)
		if !ok {
			for _, after := range []int64{0, m.Window, 2 * m.Window, 5 * m.Window, 1 << 50} {
				if admitted(now + after) {
					t.Fatalf("cost %d never fits %+v, and does after %d", cost, *m, after)
				}
			}
			return
		}
		if retry >= maxForever {
			return // 285 years
		}
		if retry < 0 || !admitted(now+retry) || retry > 0 && admitted(now+retry-1) {
			t.Fatalf("cost %d of %+v %+v: retry after %d: %v, before: %v", cost, *m, s, retry, admitted(now+retry), admitted(now+retry-1))
		}
		after := Milliseconds(retry) * 1000
		if !admitted(now+after) || after > 0 && admitted(now+after-1000) {
			t.Fatalf("cost %d of %+v %+v: retry after %d ms is not the first", cost, *m, s, after/1000)
		}
	})
}

// ResetAfter is the first time at which the counter has the full quota.
func TestResetAfterIsWhenTheCounterIsAsNew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, allAlgorithms...).Compile(1)
		s, now := drawState(t, m)
		reset := m.ResetAfter(s, now)
		if reset >= maxForever || m.Quota == 0 {
			return
		}
		asNew := func(at int64) bool {
			settled, _ := m.Settle(s, 1, at)
			if m.Algorithm.Bucket() {
				return settled.A == m.Capacity
			}
			return settled.Rev == 0
		}
		if reset < 0 || !asNew(now+reset) || reset > 0 && asNew(now+reset-1) {
			t.Fatalf("%+v %+v at %d: reset after %d", *m, s, now, reset)
		}
	})
}

// The formula for the retry time of the sliding window counter returns the same as a search
// through every microsecond.
func TestUntilFadedBruteForce(t *testing.T) {
	t.Parallel()
	cases := 0
	for _, w := range []int64{1, 2, 3, 7, 16, 30} {
		for quota := int64(1); quota <= 7; quota++ {
			m := &Meter{Numbers: Numbers{Quota: quota, Window: w}, Algorithm: SlidingWindowCounter}
			for previous := int64(0); previous <= 9; previous++ {
				for current := int64(1); current <= 9; current++ {
					for cost := int64(0); cost <= quota; cost++ {
						s := State{Rev: 1, A: current, B: previous, T: noon}
						if m.Admits(m.Left(s, noon), cost) {
							continue
						}
						want := int64(0)
						for ; ; want++ {
							settled, _ := m.Settle(s, 1, noon+want)
							if m.Admits(m.Left(settled, noon+want), cost) {
								break
							}
						}
						if got := m.untilFaded(s, cost); got != want {
							t.Fatalf("window %d quota %d previous %d current %d cost %d: %d, want %d", w, quota, previous, current, cost, got, want)
						}
						cases++
					}
				}
			}
		}
	}
	t.Logf("%d cases", cases)
}

// Promise h: if the clock moves back, nothing is admitted twice. A state far in the future is
// moved to now, so a denial lasts at most one more window.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	for _, a := range allAlgorithms {
		m := Limit{Algorithm: a, Quota: 10, Window: time.Minute}.Compile(1)
		s, _ := m.Settle(State{}, 1, noon)
		s = m.Charge(s, 1, noon, 10)
		for _, back := range []int64{1, second, m.Window} {
			settled, clamped := m.Settle(s, 1, noon-back)
			if clamped || m.Left(settled, noon-back) != 0 {
				t.Errorf("%v, %d back: left %d, clamped %v", a, back, m.Left(settled, noon-back), clamped)
			}
		}
		now := noon - m.Window - 1
		settled, clamped := m.Settle(s, 1, now)
		if !clamped || m.Left(settled, now) != 0 || settled.T != now {
			t.Errorf("%v, more than a window back: left %d, clamped %v, %+v", a, m.Left(settled, now), clamped, settled)
		}
		if retry, ok := m.RetryAfter(settled, now, 1); !ok || retry > 2*m.Window || a != SlidingWindowCounter && retry > m.Window {
			t.Errorf("%v: retry after %d", a, retry)
		}
		if again, clamped := m.Settle(settled, 1, now); clamped || fmt.Sprint(again) != fmt.Sprint(settled) {
			t.Errorf("%v: %+v became %+v", a, settled, again)
		}
		if len(s.Log) > 0 && s.Log[0].T != noon {
			t.Errorf("the stored entries were changed in place")
		}
	}
}

// Promise c: a window contains its start and not its end.
func TestWindowsAreHalfOpen(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{FixedWindow, SlidingWindowLog} {
		m := Limit{Algorithm: a, Quota: 10, Window: time.Minute}.Compile(1)
		s := m.Charge(State{}, 1, noon, 10)
		for after, want := range map[int64]int64{0: 0, m.Window - 1: 0, m.Window: 10} {
			settled, _ := m.Settle(s, 1, noon+after)
			if left := m.Left(settled, noon+after); left != want {
				t.Errorf("%v: left %d after %d", a, left, after)
			}
		}
	}
}

func TestWorkedExamples(t *testing.T) {
	t.Parallel()
	t.Run("a first hit at 00:00:45 opens a window to 00:01:45", func(t *testing.T) {
		m := Limit{Algorithm: FixedWindow, Quota: 10, Window: time.Minute}.Compile(1)
		s := m.Charge(State{}, 1, 45*second, 10)
		settled, _ := m.Settle(s, 1, 104*second)
		if retry, _ := m.RetryAfter(settled, 104*second, 1); retry != second {
			t.Errorf("retry after %d", retry)
		}
	})
	t.Run("clock windows begin at multiples of the window", func(t *testing.T) {
		m := Limit{Algorithm: FixedWindow, Quota: 10, Window: time.Minute, Anchor: Clock}.Compile(1)
		for now, want := range map[int64]int64{45 * second: 0, 60 * second: 60 * second, -second: -60 * second} {
			if s := m.Charge(State{}, 1, now, 1); s.T != want {
				t.Errorf("the window of %d begins at %d", now, s.T)
			}
		}
	})
	t.Run("the weighted counter 80 + 0.5 * 40 is full, 93 is not", func(t *testing.T) {
		m := Limit{Algorithm: SlidingWindowCounter, Quota: 100, Window: time.Minute}.Compile(1)
		now := noon + 30*second
		if left := m.Left(State{Rev: 1, A: 80, B: 40, T: noon}, now); left != 0 {
			t.Errorf("left %d", left)
		}
		if left := m.Left(State{Rev: 1, A: 73, B: 40, T: noon}, now); left != 7 {
			t.Errorf("left %d", left)
		}
	})
	t.Run("a bucket of 10 with 5 extra admits 15 at once", func(t *testing.T) {
		m := Limit{Algorithm: TokenBucket, Quota: 10, Window: time.Second, Burst: 15}.Compile(1)
		s, _ := m.Settle(State{}, 1, noon)
		if left := m.Left(s, noon); left != 15 {
			t.Errorf("left %d", left)
		}
	})
}

func TestChargeStopsAtItsBounds(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{FixedWindow, SlidingWindowCounter, SlidingWindowLog} {
		m := Limit{Algorithm: a, Quota: 10, Window: time.Minute}.Compile(1)
		s := m.Charge(State{}, 1, noon, maxCount-5)
		if s = m.Charge(s, 1, noon+1, MaxCost); s.A != maxCount {
			t.Errorf("%v: count %d", a, s.A)
		}
	}
	m := Limit{Algorithm: GCRA, Quota: 10, Window: time.Minute}.Compile(1)
	s, _ := m.Settle(State{}, 1, noon)
	for range 3 {
		s = m.Charge(s, 1, noon, 15)
	}
	if s.A != -10 {
		t.Errorf("debt %d, want one capacity", s.A)
	}
	if charged := m.Charge(s, 1, noon, 0); fmt.Sprint(charged) != fmt.Sprint(s) {
		t.Error("cost 0 changes a state")
	}
	if s := (&Meter{Algorithm: FixedWindow}).Charge(State{}, 1, noon, 0); s.Rev != 0 {
		t.Error("cost 0 opens a window")
	}

	m = Limit{Algorithm: SlidingWindowLog, Quota: MaxLog, Window: time.Hour}.Compile(1)
	s = State{}
	for i := range int64(MaxLog) {
		s = m.Charge(s, 1, noon+i, 1)
	}
	full := s
	s = m.Charge(s, 1, noon+MaxLog, 7)
	if s.B != MaxLog || s.A != MaxLog+7 || s.Log[MaxLog-1].Units != 8 {
		t.Errorf("a full log: %d entries, %d units", s.B, s.A)
	}
	if full.Log[MaxLog-1].Units != 1 {
		t.Error("the log before was changed in place")
	}
}

// Promise f: a refund never raises a bucket above its capacity, or lowers a count below 0.
func TestRefund(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, allAlgorithms...).Compile(1)
		s, now := drawState(t, m)
		before := m.Left(s, now)
		cost := drawCost(t, m)
		got := m.Refund(s, cost)
		left := m.Left(got, now)
		most := m.Quota
		if m.Algorithm.Bucket() {
			most = m.Burst()
		}
		if left < before || left > max(most, before) || got.A < 0 && !m.Algorithm.Bucket() || got.B < 0 {
			t.Fatalf("%+v gave back %d: %+v", s, cost, got)
		}
		if m.Algorithm == FixedWindow && left != min(before+cost, most) {
			t.Fatalf("%+v gave back %d: %+v", s, cost, got)
		}
		sum := int64(0)
		for _, e := range got.Log {
			sum += e.Units
		}
		if m.Algorithm == SlidingWindowLog && (sum != got.A || int64(len(got.Log)) != got.B || got.B > 0 && got.T != got.Log[got.B-1].T) {
			t.Fatalf("%+v gave back %d: %+v", s, cost, got)
		}
	})
}

// A quota of 0 denies every check, and the remaining quota is 0.
func TestQuotaZero(t *testing.T) {
	t.Parallel()
	for _, a := range allAlgorithms {
		for _, burst := range []int64{0, 5} {
			m := Limit{Algorithm: a, Window: time.Minute, Burst: burst}.Compile(1)
			s, _ := m.Settle(State{}, 1, noon)
			s = m.Charge(s, 1, noon, 3) // forced
			s, _ = m.Settle(s, 1, noon+second)
			if _, ok := m.RetryAfter(s, noon+second, 0); ok || m.Admits(m.Left(s, noon), 0) || m.Remaining(s, noon) != 0 || m.Possible(0) {
				t.Errorf("%v with burst %d admits", a, burst)
			}
			if reset := m.ResetAfter(s, noon+second); reset < 0 {
				t.Errorf("%v with burst %d: reset after %d", a, burst, reset)
			}
		}
	}
}
