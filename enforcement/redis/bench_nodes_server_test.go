//go:build !quick && linux

package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// BenchmarkNodes is the processor time of a check on one Limiter, and on three
// that share a Redis, with 64 callers in all and with 64 on each. A caller takes
// one bucket of 10,000. The contenders take turns; node-us is the time of this
// process for a check, redis-us that of Redis, both medians; x is the median of
// the ratios of their sums to one Limiter's in the same turn, and checks/call is
// how many checks share a call.
func BenchmarkNodes(b *testing.B) {
	server := servertest.StartRedis(b)
	raw := client(b, server.URL())
	const each, keys = 32, 10_000 // checks of a caller in a turn
	bucket := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1_000_000_000, Window: time.Second}.Compile(1)
	type contender struct {
		nodes, callers       int
		limiters             []*redis.Limiter
		node, inRedis, ratio []float64
		calls                int64
		next                 atomic.Uint32
	}
	round := func(c *contender) {
		var wait sync.WaitGroup
		nodeBegan, redisBegan := processTime(b), redisTime(b, raw)
		for i := range c.callers {
			wait.Go(func() {
				outcomes, requests := make([]enforcement.Outcome, 1), []enforcement.Request{request(charge(1, bucket, 1))}
				for range each {
					requests[0].Charges[0].Key.Cell = c.next.Add(1)%keys + 1
					c.limiters[i%c.nodes].Take(b.Context(), requests, outcomes)
					if outcomes[0].Verdict != enforcement.Granted {
						b.Errorf("%s: %v", outcomes[0].Verdict, outcomes[0].Err)
					}
				}
			})
		}
		wait.Wait()
		checks := float64(c.callers * each)
		c.node = append(c.node, (processTime(b)-nodeBegan)/checks)
		c.inRedis = append(c.inRedis, (redisTime(b, raw)-redisBegan)/checks)
	}
	calls := func(c *contender) (n int64) {
		for _, l := range c.limiters {
			n += l.Status().Calls
		}
		return n
	}
	all := []*contender{{nodes: 1, callers: 64}, {nodes: 3, callers: 64}, {nodes: 3, callers: 192}}
	for _, c := range all {
		prefix := newPrefix()
		for range c.nodes {
			c.limiters = append(c.limiters, open(b, redis.Config{URL: server.URL(), Prefix: prefix}))
		}
		for c.next.Load() < keys { // every key is there before the first turn
			round(c)
		}
		c.node, c.inRedis, c.calls = nil, nil, calls(c)
	}
	for turn := 0; b.Loop(); turn++ {
		for i := range all { // each is first in a third of the turns
			round(all[(i+turn)%len(all)])
		}
		one := all[0].node[turn] + all[0].inRedis[turn]
		for _, c := range all {
			c.ratio = append(c.ratio, (c.node[turn]+c.inRedis[turn])/one)
		}
	}
	for _, c := range all {
		name := fmt.Sprintf("/%dx%d", c.nodes, c.callers/c.nodes)
		checks := float64(len(c.node) * c.callers * each)
		b.ReportMetric(median(c.node), "node-us"+name)
		b.ReportMetric(median(c.inRedis), "redis-us"+name)
		b.ReportMetric(checks/float64(calls(c)-c.calls), "checks/call"+name)
		b.ReportMetric(median(c.ratio), "x"+name)
	}
}

// processTime is the processor time of this process, in microseconds.
func processTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
}

// redisTime is the processor time of Redis, in microseconds.
func redisTime(b *testing.B, c *goredis.Client) (total float64) {
	text, err := c.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
		var seconds float64
		_, rest, _ := strings.Cut(text, "\r\n"+name)
		if _, err := fmt.Sscanf(rest, "%g", &seconds); err != nil {
			b.Fatal(err)
		}
		total += seconds * 1e6
	}
	return total
}
