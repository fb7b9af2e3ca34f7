package lease_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// BenchmarkTake holds a check that is answered from a lease against one that the
// in-process limiter decides.
func BenchmarkTake(b *testing.B) {
	m := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000_000, Window: time.Hour}.Compile(1)
	leased := lease.New(limitertest.NewStore(func() int64 { return time.Now().UnixMicro() }), lease.Config{})
	running(b, leased)
	for name, l := range map[string]enforcement.Limiter{"leased": leased, "inprocess": inprocess.New(inprocess.Config{})} {
		b.Run(name, func(b *testing.B) {
			requests := []enforcement.Request{{Home: "1", Charges: []enforcement.Charge{
				{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1, Leased: true},
			}}}
			outcomes := make([]enforcement.Outcome, 1)
			b.ReportAllocs()
			for b.Loop() {
				if l.Take(b.Context(), requests, outcomes); outcomes[0].Verdict != enforcement.Granted {
					b.Fatal(outcomes[0].Verdict)
				}
			}
		})
	}
}
