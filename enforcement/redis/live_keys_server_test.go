//go:build !quick

package redis_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// keyed is a charge of one of many keys of a tenant's limit.
func keyed(tenant, cell uint32, n int, m *enforcement.Meter, cost int64) enforcement.Charge {
	c := enforcement.Charge{Key: enforcement.Key{Tenant: tenant, Cell: cell}, Meter: m, Rev: m.Rev, Cost: cost}
	binary.BigEndian.PutUint64(c.Key.Partition[:], uint64(n)+1)
	return c
}

// fill makes so many keys of a limit, and waits until the tenant is full.
func fill(t *testing.T, l *redis.Limiter, tenant, cell uint32, m *enforcement.Meter, keys int) {
	t.Helper()
	requests, outcomes := make([]enforcement.Request, keys), make([]enforcement.Outcome, keys)
	for i := range requests {
		requests[i] = request(keyed(tenant, cell, i, m, 1))
	}
	l.Take(context.Background(), requests, outcomes)
	for i := range outcomes {
		if outcomes[i].Verdict != enforcement.Granted {
			t.Fatalf("key %d: %s, %v", i, outcomes[i].Verdict, outcomes[i].Err)
		}
	}
	eventually(t, "the tenant is full", func() bool {
		for _, k := range l.Tenants(20) {
			if k.Tenant == tenant {
				return k.Full && k.Live >= int64(keys)
			}
		}
		return false
	})
}

// A tenant that has as many keys as it may have gets no more. New keys share one
// counter for each limit; the keys that exist, and those of other tenants, stay
// exact. Another node does the same, without having seen how the keys were made.
func TestKeysOfATenantAreBounded(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, prefix := client(t, server.URL()), newPrefix()
	const bound, quota = 1000, 5
	config := redis.Config{URL: server.URL(), Prefix: prefix, Keys: bound}
	l, other := open(t, config), open(t, config)
	running(t, l)
	take3 := func(tenant, cell uint32, n int, m *enforcement.Meter) (granted int) {
		for i := range 3 * quota {
			at := l
			if i%2 > 0 {
				at = other
			}
			if mustTake(t, at, request(keyed(tenant, cell, n, m, 1))).Verdict == enforcement.Granted {
				granted++
			}
		}
		return granted
	}
	algorithms := []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.LeakyBucket,
	}
	for i, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			m := enforcement.Limit{Algorithm: algorithm, Quota: quota, Window: 24 * time.Hour}.Compile(1)
			tenant, free := uint32(100+i), uint32(200+i)
			fill(t, l, tenant, 1, m, bound)
			before := raw.DBSize(t.Context()).Val()

			var granted int
			many, outcomes := make([]enforcement.Request, 500), make([]enforcement.Outcome, 500)
			for n := range many { // one after the other, in calls of many, and on the other node
				many[n] = request(keyed(tenant, 1, 10_000+n, m, 1))
				if n%100 == 0 && mustTake(t, other, request(keyed(tenant, 1, 20_000+n, m, 1))).Verdict == enforcement.Granted {
					granted++
				}
			}
			l.Take(t.Context(), many, outcomes)
			for _, o := range outcomes {
				if !o.Verdict.Decided() {
					t.Fatalf("%s: %v", o.Verdict, o.Err)
				}
				if o.Verdict == enforcement.Granted {
					granted++
				}
			}
			if granted != quota {
				t.Errorf("%d requests of new keys were granted; they share a quota of %d", granted, quota)
			}
			if grown := raw.DBSize(t.Context()).Val() - before; grown > 5 { // the overflow counter, and what counts keys
				t.Errorf("%d keys more", grown)
			}
			if n := take3(tenant, 1, 7, m); n != quota-1 {
				t.Errorf("a key that exists and was used once: %d granted, want %d", n, quota-1)
			}
			if n := take3(free, 1, 7, m); n != quota {
				t.Errorf("a new key of another tenant: %d granted, want %d", n, quota)
			}
			if n := take3(tenant, 1, 30_000, m); n != 0 {
				t.Errorf("another new key: %d granted", n)
			}
		})
	}
	running(t, other)
	eventually(t, "the node that made no keys reports the full tenants", func() bool {
		full := 0
		for _, k := range other.Tenants(20) {
			if k.Full && k.Live >= bound && k.Tenant < 200 {
				full++
			}
		}
		return full == len(algorithms)
	})
	if s, o := l.Status(), other.Status(); s.Mismatches+o.Mismatches > 0 {
		t.Errorf("%d and %d requests were decided otherwise than by the reference", s.Mismatches, o.Mismatches)
	}
}

// If one limit uses up the keys of its tenant, the other limits still get counters for some new
// keys: a 64th of the bound.
func TestKeysOfOneLimitLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	const bound, quota = 6400, 2
	config := redis.Config{URL: server.URL(), Prefix: newPrefix(), Keys: bound}
	l, other := open(t, config), open(t, config)
	running(t, l)
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: quota, Window: 24 * time.Hour}.Compile(1)
	fill(t, l, 7, 1, m, bound)
	for n := range 50 {
		for i := range quota + 1 {
			at := l
			if i%2 > 0 {
				at = other
			}
			if o := mustTake(t, at, request(keyed(7, 2, n, m, 1))); (o.Verdict == enforcement.Granted) != (i < quota) {
				t.Fatalf("request %d of key %d of the other limit: %s, %+v", i+1, n, o.Verdict, o.Charges)
			}
		}
	}
	granted := 0
	for n := range 2 * quota {
		if mustTake(t, other, request(keyed(7, 1, 50_000+n, m, 1))).Verdict == enforcement.Granted {
			granted++
		}
	}
	if granted != quota {
		t.Errorf("%d requests of new keys of the limit with many keys were granted; they share a quota of %d", granted, quota)
	}
}

// A request that charges several new keys of a full tenant charges their overflow
// counter once with the sum, with all charges or none. A refund and a reset of such
// a key leave the counter alone, because it has the counts of others.
func TestOverflowOfOneRequest(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Keys: 100})
	running(t, l)
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10, Window: time.Hour}.Compile(1)
	fill(t, l, 7, 1, m, 100)
	two := func(mode enforcement.Mode, from int, cost int64) enforcement.Outcome {
		r := request(keyed(7, 1, from, m, cost), keyed(7, 1, from+1, m, cost), keyed(8, 1, 1, m, 1))
		r.Mode = mode
		return mustTake(t, l, r)
	}
	for i, step := range []struct {
		mode    enforcement.Mode
		cost    int64
		verdict enforcement.Verdict
		used    int64 // of the overflow counter, afterwards
	}{
		{enforcement.Enforce, 6, enforcement.Refused, 0},
		{enforcement.Peek, 4, enforcement.Granted, 0},
		{enforcement.Enforce, 4, enforcement.Granted, 8},
		{enforcement.Enforce, 2, enforcement.Refused, 8},
		{enforcement.Refund, 4, enforcement.Granted, 8},
		{enforcement.Reset, 0, enforcement.Granted, 8},
		{enforcement.Enforce, 1, enforcement.Granted, 10},
		{enforcement.Force, 3, enforcement.Granted, 16},
	} {
		if o := two(step.mode, 1000*(i+1), step.cost); o.Verdict != step.verdict {
			t.Errorf("step %d: %s, want %s", i, o.Verdict, step.verdict)
		}
		peek := request(keyed(7, 1, 500_000, m, 0))
		peek.Mode = enforcement.Peek
		if used := mustTake(t, l, peek).Charges[0].State.A; used != step.used {
			t.Errorf("step %d: the overflow counter has %d, want %d", i, used, step.used)
		}
	}
	if n := l.Status().Mismatches; n > 0 {
		t.Errorf("%d requests were decided otherwise than by the reference", n)
	}
}

// The bound is one for all limits of a tenant, and a request may name another one.
// When the keys have expired, new keys are exact again.
func TestKeysOfATenantExpire(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Keys: 100})
	running(t, l)
	long := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 3, Window: time.Hour}.Compile(1)
	short := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 3, Window: 2 * time.Second}.Compile(1)
	fill(t, l, 7, 1, short, 100)
	granted := func(bound int64, m *enforcement.Meter) (n int) {
		for key := range 50 {
			r := request(keyed(7, uint32(m.Window/1000), int(time.Now().UnixNano())+key, m, 1))
			r.MaxKeys = bound
			if mustTake(t, l, r).Verdict == enforcement.Granted {
				n++
			}
		}
		return n
	}
	eventually(t, "another limit of the tenant is full too", func() bool { return granted(0, long) == 0 })
	eventually(t, "a larger bound leaves room when the overflow counter has ended", func() bool { return granted(1_000_000, short) == 50 })
	eventually(t, fmt.Sprintf("the keys of %s expire", short.Algorithm), func() bool {
		for _, k := range l.Tenants(20) {
			if k.Tenant == 7 && k.Live >= 100 {
				return false
			}
		}
		return true
	})
}

// Every node reports the number of live keys of a tenant, and counts only the tenant's
// own keys.
func TestKeysOfATenantAreReported(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	config := redis.Config{URL: server.URL(), Prefix: newPrefix(), Keys: 1000}
	l, other := open(t, config), open(t, config)
	running(t, l)
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: time.Hour}.Compile(1)
	want := func(l *redis.Limiter, tenant uint32, own int64, want redis.TenantKeys) {
		t.Helper()
		got, err := l.KeysOf(t.Context(), "07", tenant, []uint32{1, 2}, own)
		if err != nil || got != want {
			t.Errorf("tenant %d: %+v, %v, want %+v", tenant, got, err, want)
		}
	}
	mustTake(t, l, request(keyed(7, 1, 1, m, 1), keyed(7, 2, 1, m, 1)))
	want(l, 7, 0, redis.TenantKeys{Tenant: 7, Live: 2, Bound: 1000}) // not reported to Redis yet
	fill(t, l, 7, 1, m, 1000)
	want(l, 7, 0, redis.TenantKeys{Tenant: 7, Live: 1001, Bound: 1000, Full: true})
	want(other, 7, 0, redis.TenantKeys{Tenant: 7, Live: 1000, Bound: 1000, Full: true})
	want(other, 8, 5000, redis.TenantKeys{Tenant: 8, Bound: 5000})
}

// With its default settings, one tenant cannot fill a small Redis: its bound is half of
// what maxmemory can hold. The checks of another tenant stay exact while it tries.
func TestOneTenantCannotFillASmallRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	const most = 40 << 20
	for name, value := range map[string]string{"maxmemory": strconv.Itoa(most), "maxmemory-policy": "noeviction"} {
		if err := raw.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, redis.Config{URL: server.URL()})
	running(t, l)
	bound := func() int64 {
		k, err := l.KeysOf(t.Context(), "07", 1, []uint32{1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return k.Bound
	}
	eventually(t, "the bound follows from maxmemory", func() bool { return bound() == most/2/160 })

	window := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: 24 * time.Hour}.Compile(1)
	steady := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 100, Window: 24 * time.Hour}.Compile(1)
	const flood, each = 400_000, 1000 // three times what 40 MB hold
	requests, outcomes := make([]enforcement.Request, each), make([]enforcement.Outcome, each)
	granted, made := 0, 0
	for n := 0; n < flood; n += each {
		for i := range requests {
			requests[i] = request(keyed(1, 1, n+i, window, 1))
		}
		l.Take(t.Context(), requests, outcomes)
		for i := range outcomes {
			if !outcomes[i].Verdict.Decided() {
				t.Fatalf("key %d of the flood: %s, %v", n+i, outcomes[i].Verdict, outcomes[i].Err)
			}
			if outcomes[i].Verdict == enforcement.Granted {
				made++
			}
		}
		o := mustTake(t, l, request(keyed(2, 1, 1, steady, 1)))
		if o.Verdict == enforcement.Granted {
			granted++
		} else if granted < 100 {
			t.Fatalf("another tenant: %s after %d", o.Verdict, granted)
		}
	}
	if granted != 100 {
		t.Errorf("another tenant with a limit of 100 was granted %d", granted)
	}
	used, _ := raw.Info(t.Context(), "memory").Result()
	t.Logf("%d of %d keys of the flood were made; %d keys in Redis; %s", made, flood, raw.DBSize(t.Context()).Val(),
		strings.ReplaceAll(regexp.MustCompile(`used_memory:\d+`).FindString(used), "\r\n", " "))
	if made >= flood {
		t.Error("no key of the flood shared a counter")
	}
}

// The memory of Redis is bounded even if [redis.Limiter.Run] gets no processor time: callers send
// the reports that are overdue.
func TestOverdueReportsAreSentByCallers(t *testing.T) {
	t.Parallel()
	const most = 40 << 20
	server := servertest.StartRedis(t, "--maxmemory", strconv.Itoa(most), "--maxmemory-policy", "noeviction")
	raw := client(t, server.URL())
	l := open(t, redis.Config{URL: server.URL(), Denials: -1}) // it does not run
	m := enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 100, Window: 24 * time.Hour}.Compile(1)
	const cells, users, each = 50, 1000, 20
	requests, outcomes := make([]enforcement.Request, each), make([]enforcement.Outcome, each)
	for user := 0; user < users; user += each {
		for i := range requests {
			charges := make([]enforcement.Charge, cells)
			for k := range charges {
				charges[k] = keyed(1, uint32(k+1), user+i, m, 1)
			}
			requests[i] = request(charges...)
		}
		l.Take(t.Context(), requests, outcomes)
		for i := range outcomes {
			if !outcomes[i].Verdict.Decided() {
				t.Fatalf("user %d: %s, %v", user+i, outcomes[i].Verdict, outcomes[i].Err)
			}
		}
	}
	// The tenant may have half of the memory. It exceeds this by the keys of two reports, each of
	// a sixteenth of the memory, and of the call that is in flight. 64 is its largest number of cells.
	bound := int64(most/2+2*most/16)/redis.WeightOf(m) + 2*64
	n := raw.DBSize(t.Context()).Val()
	t.Logf("%d keys, at most %d", n, bound)
	if half := int64(most/2) / redis.WeightOf(m); n < half || n > bound {
		t.Errorf("%d keys of 50,000, want %d to %d", n, half, bound)
	}
}

// The counted bytes of a key are at least its memory in Redis: for a key of each algorithm,
// and for a log with the maximum number of entries.
func TestKeysWeighWhatTheyTake(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	l := open(t, redis.Config{URL: server.URL(), Prefix: "hg:", Denials: -1})
	const expiry = 56 // MEMORY USAGE leaves out the entries of the two tables of Redis
	for i, limit := range []enforcement.Limit{
		{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowCounter, Quota: 1000, Window: time.Hour},
		{Algorithm: enforcement.TokenBucket, Quota: 1000, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: 1, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: 10, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: 64, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: 65, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: 1000, Window: time.Hour},
		{Algorithm: enforcement.SlidingWindowLog, Quota: enforcement.MaxLog, Window: time.Hour},
	} {
		m, entries := limit.Compile(1), int64(1)
		if limit.Algorithm == enforcement.SlidingWindowLog {
			entries = limit.Quota
		}
		for range entries { // one entry for each call
			if o := mustTake(t, l, request(keyed(9, uint32(i+1), 1, m, 1))); o.Verdict != enforcement.Granted {
				t.Fatalf("%s: %s", limit.Algorithm, o.Verdict)
			}
		}
		name := raw.Keys(t.Context(), "hg:{07}\x09"+string(rune(i+1))+"*").Val()
		if len(name) != 1 {
			t.Fatalf("%s: %d keys", limit.Algorithm, len(name))
		}
		took := raw.MemoryUsage(t.Context(), name[0]).Val() + expiry
		t.Logf("%s of %d: %d bytes, counted as %d", limit.Algorithm, limit.Quota, took, redis.WeightOf(m))
		if weight := redis.WeightOf(m); took > weight {
			t.Errorf("%s of %d takes %d bytes, and counts as %d", limit.Algorithm, limit.Quota, took, weight)
		}
	}
}
