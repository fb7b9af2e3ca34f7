package enforcement

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawPace draws a small limit, a state after some charges, and a rate of requests near the
// rate of the limit.
func drawPace(t *rapid.T) (m *Meter, s State, now, cost, every int64) {
	l := drawLimit(t, FixedWindow, SlidingWindowLog, SlidingWindowCounter, TokenBucket, GCRA, LeakyBucket)
	l.Quota = rapid.Int64Range(0, 40).Draw(t, "quota")
	l.Window = time.Duration(rapid.Int64Range(1, 40).Draw(t, "window")) * time.Millisecond
	if l.Algorithm.Bucket() {
		l.Burst = rapid.Int64Range(0, 60).Draw(t, "burst")
	}
	m = l.Compile(1)
	now = noon + rapid.Int64Range(0, 50_000).Draw(t, "begin")
	for range rapid.IntRange(0, 12).Draw(t, "charges") {
		s, _ = m.Settle(s, 1, now)
		s = m.Charge(s, 1, now, rapid.Int64Range(0, 12).Draw(t, "charged"))
		now += rapid.Int64Range(0, m.Window/2).Draw(t, "elapsed")
	}
	s, _ = m.Settle(s, 1, now)
	cost = rapid.Int64Range(0, 6).Draw(t, "cost")
	every = rapid.Int64Range(1, 3*m.Window).Draw(t, "every")
	if bears := m.Window * max(cost, 1) / max(l.Quota, 1); rapid.Bool().Draw(t, "near") {
		every = max(bears+rapid.Int64Range(-bears/4-2, bears/4+2).Draw(t, "off"), 1)
	}
	return m, s, now, cost, every
}

// refusedAt sends requests to the reference until one is denied, or until most requests were
// sent.
func refusedAt(m *Meter, s State, now, cost, every, most int64) (micros int64, refused bool) {
	for k := range most {
		at := now + k*every
		s, _ = m.Settle(s, 1, at)
		if !m.Admits(m.Left(s, at), cost) {
			return k * every, true
		}
		s = m.Charge(s, 1, at, cost)
	}
	return most * every, false
}

// DeniedAfter returns the first request that the reference denies. If it returns that none
// is denied, the reference denies none in the time that DeniedAfter examines, or far beyond
// it where it examines everything.
func TestDeniedAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for range 30 {
			m, s, now, cost, every := drawPace(t)
			const most = 6000
			is, refused := refusedAt(m, s, now, cost, every, most)
			said, ok := m.DeniedAfter(s, now, cost, every)
			beyond := m.Algorithm.Windowed() && is >= (maxWindowsAhead-1)*m.Window
			switch {
			case ok && refused && said == is:
			case ok && !refused && said >= is && said%every == 0: // later than was played
			case !ok && (!refused || beyond):
			default:
				t.Fatalf("%+v %+v at %d, %d each %d: said %d %v, is %d %v", *m, s, now, cost, every, said, ok, is, refused)
			}
		}
	})
}

// For a part of a log, the result is between those for logs whose other entries end as
// early and as late as possible.
func TestDeniedAfterOfALogInPart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, s, now, cost, every := drawPace(t)
		if m.Algorithm != SlidingWindowLog || len(s.Log) == 0 {
			return
		}
		part, soon, late := s, s, s
		known := rapid.IntRange(0, len(s.Log)-1).Draw(t, "at hand")
		part.Log = s.Log[:known]
		oldest := now - m.Window
		if known > 0 {
			oldest = s.Log[known-1].T
		}
		soon.Log, late.Log = nil, nil
		for i, e := range s.Log {
			if i < known {
				soon.Log, late.Log = append(soon.Log, e), append(late.Log, e)
				continue
			}
			soon.Log = append(soon.Log, Entry{T: oldest, Units: e.Units})
			late.Log = append(late.Log, Entry{T: s.T, Units: e.Units})
		}
		units := int64(0)
		for _, e := range m.leaving(&part, now) {
			units += e.Units
		}
		if units != s.A {
			t.Fatalf("%d units leave of %d", units, s.A)
		}
		said, ok := m.DeniedAfter(part, now, cost, every)
		first, always := m.DeniedAfter(late, now, cost, every)
		last, ever := m.DeniedAfter(soon, now, cost, every)
		if ok && (!always || said < first) || ever && (!ok || said > last) {
			t.Fatalf("said %d %v, between %d %v and %d %v", said, ok, first, always, last, ever)
		}
	})
}

// At the bounds of valid limits nothing overflows: the result is not negative, is a multiple of
// the interval, and is not before the remaining units are used up.
func TestDeniedAfterAtTheBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawLimit(t, allAlgorithms...).Compile(1)
		s, _ := m.Settle(State{}, 1, noon)
		s = m.Charge(s, 1, noon, drawCost(t, m))
		now := noon + drawGap(t, m)
		s, _ = m.Settle(s, 1, now)
		cost := drawCost(t, m)
		every := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, maxForever)).Draw(t, "every")
		said, ok := m.DeniedAfter(s, now, cost, every)
		left := m.Left(s, now)
		switch {
		case !ok && said != 0, said < 0, said > maxForever:
			t.Fatalf("said %d %v", said, ok)
		case !ok || said == maxForever:
		case said%every != 0:
			t.Fatalf("said %d, every %d", said, every)
		case said == 0 == m.Admits(left, cost):
			t.Fatalf("%d left, %d each: said %d", left, cost, said)
		case said > 0 && said/every < left/cost && m.Algorithm != SlidingWindowCounter:
			t.Fatalf("%d left, %d each: refused is the request %d", left, cost, said/every)
		}
	})
}

func TestDeniedAfterWorked(t *testing.T) {
	t.Parallel()
	minute := time.Minute.Microseconds()
	for name, c := range map[string]struct {
		limit     Limit
		used      int64 // at the full minute
		after     time.Duration
		cost      int64
		every     time.Duration
		want      time.Duration
		neverEnds bool
	}{
		"bucket that refills faster": {limit: Limit{Algorithm: TokenBucket, Quota: 60, Window: time.Minute, Burst: 10}, used: 9, cost: 1, every: time.Second, neverEnds: true},
		"bucket that refills slower": {limit: Limit{Algorithm: TokenBucket, Quota: 60, Window: time.Minute, Burst: 10}, cost: 2, every: time.Second, want: 9 * time.Second},
		"bucket used up":             {limit: Limit{Algorithm: GCRA, Quota: 60, Window: time.Minute, Burst: 10}, used: 10, cost: 1, every: time.Hour, want: 0},
		"window that ends first":     {limit: Limit{Algorithm: FixedWindow, Quota: 100, Window: time.Minute}, used: 95, after: 58 * time.Second, cost: 1, every: time.Second, neverEnds: true},
		"window used up":             {limit: Limit{Algorithm: FixedWindow, Quota: 100, Window: time.Minute}, used: 95, after: 30 * time.Second, cost: 1, every: time.Second, want: 5 * time.Second},
		"the window after":           {limit: Limit{Algorithm: FixedWindow, Quota: 30, Window: time.Minute}, used: 20, after: 55 * time.Second, cost: 1, every: time.Second, want: 35 * time.Second},
		"log whose units leave":      {limit: Limit{Algorithm: SlidingWindowLog, Quota: 60, Window: time.Minute}, used: 55, after: 58 * time.Second, cost: 1, every: time.Second, neverEnds: true},
		"log used up":                {limit: Limit{Algorithm: SlidingWindowLog, Quota: 60, Window: time.Minute}, used: 55, after: 30 * time.Second, cost: 1, every: time.Second, want: 5 * time.Second},
		"counter used up":            {limit: Limit{Algorithm: SlidingWindowCounter, Quota: 60, Window: time.Minute}, used: 55, after: 30 * time.Second, cost: 1, every: time.Second, want: 5 * time.Second},
		"counter that fades":         {limit: Limit{Algorithm: SlidingWindowCounter, Quota: 60, Window: time.Minute}, used: 30, after: time.Minute, cost: 1, every: 2 * time.Second, neverEnds: true},
		"nothing is asked":           {limit: Limit{Algorithm: FixedWindow, Quota: 1, Window: time.Minute}, cost: 0, every: 1, neverEnds: true},
		"quota of nothing":           {limit: Limit{Algorithm: FixedWindow, Quota: 0, Window: time.Minute}, cost: 0, every: 1, want: 0},
		"more than could ever fit":   {limit: Limit{Algorithm: FixedWindow, Quota: 5, Window: time.Minute}, cost: 6, every: time.Second, want: 0},
		"seldom":                     {limit: Limit{Algorithm: FixedWindow, Quota: 5, Window: time.Minute}, cost: 5, every: time.Hour, neverEnds: true},
	} {
		m := c.limit.Compile(1)
		at := noon - noon%minute
		s, _ := m.Settle(State{}, 1, at)
		s = m.Charge(s, 1, at, c.used)
		at += c.after.Microseconds()
		s, _ = m.Settle(s, 1, at)
		micros, ok := m.DeniedAfter(s, at, c.cost, max(c.every.Microseconds(), 1))
		if ok == c.neverEnds || micros != c.want.Microseconds() {
			t.Errorf("%s: refuses after %v, %v; want %v", name, time.Duration(micros)*time.Microsecond, ok, c.want)
		}
	}
}
