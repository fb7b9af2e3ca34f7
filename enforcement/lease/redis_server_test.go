//go:build !quick

package lease_test

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// Three nodes on one Redis, with many callers, admit at most the limit, and at least the
// limit less what they hold. They return what they hold.
func TestNodes(t *testing.T) {
	t.Parallel()
	for _, limit := range []enforcement.Limit{
		{Algorithm: enforcement.FixedWindow, Quota: 30_000, Window: 24 * time.Hour},
		{Algorithm: enforcement.SlidingWindowCounter, Quota: 30_000, Window: 24 * time.Hour},
		{Algorithm: enforcement.TokenBucket, Quota: 30_000, Window: 366 * 24 * time.Hour},
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			t.Parallel()
			m := limit.Compile(1)
			prefix, calls := "t"+rand.Text()+":", &atomic.Int64{}
			var nodes []*lease.Limiter
			for range 3 {
				shared, err := redis.New(t.Context(), redis.Config{URL: servertest.Redis(t), Prefix: prefix, Timeout: 30 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = shared.Close() })
				l := lease.New(counting{shared, calls}, lease.Config{Nodes: 3, Timeout: 30 * time.Second})
				running(t, l)
				nodes = append(nodes, l)
			}
			admitted, checks := flood(t, nodes, m)
			bound := 3 * m.LeaseBatch(3)
			if admitted > limit.Quota || admitted < limit.Quota-bound {
				t.Fatalf("%d admitted of %d, which nodes may hold %d of", admitted, limit.Quota, bound)
			}
			if calls.Load() > checks/2 {
				t.Errorf("%d checks made %d calls", checks, calls.Load())
			}
			for _, n := range nodes {
				n.Return(t.Context())
			}
			for ask(t, nodes[0], m) {
				admitted++
			}
			if admitted != limit.Quota {
				t.Fatalf("%d admitted of %d after the nodes returned what they held", admitted, limit.Quota)
			}
			t.Logf("%d checks made %d calls", checks, calls.Load())
		})
	}
}

// flood has each node asked by four callers until each was denied some times.
func flood(t *testing.T, nodes []*lease.Limiter, m *enforcement.Meter) (admitted, checks int64) {
	t.Helper()
	var granted, asked atomic.Int64
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for denied := 0; denied < 20; asked.Add(1) {
				if ask(t, nodes[i%3], m) {
					granted.Add(1)
				} else {
					denied++
				}
			}
		})
	}
	all.Wait()
	return granted.Load(), asked.Load()
}

func ask(t *testing.T, l enforcement.Limiter, m *enforcement.Meter) bool {
	t.Helper()
	out := make([]enforcement.Outcome, 1)
	l.Take(t.Context(), []enforcement.Request{{Home: "07", Charges: []enforcement.Charge{
		{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1, Leased: true},
	}}}, out)
	if !out[0].Verdict.Decided() {
		t.Errorf("verdict %s: %v", out[0].Verdict, out[0].Err)
	}
	return out[0].Verdict == enforcement.Granted
}

func TestGrantsOfALeasedPolicyOnRedis(t *testing.T) {
	t.Parallel()
	prefix := "t" + rand.Text() + ":"
	var nodes [2]enforcement.Drawer
	for i := range nodes {
		shared, err := redis.New(t.Context(), redis.Config{URL: servertest.Redis(t), Prefix: prefix, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.Close() })
		nodes[i] = shared
	}
	grantsOfALeasedPolicy(t, nodes)
}
