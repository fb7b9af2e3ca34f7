//go:build !quick

package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// scriptPlays are random plays of the scripts side by side, and scriptSteps are
// the calls of each.
const (
	scriptPlays = 60
	scriptSteps = 80
)

// batch.lua and single.lua decide what take.lua decides, and leave the same
// bytes in Redis: with broken values, clocks that jump, changed numbers, callers
// of an older revision, cells that requests share, and costs of every size.
func TestScriptsAgree(t *testing.T) {
	t.Parallel()
	url := servertest.Redis(t)
	raw := client(t, url)
	seed := testseed.Seed(t)
	var batches, singles int64
	for play := range uint64(scriptPlays) {
		r := rand.New(rand.NewPCG(seed, play))
		clock := limitertest.NewClock()
		var sides [2]side
		for i := range sides {
			prefix := newPrefix()
			sides[i] = side{l: open(t, redis.Config{URL: url, Prefix: prefix, Now: clock.Now, Denials: -1}), prefix: prefix}
		}
		redis.TakeOnly(sides[1].l)
		limits := make([]meters, 4)
		for i := range limits {
			limits[i].change(r, 1)
		}
		for step := range scriptSteps {
			clock.Advance(time.Duration(jump(r, limits[r.IntN(len(limits))].now().Window)) * time.Microsecond)
			if r.IntN(25) == 0 {
				limits[r.IntN(len(limits))].change(r, int64(step+2))
			}
			if r.IntN(20) == 0 {
				spoil(t, r, raw, sides[:], uint32(1+r.IntN(len(limits))))
			}
			requests := randomRequests(r, limits)
			if r.IntN(10) == 0 {
				requests = requests[:1]
				requests[0].Mode = enforcement.Refund
			}
			var got [2][]enforcement.Outcome
			for i := range sides {
				got[i] = make([]enforcement.Outcome, len(requests))
				sides[i].l.Take(t.Context(), requests, got[i])
			}
			for i := range requests {
				if a, b := fmt.Sprintf("%+v", got[0][i]), fmt.Sprintf("%+v", got[1][i]); a != b || !got[0][i].Verdict.Decided() {
					t.Fatalf("play %d, step %d, request %d of %d: %s; take.lua: %s", play, step, i, len(requests), a, b)
				}
			}
			for cell := range uint32(len(limits)) {
				a, b := raw.Get(t.Context(), name(sides[0].prefix, cell+1)), raw.Get(t.Context(), name(sides[1].prefix, cell+1))
				if a.Val() != b.Val() || fmt.Sprint(a.Err()) != fmt.Sprint(b.Err()) {
					t.Fatalf("play %d, step %d, cell %d: %q %v; take.lua: %q %v", play, step, cell+1, a.Val(), a.Err(), b.Val(), b.Err())
				}
			}
		}
		for i := range sides {
			if n := sides[i].l.Status().Mismatches; n != 0 {
				t.Errorf("play %d: script and reference disagreed on %d requests", play, n)
			}
		}
		_, batch, single := redis.ScriptCalls(sides[0].l)
		batches, singles = batches+batch, singles+single
		if _, batch, single := redis.ScriptCalls(sides[1].l); batch > 0 || single > 0 {
			t.Fatalf("take.lua alone was to decide, and others were called %d and %d times", batch, single)
		}
	}
	t.Logf("calls of batch.lua %d, single.lua %d", batches, singles)
	if batches == 0 || singles == 0 {
		t.Error("a script decided nothing")
	}
}

// A side is a limiter and its counters.
type side struct {
	l      *redis.Limiter
	prefix string
}

// meters are the numbers of one cell, the oldest first.
type meters []*enforcement.Meter

func (m *meters) now() *enforcement.Meter { return (*m)[len(*m)-1] }

// change gives a cell other numbers, which of a bucket know the former ones.
func (m *meters) change(r *rand.Rand, rev int64) {
	l := enforcement.Limit{
		Algorithm: []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket}[r.IntN(5)],
		Anchor:    []enforcement.Anchor{enforcement.Clock, enforcement.FirstHit}[r.IntN(2)],
		Quota:     []int64{0, 1, 5, 5, 7, 100, 1_000_003, enforcement.MaxQuota}[r.IntN(8)],
		Window:    []time.Duration{time.Millisecond, time.Second, time.Minute, 999_983 * time.Millisecond, enforcement.MaxWindow}[r.IntN(5)],
	}
	if l.Algorithm.Bucket() {
		l.Burst = []int64{0, 1, 10, enforcement.MaxQuota}[r.IntN(4)]
	}
	if len(*m) > 0 {
		l.Algorithm, l.Anchor = m.now().Algorithm, m.now().Anchor
	}
	next := l.Compile(rev)
	if len(*m) > 0 {
		last := m.now()
		if last.Algorithm.Bucket() && r.IntN(3) > 0 {
			until := limitertest.Start + r.Int64N(int64(time.Hour/time.Microsecond))
			next.Formers = append(next.Formers, last.Formers...)
			next.Formers = append(next.Formers, enforcement.Former{Numbers: last.Numbers, Rev: last.Rev, Until: until})
		}
	}
	*m = append(*m, next)
}

// jump is how far the clock goes: nowhere, to an edge, up to three windows, or back.
func jump(r *rand.Rand, window int64) int64 {
	switch r.IntN(8) {
	case 0, 1:
		return 0
	case 2:
		return window + r.Int64N(3) - 1
	case 3:
		return r.Int64N(3*window + 1)
	case 4:
		return -r.Int64N(window/4 + 1)
	case 5:
		if r.IntN(4) == 0 {
			return -r.Int64N(4*window + 1)
		}
	}
	return r.Int64N(window/4 + 1)
}

// spoil writes something else where both sides have a counter.
func spoil(t *testing.T, r *rand.Rand, raw *goredis.Client, sides []side, cell uint32) {
	t.Helper()
	g := garbage[r.IntN(len(garbage))]
	for _, s := range sides {
		var err error
		switch v := g.value.(type) {
		case string:
			err = raw.Set(t.Context(), name(s.prefix, cell), v, time.Hour).Err()
		case func(*goredis.Client, string) error:
			raw.Del(t.Context(), name(s.prefix, cell))
			err = v(raw, name(s.prefix, cell))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// randomRequests are of the usual kind: of mode enforce, by one set of numbers
// for each cell, mostly the newest.
func randomRequests(r *rand.Rand, limits []meters) []enforcement.Request {
	back := make([]int, len(limits))
	for i := range back {
		if r.IntN(8) == 0 {
			back[i] = r.IntN(len(limits[i]))
		}
	}
	var requests []enforcement.Request
	for range 1 + r.IntN(4)*r.IntN(4) {
		q := enforcement.Request{Home: "07"}
		for range 1 + r.IntN(3)*r.IntN(3) {
			i := r.IntN(len(limits))
			m := limits[i][len(limits[i])-1-back[i]]
			most := max(m.Quota, m.Burst())
			cost := []int64{0, 1, 1, 1, 2, most / 3, most, most + 1, r.Int64N(most/4 + 1)}[r.IntN(9)]
			q.Charges = append(q.Charges, enforcement.Charge{Key: key(uint32(i + 1)), Meter: m, Rev: m.Rev, Cost: cost})
		}
		requests = append(requests, q)
	}
	return requests
}

// A value that changes in place keeps its expiry. A key outlives its value by a second, for
// every script and every clock.
func TestKeysOutliveTheirValues(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	l, only := open(t, redis.Config{URL: server.URL(), Prefix: "hg:"}), open(t, redis.Config{URL: server.URL(), Prefix: "hg:"})
	redis.TakeOnly(only)
	r := rand.New(rand.NewPCG(testseed.Seed(t), 1))
	var all []*enforcement.Meter
	for _, a := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket} {
		for _, window := range []time.Duration{5 * time.Millisecond, 60 * time.Millisecond, time.Second, time.Minute, enforcement.MaxWindow} {
			for _, anchor := range []enforcement.Anchor{enforcement.Clock, enforcement.FirstHit} {
				all = append(all, enforcement.Limit{Algorithm: a, Anchor: anchor, Quota: 700, Window: window, Burst: int64(r.IntN(2)) * 50}.Compile(1))
			}
		}
	}
	for range 6000 {
		i := r.IntN(len(all))
		if r.IntN(2) == 0 {
			i = 24 // a bucket that fills in a second, and is never full while this runs
		}
		q := request(charge(uint32(i+1), all[i], 1+r.Int64N(5)*r.Int64N(5)))
		side := l
		switch n := r.IntN(10); {
		case i == 24:
		case n == 0:
			side = only
		case n == 1:
			q.Mode = enforcement.Refund
		case n == 2:
			q.Mode, q.Charges[0].Cost = enforcement.Force, 60 // into debt, sometimes
		case n == 3:
			q = request(q.Charges[0], charge(uint32(len(all)), all[len(all)-1], 1))
		}
		o := mustTake(t, side, q)
		if o.Verdict != enforcement.Granted {
			continue
		}
		expiry, err := raw.Eval(t.Context(), `local t, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
			return { left, t[1] * 1000 + t[2] / 1000 + left }`, []string{name("hg:", uint32(i+1))}).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		s := o.Charges[0].State
		end := (o.At + all[i].ResetAfter(s, o.At)) / 1000
		// The clock of a script stands still from its start, and TIME does not.
		if early := end + 1000 - expiry[1]; expiry[0] == -1 || expiry[0] >= 0 && early > 200 {
			t.Fatalf("%+v: %d units of %d: left to live %d ms, %d ms too few", all[i], s.A, q.Charges[0].Cost, expiry[0], early)
		}
	}
	if text := commandstats(t, raw); !strings.Contains(text, "cmdstat_setrange") {
		t.Errorf("no value was changed in place:\n%s", text)
	}
}

// A caller with older numbers of a window leaves it the expiry that the newer
// numbers gave it.
func TestOlderNumbersDoNotShortenAWindow(t *testing.T) {
	t.Parallel()
	url := servertest.Redis(t)
	raw := client(t, url)
	for _, algorithm := range []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter} {
		for _, only := range []bool{false, true} {
			prefix := newPrefix()
			l := open(t, redis.Config{URL: url, Prefix: prefix})
			if only {
				redis.TakeOnly(l)
			}
			minute := enforcement.Limit{Algorithm: algorithm, Anchor: enforcement.FirstHit, Quota: 9, Window: time.Minute}.Compile(1)
			hour := enforcement.Limit{Algorithm: algorithm, Anchor: enforcement.FirstHit, Quota: 9, Window: time.Hour}.Compile(2)
			for i, m := range []*enforcement.Meter{minute, hour, minute, hour, minute} {
				o := mustTake(t, l, request(charge(1, m, 1)))
				if a := o.Charges[0].State.A; a != int64(i+1) {
					t.Errorf("%s, step %d: %d units", algorithm, i, a)
				}
				if left := raw.PTTL(t.Context(), name(prefix, 1)).Val(); i > 0 && left < time.Hour-patience {
					t.Errorf("%s, step %d: %s left to live", algorithm, i, left)
				}
			}
		}
	}
}
