//go:build !quick

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fullLoad selects the full form of the load tests. make test-load sets the variable.
// Otherwise a small form runs, which fits into make test.
var fullLoad = os.Getenv("HEADGATE_TEST_LOAD") == "full"

// loadPatience is the timeout of one request in the load tests. It only ends tests that hang.
const loadPatience = 5 * time.Minute

// A loader has connections to nodes. Each connection has at most one request in progress.
type loader struct {
	t     testing.TB
	conns []*loadConn
}

type loadConn struct {
	net.Conn
	replies *bufio.Reader
}

// connect opens n connections, distributed over the nodes, and closes them when the test ends.
func connect(t testing.TB, origins []string, n int) *loader {
	t.Helper()
	l := &loader{t: t, conns: make([]*loadConn, n)}
	t.Cleanup(l.close)
	var wait sync.WaitGroup
	for i := range n { // at once: a node closes a connection on which no request comes
		wait.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(origins[i%len(origins)], "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			l.conns[i] = &loadConn{conn, bufio.NewReader(conn)}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return l
}

func (l *loader) close() {
	for _, c := range l.conns {
		if c != nil {
			_ = c.Close()
		}
	}
}

// send distributes requests over the connections, which all start at the same time. It returns
// the responses in the order of the requests.
func (l *loader) send(requests [][]byte) []answer {
	l.t.Helper()
	answers, begin := make([]answer, len(requests)), make(chan struct{})
	var wait sync.WaitGroup
	for i, c := range l.conns {
		wait.Go(func() {
			<-begin
			for k := i; k < len(requests); k += len(l.conns) {
				a, err := c.ask(requests[k])
				if err != nil {
					l.t.Errorf("request %d of %d: %v", k, len(requests), err)
					return
				}
				answers[k] = a
			}
		})
	}
	close(begin)
	wait.Wait()
	return answers
}

// ask sends one request and reads its answer.
func (c *loadConn) ask(request []byte) (answer, error) {
	if err := c.SetDeadline(time.Now().Add(loadPatience)); err != nil {
		return answer{}, err
	}
	if _, err := c.Write(request); err != nil {
		return answer{}, err
	}
	response, err := http.ReadResponse(c.replies, nil)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}, err
}

// post returns the text of an HTTP request with the bootstrap key.
func post(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: headgate\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, bootstrap, len(body), body)
}

// A result is the part of an answer to one check that the tests of load read.
type result struct {
	Status   int
	Allowed  bool
	Reason   string
	Degraded bool
	Limits   []struct {
		Remaining int
	}
}

// results reads the answer to a check, or those to the checks of a batch.
func (a answer) results(t testing.TB) []result {
	t.Helper()
	var read struct {
		result
		Results []result
	}
	if a.status == 0 {
		return nil // the connection failed, which send reported
	}
	a.into(t, &read)
	if read.Results != nil {
		return read.Results
	}
	read.Status = a.status
	return []result{read.result}
}

// hog occupies n processors beside the nodes until the test ends or stop is called.
func hog(t testing.TB, n int) (stop func()) {
	t.Helper()
	var hogs []*exec.Cmd
	stop = func() {
		for _, h := range hogs {
			_ = h.Process.Kill()
			_ = h.Wait()
		}
		hogs = nil
	}
	t.Cleanup(func() { stop() })
	for range n {
		h := exec.Command("sh", "-c", "while :; do :; done")
		h.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := h.Start(); err != nil {
			t.Fatal(err)
		}
		hogs = append(hogs, h)
	}
	return stop
}

// faultMetrics are the series of a node that must not change while Redis is well.
var faultMetrics = []string{
	"headgate_degraded_total", "headgate_redis_mismatches_total", "headgate_redis_reachable", "headgate_redis_breaker_open",
}

// watched has the state of a node before the load, for comparison.
type watched struct {
	t       testing.TB
	node    *running
	metrics []string
	log     int // bytes
}

// watch records the fault metrics of nodes.
func watch(t testing.TB, nodes []*running) []*watched {
	t.Helper()
	var all []*watched
	for _, node := range nodes {
		w := &watched{t: t, node: node, log: len(node.logs.String())}
		w.metrics = w.read()
		all = append(all, w)
	}
	return all
}

func (w *watched) read() []string {
	w.t.Helper()
	text := call(w.t, "", "GET", w.node.origin+"/metrics", "").want(w.t, 200).body
	var lines []string
	for _, name := range faultMetrics {
		lines = append(lines, line(text, name+" "))
	}
	return lines
}

// unchanged fails the test if the node degraded a decision or lost Redis, or if the script and
// the reference disagreed. The log shows whether a circuit breaker opened.
func (w *watched) unchanged() {
	w.t.Helper()
	for i, now := range w.read() {
		if now != w.metrics[i] {
			w.t.Errorf("%s: %s, before the load %s", w.node.origin, now, w.metrics[i])
		}
	}
	for said := range strings.Lines(w.node.logs.String()[w.log:]) {
		var entry struct{ Level string }
		if json.Unmarshal([]byte(said), &entry) == nil && (entry.Level == "WARN" || entry.Level == "ERROR") &&
			(strings.Contains(said, "redis") || strings.Contains(said, "limiter")) {
			w.t.Errorf("%s logged: %s", w.node.origin, said)
		}
	}
}

// line returns the first line of a text that starts with start.
func line(text, start string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, start) {
			return strings.TrimSpace(l)
		}
	}
	return "none"
}
