//go:build !quick

package redis_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/servertest"
)

// plainScript is what the batches are compared with: a counter and its end, as
// simply as a script can do it.
const plainScript = `
local n = redis.call('INCRBY', KEYS[1], ARGV[1])
if n == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return n`

// BenchmarkTake measures calls of so many requests of so many charges, each on
// a counter of its own. us/decision is the time in Redis; x-plain is that
// against plainScript in the same run. On a busy machine of two cores (six
// runs, plainScript 6-9 us): 1x1 24-59 us, 32x1 9-18, 32x3 26-49, refused 32x1
// 5-10. What a call costs before its first cell is 7-18 us.
func BenchmarkTake(b *testing.B) {
	server := servertest.StartRedis(b)
	raw := client(b, server.URL())
	script := goredis.NewScript(plainScript)
	_ = script.Run(b.Context(), raw, []string{"warm"}, 1, 60000).Err()
	reset := func() {
		if err := raw.ConfigResetStat(context.Background()).Err(); err != nil {
			b.Fatal(err)
		}
	}
	micros := func() float64 {
		var usec float64
		_, rest, _ := strings.Cut(commandstats(b, raw), "cmdstat_evalsha:")
		_, rest, _ = strings.Cut(rest, "usec=")
		_, _ = fmt.Sscanf(rest, "%g", &usec)
		return usec
	}
	reset()
	const plainCalls = 20_000
	for i := range plainCalls {
		if err := script.EvalSha(b.Context(), raw, []string{fmt.Sprintf("k%d", i%5000)}, 1, 60000).Err(); err != nil {
			b.Fatal(err)
		}
	}
	plain := micros() / plainCalls

	l := open(b, redis.Config{URL: server.URL()})
	for _, c := range []struct {
		name              string
		algorithm         enforcement.Algorithm
		requests, charges int
		refused           bool
	}{
		{"fixed/1x1", enforcement.FixedWindow, 1, 1, false},
		{"bucket/1x1", enforcement.TokenBucket, 1, 1, false},
		{"counter/1x1", enforcement.SlidingWindowCounter, 1, 1, false},
		{"log/1x1", enforcement.SlidingWindowLog, 1, 1, false},
		{"bucket/32x1", enforcement.TokenBucket, 32, 1, false},
		{"bucket/20x3", enforcement.TokenBucket, 20, 3, false},
		{"bucket/32x3", enforcement.TokenBucket, 32, 3, false}, // two calls
		{"bucket/1x1/refused", enforcement.TokenBucket, 1, 1, true},
		{"bucket/32x1/refused", enforcement.TokenBucket, 32, 1, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			limit := enforcement.Limit{Algorithm: c.algorithm, Quota: 9000, Window: time.Minute}
			if c.refused {
				limit.Quota = 0
			}
			m := limit.Compile(1)
			requests, outcomes := make([]enforcement.Request, c.requests), make([]enforcement.Outcome, c.requests)
			partition := uint64(0)
			next := func() {
				for i := range requests {
					r := &requests[i]
					r.Home = "07"
					r.Charges = r.Charges[:0]
					for range c.charges {
						k := key(9)
						binary.LittleEndian.PutUint64(k.Partition[:], partition%20_000)
						partition++
						r.Charges = append(r.Charges, enforcement.Charge{Key: k, Meter: m, Rev: 1, Cost: 1})
					}
				}
			}
			next()
			l.Take(context.Background(), requests, outcomes)
			reset()
			b.ReportAllocs()
			for b.Loop() {
				next()
				l.Take(context.Background(), requests, outcomes)
				if !outcomes[0].Verdict.Decided() {
					b.Fatal(outcomes[0].Err)
				}
			}
			per := micros() / float64(b.N*c.requests)
			b.ReportMetric(per, "us/decision")
			b.ReportMetric(per/plain, "x-plain")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.requests), "ns/decision")
		})
	}
	b.Logf("the plain script: %.1f us", plain)
}
