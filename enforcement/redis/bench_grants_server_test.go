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

// BenchmarkGrants measures checks of one window with grants, in turns with the same checks without. x-plain is the ratio
// of their times with one grant that is not needed, spent/plain that with one grant from which units are taken, and
// 16/plain that with 16 grants that are not needed. All are medians of the turns.
func BenchmarkGrants(b *testing.B) {
	large := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1_000_000_000, Window: time.Hour}.Compile(1)
	small := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Hour}.Compile(1)
	from := time.Now().Add(-time.Hour).UnixMicro()
	top := enforcement.GrantMeter(enforcement.MaxGrantUnits, from, from+24*time.Hour.Microseconds(), 1)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := open(b, redis.Config{URL: servertest.Redis(b), Prefix: newPrefix()})
			var turn atomic.Uint64
			const checks, keys = 1024, 20_000
			ask := func(m *enforcement.Meter, grants int) time.Duration {
				return inParallel(callers, checks, func(outcomes []enforcement.Outcome) {
					r := request(charge(1, m, 2))
					n := 1 + turn.Add(1)%keys
					if r.Charges[0].Key.Cell = uint32(n); m == small {
						r.Charges[0].Key.Cell += keys
					}
					for i := range grants {
						c := enforcement.Charge{Key: enforcement.Key{Tenant: r.Charges[0].Key.Tenant, Cell: enforcement.GrantCell}, Meter: top, Rev: 1, Grant: true}
						binary.LittleEndian.PutUint64(c.Key.Partition[:], n)
						c.Key.Partition[15] = byte(i)
						r.Charges = append(r.Charges, c)
					}
					l.Take(b.Context(), []enforcement.Request{r}, outcomes)
					if o := &outcomes[0]; o.Verdict != enforcement.Granted || m == small && o.Charges[1].Cost == 0 || m == large && grants > 0 && o.Charges[1].Cost != 0 {
						b.Error(o.Verdict, o.Charges, o.Err)
					}
				})
			}
			ask(large, 0)
			ask(small, 1)
			var one, spent, many []float64
			for b.Loop() {
				base := float64(ask(large, 0))
				one = append(one, float64(ask(large, 1))/base)
				spent = append(spent, float64(ask(small, 1))/base)
				many = append(many, float64(ask(large, enforcement.MaxGrantsOfKey))/base)
			}
			b.ReportMetric(median(one), "x-plain")
			b.ReportMetric(median(spent), "spent/plain")
			b.ReportMetric(median(many), "16/plain")
			b.ReportMetric(0, "ns/op")
		})
	}
}
