//go:build !quick

package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// Three nodes together allow exactly the quota and the units of a grant. If Redis loses its data meanwhile, what was
// left of the window and of the grant is restored. A grant that is voided is not spent further.
func TestGrantsAfterRedisLostItsData(t *testing.T) {
	t.Parallel()
	const quota, units, first = 300, 200, 384
	server := servertest.StartRedis(t)
	f := startCluster(t, 3, map[string]string{"HEADGATE_REDIS_URL": server.URL()})
	f.publish("plan", `[{"slug": "monthly", "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 300, "window": "month"}]}]`)
	f.tenant("acme", "plan")
	made := call(t, bootstrap, http.MethodPost, f.nodes[0].origin+"/v1/tenants/acme/grants",
		`{"policy": "monthly", "units": 200, "reason": "invoice 4711", "expires_at": "`+inAMonth+`"}`)
	if made.status != http.StatusCreated {
		t.Fatalf("create a grant: %d %s", made.status, made.body)
	}
	f.everywhere(`{"tenant": "acme", "mode": "peek"}`, func(a answer) bool { return strings.Contains(a.body, `"remaining":499,`) })
	if n := f.charge(first / 3); n != first {
		t.Fatalf("%d of %d checks passed", n, first)
	}
	f.flushed()
	if err := redisClient(t, server.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if n := f.charge(160); n != quota+units-first {
		t.Errorf("%d more checks passed, want exactly %d", n, quota+units-first)
	}
	list := call(t, bootstrap, http.MethodGet, f.nodes[1].origin+"/v1/tenants/acme/grants", "")
	if !strings.Contains(list.body, `"left":0,`) {
		t.Errorf("list: %d %s", list.status, list.body)
	}
}
