//go:build !quick

package main

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// A node that finds Redis by Sentinels decides all checks with Redis, those of durable limits too.
func TestServeWithSentinels(t *testing.T) {
	t.Parallel()
	group, postgres := servertest.StartSentinels(t), servertest.StartPostgres(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": postgres.URL(), "HEADGATE_REDIS_URL": group.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_SHUTDOWN_DELAY": "0s",
	})
	f := &cluster{t: t, nodes: []*process{{running: node}}}
	f.publish("monthly", `[{"slug": "all", "on_failure": "closed", "limits": [
		{"name": "minute", "algorithm": "fixed_window", "quota": 5, "window": "1m"}, {"name": "month", "algorithm": "fixed_window", "quota": 3, "window": "month"}]}]`)
	f.tenant("acme", "monthly")
	for i := range 4 {
		r := call(t, bootstrap, "POST", node.origin+"/v1/check", counter{path: "/", user: "u"}.check("acme")).results(t)[0]
		want := http.StatusOK
		if i == 3 {
			want = http.StatusTooManyRequests
		}
		if r.Degraded || r.Status != want {
			t.Errorf("check %d: %+v, want %d", i+1, r, want)
		}
	}
}
