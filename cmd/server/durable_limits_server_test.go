//go:build !quick

package main

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// If Redis loses its data, the used units of durable limits stay used. Three nodes together
// then allow exactly the rest of the quota.
func TestDurableLimitsAfterRedisLostItsData(t *testing.T) {
	t.Parallel()
	const quota, first = 1200, 960
	lose := map[string]func(t *testing.T, server *servertest.RedisProcess, proxy *servertest.Proxy){
		"flushall": func(t *testing.T, server *servertest.RedisProcess, _ *servertest.Proxy) {
			if err := redisClient(t, server.URL()).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"killed without persistence": func(_ *testing.T, server *servertest.RedisProcess, _ *servertest.Proxy) {
			server.Kill()
			server.Restart()
		},
		"failover to an empty replica": func(t *testing.T, server *servertest.RedisProcess, proxy *servertest.Proxy) {
			replica := servertest.StartRedis(t)
			at, err := url.Parse(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			password, _ := at.User.Password()
			if err := redisClient(t, replica.URL()).ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
				t.Fatal(err)
			}
			proxy.Retarget(t, replica.URL())
		},
	}
	for name, cause := range lose {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			proxy := servertest.StartProxy(t, server.URL())
			f := startCluster(t, 3, map[string]string{"HEADGATE_REDIS_URL": proxy.URL()})
			f.publish("plan", fmt.Sprintf(durablePolicies, quota))
			f.tenant("acme", "plan")
			if n := f.charge(first / 3); n != first {
				t.Fatalf("%d of %d checks passed", n, first)
			}
			f.flushed()
			restored := metric(t, f.nodes[0], "headgate_durable_restored_total")
			cause(t, server, proxy)
			if n := f.charge(160); n != quota-first {
				t.Errorf("%d more checks passed, want exactly %d", n, quota-first)
			}
			for _, node := range f.nodes {
				eventually(t, "the node has noticed the restoration", func() bool {
					return metric(t, node, "headgate_durable_restoring") == "0"
				})
			}
			if now := metric(t, f.nodes[0], "headgate_durable_restored_total"); now == restored {
				t.Errorf("%s restorations before and after", now)
			}
		})
	}
}
