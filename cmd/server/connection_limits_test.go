package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/connlimit"
)

// The default limit of connections leaves enough file descriptors for everything else.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		connections, perAddress, files int
		resp, envoy                    string
		want                           connlimit.Limits
	}{
		{10_000, 0, 0, "", "", connlimit.Limits{Total: 10_000, Reserve: 64, PerAddress: 5000}},
		{10_000, 0, 1_048_576, "", "", connlimit.Limits{Total: 10_000, Reserve: 64, PerAddress: 5000}},
		{10_000, 700, 1024, "", "", connlimit.Limits{Total: 768, Reserve: 48, PerAddress: 700}},
		{10_000, 0, 256, "", "", connlimit.Limits{Total: 192, Reserve: 12, PerAddress: 96}},
		{10_000, 0, 64, "", "", connlimit.Limits{Total: 16, Reserve: 4, PerAddress: 8}},
		{10_000, 0, 256, ":6380", "", connlimit.Limits{Total: 96, Reserve: 6, PerAddress: 48}},
		{10_000, 0, 256, ":6380", ":8081", connlimit.Limits{Total: 64, Reserve: 4, PerAddress: 32}},
		{100, 0, 256, "", "", connlimit.Limits{Total: 100, Reserve: 6, PerAddress: 50}},
	} {
		s := serveSettings{MaxConnections: c.connections, MaxPerAddress: c.perAddress, RESPAddr: c.resp, EnvoyAddr: c.envoy}
		if got := s.connectionLimits(c.files); got != c.want {
			t.Errorf("%d, %d, %d files: %+v, want %+v", c.connections, c.perAddress, c.files, got, c.want)
		}
	}
}

// Connections that send nothing do not prevent other clients from connecting. Health checks are
// answered while all connections are in use.
func TestSilentConnectionsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_MAX_CONNECTIONS": "16", "HEADGATE_MAX_CONNECTIONS_PER_ADDRESS": "16",
	})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(node.origin, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(path string) (status int) {
		c := dial()
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+bootstrap+"\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(path, err)
		}
		return r.StatusCode
	}
	for range 40 {
		dial()
	}
	for range 20 {
		if got := ask("/v1/tenants"); got != http.StatusOK {
			t.Fatalf("a client beside silent connections gets %d", got)
		}
	}
	for range 12 { // each waits for its body
		// A client can read its answer before the server marks the connection as idle. Until
		// then the connection keeps its place.
		eventually(t, "a client gets a place", func() bool {
			c := dial()
			_, _ = io.WriteString(c, "POST /v1/tenants HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer "+bootstrap+
				"\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
			line, err := bufio.NewReader(c).ReadString('\n')
			if err != nil || !strings.Contains(line, "100") && !strings.Contains(line, "503") {
				t.Fatal(line, err)
			}
			return strings.Contains(line, "100")
		})
	}
	if got := ask("/v1/tenants"); got != http.StatusServiceUnavailable {
		t.Errorf("a request above the limit gets %d", got)
	}
	if got := ask("/readyz"); got != http.StatusOK {
		t.Errorf("readiness is %d while all connections are in use", got)
	}
	node.await(node.logs, regexp.MustCompile("the connections are at their limit"))
}

// A node ends the request if the body has not arrived within 10 s, with and without chunked
// encoding. It rejects a chunk that is larger than the largest allowed body as soon as it has
// read the size of the chunk.
func TestBodiesEnd(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap})
	for body, want := range map[string]int{
		"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n": http.StatusRequestEntityTooLarge,
		"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n":   http.StatusBadRequest,
		"Content-Length: 9\r\n\r\n{":                     http.StatusBadRequest,
	} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", strings.TrimPrefix(node.origin, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer "+bootstrap+"\r\n"+body)
			_ = c.SetReadDeadline(time.Now().Add(13 * time.Second)) // ends within 10 s; the old bound was 15 s
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.StatusCode != want || r.Header.Get("X-Request-Id") == "" {
				t.Errorf("%v", r)
			}
		})
	}
}
