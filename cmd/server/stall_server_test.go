//go:build !quick

package main

import (
	"fmt"
	"io"
	"net"
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
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal stops the threads later. A check that comes before would be decided.
	var state syscall.WaitStatus
	if _, err := syscall.Wait4(process.Pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
		t.Fatalf("the node is not stopped: %v, %v", state, err)
	}
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
