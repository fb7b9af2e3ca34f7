//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// If the queue of a node is full, it answers with status 503 and Retry-After, and charges
// nothing. Other tenants are not affected by the load of one tenant.
func TestOverloadChargesNothing(t *testing.T) {
	t.Parallel()
	const quota = 1_000_000_000
	for _, redis := range []bool{true, false} {
		t.Run(fmt.Sprintf("redis=%t", redis), func(t *testing.T) {
			settings := map[string]string{"HEADGATE_MAX_WAITING": "20", "HEADGATE_LIMITER_TIMEOUT": "", "HEADGATE_REDIS_URL": ""}
			if redis {
				settings["HEADGATE_REDIS_URL"] = servertest.StartRedis(t).Prefer().URL()
			}
			f := startCluster(t, 1, settings)
			f.publish("wide", fmt.Sprintf(
				`[{"slug": "all", "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "window": "1d", "quota": %d}]}]`, quota))
			f.tenant("flood", "wide")
			f.tenant("calm", "wide")
			s := &exactSuite{t: t, nodes: []*running{f.nodes[0].running}}
			origin := s.nodes[0].origin

			turned := 300
			if fullLoad {
				turned = 20_000
			}
			flood := startFlood(t, connect(t, []string{origin}, 600), post("/v1/check", `{"tenant": "flood"}`))
			if !redis {
				// A check in process does not wait in its slot. Batches keep the slots occupied
				// long enough that checks must queue.
				flood.addBatches(t, connect(t, []string{origin}, 4), post("/v1/check/batch",
					`{"checks": [{"tenant": "flood", "cost": 0}`+strings.Repeat(`, {"tenant": "flood", "cost": 0}`, 199)+`]}`))
			}
			eventually(t, "the node turns checks away", func() bool { return flood.overloaded.Load() > 0 || t.Failed() })
			calm := connect(t, []string{origin}, 1).conns[0] // now: a node closes a connection on which no request comes
			for served := 1; served <= 20 || flood.overloaded.Load() < int64(turned); served++ {
				a, err := calm.ask(post("/v1/check", `{"tenant": "calm"}`))
				if err != nil {
					t.Fatal(err)
				}
				if r := a.want(t, http.StatusOK).results(t)[0]; r.Degraded || len(r.Limits) != 1 || r.Limits[0].Remaining != quota-served {
					t.Fatalf("check %d of the other tenant: %s", served, a.body)
				}
			}
			flood.end()

			if n := flood.strange.Load(); n != 0 {
				t.Errorf("%d answers were neither decided nor overloaded", n)
			}
			peek := call(t, bootstrap, "POST", origin+"/v1/check", `{"tenant": "flood", "cost": 0}`).want(t, 200).results(t)[0]
			if charged := quota - peek.Limits[0].Remaining; int64(charged) != flood.admitted.Load() {
				t.Errorf("%d charged, %d admitted, %d turned away", charged, flood.admitted.Load(), flood.overloaded.Load())
			}
			text := call(t, "", "GET", origin+"/metrics", "").body
			if want := fmt.Sprintf("headgate_overloaded_total %d\n", flood.overloaded.Load()); !strings.Contains(text, want) {
				t.Errorf("%s, want %s", line(text, "headgate_overloaded_total "), want)
			}
			for _, name := range []string{"headgate_degraded_total 0\n", "headgate_admission_waiting 0\n"} {
				if !strings.Contains(text, name) {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}
