//go:build !quick

package main

import (
	"errors"
	"io"
	"maps"
	"net/http"
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
		"HEADGATE_SNAPSHOT_FILE": filepath.Join(t.TempDir(), "snapshot"), "HEADGATE_TRUSTED_PROXIES": "127.0.0.1/32",
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
	for _, path := range []string{"/v1/forward-auth", "/v1/forward-auth/v1/items"} { // a gateway would take an answer for a denial
		if a, err := http.Get("http://" + damaged["HEADGATE_ADDR"] + path); !errors.Is(err, io.EOF) {
			t.Errorf("%s of a node that starts: %v, %v", path, a, err)
		}
	}
	third.end()

	node := launchInProcess(t, settings)
	at := node.await(node.logs, regexp.MustCompile(`serving checks from the snapshot on disk","addr":"([^"]+)"`))[1]
	node.origin = "http://" + at
	const check = `{"method": "GET", "path": "/v1/items"}`
	call(t, kept.Token, "POST", node.origin+"/v1/check", check).want(t, 200)
	for _, path := range []string{"/v1/forward-auth", "/v1/forward-auth/v1/items"} {
		call(t, kept.Token, "GET", node.origin+path, "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items").want(t, 200)
	}
	known := 200 // the key is valid in the file
	if redis != "" {
		known = 401 // the second node reported the revocation in Redis
	}
	call(t, revoked.Token, "POST", node.origin+"/v1/check", check).want(t, known)
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

// A key that was revoked after the file was saved is refused by a node that starts from the file,
// because other nodes report it in Redis. This holds for keys of tenants and of the operator, and also
// when Redis loses its data meanwhile. A running node that alone lost its database refuses it
// too.
func TestRevokedKeysWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	server, redisServer := servertest.StartPostgres(t), servertest.StartRedis(t)
	raw := redisClient(t, redisServer.URL())
	link := servertest.StartProxy(t, server.URL())
	settings := func(database, file string) map[string]string {
		return map[string]string{
			"HEADGATE_REDIS_URL": redisServer.URL(), "HEADGATE_REDIS_PREFIX": "hg:", "HEADGATE_LIMITER_TIMEOUT": "30s",
			"HEADGATE_DATABASE_URL": database, "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SHUTDOWN_DELAY": "0s",
			"HEADGATE_SNAPSHOT_FILE": file, "HEADGATE_METRICS_PUBLIC": "false",
		}
	}
	older := settings(server.URL(), filepath.Join(t.TempDir(), "snapshot"))
	first, second, apart := start(t, older), start(t, settings(server.URL(), "off")), start(t, settings(link.URL(), "off"))
	call(t, bootstrap, "POST", first.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme"}}`).want(t, 201)
	type made struct {
		Token string
		Key   struct{ ID string }
	}
	key := func(path, scope string) (k made) {
		t.Helper()
		call(t, bootstrap, "POST", first.origin+path, `{"name": "k", "scopes": ["`+scope+`"]}`).want(t, 201).into(t, &k)
		return k
	}
	kept, revoked := key("/v1/tenants/acme/keys", "check"), key("/v1/tenants/acme/keys", "check")
	manager, operator := key("/v1/operator-keys", "manage"), made{} // from now on, the bootstrap key is refused
	call(t, manager.Token, "POST", first.origin+"/v1/operator-keys", `{"name": "k", "scopes": ["manage"]}`).want(t, 201).into(t, &operator)
	first.end() // it saves

	const check = `{"method": "GET", "path": "/v1/items"}`
	status := func(token, origin string) int {
		t.Helper()
		return call(t, token, "POST", origin+"/v1/check", check).status
	}
	metrics := func(token, origin string) int {
		t.Helper()
		return call(t, token, "GET", origin+"/metrics", "").status
	}
	eventually(t, "the nodes have the keys", func() bool {
		return status(revoked.Token, apart.origin) == 200 && metrics(operator.Token, apart.origin) == 200 && metrics(manager.Token, second.origin) == 200
	})
	link.Blackhole() // only one node loses the database
	call(t, manager.Token, "DELETE", second.origin+"/v1/tenants/acme/keys/"+revoked.Key.ID, "").want(t, 200)
	call(t, manager.Token, "DELETE", second.origin+"/v1/operator-keys/"+operator.Key.ID, "").want(t, 200)
	eventually(t, "a node without its database refuses the revoked keys", func() bool {
		return status(revoked.Token, apart.origin) == 401 && metrics(operator.Token, apart.origin) == 401
	})
	if got := status(kept.Token, apart.origin); got != 200 {
		t.Errorf("a key that is not revoked: %d", got)
	}
	apart.end()

	server.Stop()
	refuses := func(node *running) {
		t.Helper()
		node.origin = "http://" + node.await(node.logs, regexp.MustCompile(`serving checks from the snapshot on disk","addr":"([^"]+)"`))[1]
		for token, want := range map[string]int{kept.Token: 200, revoked.Token: 401} {
			if got := status(token, node.origin); got != want {
				t.Errorf("a check from the file: %d, want %d", got, want)
			}
		}
		for token, want := range map[string]int{manager.Token: 200, operator.Token: 401} {
			if got := metrics(token, node.origin); got != want {
				t.Errorf("/metrics from the file: %d, want %d", got, want)
			}
		}
		if ready := call(t, "", "GET", node.origin+"/readyz?verbose", "").want(t, 200); !strings.Contains(ready.body, "revoked since then are rejected") {
			t.Errorf("readiness does not say so: %s", ready.body)
		}
		node.end()
	}
	refuses(launchInProcess(t, older))

	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node that runs writes the list again", func() bool {
		return strings.Contains(raw.Get(t.Context(), "hg:revoked").Val(), revoked.Key.ID)
	})
	refuses(launchInProcess(t, older))

	// Without a list, the node says that it may accept such a key.
	second.end()
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	node := launchInProcess(t, older)
	node.origin = "http://" + node.await(node.logs, regexp.MustCompile(`serving checks from the snapshot on disk","addr":"([^"]+)"`))[1]
	if got := status(revoked.Token, node.origin); got != 200 {
		t.Errorf("without a list: %d", got)
	}
	if ready := call(t, "", "GET", node.origin+"/readyz?verbose", "").want(t, 200); !strings.Contains(ready.body, "may be accepted") {
		t.Errorf("readiness does not say so: %s", ready.body)
	}
	server.Start()
	node.await(node.out, servesAt)
	if got := status(revoked.Token, node.origin); got != 401 {
		t.Errorf("with the database: %d", got)
	}
}
