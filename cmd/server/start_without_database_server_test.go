//go:build !quick

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// A node that starts without Postgres answers checks from the snapshot on disk, reports
// this, and rejects edits. When Postgres returns, the node takes the newer state, including
// the revocation of a key.
func TestStartWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		startWithoutTheDatabase(t, "")
	})
	t.Run("with Redis", func(t *testing.T) {
		t.Parallel()
		startWithoutTheDatabase(t, servertest.StartRedis(t).URL())
	})
}

func startWithoutTheDatabase(t *testing.T, redis string) {
	server := servertest.StartPostgres(t)
	settings := map[string]string{
		"HEADGATE_REDIS_URL": redis, "HEADGATE_LIMITER_TIMEOUT": "30s",
		"HEADGATE_DATABASE_URL": server.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_SNAPSHOT_FILE": filepath.Join(t.TempDir(), "snapshot"),
	}
	first := start(t, settings)
	call(t, bootstrap, "POST", first.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme"}}`).want(t, 201)
	key := func() (made struct {
		Token string
		Key   struct{ ID string }
	},
	) {
		call(t, bootstrap, "POST", first.origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["check"]}`).want(t, 201).into(t, &made)
		return made
	}
	kept, revoked := key(), key()
	first.end() // it saves

	// Revoked by a node with another file: the first one's does not know.
	other := map[string]string{}
	for name, value := range settings {
		other[name] = value
	}
	other["HEADGATE_SNAPSHOT_FILE"] = "off"
	second := start(t, other)
	call(t, bootstrap, "DELETE", second.origin+"/v1/tenants/acme/keys/"+revoked.Key.ID, "").want(t, 200)
	second.end()

	server.Stop()
	saved, err := os.ReadFile(settings["HEADGATE_SNAPSHOT_FILE"])
	if err != nil {
		t.Fatal(err)
	}
	saved[len(saved)/2] ^= 1
	damaged := maps.Clone(settings)
	damaged["HEADGATE_ADDR"], damaged["HEADGATE_SNAPSHOT_FILE"] = freeAddr(t), filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(damaged["HEADGATE_SNAPSHOT_FILE"], saved, 0o600); err != nil {
		t.Fatal(err)
	}
	third := launchInProcess(t, damaged)
	third.await(third.logs, regexp.MustCompile("the snapshot on disk cannot be used"))
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503} {
		call(t, "", "GET", "http://"+damaged["HEADGATE_ADDR"]+path, "").want(t, want)
	}
	call(t, kept.Token, "POST", "http://"+damaged["HEADGATE_ADDR"]+"/v1/check", `{"method": "GET", "path": "/v1/items"}`).want(t, 503)
	third.end()

	node := launchInProcess(t, settings)
	at := node.await(node.logs, regexp.MustCompile(`serving checks from the snapshot on disk","addr":"([^"]+)"`))[1]
	node.origin = "http://" + at
	const check = `{"method": "GET", "path": "/v1/items"}`
	for _, token := range []string{kept.Token, revoked.Token} {
		call(t, token, "POST", node.origin+"/v1/check", check).want(t, 200)
	}
	call(t, "hg_tk_nothing", "POST", node.origin+"/v1/check", check).want(t, 401)
	if ready := call(t, "", "GET", node.origin+"/readyz?verbose", "").want(t, 200); !strings.Contains(ready.body, "snapshot on disk") {
		t.Errorf("readiness does not say so: %s", ready.body)
	}
	if all := call(t, "", "GET", node.origin+"/metrics", "").want(t, 200); !strings.Contains(all.body, "headgate_snapshot_from_disk 1") {
		t.Error("/metrics does not say so")
	}
	for _, path := range []string{"/v1/tenants", "/overview", "/sign-in"} {
		if got := call(t, bootstrap, "GET", node.origin+path, "").want(t, 503); !strings.Contains(got.body, "snapshot on disk") {
			t.Errorf("%s: %s", path, got.body)
		}
	}

	server.Start()
	node.await(node.out, servesAt)
	call(t, kept.Token, "POST", node.origin+"/v1/check", check).want(t, 200)
	call(t, revoked.Token, "POST", node.origin+"/v1/check", check).want(t, 401)
	call(t, bootstrap, "GET", node.origin+"/v1/tenants", "").want(t, 200)
	if all := call(t, "", "GET", node.origin+"/metrics", "").want(t, 200); !strings.Contains(all.body, "headgate_snapshot_from_disk 0") {
		t.Error("/metrics still says so")
	}
}
