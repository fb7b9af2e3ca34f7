//go:build !quick

package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// Two nodes share the counters of a Redis that they reach over a unix socket.
func TestCountersOverAUnixSocket(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "headgate-socket") // Redis may run as another user than the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(folder, "redis.sock")
	redis := servertest.StartRedis(t, "--unixsocket", socket, "--unixsocketperm", "777")
	at, err := url.Parse(redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	at.Scheme, at.Host, at.Path = "unix", "", socket
	database := servertest.Postgres(t)
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": database, "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_REDIS_URL": at.String(), "HEADGATE_LIMITER_TIMEOUT": "30s",
	}
	one, other := start(t, settings), start(t, settings)
	const policies = `[{"slug": "daily", "limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1d", "anchor": "clock"}]}]`
	made := call(t, bootstrap, "POST", one.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+policies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", one.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", one.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme", "plan": "pro"}}`).want(t, 201)
	const check = `{"tenant": "acme", "path": "/v1/items"}`
	call(t, bootstrap, "POST", one.origin+"/v1/check", check).want(t, 200)
	eventually(t, "the other node has the tenant", func() bool {
		return call(t, bootstrap, "GET", other.origin+"/v1/tenants/acme", "").status == 200 &&
			call(t, bootstrap, "POST", other.origin+"/v1/check", strings.Replace(check, "}", `, "mode": "peek"}`, 1)).status == 200
	})
	a := call(t, bootstrap, "POST", other.origin+"/v1/check", check).want(t, 200)
	if !strings.Contains(a.body, `"remaining":0`) || strings.Contains(a.body, `"degraded":true`) {
		t.Error(a.body)
	}
	call(t, bootstrap, "POST", one.origin+"/v1/check", check).want(t, 429)
	if ready := call(t, "", "GET", one.origin+"/readyz?verbose", "").want(t, 200); strings.Contains(ready.body, "Redis has been away") {
		t.Error(ready.body)
	}
}
