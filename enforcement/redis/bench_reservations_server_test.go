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

// BenchmarkReservation measures reservations of one bucket, in turns with checks of the same bucket.
// x-plain is the ratio of the time of a reservation to that of a check. settled/plain is the same
// for a reservation together with its settle, which is a second call. Both are medians of the turns.
func BenchmarkReservation(b *testing.B) {
	bucket := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Second}.Compile(1)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := open(b, redis.Config{URL: servertest.Redis(b), Prefix: newPrefix()})
			var turn, number atomic.Uint64
			granted := func(outcomes []enforcement.Outcome, r *enforcement.Request) {
				l.Take(b.Context(), []enforcement.Request{*r}, outcomes)
				if outcomes[0].Verdict != enforcement.Granted {
					b.Error(outcomes[0].Verdict, outcomes[0].Err)
				}
			}
			cost := func() enforcement.Charge {
				c := charge(1, bucket, 10)
				c.Key.Cell = uint32(1 + turn.Add(1)%100_000)
				return c
			}
			plain := func(outcomes []enforcement.Outcome) {
				r := request(cost())
				granted(outcomes, &r)
			}
			reserve := func(outcomes []enforcement.Outcome) enforcement.Request {
				c := cost()
				r := reservation(number.Add(1), time.Minute, c)
				r.Reservation.Most = 1_000_000
				granted(outcomes, &r)
				return r
			}
			reserveOnly := func(outcomes []enforcement.Outcome) { reserve(outcomes) }
			reserveAndSettle := func(outcomes []enforcement.Outcome) {
				r := reserve(outcomes)
				if record := outcomes[0].Record; record != nil {
					r = settle(&r, record, 7)
					granted(outcomes, &r)
				}
			}
			const checks = 512
			inParallel(callers, checks, plain)
			inParallel(callers, checks, reserveAndSettle)
			var reserved, settled []float64
			for b.Loop() {
				base := float64(inParallel(callers, checks, plain))
				reserved = append(reserved, float64(inParallel(callers, checks, reserveOnly))/base)
				settled = append(settled, float64(inParallel(callers, checks, reserveAndSettle))/base)
			}
			b.ReportMetric(median(reserved), "x-plain")
			b.ReportMetric(median(settled), "settled/plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}
