//go:build !quick

package redis_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// plainScript is the baseline of the scripts: the simplest script with counters that
// expire.
const plainScript = `
local out = {}
for i = 1, #KEYS do
  local n = redis.call('INCRBY', KEYS[i], ARGV[1])
  if n == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
  out[i] = n
end
return out`

// benchKeys is how many counters each measurement uses in turn.
const benchKeys = 5_000

// BenchmarkTake measures calls with a number of requests and charges, each on a separate
// counter. us/decision is the time in Redis (commandstats). plainScript runs in turns with
// them. x-plain is the ratio to its call with one counter, and x-plain32 the ratio to one
// counter of its call with 32. All three are medians of the turns.
func BenchmarkTake(b *testing.B) {
	server := servertest.StartRedis(b)
	raw := client(b, server.URL())
	script := goredis.NewScript(plainScript)
	if err := script.Load(b.Context(), raw).Err(); err != nil {
		b.Fatal(err)
	}
	// micros is the time in Redis of a number of script calls.
	micros := func(calls int, call func()) (usec float64) {
		if err := raw.ConfigResetStat(context.Background()).Err(); err != nil {
			b.Fatal(err)
		}
		for range calls {
			call()
		}
		_, rest, _ := strings.Cut(commandstats(b, raw), "cmdstat_evalsha:")
		_, rest, _ = strings.Cut(rest, "usec=")
		_, _ = fmt.Sscanf(rest, "%g", &usec)
		return usec
	}
	number := 0
	plain := func(count int) func() {
		return func() {
			var keys []string
			for range count {
				number++
				keys = append(keys, fmt.Sprintf("hg:{07}plain-counter-%05d", number%benchKeys))
			}
			if err := script.EvalSha(context.Background(), raw, keys, 1, 60000).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	micros(benchKeys/32, plain(32))

	l := open(b, redis.Config{URL: server.URL(), Denials: -1})
	measure := func(requests, charges int, algorithm enforcement.Algorithm, denied, only bool) func(*testing.B) {
		return func(b *testing.B) {
			l := l
			if only {
				l = open(b, redis.Config{URL: server.URL(), Denials: -1})
				redis.TakeOnly(l)
			}
			limit := enforcement.Limit{Algorithm: algorithm, Quota: 9000, Window: time.Minute}
			if denied {
				limit.Quota = 1
			}
			m := limit.Compile(1)
			asked, outcomes := make([]enforcement.Request, requests), make([]enforcement.Outcome, requests)
			partition := uint64(0)
			take := func() {
				for i := range asked {
					asked[i].Home, asked[i].Charges = "07", asked[i].Charges[:0]
					for range charges {
						k := key(9)
						binary.LittleEndian.PutUint64(k.Partition[:], partition%benchKeys)
						partition++
						asked[i].Charges = append(asked[i].Charges, enforcement.Charge{Key: k, Meter: m, Rev: 1, Cost: 1})
					}
				}
				l.Take(context.Background(), asked, outcomes)
				if !outcomes[0].Verdict.Decided() {
					b.Fatal(outcomes[0].Err)
				}
			}
			for range 3 * benchKeys / (requests * charges) { // so that the counters are in use
				take()
			}
			const decisions = 320          // of a turn
			var taken, one, many []float64 // of each turn
			b.ReportAllocs()
			for b.Loop() {
				us := micros(decisions/requests, take) / decisions
				b.StopTimer()
				taken = append(taken, us)
				one = append(one, us*(decisions/4)/micros(decisions/4, plain(1)))
				many = append(many, us*decisions/micros(decisions/32, plain(32)))
				b.StartTimer()
			}
			b.ReportMetric(median(taken), "us/decision")
			b.ReportMetric(median(one), "x-plain")
			b.ReportMetric(median(many), "x-plain32")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*decisions), "ns/decision")
		}
	}
	const bucket = enforcement.TokenBucket
	for _, size := range []struct{ requests, charges int }{{1, 1}, {1, 3}, {32, 1}, {32, 3}, {64, 1}} {
		name := fmt.Sprintf("%dx%d", size.requests, size.charges)
		b.Run("bucket/"+name, measure(size.requests, size.charges, bucket, false, false))
		b.Run("bucket/"+name+"/take", measure(size.requests, size.charges, bucket, false, true))
		b.Run("bucket/"+name+"/denied", measure(size.requests, size.charges, bucket, true, false))
	}
	for _, a := range []enforcement.Algorithm{
		enforcement.LeakyBucket, enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.SlidingWindowLog,
	} {
		for _, requests := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%dx1", a, requests), measure(requests, 1, a, false, false))
		}
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
