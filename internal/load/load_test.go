package load_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// serve starts a server and returns the configuration of a Run against it.
func serve(t *testing.T, handler http.HandlerFunc) load.Config {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	return load.Config{
		Dial:     func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) },
		Request:  load.NewRequest(address, "/v1/check", `{"user":"u`+load.KeyPlace+`"}`, 10, "Authorization: Bearer key"),
		Duration: 20 * time.Millisecond,
	}
}

func run(t *testing.T, cfg load.Config) *load.Result {
	t.Helper()
	result, err := load.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestClosedLoopCountsEveryAnswer(t *testing.T) {
	t.Parallel()
	var served, open, most atomic.Int64
	var mu sync.Mutex
	users := map[string]bool{}
	cfg := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		users[string(body)] = true
		mu.Unlock()
		if err != nil || r.Header.Get("Authorization") != "Bearer key" || r.Method != "POST" || r.URL.Path != "/v1/check" {
			t.Errorf("%s %s: %v, %v", r.Method, r.URL, r.Header, err)
		}
		switch served.Add(1) % 5 {
		case 0:
			w.WriteHeader(429)
			fmt.Fprint(w, `{"allowed":false}`)
		case 1:
			w.WriteHeader(503)
		case 2:
			w.WriteHeader(403) // of a key, not of a decision
		case 3:
			fmt.Fprint(w, `{"allowed":true,"degraded":true}`)
		}
	})
	cfg.Connections = 3
	got := run(t, cfg)
	n := served.Load()
	if got.Requests != n || n < 3 {
		t.Errorf("%d requests, %d served", got.Requests, n)
	}
	if got.Latency.Count() != got.Decided() || got.UnavailableLatency.Count() != got.Unavailable {
		t.Errorf("%d latencies, %d of 503s, of %+v", got.Latency.Count(), got.UnavailableLatency.Count(), got.Counts)
	}
	if got.Denied != n/5 || got.Unavailable != (n+4)/5 || got.Failed != (n+3)/5 || got.Degraded != (n+2)/5 || got.Allowed != (n+2)/5+(n+1)/5 {
		t.Errorf("of %d: %+v", n, got.Counts)
	}
	if got.Statuses[429] != n/5 || got.Statuses[503] != (n+4)/5 || got.Err != nil || got.Unsent != 0 {
		t.Errorf("statuses %v, %v, %d unsent", got.Statuses, got.Err, got.Unsent)
	}
	if most.Load() > 3 {
		t.Errorf("%d requests at once on 3 connections", most.Load())
	}
	for user := range users {
		if !strings.HasPrefix(user, `{"user":"u0000000`) || len(user) != len(`{"user":"u00000000"}`) {
			t.Errorf("body %s", user)
		}
	}
}

// Requests of an open loop are due whether or not answers come: those that the
// server keeps waiting are late, and their latency says so.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	cfg := serve(t, func(http.ResponseWriter, *http.Request) {})
	cfg.Connections, cfg.Rate = 4, 1000
	got := run(t, cfg)
	if got.Requests+got.Unsent != 20 {
		t.Errorf("%d answered and %d unsent of 20 that were due", got.Requests, got.Unsent)
	}

	var hold sync.Once
	cfg = serve(t, func(http.ResponseWriter, *http.Request) {
		hold.Do(func() { <-time.After(10 * time.Millisecond) }) // the server's time, which the latency must hold
	})
	cfg.Connections, cfg.Rate = 1, 1000
	got = run(t, cfg)
	if got.Requests+got.Unsent != 20 {
		t.Errorf("behind a slow answer: %d answered and %d unsent of 20", got.Requests, got.Unsent)
	}
	// The requests that were due in the first 6 ms waited 4 ms or longer: they are
	// more than a quarter of the 20, and more of fewer.
	if got.Latency.Quantile(0.75) < 4*time.Millisecond || got.Latency.Max() < 10*time.Millisecond {
		t.Errorf("75%% of the latencies are up to %s, the longest is %s", got.Latency.Quantile(0.75), got.Latency.Max())
	}
}

func TestBatchCountsItsItems(t *testing.T) {
	t.Parallel()
	items := []string{
		`{"status":200,"allowed":true,"degraded":true}`, `{"type":"x","status":429,"allowed":false}`, `{"status":503,"allowed":false}`,
		`{"status":403,"allowed":false}`, `{"status":404}`,
	}
	cfg := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"results":[`+strings.Join(items, ",")+`]}`)
	})
	cfg.Checks = 6 // one more than is answered
	got := run(t, cfg)
	n := got.Requests
	if want := (load.Counts{Allowed: n, Denied: 2 * n, Unavailable: n, Degraded: n, Failed: 2 * n}); got.Counts != want || n == 0 {
		t.Errorf("%+v of %d answers, want %+v", got.Counts, n, want)
	}
}

func TestAnswersInEveryForm(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	cfg := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 3 {
		case 0: // in chunks
			fmt.Fprint(w, `{"allowed":`)
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, `true}`, strings.Repeat(" ", 40_000))
		case 1: // the connection ends
			w.Header().Set("Connection", "close")
		}
	})
	got := run(t, cfg)
	if got.Requests != n.Load() || got.Allowed != got.Requests || got.Err != nil {
		t.Errorf("%d of %d: %+v, %v", got.Requests, n.Load(), got.Counts, got.Err)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	cfg := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	got := run(t, cfg)
	if got.Failed == 0 || got.Requests != 0 || got.Err == nil {
		t.Errorf("%+v, %v", got.Counts, got.Err)
	}
	cfg.Dial = func(context.Context) (net.Conn, error) { return nil, errors.New("no server") }
	if _, err := load.Run(t.Context(), cfg); err == nil || err.Error() != "no server" {
		t.Errorf("without a server: %v", err)
	}
}

// A counter is a Caller of another protocol.
type counter struct {
	calls  *atomic.Int64
	closed *atomic.Int64
}

func (c counter) Call(context.Context) (load.Counts, error) {
	if c.calls.Add(1) == 2 {
		return load.Counts{}, errors.New("broken")
	}
	return load.Counts{Allowed: 3, Denied: 1}, nil
}

func (c counter) Close() { c.closed.Add(1) }

// The calls of other protocols are counted as requests are, and a Caller that fails is opened again.
func TestCallersOfOtherProtocols(t *testing.T) {
	t.Parallel()
	var opened, calls, closed atomic.Int64
	got := run(t, load.Config{
		Open:        func(context.Context) (load.Caller, error) { opened.Add(1); return counter{&calls, &closed}, nil },
		Connections: 2, Checks: 4, Rate: 1000, Duration: 20 * time.Millisecond,
	})
	broken := min(calls.Load()/2, 1) // a busy machine may send none
	n := calls.Load() - broken
	if got.Requests != n || n+broken+got.Unsent != 20 {
		t.Errorf("%d requests and %d unsent of 20, %d calls", got.Requests, got.Unsent, n+broken)
	}
	if want := (load.Counts{Allowed: 3 * n, Denied: n, Failed: 4 * broken}); got.Counts != want || got.Latency.Count() != n || broken > 0 && got.Err == nil {
		t.Errorf("%+v, %v, %d latencies, want %+v", got.Counts, got.Err, got.Latency.Count(), want)
	}
	if opened.Load() < 2 || closed.Load() != opened.Load() {
		t.Errorf("%d were opened, %d closed", opened.Load(), closed.Load())
	}
	if _, err := load.Run(t.Context(), load.Config{
		Open: func(context.Context) (load.Caller, error) { return nil, errors.New("no server") },
	}); err == nil || err.Error() != "no server" {
		t.Errorf("without a server: %v", err)
	}
}

// An answer that never comes does not hold a Run whose context ends.
func TestContextEndsARun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	cfg := serve(t, func(http.ResponseWriter, *http.Request) { cancel(); <-release })
	t.Cleanup(func() { close(release) }) // before the server closes, which waits for its requests
	cfg.Duration = time.Hour
	got, err := load.Run(ctx, cfg)
	if err != nil || got.Failed != 0 || got.Requests != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
