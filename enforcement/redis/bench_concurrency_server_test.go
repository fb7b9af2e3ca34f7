//go:build !quick

package redis_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// inParallel makes n calls by a number of callers and returns how long that takes.
func inParallel(callers, n int, call func(outcomes []enforcement.Outcome)) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			outcomes := make([]enforcement.Outcome, 1)
			for range n / callers {
				call(outcomes)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// BenchmarkConcurrency measures renewals of a lease on a concurrency limit with a number of holders, in
// turns with checks of one bucket. x-plain is the ratio of their times, the median of the turns.
func BenchmarkConcurrency(b *testing.B) {
	bucket := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Second}.Compile(1)
	places := enforcement.Limit{Algorithm: enforcement.Concurrency, Quota: enforcement.MaxLeases, Window: time.Hour}.Compile(1)
	for _, callers := range []int{1, 64} {
		for _, holders := range []uint64{1, 10, 100} {
			b.Run(fmt.Sprintf("callers=%d/holders=%d", callers, holders), func(b *testing.B) {
				l := open(b, redis.Config{URL: servertest.Redis(b), Prefix: newPrefix()})
				var turn atomic.Uint64
				ask := func(m *enforcement.Meter, checks int) time.Duration {
					return inParallel(callers, checks, func(outcomes []enforcement.Outcome) {
						n := turn.Add(1)
						r := request(charge(1, m, 1))
						r.Charges[0].Key.Cell = uint32(1 + n/holders%100)
						binary.LittleEndian.PutUint64(r.Lease.ID[:], 1+n%holders)
						l.Take(b.Context(), []enforcement.Request{r}, outcomes)
						if outcomes[0].Verdict != enforcement.Granted {
							b.Error(outcomes[0].Verdict, outcomes[0].Err)
						}
					})
				}
				const checks = 1024
				ask(bucket, checks)
				ask(places, int(100*holders)) // all holders of all counters
				var ratios []float64
				for b.Loop() {
					base := ask(bucket, checks)
					ratios = append(ratios, float64(ask(places, checks))/float64(base))
				}
				b.ReportMetric(median(ratios), "x-plain")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
