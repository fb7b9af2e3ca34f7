//go:build !quick

package redis_test

import (
	"context"
	"fmt"
	"log/slog"
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

// kinds are one limit of each form of state.
var kinds = []enforcement.Limit{
	{Algorithm: enforcement.FixedWindow, Quota: 5, Window: time.Minute},
	{Algorithm: enforcement.SlidingWindowCounter, Quota: 5, Window: time.Minute},
	{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute},
	{Algorithm: enforcement.TokenBucket, Quota: 5, Window: time.Minute},
	{Algorithm: enforcement.LeakyBucket, Quota: 5, Window: time.Minute},
}

// name is the key of a cell in Redis.
func name(prefix string, cell uint32) string {
	k := key(cell)
	return string(append([]byte(fmt.Sprintf("%s{07}%c%c", prefix, k.Tenant, cell)), k.Partition[:]...))
}

func little(b []byte, size int, n int64) []byte {
	for range size {
		b, n = append(b, byte(n)), n>>8
	}
	return b
}

// plain is the value of a window or a bucket.
func plain(version byte, ints ...int64) string {
	b := []byte{version}
	for i, n := range ints {
		b = little(b, []int{6, 7, 7, 7, 7}[i], n)
	}
	return string(b)
}

// log is the value of a log, with times and sums as they follow.
func log(units, entries, newest, sum, dead int64, rest ...int64) string {
	b := little([]byte{2}, 6, 1)
	b = little(b, 7, units)
	b = little(b, 2, entries)
	b = little(b, 7, newest)
	b = little(b, 7, sum)
	b = little(b, 4, dead)
	for _, n := range rest {
		b = little(b, 7, n)
	}
	return string(b)
}

const tenYears = 10 * 366 * 24 * int64(time.Hour/time.Microsecond)

// garbage is what stands where a counter should be. F-R14.
var garbage = []struct {
	name  string
	value any // a string, or a function that writes it
}{
	{"empty", ""},
	{"one byte", "\x01"},
	{"version alone, log", "\x02"},
	{"text", "hello"},
	{"an integer", "12"},
	{"2^63 as text", "9223372036854775808"},
	{"negative text", "-1"},
	{"NaN as text", "nan"},
	{"infinity as text", "inf"},
	{"JSON", `{"count":3}`},
	{"27 bytes of text", strings.Repeat("x", 27)},
	{"28 bytes of text", strings.Repeat("x", 28)},
	{"28 bytes of 0", strings.Repeat("\x00", 28)},
	{"28 bytes of ff", strings.Repeat("\xff", 28)},
	{"a field missing", plain(1, 1, 2, 0)},
	{"a field too many", plain(1, 1, 2, 0, limitertest.Start, 9)},
	{"an older version", plain(0, 1, 2, 0, limitertest.Start)},
	{"a later version", plain(3, 1, 2, 0, limitertest.Start)},
	{"revision 0", plain(1, 0, 2, 0, limitertest.Start)},
	{"revision below 0", plain(1, -1, 2, 0, limitertest.Start)},
	{"the highest numbers", plain(1, 1<<47-1, 1<<55-1, 1<<55-1, 1<<55-1)},
	{"the lowest numbers", plain(1, -1<<47, -1<<55, -1<<55, -1<<55)},
	{"count of 2^54", plain(1, 1, 1<<54, 0, limitertest.Start)},
	{"count far below 0", plain(1, 1, -1<<54, 0, limitertest.Start)},
	{"count below 0", plain(1, 1, -5, 0, limitertest.Start)},
	{"fraction of many units, ahead", plain(1, 1, 0, 1e15, limitertest.Start+1000)},
	{"second field of 2^54", plain(1, 1, 0, 1<<54, limitertest.Start)},
	{"second field below 0", plain(1, 1, 0, -1, limitertest.Start)},
	{"instant of 2^54", plain(1, 1, 2, 0, 1<<54)},
	{"instant far before the epoch", plain(1, 1, 2, 0, -1<<54)},
	{"window 10 years ahead", plain(1, 1, 5, 0, limitertest.Start+tenYears)},
	{"window 10 years ago", plain(1, 1, 5, 0, limitertest.Start-tenYears)},
	{"log without entries", log(5, 0, limitertest.Start, 5, 0)},
	{"log that breaks off", log(5, 2, limitertest.Start, 5, 0, limitertest.Start, 1)},
	{"log with more entries than it says", log(5, 1, limitertest.Start, 5, 0, limitertest.Start, 1, limitertest.Start, 5)},
	{"log with sums that fall", log(5, 2, limitertest.Start, 5, 0, limitertest.Start-tenYears, 1<<52, limitertest.Start, 5)},
	{"log with a dead part that is not there", log(5, 1, limitertest.Start, 5, 140, limitertest.Start, 5)},
	{"log with a dead part below 0", log(5, 2, limitertest.Start, 5, -14, limitertest.Start, 5)},
	{"log 10 years ahead", log(5, 1, limitertest.Start+tenYears, 5, 0, limitertest.Start+tenYears, 5)},
	{"log of 2^54 units", log(1<<54, 1, limitertest.Start, 1<<54, 0, limitertest.Start, 1<<54)},
	{"list", func(c *goredis.Client, key string) error { return c.RPush(context.Background(), key, "a", "b").Err() }},
	{"hash", func(c *goredis.Client, key string) error { return c.HSet(context.Background(), key, "a", "b").Err() }},
	{"set", func(c *goredis.Client, key string) error { return c.SAdd(context.Background(), key, "a").Err() }},
	{"sorted set", func(c *goredis.Client, key string) error {
		return c.ZAdd(context.Background(), key, goredis.Z{Score: 1, Member: "a"}).Err()
	}},
	{"stream", func(c *goredis.Client, key string) error {
		return c.XAdd(context.Background(), &goredis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
	}},
}

// After a broken value, the next check is decided, and one that fits passes after at most
// the longest time that a valid state could deny it.
func TestGarbageNeverRefusesForGood(t *testing.T) {
	t.Parallel()
	url := servertest.Redis(t)
	raw := client(t, url)
	for _, limit := range kinds {
		for _, g := range garbage {
			t.Run(fmt.Sprintf("%s/%s", limit.Algorithm, g.name), func(t *testing.T) {
				t.Parallel()
				clock, prefix := limitertest.NewClock(), newPrefix()
				l := open(t, redis.Config{URL: url, Prefix: prefix, Now: clock.Now})
				m := limit.Compile(1)
				switch v := g.value.(type) {
				case string:
					if err := raw.Set(t.Context(), name(prefix, 1), v, 0).Err(); err != nil {
						t.Fatal(err)
					}
				case func(*goredis.Client, string) error:
					if err := v(raw, name(prefix, 1)); err != nil {
						t.Fatal(err)
					}
				}
				first := mustTake(t, l, request(charge(1, m, 1)))
				state, most := first.Charges[0].State, max(m.Quota, m.Burst())
				if left := m.Remaining(state, first.At); left > most || first.Verdict == enforcement.Granted && left == most {
					t.Errorf("%d left of %d after a charge", left, most)
				}
				if retry, _ := m.RetryAfter(state, first.At, 1); retry < 0 || m.ResetAfter(state, first.At) < 0 {
					t.Errorf("retry after %d, reset after %d", retry, m.ResetAfter(state, first.At))
				}
				clock.Advance(2*limit.Window + time.Second)
				if o := mustTake(t, l, request(charge(1, m, 1))); o.Verdict != enforcement.Granted {
					t.Errorf("two windows later: %s with %+v", o.Verdict, o.Charges[0].State)
				}
				if kind := raw.Type(t.Context(), name(prefix, 1)).Val(); kind != "string" {
					t.Errorf("the counter is a %s", kind)
				}
				if n := l.Status().Mismatches; n != 0 {
					t.Errorf("script and reference disagreed %d times", n)
				}
			})
		}
	}
}

// Broken values are counted, and logged in one line a minute.
func TestGarbageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var text lockedBuffer
	url, prefix := servertest.Redis(t), newPrefix()
	raw := client(t, url)
	l := open(t, redis.Config{URL: url, Prefix: prefix, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	const values = 20
	for cell := uint32(1); cell <= values; cell++ {
		if err := raw.Set(t.Context(), name(prefix, cell), "garbage", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if o := mustTake(t, l, request(charge(cell, perHour, 1))); o.Verdict != enforcement.Granted {
			t.Errorf("%s", o.Verdict)
		}
	}
	if n := l.Status().Unreadable; n != values {
		t.Errorf("%d of %d values are counted", n, values)
	}
	if n := strings.Count(text.String(), "invalid counters in Redis"); n != 1 {
		t.Errorf("%d lines: %s", n, text.String())
	}
}

// A value of another type among several counters does not leave half a request charged.
func TestWrongTypeAmongSeveralChargesNothingTwice(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	raw, l := client(t, url), open(t, redis.Config{URL: url, Prefix: prefix})
	for cell := uint32(1); cell <= 4; cell++ {
		for other := uint32(1); other <= 4; other++ {
			raw.Del(t.Context(), name(prefix, other))
		}
		if err := raw.RPush(t.Context(), name(prefix, cell), "x").Err(); err != nil {
			t.Fatal(err)
		}
		o := mustTake(t, l, request(charge(1, perHour, 3), charge(2, logPerHour, 3), charge(3, logPerHour, 3), charge(4, perHour, 3)))
		if o.Verdict != enforcement.Granted {
			t.Fatalf("a list at cell %d: %s", cell, o.Verdict)
		}
		for i, m := range []*enforcement.Meter{perHour, logPerHour, logPerHour, perHour} {
			peek := request(charge(uint32(i+1), m, 0))
			peek.Mode = enforcement.Peek
			if a := mustTake(t, l, peek).Charges[0].State.A; a != 3 {
				t.Errorf("a list at cell %d: cell %d has %d, want 3", cell, i+1, a)
			}
		}
	}
}

// Every counter expires, and not before its value has no more effect. Redis has no other
// keys than counters and the format.
func TestKeysEndAndKeepToThePrefix(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
	life := map[uint32]time.Duration{}
	for i, c := range []struct {
		limit enforcement.Limit
		life  time.Duration
	}{
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: time.Minute}, time.Minute},
		{enforcement.Limit{Algorithm: enforcement.SlidingWindowCounter, Quota: 5, Window: time.Minute}, 2 * time.Minute},
		{enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}, time.Minute},
		{enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 6, Window: time.Minute}, 10 * time.Second},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 6, Window: time.Minute}, 10 * time.Second},
		{enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1, Window: enforcement.MaxWindow, Burst: enforcement.MaxQuota}, enforcement.MaxWindow},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: enforcement.MaxWindow}, enforcement.MaxWindow},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: enforcement.MinWindow}, enforcement.MinWindow},
	} {
		cell := uint32(i + 1)
		life[cell] = c.life
		o := mustTake(t, l, request(charge(cell, c.limit.Compile(1), 1)))
		if o.Verdict != enforcement.Granted {
			t.Fatalf("cell %d: %s", cell, o.Verdict)
		}
	}
	keys, err := raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) < len(life) { // with the format; the shortest may be gone by now
		t.Errorf("%d keys for %d counters", len(keys), len(life))
	}
	for _, k := range keys {
		prefix, rest, tagged := strings.Cut(k, "{07}")
		if !tagged {
			if !strings.HasSuffix(k, ":format") && !strings.Contains(k, ":{00}m") {
				t.Errorf("key %q", k)
			}
			continue
		}
		cell := uint32(rest[1])
		if k != name(prefix, cell) {
			t.Errorf("key %q", k)
		}
		ttl := raw.PTTL(t.Context(), k).Val()
		if slack := life[cell] - ttl; ttl <= 0 || slack > patience || ttl > life[cell]+2*time.Second {
			t.Errorf("cell %d lives %s, its state matters for %s", cell, ttl, life[cell])
		}
	}
}

func TestPassedClockLetsKeysLiveAnHour(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	raw := client(t, url)
	clock := limitertest.NewClock()
	l := open(t, redis.Config{URL: url, Prefix: prefix, Now: clock.Now})
	for i, limit := range kinds {
		mustTake(t, l, request(charge(uint32(i+1), limit.Compile(1), 1)))
		if ttl := raw.PTTL(t.Context(), name(prefix, uint32(i+1))).Val(); ttl < time.Hour-patience || ttl > time.Hour {
			t.Errorf("%s lives %s", limit.Algorithm, ttl)
		}
	}
	if err := l.DeleteAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := raw.Keys(t.Context(), prefix+"*").Val(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
	if err := open(t, redis.Config{URL: url}).DeleteAll(t.Context()); err == nil {
		t.Error("the keys of a limiter on the real clock were deleted")
	}
}

// A plain counter costs Redis at most 110 bytes with a key of up to 30. T20.
func TestCounterIsSmall(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL(), Prefix: "hg:"})
	for i, limit := range kinds {
		cell := uint32(i + 1)
		mustTake(t, l, request(charge(cell, limit.Compile(1), 1)))
		mustTake(t, l, request(charge(cell, limit.Compile(1), 1))) // a window's in place
		used, err := raw.MemoryUsage(t.Context(), name("hg:", cell)).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: MEMORY USAGE %d bytes, key of %d", limit.Algorithm, used, len(name("hg:", cell)))
		if limit.Algorithm != enforcement.SlidingWindowLog && used > 110 {
			t.Errorf("%s costs %d bytes", limit.Algorithm, used)
		}
	}
}

// Logs of hundreds and thousands of entries are kept otherwise than short
// ones; every answer is that of the reference functions.
func TestLongLogsAreTheReference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		quota int64
		steps int
		force int // one step of so many
	}{{100, 3000, 40}, {700, 6000, 100}, {5_000, 4_000, 2}} {
		t.Run(fmt.Sprint(c.quota), func(t *testing.T) {
			t.Parallel()
			clock := limitertest.NewClock()
			l := open(t, redis.Config{URL: servertest.Redis(t), Now: clock.Now})
			seed := testseed.Seed(t)
			r := rand.New(rand.NewPCG(seed, 1))
			m := enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: c.quota, Window: time.Second}.Compile(1)
			var s enforcement.State
			longest := int64(0)
			for step := range c.steps {
				// About as many steps a window as the quota has units, so that
				// the log is full most of the time.
				clock.Advance(time.Duration(r.Int64N(2_000_000/c.quota)) * time.Microsecond)
				switch {
				case r.IntN(2000+5*int(c.quota)) == 0:
					clock.Advance(700 * time.Millisecond)
				case r.IntN(3000+5*int(c.quota)) == 0:
					clock.Advance(-300 * time.Millisecond)
				case r.IntN(10_000+5*int(c.quota)) == 0:
					clock.Advance(-3 * time.Second)
				}
				q := request(charge(1, m, 1+int64(r.IntN(20)/19)*r.Int64N(c.quota/10)))
				switch {
				case r.IntN(c.force) == 0:
					q.Mode = enforcement.Force
				case r.IntN(300) == 0:
					q.Mode = enforcement.Refund
				case r.IntN(20) == 0:
					q.Mode = enforcement.Peek
				}
				now, cost := clock.Now(), q.Charges[0].Cost
				settled, clamped := m.Settle(s, 1, now)
				if clamped && q.Mode != enforcement.Peek {
					s = settled
				}
				want, after := enforcement.Granted, settled
				switch {
				case q.Mode == enforcement.Refund:
					if after = m.Refund(settled, cost); s.Rev > 0 {
						s = after
					}
				case q.Mode == enforcement.Force || m.Admits(m.Left(settled, now), cost):
					after = m.Charge(settled, 1, now, cost)
					if q.Mode != enforcement.Peek {
						s = after
					}
				default:
					want = enforcement.Refused
				}
				longest = max(longest, after.B)
				o := mustTake(t, l, q)
				got := o.Charges[0].State
				if o.Verdict != want || got.A != after.A || got.B != after.B || got.T != after.T {
					t.Fatalf("step %d, %s of %d: %s, %d units in %d entries, newest %d; want %s, %d, %d, %d",
						step, q.Mode, cost, o.Verdict, got.A, got.B, got.T, want, after.A, after.B, after.T)
				}
				gotRetry, _ := m.RetryAfter(got, now, cost)
				if wantRetry, _ := m.RetryAfter(after, now, cost); q.Mode != enforcement.Refund && !o.Charges[0].Fits && gotRetry != wantRetry {
					t.Fatalf("step %d, %s of %d: retry after %d, want %d", step, q.Mode, cost, gotRetry, wantRetry)
				}
			}
			t.Logf("the longest log had %d entries", longest)
			if n := l.Status().Mismatches + l.Status().Unreadable; n != 0 {
				t.Errorf("%d mismatches or unreadable states", n)
			}
		})
	}
}

// A log holds 10,000 entries. Further forced charges are added to the newest entry.
func TestFullLogAddsToItsNewest(t *testing.T) {
	t.Parallel()
	clock := limitertest.NewClock()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Now: clock.Now})
	m := enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 9_000, Window: time.Hour}.Compile(1)
	r := request(charge(1, m, 1))
	r.Mode = enforcement.Force
	const forced = enforcement.MaxLog + 20
	var s enforcement.State
	for range forced {
		clock.Advance(time.Millisecond)
		s = mustTake(t, l, r).Charges[0].State
	}
	newest := limitertest.Start + enforcement.MaxLog*1000
	if s.A != forced || s.B != enforcement.MaxLog || s.T != newest {
		t.Errorf("%d units in %d entries, newest %d; want %d, %d, %d", s.A, s.B, s.T, forced, enforcement.MaxLog, newest)
	}
	r.Mode = enforcement.Enforce
	o := mustTake(t, l, r)
	wait, _ := m.RetryAfter(o.Charges[0].State, o.At, 1)
	if want := limitertest.Start + int64(forced-9000+1)*1000 + time.Hour.Microseconds() - o.At; o.Verdict != enforcement.Refused || wait != want {
		t.Errorf("%s, retry after %d; want %d", o.Verdict, wait, want)
	}
	r.Mode = enforcement.Refund
	r.Charges[0].Cost = 5000
	if s := mustTake(t, l, r).Charges[0].State; s.A != forced-5000 || s.B != enforcement.MaxLog-4980 { // the newest had 21
		t.Errorf("after the refund: %d units in %d entries", s.A, s.B)
	}
	t.Log(commandstats(t, client(t, server.URL())))
}

// commandstats is what each command cost the server.
func commandstats(t testing.TB, c *goredis.Client) string {
	t.Helper()
	text, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
