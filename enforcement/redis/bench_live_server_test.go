//go:build !quick

package redis_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// BenchmarkKeyBound measures the cost of the bound on a tenant's keys: the processor time
// of Take in this process and in Redis (commandstats) with the bound, divided by that
// without it (x-without), and the difference for each check (us-more). Both run in turns,
// and each result is the minimum of its turns, because other work only adds time. A check
// over HTTP costs more than Take, so its ratio is lower.
func BenchmarkKeyBound(b *testing.B) {
	server := servertest.StartRedis(b)
	raw := client(b, server.URL())
	spent := func() (micros float64) {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(commandstats(b, raw), "cmdstat_evalsha:")
		_, rest, _ = strings.Cut(rest, "usec=")
		_, _ = fmt.Sscanf(rest, "%g", &micros)
		return micros + float64(used.Utime.Nano()+used.Stime.Nano())/1e3
	}
	m := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 9000, Window: time.Minute}.Compile(1)
	for _, requests := range []int{1, 32} {
		for _, fresh := range []bool{false, true} {
			name := "used"
			if fresh {
				name = "new"
			}
			b.Run(fmt.Sprintf("%s/%d", name, requests), func(b *testing.B) {
				with, without := open(b, redis.Config{URL: server.URL(), Denials: -1}), open(b, redis.Config{URL: server.URL(), Denials: -1})
				redis.WithoutKeyBound(without)
				asked, outcomes := make([]enforcement.Request, requests), make([]enforcement.Outcome, requests)
				partition := uint64(0)
				turn := func(l *redis.Limiter, calls int) float64 {
					before := spent()
					for range calls {
						for i := range asked {
							k := key(9)
							partition++
							at := partition
							if !fresh {
								at %= benchKeys
							}
							binary.LittleEndian.PutUint64(k.Partition[:], at)
							asked[i].Home, asked[i].Charges = "07", append(asked[i].Charges[:0], enforcement.Charge{Key: k, Meter: m, Rev: 1, Cost: 1})
						}
						l.Take(context.Background(), asked, outcomes)
						if outcomes[0].Verdict != enforcement.Granted && outcomes[0].Verdict != enforcement.Refused {
							b.Fatal(outcomes[0].Err)
						}
					}
					return spent() - before
				}
				const decisions = 320 // of a turn
				turn(with, 2*benchKeys/requests)
				turn(without, 2*benchKeys/requests)
				most, least := math.Inf(1), math.Inf(1)
				for i := 0; b.Loop(); i++ {
					for k := range 2 {
						if (i+k)%2 == 0 {
							most = min(most, turn(with, decisions/requests))
						} else {
							least = min(least, turn(without, decisions/requests))
						}
					}
				}
				b.ReportMetric((most-least)/decisions, "us-more")
				b.ReportMetric(most/least, "x-without")
			})
		}
	}
}
