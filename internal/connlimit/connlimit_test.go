package connlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/http1"
)

// A site is a server behind a Listener. Requests of /wait wait until the end of the
// test, and /health is vital.
type site struct {
	*connlimit.Listener
	t       *testing.T
	address string
	waiting chan struct{}
}

func serve(t *testing.T, limits connlimit.Limits, pressure func(connlimit.Status)) *site {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Listener: connlimit.Wrap(inner, limits, pressure), t: t, address: inner.Addr().String(), waiting: make(chan struct{})}
	leave := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Wait") != "" {
			s.waiting <- struct{}{}
			<-leave
		}
		_, _ = io.WriteString(w, "ok")
	})
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	server := &http1.Server{Path: "/check", HTTP: &http.Server{
		Handler:   s.Handler(handler, refuse, func(r *http.Request) bool { return r.URL.Path == "/health" }),
		ConnState: s.ConnState, ConnContext: s.ConnContext, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 1 << 40, ReadTimeout: 1 << 40, WriteTimeout: 1 << 40, IdleTimeout: 1 << 40,
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s) }()
	t.Cleanup(func() {
		close(leave)
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// A client is one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (s *site) dial() *client {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// ask returns the status of the answer, and 0 if the connection is closed.
func (c *client) ask(method, path string) int {
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", method, path); err != nil {
		return 0
	}
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// patience is how long a step of a test may take before it fails.
const patience = time.Minute

// idle waits until n connections wait for a request. A client can read its answer
// before the server marks the connection as idle.
func (s *site) idle(n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); s.Idle() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%d connections are idle, want %d", s.Idle(), n)
		}
	}
}

// open waits until n connections are open. A client can read the end of a connection
// before the server counts it out.
func (s *site) open(n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); s.Status().Open != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%+v, want %d open", s.Status(), n)
		}
	}
}

// wait sends a request that is not answered before the end of the test.
func (s *site) wait(c *client, method, path string) {
	s.t.Helper()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: h\r\nX-Wait: 1\r\nContent-Length: 0\r\n\r\n", method, path); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.waiting:
	case <-time.After(patience):
		s.t.Fatal("the request did not arrive")
	}
}

// Connections that never sent a request make room first, then those that wait for
// the longest time. Both servers report who waits.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	var reports int
	s := serve(t, connlimit.Limits{Total: 6, Reserve: 2}, func(connlimit.Status) { reports++ })
	check, page, silent, busy := s.dial(), s.dial(), s.dial(), s.dial()
	for _, c := range []*client{check, page} {
		if got := c.ask("POST", "/check"); got != http.StatusOK {
			t.Fatal(got)
		}
		s.idle(4)
	}
	if got := page.ask("GET", "/"); got != http.StatusOK {
		t.Fatal(got)
	}
	s.wait(busy, "POST", "/check")
	s.idle(3)
	fourth := s.dial() // silent goes
	if got := fourth.ask("POST", "/check"); got != http.StatusOK {
		t.Fatal(got)
	}
	if got := silent.ask("POST", "/check"); got != 0 {
		t.Errorf("a connection without a request was kept: %d", got)
	}
	s.idle(3)
	fifth := s.dial() // check goes: it waits for the longest time
	if got := fifth.ask("GET", "/"); got != http.StatusOK {
		t.Fatal(got)
	}
	if got := check.ask("POST", "/check"); got != 0 {
		t.Errorf("the connection that was idle for the longest time was kept: %d", got)
	}
	if got := page.ask("GET", "/"); got != http.StatusOK {
		t.Errorf("a connection in use was closed: %d", got)
	}
	if status := s.Status(); status.Open != 4 || status.Evicted != 2 || status.Refused != 0 || status.Limit != 6 {
		t.Errorf("%+v", status)
	}
	if reports != 1 {
		t.Errorf("pressure was reported %d times within a minute", reports)
	}
}

// While all connections are in use, the reserve answers health, and 503 to the rest.
// Silent connections do not fill the reserve.
func TestReserve(t *testing.T) {
	t.Parallel()
	s := serve(t, connlimit.Limits{Total: 5, Reserve: 2}, nil)
	for range 3 {
		s.wait(s.dial(), "POST", "/check")
	}
	for range 4 {
		s.dial()
	}
	for _, ask := range []struct {
		method, path string
		want         int
	}{{"GET", "/health", http.StatusOK}, {"POST", "/check", http.StatusServiceUnavailable}, {"GET", "/", http.StatusServiceUnavailable}} {
		c := s.dial()
		if got := c.ask(ask.method, ask.path); got != ask.want {
			t.Errorf("%s %s: %d, want %d", ask.method, ask.path, got, ask.want)
		}
		if got := c.ask("GET", "/health"); got != 0 {
			t.Errorf("a connection of the reserve was kept: %d", got)
		}
		s.open(4) // three in use, and one silent
	}
	if status := s.Status(); status.Open > 5 || status.Refused != 2 {
		t.Errorf("%+v", status)
	}
}

// Requests whose bodies never end do not keep the connections of the reserve.
func TestReserveWithUnfinishedBodies(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/check", "/"} { // of http1, and of net/http
		s := serve(t, connlimit.Limits{Total: 5, Reserve: 2}, nil)
		for range 3 {
			s.wait(s.dial(), "POST", "/check")
		}
		for range 3 {
			for range 4 {
				c := s.dial()
				if _, err := io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n{"); err != nil {
					t.Fatal(err)
				}
				// The answer, or the end of the connection if a later one needed its place.
				_, _ = c.Read(make([]byte, 1))
			}
			if got := s.dial().ask("GET", "/health"); got != http.StatusOK {
				t.Errorf("%s: health beside requests that do not end: %d", path, got)
			}
		}
	}
}

// One address has a bound: its own idle connections make room, and if all are in use,
// a further one is closed.
func TestPerAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, connlimit.Limits{Total: 100, Reserve: 2, PerAddress: 2}, nil)
	idle := s.dial()
	if got := idle.ask("POST", "/check"); got != http.StatusOK {
		t.Fatal(got)
	}
	s.idle(1)
	s.wait(s.dial(), "POST", "/check")
	s.wait(s.dial(), "POST", "/check") // idle goes
	if got := idle.ask("POST", "/check"); got != 0 {
		t.Error("the idle connection was kept")
	}
	if got := s.dial().ask("GET", "/health"); got != 0 {
		t.Errorf("a third connection of one address was answered: %d", got)
	}
	if status := s.Status(); status.Open != 2 || status.Evicted != 1 || status.Refused != 1 {
		t.Errorf("%+v", status)
	}
}

// A write ends when the client does not read, also if the connection has no deadline or a later one.
// A client that reads slowly gets the whole response, although it takes longer than that time.
func TestClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := connlimit.Wrap(inner, connlimit.Limits{Total: 10}, nil)
	l.SetStall(time.Second)
	const size = 32 << 20 // more than the buffers of both sockets
	connect := func() (client, server net.Conn) {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		return client, server
	}
	for name, deadline := range map[string]time.Time{"no deadline": {}, "a later deadline": time.Now().Add(time.Hour)} {
		_, server := connect()
		if err := server.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) || n == size {
			t.Errorf("%s: %d bytes were written, %v, want that the deadline is exceeded", name, n, err)
		}
	}
	l.SetStall(10 * time.Second)
	client, server := connect()
	_ = server.SetWriteDeadline(time.Now().Add(-time.Second))
	if _, err := server.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an earlier deadline: %v", err)
	}
	_ = server.SetWriteDeadline(time.Time{})
	read := make(chan int64, 1)
	go func() {
		total := int64(0)
		for {
			n, err := io.CopyN(io.Discard, client, size/6)
			if total += n; err != nil {
				break
			}
			time.Sleep(2 * time.Second) // six times: longer than the stall together, shorter each
		}
		read <- total
	}()
	if n, err := server.Write(make([]byte, size)); err != nil {
		t.Errorf("a slow client: %d bytes were written, %v", n, err)
	}
	_ = server.Close()
	if n := <-read; n != size {
		t.Errorf("a slow client read %d bytes of %d", n, size)
	}
}
