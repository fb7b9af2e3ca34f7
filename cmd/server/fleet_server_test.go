//go:build !quick

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// binary builds headgate once for all tests that start real processes.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "headgate-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "headgate")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does, so that the compiled packages are shared
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// A process is a node that runs in its own process.
type process struct {
	*running
	command *exec.Cmd
	ended   chan struct{}
}

// launch starts the built binary, as serve, with settings.
func launch(t testing.TB, settings map[string]string) *process {
	t.Helper()
	return launchIn(t, "", settings, "serve")
}

// launchIn starts the built binary in a folder.
func launchIn(t testing.TB, folder string, settings map[string]string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return launchBinary(t, path, folder, settings, args...)
}

// launchBinary starts a binary of this or of another release.
func launchBinary(t testing.TB, path, folder string, settings map[string]string, args ...string) *process {
	t.Helper()
	return launchProgram(t, path, folder, settings, nil, args...)
}

func launchProgram(t testing.TB, path, folder string, settings map[string]string, log io.Writer, args ...string) *process {
	t.Helper()
	r := &running{t: t, out: newOutput(), logs: newOutput(), stopped: make(chan error, 1)}
	p := &process{running: r, command: exec.Command(path, args...), ended: make(chan struct{})}
	p.command.Dir = folder
	p.command.Env = []string{
		"HEADGATE_ADDR=127.0.0.1:0", "HEADGATE_BOOTSTRAP_KEY=" + bootstrap, "HEADGATE_METRICS_PUBLIC=true",
		"HEADGATE_SNAPSHOT_FILE=" + filepath.Join(t.TempDir(), "snapshot"),
	}
	for name, value := range settings {
		p.command.Env = append(p.command.Env, name+"="+value)
	}
	p.command.Stdout, p.command.Stderr = r.out, r.logs
	if log != nil {
		p.command.Stderr = log
	}
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.stopped <- p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("log of %s:\n%s", r.origin, r.logs)
		}
	})
	return p
}

// serving waits until the node has printed its URL.
func (p *process) serving() *process {
	p.t.Helper()
	p.origin = p.await(p.out, servesAt)[1]
	return p
}

// A cluster is a set of nodes that share one Postgres and one Redis.
type cluster struct {
	t           *testing.T
	nodes       []*process
	databaseURL string
}

// startCluster starts n nodes at the same time on an empty database. One of them migrates the
// database and the others wait.
func startCluster(t *testing.T, n int, settings map[string]string) *cluster {
	t.Helper()
	all := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t),
		"HEADGATE_REDIS_URL":    servertest.Redis(t),
		"HEADGATE_REDIS_PREFIX": fmt.Sprintf("hg-%x:", rand.Uint64()),
		// Exactness must not depend on how busy the machine is.
		"HEADGATE_LIMITER_TIMEOUT": "30s",
		"HEADGATE_SHUTDOWN_DELAY":  "0s",
		"HEADGATE_SNAPSHOT_FILE":   "off",
	}
	for name, value := range settings {
		all[name] = value
	}
	f := &cluster{t: t, databaseURL: all["HEADGATE_DATABASE_URL"]}
	for range n {
		f.nodes = append(f.nodes, launch(t, all))
	}
	for _, node := range f.nodes {
		node.serving()
	}
	return f
}

// publish creates a plan and publishes it on the first node.
func (f *cluster) publish(slug, policies string) {
	f.t.Helper()
	origin := f.nodes[0].origin
	made := call(f.t, bootstrap, "POST", origin+"/v1/plans", fmt.Sprintf(`{"slug": %q, "draft": {"name": %[1]q, "policies": %s}}`, slug, policies)).want(f.t, 201)
	call(f.t, bootstrap, "POST", origin+"/v1/plans/"+slug+"/publish", "", "If-Match", made.header.Get("ETag")).want(f.t, 200)
}

// tenant creates a tenant with a plan and waits until every node has loaded it.
func (f *cluster) tenant(slug, plan string) {
	f.t.Helper()
	call(f.t, bootstrap, "POST", f.nodes[0].origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": %[1]q, "plan": %q}}`, slug, plan)).want(f.t, 201)
	f.everywhere(fmt.Sprintf(`{"tenant": %q, "mode": "peek"}`, slug), func(a answer) bool { return a.status != http.StatusNotFound })
}

// everywhere waits until the response of each node to a check is the expected one.
func (f *cluster) everywhere(check string, ok func(answer) bool) {
	f.t.Helper()
	for i, node := range f.nodes {
		eventually(f.t, fmt.Sprintf("node %d answers %s as wanted", i, check), func() bool {
			return ok(call(f.t, bootstrap, "POST", node.origin+"/v1/check", check))
		})
	}
}

type verdict struct {
	Allowed  bool   `json:"allowed"`
	Reason   string `json:"reason"`
	Degraded bool   `json:"degraded"`
}

// An edit, a suspension and a revocation reach every node, by notification.
func TestEditsReachEveryNode(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, nil)
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	origin := f.nodes[0].origin

	created := call(t, bootstrap, "POST", origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["check"]}`).want(t, 201)
	var key struct {
		Token string
		Key   struct{ ID string }
	}
	created.into(t, &key)
	for _, node := range f.nodes {
		eventually(t, "the new key is known", func() bool {
			return call(t, key.Token, "POST", node.origin+"/v1/check", `{}`).status == 200
		})
	}
	call(t, bootstrap, "DELETE", origin+"/v1/tenants/acme/keys/"+key.Key.ID, "").want(t, 200)
	for _, node := range f.nodes {
		eventually(t, "the revoked key is refused", func() bool {
			return call(t, key.Token, "POST", node.origin+"/v1/check", `{}`).status == 401
		})
	}

	tenant := call(t, bootstrap, "GET", origin+"/v1/tenants/acme", "").want(t, 200)
	call(t, bootstrap, "PUT", origin+"/v1/tenants/acme", `{"name": "acme", "plan": "plan", "status": "suspended", "require_route": false}`, "If-Match", tenant.header.Get("ETag")).want(t, 200)
	f.everywhere(`{"tenant": "acme"}`, func(a answer) bool { return a.status == 403 && strings.Contains(a.body, "tenant_suspended") })

	// The nodes got the changes by notification, because each node listens for notifications.
	for i, node := range f.nodes {
		if metrics := call(t, "", "GET", node.origin+"/metrics", "").body; !strings.Contains(metrics, "headgate_snapshot_listening 1") {
			t.Errorf("node %d does not listen for notifications", i)
		}
	}
}

// While Redis is unavailable, the failure modes decide, each local share starts from the
// remaining quota, and the node stays ready. When Redis is available again, the node continues
// normally without a restart.
func TestRedisGoneAndBack(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL(), "HEADGATE_LIMITER_TIMEOUT": "2s"})
	f.publish("modes", `[
		{"slug": "local", "match": {"path": "/local"}, "limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1d"}]},
		{"slug": "open", "match": {"path": "/open"}, "on_failure": "open", "limits": [{"algorithm": "fixed_window", "quota": 1, "window": "1d"}]},
		{"slug": "closed", "match": {"path": "/closed"}, "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "1d"}]}]`)
	f.tenant("acme", "modes")
	ask := func(path string) answer {
		return call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", fmt.Sprintf(`{"tenant": "acme", "path": %q}`, path))
	}
	ask("/closed").want(t, 200)
	ask("/local").want(t, 200)
	server.Kill()

	var statuses []int
	for range 3 {
		a := ask("/local")
		if !strings.Contains(a.body, `"degraded":true`) {
			t.Errorf("not marked as degraded: %s", a.body)
		}
		statuses = append(statuses, a.status)
	}
	if fmt.Sprint(statuses) != "[200 429 429]" {
		t.Errorf("local of 2, of which Redis has counted 1, answered %v", statuses)
	}
	for range 3 {
		ask("/open").want(t, 200)
	}
	closed := ask("/closed").want(t, 503)
	if !strings.Contains(closed.body, "limiter_unavailable") || closed.header.Get("Retry-After") != "1" {
		t.Errorf("closed: Retry-After %q: %s", closed.header.Get("Retry-After"), closed.body)
	}
	call(t, "", "GET", f.nodes[0].origin+"/readyz", "").want(t, 200)
	if v := call(t, "", "GET", f.nodes[0].origin+"/readyz?verbose", "").body; !strings.Contains(v, "degraded") {
		t.Errorf("readyz?verbose does not say degraded: %s", v)
	}

	server.Restart()
	eventually(t, "checks are normal again", func() bool {
		a := ask("/closed")
		return a.status == 200 && strings.Contains(a.body, `"degraded":false`)
	})
}

// Without Redis, each node decides with its share of the quota. By default, the share follows
// the number of nodes that report to the database.
func TestLocalShareFollowsTheNodes(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	f := startCluster(t, 2, map[string]string{"HEADGATE_REDIS_URL": server.URL(), "HEADGATE_LIMITER_TIMEOUT": "2s"})
	f.publish("shares", `[{"slug": "local", "match": {"path": "/local"}, "count_by": ["user"],
		"limits": [{"algorithm": "fixed_window", "quota": 40, "window": "1d"}]}]`)
	f.tenant("acme", "shares")
	server.Kill()
	user := 0
	share := func() (n int) { // of a user that made no request before
		for user++; ; n++ {
			a := call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", fmt.Sprintf(`{"tenant": "acme", "path": "/local", "attributes": {"user": "u%d"}}`, user))
			if a.status == http.StatusTooManyRequests {
				return n
			}
			a.want(t, 200)
		}
	}
	eventually(t, "each of two nodes has half of the quota", func() bool { return share() == 20 })
	if err := f.nodes[1].command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-f.nodes[1].ended
	eventually(t, "the node that is left has the whole quota", func() bool { return share() == 40 })
}

// Nodes under load are stopped and replaced one after the other, like in a rolling restart
// behind a load balancer that checks readiness. No request fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	rollingRestart(t, 3)
}

// rollingRestart replaces a node the given number of times. It returns the number of requests
// that were answered, and the longest time from a SIGTERM to the end of its node.
func rollingRestart(t *testing.T, restarts int) (requests int64, slowest time.Duration) {
	t.Helper()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": servertest.Redis(t),
		"HEADGATE_REDIS_PREFIX": fmt.Sprintf("hg-%x:", rand.Uint64()), "HEADGATE_LIMITER_TIMEOUT": "30s", "HEADGATE_SHUTDOWN_DELAY": "500ms",
		"HEADGATE_SHUTDOWN_TIMEOUT": "60s",
	}
	b := &balancer{}
	for range 2 {
		b.add(launch(t, settings).serving())
	}
	f := &cluster{t: t, nodes: b.nodes}
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")

	ctx, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				a, err := b.send(`{"tenant": "acme"}`)
				if err != nil || a.status != 200 {
					t.Errorf("a request failed: %v %d %s", err, a.status, a.body)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range restarts {
		before := answered.Load()
		eventually(t, "the load runs", func() bool { return answered.Load() > before+20 || t.Failed() })
		old := b.oldest()
		b.add(launch(t, settings).serving())
		signaled := time.Now()
		if err := old.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		b.follow(t, old)
		select {
		case <-old.ended:
		case <-time.After(patience):
			t.Fatal("the node did not end")
		}
		slowest = max(slowest, time.Since(signaled))
		if code := old.command.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the stopped node ended with %d:\n%s", code, old.logs)
		}
	}
	stopLoad()
	load.Wait()
	return answered.Load(), slowest
}

// A second SIGTERM ends a node immediately while it still waits for its load balancer.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	node := launch(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SHUTDOWN_DELAY": "10m", "HEADGATE_SHUTDOWN_TIMEOUT": "10m",
	}).serving()
	sigterm := func() {
		t.Helper()
		if err := node.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	sigterm()
	node.await(node.logs, regexp.MustCompile(`"stopping"`))
	// A signal that arrives before the node has restored the default signal handling is lost.
	// The test repeats it.
	again, late := time.NewTicker(time.Second), time.After(patience) // less than the delay
	defer again.Stop()
	for ended := false; !ended; {
		_ = node.command.Process.Signal(syscall.SIGTERM) // fails if the node has ended
		select {
		case <-node.ended:
			ended = true
		case <-again.C:
		case <-late:
			t.Fatal("the node did not end")
		}
	}
	if status, ok := node.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("the node ended with %v, want the signal", node.command.ProcessState)
	}
}

// A balancer sends requests to the nodes that are ready.
type balancer struct {
	mu    sync.Mutex
	nodes []*process
	turn  int
}

func (b *balancer) add(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes, p)
}

func (b *balancer) oldest() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[0]
}

func (b *balancer) send(body string) (answer, error) {
	b.mu.Lock()
	b.turn++
	node := b.nodes[b.turn%len(b.nodes)]
	b.mu.Unlock()
	return tryCall(context.Background(), bootstrap, "POST", node.origin+"/v1/check", body)
}

// follow removes a node from the balancer when the node is no longer ready. A node must report
// this before it ends.
func (b *balancer) follow(t *testing.T, p *process) {
	t.Helper()
	eventually(t, "readiness says no", func() bool {
		a, err := tryCall(t.Context(), "", "GET", p.origin+"/readyz", "")
		return err != nil || a.status == http.StatusServiceUnavailable
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, node := range b.nodes {
		if node == p {
			b.nodes = append(append([]*process(nil), b.nodes[:i]...), b.nodes[i+1:]...)
			return
		}
	}
}

// If Postgres is unavailable at the start, the node is alive but not ready. It becomes ready
// without a restart. If Postgres becomes unavailable later, checks continue and edits get
// status 503.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	server.Stop()
	addr := freeAddr(t)
	node := launch(t, map[string]string{"HEADGATE_ADDR": addr, "HEADGATE_DATABASE_URL": server.URL(), "HEADGATE_SHUTDOWN_DELAY": "0s"})
	origin := "http://" + addr
	eventually(t, "the node lives", func() bool {
		a, err := tryCall(t.Context(), "", "GET", origin+"/livez", "")
		return err == nil && a.status == 200
	})
	call(t, "", "GET", origin+"/readyz", "").want(t, 503)
	server.Start()
	node.serving()
	call(t, "", "GET", origin+"/readyz", "").want(t, 200)

	f := &cluster{t: t, nodes: []*process{node}}
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	server.Stop()
	call(t, bootstrap, "POST", origin+"/v1/check", `{"tenant": "acme"}`).want(t, 200)
	call(t, bootstrap, "POST", origin+"/v1/tenants", `{"slug": "b", "tenant": {"require_route": false, "name": "b"}}`).want(t, 503)
	call(t, "", "GET", origin+"/readyz", "").want(t, 200)
	server.Start()
	eventually(t, "edits work again", func() bool {
		return call(t, bootstrap, "POST", origin+"/v1/tenants", `{"slug": "c", "tenant": {"require_route": false, "name": "c"}}`).status == 201
	})
}

// headgate simulate returns the same result with Redis as in process, and leaves no keys in
// Redis.
func TestSimulateOnRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	out, err := command(t, nil, scenario, "simulate", "--redis", server.URL())
	if err != nil || out != played {
		t.Fatalf("simulate --redis: %v\n%s", err, out)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(options)
	defer c.Close()
	if keys, err := c.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left in Redis: %q, %v", keys, err)
	}
}
