//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// With default settings, no tenant can fill a small Redis: neither one tenant with many keys
// whose logs grow, nor three tenants that create windows at the same time. No response is
// degraded, existing keys are limited exactly, and other tenants are not affected.
func TestTenantsCannotFillASmallRedis(t *testing.T) {
	t.Parallel()
	const perCall = 1000
	var logs []string
	for i := range 10 {
		logs = append(logs, fmt.Sprintf(`{"name": "l%d", "algorithm": "sliding_window_log", "quota": 100, "window": "1d"}`, i))
	}
	window := `{"algorithm": "fixed_window", "quota": 100, "window": "1d"}`
	for name, c := range map[string]struct {
		limits  string
		tenants int
		users   int // of a tenant
		rounds  int // checks of a user
		keys    int64
	}{
		// If tenants may have 131,072 keys each, both fill 40 MB: 10 logs of 13,000 users,
		// when each has 11 entries, and a window of three times 110,000 users. Half of
		// 40 MB is enough for 7,009 logs with 100 entries. Without a bound there would be 130,000. The
		// tenant exceeds its bound by the keys of two reports, each of an eighth of it, and of the calls in flight.
		"logs of one tenant":       {strings.Join(logs, ","), 1, 13_000, 3, 7009*5/4 + 4*64},
		"windows of three tenants": {window, 3, 110_000, 1, 40 << 20 / 160},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := servertest.StartRedis(t, "--maxmemory", "40mb", "--maxmemory-policy", "noeviction"), servertest.StartPostgres(t)
			node := start(t, map[string]string{
				"HEADGATE_DATABASE_URL": postgres.URL(), "HEADGATE_REDIS_URL": redis.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
				"HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_LIMITER_TIMEOUT": "30s",
			})
			f := &cluster{t: t, nodes: []*process{{running: node}}}
			f.publish("flood", fmt.Sprintf(`[{"slug": "all", "count_by": ["user"], "on_failure": "closed", "limits": [%s]}]`, c.limits))
			f.publish("steady", fmt.Sprintf(`[{"slug": "all", "count_by": ["user"], "on_failure": "closed", "limits": [%s]}]`, window))
			f.tenant("innocent", "steady")
			for i := range c.tenants {
				f.tenant(fmt.Sprintf("flood%d", i), "flood")
			}

			granted, checked := map[string]int{}, map[string]int{}
			innocent := func(user string) {
				r := call(t, bootstrap, "POST", node.origin+"/v1/check", counter{path: "/", user: user}.check("innocent")).results(t)[0]
				if r.Allowed {
					granted[user]++
				}
				checked[user]++
				if r.Degraded || r.Allowed != (checked[user] <= 100) || r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests {
					t.Fatalf("check %d of %s of a tenant with few keys: %+v", checked[user], user, r)
				}
			}
			first := func() result {
				return call(t, bootstrap, "POST", node.origin+"/v1/check", counter{path: "/", user: "first"}.check("flood0")).results(t)[0]
			}
			first()
			var round [][]byte
			for from := 0; from < c.users; from += perCall {
				for i := range c.tenants {
					checks := make([]string, perCall)
					for k := range checks {
						checks[k] = counter{path: "/", user: fmt.Sprint(from + k)}.check(fmt.Sprintf("flood%d", i))
					}
					round = append(round, post("/v1/check/batch", fmt.Sprintf(`{"checks": [%s]}`, strings.Join(checks, ","))))
				}
			}
			connections := connect(t, []string{node.origin}, 4) // last: a node closes a connection on which no request comes
			for range c.rounds {
				calls := round
				for len(calls) > 0 {
					n := min(12, len(calls))
					for _, a := range connections.send(calls[:n]) {
						if a.status != http.StatusOK || strings.Contains(a.body, `"degraded":true`) {
							t.Fatalf("the flood: %d %.300s", a.status, a.body)
						}
					}
					calls = calls[n:]
					for user := range 10 {
						innocent(fmt.Sprint(user))
					}
					innocent(fmt.Sprintf("new%d", len(calls)))
				}
			}
			if r := first(); !r.Allowed || r.Degraded || r.Limits[0].Remaining != 98 {
				t.Errorf("the first user of the flood has %+v, want 98 left", r)
			}
			if n := redisClient(t, redis.URL()).DBSize(t.Context()).Val(); n > c.keys {
				t.Errorf("%d keys, want at most %d", n, c.keys)
			} else {
				t.Logf("%d keys, at most %d", n, c.keys)
			}
			ready := call(t, "", "GET", node.origin+"/readyz?verbose", "").want(t, 200).body
			t.Log(ready)
			full := call(t, "", "GET", node.origin+"/metrics", "").want(t, 200).body
			for i := range c.tenants {
				if !strings.Contains(ready, fmt.Sprintf("tenant flood%d has", i)) {
					t.Errorf("readiness does not name tenant flood%d: %s", i, ready)
				}
			}
			if !strings.Contains(full, fmt.Sprintf("headgate_redis_full_tenants %d\n", c.tenants)) {
				t.Errorf("headgate_redis_full_tenants is not %d", c.tenants)
			}
		})
	}
}
