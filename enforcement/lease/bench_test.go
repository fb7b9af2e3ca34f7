package lease_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// BenchmarkTake compares checks that are answered from leases with checks that the
// in-process limiter decides.
func BenchmarkTake(b *testing.B) {
	m := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000_000, Window: time.Hour}.Compile(1)
	for _, keys := range []int{1, 10_000} {
		leased := lease.New(limitertest.NewStore(func() int64 { return time.Now().UnixMicro() }), lease.Config{})
		running(b, leased)
		for name, l := range map[string]enforcement.Limiter{"leased": leased, "inprocess": inprocess.New(inprocess.Config{})} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				requests := []enforcement.Request{{Home: "1", Charges: []enforcement.Charge{
					{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1, Leased: true},
				}}}
				outcomes := make([]enforcement.Outcome, 1)
				partition := requests[0].Charges[0].Key.Partition[:]
				n := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					n = n*6364136223846793005 + 1442695040888963407
					binary.LittleEndian.PutUint64(partition, (n>>33)%uint64(keys)*0x9e3779b97f4a7c15)
					if l.Take(b.Context(), requests, outcomes); outcomes[0].Verdict != enforcement.Granted {
						b.Fatal(outcomes[0].Verdict)
					}
				}
			})
		}
	}
}
