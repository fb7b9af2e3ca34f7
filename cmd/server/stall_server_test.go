//go:build !quick

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// A node is stopped for a while. Meanwhile clients send checks over existing and new
// connections and give up. When the node continues, it decides none of these checks and
// charges nothing. Clients that still wait get answers.
func TestCallersThatLeaveAStoppedNode(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL()})
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 100000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	node, raw := f.nodes[0], redisClient(t, server.URL())
	running := func() int {
		n, err := strconv.Atoi(goroutines.FindStringSubmatch(call(t, "", "GET", node.origin+"/metrics", "").body)[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	address := strings.TrimPrefix(node.origin, "http://")
	dial := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	send := func(c net.Conn, text string) {
		t.Helper()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	const check = `{"tenant": "acme"}`
	requests := []string{
		string(post("/v1/check", check)),                                      // internal/http1
		string(post("/v1/check?deny_status=200", check)),                      // net/http
		string(post("/v1/check/batch", `{"checks": [`+check+`, `+check+`]}`)), // a batch
	}
	left := func() int {
		var r struct{ Limits []struct{ Remaining int } }
		call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme", "cost": 0}`).want(t, 200).into(t, &r)
		return r.Limits[0].Remaining
	}
	var conns []net.Conn
	const each = 30
	before := running()
	for i := range each * len(requests) {
		c := dial()
		conns = append(conns, c)
		send(c, requests[i%len(requests)])
		buffer := make([]byte, 4096)
		if n, err := c.Read(buffer); err != nil || !strings.HasPrefix(string(buffer[:n]), "HTTP/1.1 200") {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
	}
	stays := dial()
	send(stays, requests[0])
	_, _ = stays.Read(make([]byte, 4096))
	known := left()

	process := node.command.Process
	stopProcess(t, process.Pid)
	began := raw.Time(t.Context()).Val()
	for i := range each * len(requests) {
		c := dial()
		conns = append(conns, c)
		send(conns[i], requests[i%len(requests)])
		send(c, requests[i%len(requests)])
	}
	send(stays, requests[0])
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "the callers have given up for a while", func() bool { return raw.Time(t.Context()).Val().Sub(began) > 2*time.Second })
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	if n, err := stays.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200") {
		t.Errorf("a client that waited got %q, %v", answer[:n], err)
	}
	_ = stays.Close()
	eventually(t, "the node has done what waited", func() bool { return running() <= before+2 })
	if n := known - left(); n != 1 {
		t.Errorf("%d charges after the pause, want the one of the client that waited (%s)", n, fmt.Sprint(2*each*len(requests), " gave up"))
	}
}

// stopProcess stops a child process. The signal stops the threads later, so stopProcess waits until it has: a check that
// comes before would be decided.
func stopProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var state syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
		t.Fatalf("the node is not stopped: %v, %v", state, err)
	}
}

// A client of HTTP/2 keeps its connection when it gives up a request. The node that stood still finds the reset of the
// stream behind the request, and does not charge the check.
func TestStreamsThatAreResetWhileANodeStands(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL(), "HEADGATE_REDIS_PREFIX": "hg:"})
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 100000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	cert, key := writeCertificate(t, t.TempDir(), 1)
	node := launch(t, map[string]string{
		"HEADGATE_DATABASE_URL": f.databaseURL, "HEADGATE_REDIS_URL": server.URL(), "HEADGATE_REDIS_PREFIX": "hg:", "HEADGATE_LIMITER_TIMEOUT": "30s",
		"HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key,
	}).serving()
	raw := redisClient(t, server.URL())
	h2 := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test made the certificate
	}}
	check := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, node.origin+"/v1/check", strings.NewReader(`{"tenant": "acme"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bootstrap)
		r.Header.Set("Content-Type", "application/json")
		a, err := h2.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if _, err := io.Copy(io.Discard, a.Body); a.StatusCode != http.StatusOK || a.ProtoMajor != 2 {
			t.Errorf("%s %d, %v", a.Proto, a.StatusCode, err)
		}
		return nil
	}
	left := func() int {
		var r struct{ Limits []struct{ Remaining int } }
		call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", `{"tenant": "acme", "cost": 0}`).want(t, 200).into(t, &r)
		return r.Limits[0].Remaining
	}
	if err := check(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := left()
	stopProcess(t, node.command.Process.Pid)
	began := raw.Time(t.Context()).Val()
	const gaveUp = 60
	for range gaveUp {
		ctx, cancel := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
		if err := check(ctx); err == nil {
			t.Error("a stopped node answers")
		}
		cancel()
	}
	waits := make(chan error, 1)
	go func() { waits <- check(t.Context()) }()
	eventually(t, "the callers have given up for a while", func() bool { return raw.Time(t.Context()).Val().Sub(began) > 2*time.Second })
	if err := syscall.Kill(node.command.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a client that waited: %v", err)
	}
	node.interrupt() // it serves what waited
	<-node.ended
	// The node waits 10 ms for the reset that follows a request. On a busy machine it can come later.
	if n := known - left(); n < 1 || n > 1+gaveUp/10 {
		t.Errorf("%d charges after the pause, want the one of the client that waited; %d gave up", n, gaveUp)
	}
}
