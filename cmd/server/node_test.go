package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/logging"
)

// patience is the timeout of every wait in these tests. It only ends tests that hang.
const patience = 5 * time.Minute

// bootstrap is the operator key of the nodes that these tests start.
const bootstrap = "bootstrap-0123456789-0123456789-0123456789"

// running is a node that runs in the process of the test, like in main.
type running struct {
	t       testing.TB
	origin  string
	out     *output
	logs    *output
	stop    context.CancelFunc
	stopped chan error
}

// start runs headgate serve with settings and waits until it has printed its URL.
func start(t testing.TB, settings map[string]string) *running {
	t.Helper()
	r := launchInProcess(t, settings)
	r.origin = r.await(r.out, servesAt)[1]
	return r
}

// launchInProcess is like start, but does not wait.
func launchInProcess(t testing.TB, settings map[string]string) *running {
	t.Helper()
	return launchWithLogClock(t, settings, logging.Clock{})
}

// launchWithLogClock is launchInProcess with a clock for the log.
func launchWithLogClock(t testing.TB, settings map[string]string, clock logging.Clock) *running {
	t.Helper()
	environment := map[string]string{"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_SNAPSHOT_FILE": "off", "HEADGATE_METRICS_PUBLIC": "true"}
	for name, value := range settings {
		environment[name] = value
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, out: newOutput(), logs: newOutput(), stop: cancel, stopped: make(chan error, 1)}
	p := program{getenv: func(name string) string { return environment[name] }, stdin: strings.NewReader(""), stdout: r.out, stderr: r.logs, logClock: clock}
	go func() { r.stopped <- p.run(ctx, []string{"serve"}) }()
	t.Cleanup(func() { r.end() })
	return r
}

// servesAt matches the line in which a node prints its URL.
var servesAt = regexp.MustCompile(`serves (https?://\S+)`)

// freeAddr returns a loopback address with a free port.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await waits for output that matches.
func (r *running) await(o *output, re *regexp.Regexp) []string {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		text, changed := o.read()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-changed:
		case err := <-r.stopped:
			r.stopped <- err
			r.t.Fatalf("the node stopped before %q was written: %v\n%s\n%s", re, err, text, r.logs)
		case <-deadline:
			r.t.Fatalf("%q was not written within %s:\n%s\n%s", re, patience, text, r.logs)
		}
	}
}

// end stops the node like a signal does, and returns its error.
func (r *running) end() error {
	r.stop()
	select {
	case err := <-r.stopped:
		r.stopped <- err
		return err
	case <-time.After(patience):
		r.t.Errorf("the node did not stop within %s\n%s", patience, r.logs)
		return nil
	}
}

// An answer is a response with its whole body.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%d answer is not JSON: %v\n%s", a.status, err, a.body)
	}
}

// call sends one request with a key.
func call(t testing.TB, key, method, url, body string, header ...string) answer {
	t.Helper()
	a, err := tryCall(t.Context(), key, method, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryCall(ctx context.Context, key, method, url, body string, header ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if slices.Contains(header[:i], header[i]) {
			request.Header.Add(header[i], header[i+1])
			continue
		}
		request.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

var client = &http.Client{
	Timeout:       patience,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// want fails unless the answer has the status.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// eventually calls ok until it returns true. Tests use it for changes that reach other nodes
// later.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}

// An output is the output of a program. It can be read while the program writes.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

func (o *output) String() string { text, _ := o.read(); return text }

// sqliteIn returns a database URL for a folder.
func sqliteIn(folder string) string { return fmt.Sprintf("sqlite://%s/headgate.db", folder) }
