//go:build !quick

package redis_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// BenchmarkIdempotent measures checks of one bucket with a new idempotency key, in turns
// with the same checks without a key. x-plain is the ratio of their times; replay/plain is
// that of repetitions. All are medians of the turns.
func BenchmarkIdempotent(b *testing.B) {
	bucket := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Second}.Compile(1)
	keys := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: enforcement.MaxQuota, Window: enforcement.IdempotencyPeriod}.Compile(1)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := open(b, redis.Config{URL: servertest.Redis(b), Prefix: newPrefix()})
			var turn, used atomic.Uint64
			const plain, fresh, replay = 0, 1, 2
			ask := func(kind, checks int) time.Duration {
				return inParallel(callers, checks, func(outcomes []enforcement.Outcome) {
					r := request(charge(1, bucket, 1))
					r.Charges[0].Key.Cell = uint32(1 + turn.Add(1)%100_000)
					if kind != plain {
						r.Charges = append([]enforcement.Charge{{
							Key: enforcement.Key{Tenant: r.Charges[0].Key.Tenant}, Meter: keys, Rev: 1, Cost: 1,
						}}, r.Charges...)
						r.Idempotency = &enforcement.Idempotency{Key: r.Charges[0].Key}
						n := used.Load()
						if kind == fresh {
							n = used.Add(1)
						}
						binary.LittleEndian.PutUint64(r.Idempotency.Key.Partition[:], n)
					}
					l.Take(b.Context(), []enforcement.Request{r}, outcomes)
					if outcomes[0].Verdict != enforcement.Granted || outcomes[0].Replayed != (kind == replay) {
						b.Error(outcomes[0].Verdict, outcomes[0].Replayed, outcomes[0].Err)
					}
				})
			}
			const checks = 1024
			ask(plain, checks)
			ask(fresh, checks)
			var freshRatio, replayRatio []float64
			for b.Loop() {
				base := ask(plain, checks)
				freshRatio = append(freshRatio, float64(ask(fresh, checks))/float64(base))
				replayRatio = append(replayRatio, float64(ask(replay, checks))/float64(base))
			}
			b.ReportMetric(median(freshRatio), "x-plain")
			b.ReportMetric(median(replayRatio), "replay/plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}
