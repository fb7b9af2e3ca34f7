//go:build !quick

package main

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// If Redis or Postgres reject writes, readiness, metrics and the System page show the error
// until writes work again.
func TestStoresThatRefuseWrites(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.StartRedis(t), servertest.StartPostgres(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": postgres.URL(), "HEADGATE_REDIS_URL": redis.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_LIMITER_TIMEOUT": "30s",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	})
	f := &cluster{t: t, nodes: []*process{{running: node}}}
	f.publish("plan", `[{"slug": "all", "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	check := func() int {
		return call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme"}`).status
	}
	b := newBrowser(t, node.origin)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)
	said := map[string]func() string{
		"readyz":   func() string { return call(t, "", "GET", node.origin+"/readyz?verbose", "").want(t, 200).body },
		"/metrics": func() string { return call(t, "", "GET", node.origin+"/metrics", "").want(t, 200).body },
		"/system":  func() string { return b.get("/system").want(t, 200).body },
	}
	says := func(what string, words ...string) {
		t.Helper()
		eventually(t, what+" says "+strings.Join(words, ", "), func() bool {
			text := said[what]()
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		})
	}
	if status := check(); status != http.StatusOK {
		t.Fatalf("a check is answered %d", status)
	}
	says("readyz", `"degraded":false`, `"warnings":[]`)
	says("/system", "1 node, healthy")

	raw := redisClient(t, redis.URL())
	if err := raw.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if status := check(); status != http.StatusServiceUnavailable {
		t.Errorf("a check is answered %d", status)
	}
	says("readyz", `"degraded":true`, "Redis has refused writes since 20", "NOREPLICAS")
	says("/metrics", "headgate_redis_reachable 1", "headgate_redis_writable 0", `headgate_redis_refusing_since_timestamp_seconds{code="NOREPLICAS"} 1.`)
	says("/system", "1 with problems", "Redis refuses writes for", "NOREPLICAS")
	if err := raw.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	says("readyz", `"degraded":false`, `"warnings":[]`)
	says("/metrics", "headgate_redis_writable 1")
	if status := check(); status != http.StatusOK {
		t.Errorf("a check is answered %d", status)
	}

	db, err := sql.Open("pgx", postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	readOnly := func(value string) {
		t.Helper()
		for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
			if _, err := db.ExecContext(context.Background(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	readOnly("on")
	defer readOnly("off")
	readiness := said["readyz"]
	said["readyz"] = func() string { check(); return readiness() } // so that counts wait, whenever the last flush was
	says("readyz", `"degraded":false`, "the database has refused writes since 20", "read-only", "counts have not been written since 20", "rows wait")
	said["readyz"] = readiness
	if status := check(); status != http.StatusOK {
		t.Errorf("a check is answered %d", status)
	}
	says("/metrics", "headgate_database_writable 0", `headgate_database_refusing_since_timestamp_seconds{code="read_only"} 1.`)
	says("/system", "1 with problems", "the database refuses writes for", "read-only")
	readOnly("off")
	says("readyz", `"warnings":[]`)
	says("/metrics", "headgate_database_writable 1")
	says("/system", "1 node, healthy")
}
