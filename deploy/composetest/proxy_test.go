package composetest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// config is deploy/nginx.conf with other addresses and another folder to write in.
func config(t *testing.T, listen string, nodes ...string) (file string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replaced := strings.NewReplacer("listen 8080;", "listen "+listen+";", "/tmp/", dir+"/").Replace(string(text))
	servers := regexp.MustCompile(`(?m)^\t\tserver headgate-\d:8080( .*;)$`)
	params := servers.FindStringSubmatch(replaced)
	if params == nil {
		t.Fatal("deploy/nginx.conf names no node")
	}
	var list strings.Builder
	for _, n := range nodes {
		list.WriteString("\t\tserver " + n + params[1] + "\n")
	}
	first := servers.FindStringIndex(replaced)[0]
	replaced = replaced[:first] + list.String() + servers.ReplaceAllString(replaced[first:], "")
	file = filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(replaced), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// nginx runs Debian's program, which with-servers installs, in the foreground.
func nginx(t *testing.T, config string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("nginx is not installed; make test installs it as root, else: sudo apt-get install nginx")
		}
	}
	prefix := filepath.Dir(config)
	// The user of the workers is root's matter only, and ours is the folder's.
	globals := "daemon off;"
	if os.Geteuid() == 0 {
		globals += " user root;"
	}
	return exec.CommandContext(t.Context(), program, append([]string{"-p", prefix, "-e", "stderr", "-g", globals, "-c", config}, args...)...)
}

func TestTheProxysConfigurationIsValid(t *testing.T) {
	t.Parallel()
	file := config(t, "127.0.0.1:8080", "127.0.0.1:18081", "127.0.0.1:18082", "127.0.0.1:18083")
	if out, err := nginx(t, file, "-t").CombinedOutput(); err != nil {
		t.Errorf("nginx -t: %v\n%s", err, out)
	}
}

// A node stands in for Headgate behind the real proxy.
type node struct {
	*httptest.Server
	checks atomic.Int32
	status atomic.Int32
	path   atomic.Value // of the last request, as it came
	breaks atomic.Bool  // take the request and drop the connection
}

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{}
	n.status.Store(http.StatusTooManyRequests)
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.path.Store(r.RequestURI)
		n.checks.Add(1)
		if n.breaks.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", "7")
		w.Header().Set("RateLimit", `"minute";r=0;t=7`)
		w.Header().Set("RateLimit-Policy", `"minute";q=10;w=60`)
		w.WriteHeader(int(n.status.Load()))
	}))
	t.Cleanup(n.Close)
	return n
}

// startProxy runs nginx with the nodes behind it, and returns its URL.
func startProxy(t *testing.T, nodes ...*node) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	upstreams := make([]string, 0, len(nodes))
	for _, n := range nodes {
		upstreams = append(upstreams, n.Listener.Addr().String())
	}
	cmd := nginx(t, config(t, address, upstreams...))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { // t.Context is cancelled by now, which stops nginx
		<-ended
		if t.Failed() {
			t.Logf("nginx:\n%s", log.String())
		}
	})
	await(t, "the proxy to listen", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + address
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

func check(t *testing.T, proxy string) *http.Response {
	t.Helper()
	resp, err := http.Post(proxy+"/v1/check", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

func TestTheProxyPassesARefusalAsItIs(t *testing.T) {
	t.Parallel()
	resp := check(t, startProxy(t, startNode(t)))
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429", resp.StatusCode)
	}
	for name, want := range map[string]string{
		"Retry-After": "7", "RateLimit": `"minute";r=0;t=7`, "RateLimit-Policy": `"minute";q=10;w=60`,
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestTheProxySendsNoCheckTwice(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	a.breaks.Store(true)
	b.breaks.Store(true)
	if resp := check(t, startProxy(t, a, b)); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d, want 502", resp.StatusCode)
	}
	if n := a.checks.Load() + b.checks.Load(); n != 1 {
		t.Errorf("one check reached the nodes %d times", n)
	}
}

func TestTheProxyTakesAnotherNodeWhenOneIsNotThere(t *testing.T) {
	t.Parallel()
	gone, there := startNode(t), startNode(t)
	proxy := startProxy(t, gone, there)
	gone.Close()
	for range 5 {
		if resp := check(t, proxy); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status %d, want the other node's 429", resp.StatusCode)
		}
	}
}

// A 503 for an unavailable limiter is a decision, so the proxy does not count it as a
// failure of the node.
func TestTheProxyTakesNoAnswerForAFault(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	a.status.Store(http.StatusServiceUnavailable)
	b.status.Store(http.StatusServiceUnavailable)
	proxy := startProxy(t, a, b)
	for range 6 {
		if resp := check(t, proxy); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "7" {
			t.Errorf("status %d, Retry-After %q; want the node's own 503 and 7", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
	if n := a.checks.Load() + b.checks.Load(); n != 6 {
		t.Errorf("six checks reached the nodes %d times", n)
	}
}

func TestTheProxyPassesThePathAsItCame(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const path = "/v1/tenants/a%2Fb//c/../d;e"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, startProxy(t, n)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := n.path.Load(); got != path {
		t.Errorf("the node was asked for %v, want %s", got, path)
	}
}
