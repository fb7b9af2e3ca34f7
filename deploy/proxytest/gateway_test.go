package proxytest

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/deploy/recipes"
)

const deadline = 60 * time.Second

// freeAddress returns an address on loopback that was free, and that no other test has.
func freeAddress(t *testing.T) string {
	t.Helper()
	addressesMu.Lock()
	defer addressesMu.Unlock()
	for {
		ports, err := recipes.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		if address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])); !addresses[address] {
			addresses[address] = true
			return address
		}
	}
}

var (
	addressesMu sync.Mutex
	addresses   = map[string]bool{} // that freeAddress returned; guarded by addressesMu
)

// start starts a program that ends with the test or with kill, and returns when the address answers.
func start(t *testing.T, address string, cmd *exec.Cmd) (kill func()) {
	t.Helper()
	cmd.WaitDelay = time.Second // a child of a killed gateway may hold its output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	kill = func() { _ = cmd.Process.Kill(); <-ended }
	t.Cleanup(kill)
	dialer, end := net.Dialer{}, time.After(deadline)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if c, err := dialer.DialContext(t.Context(), "tcp", address); err == nil {
			_ = c.Close()
			return kill
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%s ended before it listened on %s: %v", filepath.Base(cmd.Path), address, cmd.ProcessState)
		case <-end:
			t.Fatalf("%s does not answer", address)
		}
	}
}

// keyPattern is an API key of a tenant.
var keyPattern = regexp.MustCompile(`hg_tn_[A-Za-z0-9]+`)

// servesPattern is in what Headgate prints when it is ready.
var servesPattern = regexp.MustCompile(`serves https?://`)

// headgateBinary is the program headgate, which make test-proxies builds.
const headgateBinary = "../../bin/headgate"

// startHeadgate starts a Headgate with its default settings, and the gRPC services of Envoy, and returns the key of its
// first tenant. With HEADGATE_SAMPLE=false among the settings, there is none, and
// the result has no meaning.
func startHeadgate(t *testing.T, address, services string, settings ...string) string {
	t.Helper()
	binary, err := filepath.Abs(headgateBinary)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--addr", address)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HEADGATE_TRUSTED_PROXIES=127.0.0.1/32", "HEADGATE_LOG_LEVEL=error", "HEADGATE_ENVOY_ADDR="+services)
	cmd.Env = append(cmd.Env, settings...)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	start(t, address, cmd)
	_ = in.Close()
	line := keyPattern
	if slices.Contains(settings, "HEADGATE_SAMPLE=false") {
		line = servesPattern
	}
	timer := time.AfterFunc(deadline, func() { _ = out.Close() })
	t.Cleanup(func() { timer.Stop(); _ = out.Close() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if k := line.FindString(lines.Text()); k != "" {
			timer.Stop()
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return k
		}
	}
	t.Fatal("Headgate prints no key")
	return ""
}

// upstreamOf starts the API behind the gateway. It answers with the method, the size of the body, and the headers of
// limits that it received, as Received-RateLimit and so on.
func upstreamOf(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			echo(w, r)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		for _, name := range append([]string{"RateLimit", "RateLimit-Policy"}, softHeaders...) {
			for _, value := range r.Header.Values(name) {
				w.Header().Add("Received-"+name, value)
			}
		}
		_, _ = fmt.Fprintf(w, "%s %d", r.Method, n)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// echo switches to the WebSocket protocol and sends back what it receives. Gateways check the key that it accepts.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	accepted := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 1.3
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(accepted[:]))
	_, _ = io.Copy(conn, rw)
}

// send posts a body and returns the answer.
func send(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	return sendAs(t, http.MethodPost, url, body, header...)
}

func sendAs(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(text)
}
