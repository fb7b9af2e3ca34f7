//go:build !quick

package redis_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// BenchmarkConcurrent measures 64 callers on one Limiter, each with one bucket,
// on one hot key and on 100,000 keys. checks/call is how many share a call.
func BenchmarkConcurrent(b *testing.B) {
	bucket := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Second}.Compile(1)
	for _, keys := range []uint32{1, 100_000} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("keys=%d/callers=%d", keys, callers), func(b *testing.B) {
				l := open(b, redis.Config{URL: servertest.Redis(b), Prefix: newPrefix()})
				var turn atomic.Uint32
				calls := l.Status().Calls
				b.ReportAllocs()
				b.SetParallelism(max(callers/2, 1))
				ask := func(outcomes []enforcement.Outcome, requests []enforcement.Request) {
					requests[0].Charges[0].Key.Cell = 1 + turn.Add(1)%keys
					l.Take(b.Context(), requests, outcomes)
					if outcomes[0].Verdict != enforcement.Granted {
						b.Errorf("%s: %v", outcomes[0].Verdict, outcomes[0].Err)
					}
				}
				if callers == 1 {
					outcomes, requests := make([]enforcement.Outcome, 1), []enforcement.Request{request(charge(1, bucket, 1))}
					for b.Loop() {
						ask(outcomes, requests)
					}
				} else {
					b.RunParallel(func(p *testing.PB) {
						outcomes, requests := make([]enforcement.Outcome, 1), []enforcement.Request{request(charge(1, bucket, 1))}
						for p.Next() {
							ask(outcomes, requests)
						}
					})
				}
				b.ReportMetric(float64(b.N)/float64(max(l.Status().Calls-calls, 1)), "checks/call")
			})
		}
	}
}
