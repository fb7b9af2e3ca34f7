package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/http1"
)

const path = "/v1/check"

// start serves a handler until the end of the test, and returns the address.
func start(t testing.TB, handler http.HandlerFunc) (*http1.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http1.Server{Path: path, MaxBody: func(*http.Request) int64 { return 1 << 20 }, HTTP: &http.Server{
		Handler: handler, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return s, l.Addr().String()
}

// echo answers with everything that it received, and with who served it.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	server := "http1"
	if _, ok := w.(http.Hijacker); ok {
		server = "net/http"
	}
	w.Header().Set("Server", server)
	w.Header()["X-Many"] = []string{"a\r\nb", "c"}
	if r.Header.Get("X-Close") != "" {
		w.Header().Set("Connection", "close")
	}
	answer := fmt.Sprintf("%s %s %s %s %v %d %q %q %v", r.Method, r.URL, r.Proto, r.Host, r.Header, r.ContentLength, r.RequestURI, body, err)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, answer)
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// exchange sends text, closes the sending side, and returns all answers, without
// the header Date, and which server answered each.
func exchange(t testing.TB, address string, parts ...string) (answers []string, servers []string) {
	t.Helper()
	c := dial(t, address)
	for i, part := range parts {
		if _, err := io.WriteString(c, part); err != nil {
			break // the server has answered and closed the connection
		}
		if i < len(parts)-1 {
			time.Sleep(time.Millisecond) // so that most parts arrive alone
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // less than the timeouts of the server
	in := bufio.NewReader(c)
	answers, servers = readAll(in)
	if _, err := in.ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q: the server has not closed the connection", parts)
	}
	return answers, servers
}

func readAll(in *bufio.Reader) (answers, servers []string) {
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
		if err != nil {
			return answers, servers
		}
		servers = append(servers, r.Header.Get("Server"))
		r.Header.Del("Server")
		if r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Date") == "" {
			answers = append(answers, "no Date")
		}
		r.Header.Del("Date")
		body, err := io.ReadAll(r.Body)
		answers = append(answers, fmt.Sprintf("%s %s %v %d %v %q %v", r.Proto, r.Status, r.Header, r.ContentLength, r.Close, body, err))
	}
}

func usual(body string, headers ...string) string {
	return "POST /v1/check HTTP/1.1\r\nHost: h\r\n" + strings.Join(append(headers, ""), "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// requests are the parts from which the tests build connections. own reports whether http1
// answers the request itself.
var requests = []struct {
	name, text string
	own        bool
}{
	{"usual", usual("{}", "Authorization: Bearer x", "content-type:application/json"), true},
	{"another length", usual(`{"a":1}`, "Authorization: Bearer x"), true},
	{"empty body", usual(""), true},
	{"keep-alive", usual("{}", "Connection: keep-alive"), true},
	{"a header twice", usual("{}", "X-A: 1", "x-a:\t2 "), true},
	{"empty value", usual("{}", "X-A:"), true},
	{"as large as the buffer", usual(strings.Repeat("x", 4000)), true},
	{"too large", usual(strings.Repeat("x", 5000)), false},
	{"large headers", usual("{}", "X-A: "+strings.Repeat("x", 5000)), false},
	{"another path", "GET /v1/checks HTTP/1.1\r\nHost: h\r\n\r\n", false},
	{"a query", "POST /v1/check?deny_status=200 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", false},
	{"GET", "GET /v1/check HTTP/1.1\r\nHost: h\r\n\r\n", false},
	{"HTTP/1.0", "POST /v1/check HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", false},
	{"lines without CR", "POST /v1/check HTTP/1.1\nHost: h\nContent-Length: 2\n\n{}", false},
	{"no host", "POST /v1/check HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", false},
	{"two hosts", usual("{}", "Host: g"), false},
	{"a bad host", "POST /v1/check HTTP/1.1\r\nHost: a b\r\nContent-Length: 2\r\n\r\n{}", false},
	{"no length", "POST /v1/check HTTP/1.1\r\nHost: h\r\n\r\n", false},
	{"two lengths", usual("{}", "Content-Length: 2"), false},
	{"different lengths", usual("{}", "Content-Length: 3"), false},
	{"a bad length", "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\n{}", false},
	{"a huge length", "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n{}", false},
	{"chunked", "POST /v1/check HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true},
	{"chunked with extensions and a trailer", "POST /v1/check HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n{\r\n01 \r\n}\r\n0\r\nX-A: 1\r\n\r\n", true},
	{"chunked with another path", "POST /v1/checks HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true},
	{"close", usual("{}", "Connection: close"), false},
	{"expect", usual("{}", "Expect: 100-continue"), false},
	{"upgrade", usual("{}", "Connection: Upgrade", "Upgrade: h2c"), false},
	{"a space before the colon", usual("{}", "X-A : 1"), false},
	{"a folded header", usual("{}", "X-A: 1", " 2"), false},
	{"no colon", usual("{}", "X-A"), false},
	{"no name", usual("{}", ": 1"), false},
	{"a control character", usual("{}", "X-A: \x01"), false},
	{"a lone CR", usual("{}", "X-A: 1\rX-B: 2"), false},
	{"UTF-8", usual("{}", "X-A: ü"), false},
	{"the body ends early", "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{}", false},
	{"the headers end early", "POST /v1/check HTTP/1.1\r\nHost: h", false},
	{"not HTTP", "\x16\x03\x01\x02\x00\x01", false},
	{"the answer closes", usual("{}", "X-Close: 1"), true},
}

// Every connection gets the answers that net/http alone gives, whichever server
// gives them.
func TestSameAnswersAsNetHTTP(t *testing.T) {
	_, address := start(t, echo)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reference := &http.Server{Handler: http.HandlerFunc(echo), ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = reference.Serve(l) }()
	t.Cleanup(func() { _ = reference.Close() })
	same := func(t *testing.T, parts ...string) []string {
		t.Helper()
		want, _ := exchange(t, l.Addr().String(), parts...)
		for i := range want { // what net/http answers without a handler gets the headers of TestUnreadableRequestsHaveHeaders
			want[i] = strings.Replace(want[i], ` map[Content-Type:[text/plain; charset=utf-8]] -1 true "4`,
				` map[Cache-Control:[no-store] Content-Security-Policy:[default-src 'none'; frame-ancestors 'none'] `+
					`Content-Type:[text/plain; charset=utf-8] X-Content-Type-Options:[nosniff]] -1 true "4`, 1)
		}
		got, servers := exchange(t, address, parts...)
		if !slices.Equal(got, want) {
			t.Errorf("%q:\ngot  %q\nwant %q", parts, got, want)
		}
		return servers
	}
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			servers := same(t, r.text)
			if own := len(servers) > 0 && servers[0] == "http1"; own != r.own {
				t.Errorf("servers are %q, and http1 is to answer: %v", servers, r.own)
			}
			same(t, requests[0].text+r.text+requests[1].text)
			same(t, r.text+r.text+requests[0].text)
			if !r.own { // net/http may close the connection before the second part arrives
				return
			}
			end := strings.Index(r.text, "\r\n\r\n") + 4
			for _, cut := range []int{1, 10, strings.Index(r.text, "\r\n\r\n") + 2, strings.Index(r.text, "\r\n\r\n") + 4, len(r.text) - 1} {
				if strings.Contains(r.text, "chunked") && cut < end {
					continue // the connection closes: only a whole head shows that there is no Content-Length
				}
				if cut > 0 && cut < len(r.text) {
					same(t, requests[1].text, r.text[:cut], r.text[cut:])
				}
			}
		})
	}
}

// FuzzParse holds what http1 reads of any bytes against net/http.
func FuzzParse(f *testing.F) {
	for _, r := range requests {
		f.Add([]byte(r.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		head := bytes.Index(text, []byte("\r\n\r\n"))
		if head < 0 {
			return
		}
		got, ok := http1.Parse(path, text[:head+4])
		if !ok {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			t.Fatalf("net/http rejects %q: %v", text, err)
		}
		show := func(r *http.Request) string {
			return fmt.Sprintf("%s %+v %s %d %d %v %d %v %q %q %v", r.Method, *r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Header, r.ContentLength, r.TransferEncoding, r.Host, r.RequestURI, r.Close)
		}
		if show(got) != show(want) {
			t.Fatalf("%q:\ngot  %s\nwant %s", text, show(got), show(want))
		}
	})
}

// Shutdown closes idle connections and waits for the request under way.
func TestShutdown(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, address := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			close(entered)
			<-leave
		}
		echo(w, r)
	})
	idle, busy := dial(t, address), dial(t, address)
	fresh := dial(t, address) // sends nothing
	in := bufio.NewReader(idle)
	send(t, idle, usual("{}"))
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusTooManyRequests {
		t.Fatal(r, err)
	} else {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	send(t, busy, usual("{}", "X-Wait: 1"))
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("the idle connection ends with %q, %v", rest, err)
	}
	_, _ = io.ReadAll(fresh) // it ends; with a reset if it was not accepted yet
	select {
	case err := <-ended:
		t.Fatal("Shutdown returned before the answer:", err)
	default:
	}
	close(leave)
	if answers, _ := readAll(bufio.NewReader(busy)); len(answers) != 1 {
		t.Errorf("the request under way got %q", answers)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Shutdown ends with its context when an answer does not come.
func TestShutdownEndsWithItsContext(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s, address := start(t, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})
	defer close(leave)
	send(t, dial(t, address), usual("{}"))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A panic closes its connection without an answer, and no other connection.
func TestPanic(t *testing.T) {
	_, address := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Panic") {
		case "abort":
			panic(http.ErrAbortHandler)
		case "text":
			panic("text")
		}
		echo(w, r)
	})
	for _, cause := range []string{"abort", "text"} {
		if answers, _ := exchange(t, address, usual("{}")+usual("{}", "X-Panic: "+cause)+usual("{}")); len(answers) != 1 {
			t.Errorf("%s: %q", cause, answers)
		}
	}
}

// The context of a request reports that its client has left.
func TestLeft(t *testing.T) {
	entered, asked := make(chan context.Context), make(chan struct{})
	_, address := start(t, func(_ http.ResponseWriter, r *http.Request) {
		entered <- r.Context()
		<-asked
	})
	c := dial(t, address)
	send(t, c, usual("{}"))
	client := (<-entered).(interface{ Left() bool })
	if client.Left() {
		t.Error("the client has left")
	}
	_ = c.Close()
	for !client.Left() { // the end arrives soon
		time.Sleep(time.Millisecond)
	}
	close(asked)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// A request costs no more than what its handler costs.
func BenchmarkServer(b *testing.B) {
	_, address := start(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("{}"))
	})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := dial(b, address)
		in, text := bufio.NewReader(c), []byte(usual("{}", "Authorization: Bearer x"))
		for pb.Next() {
			if _, err := c.Write(text); err != nil {
				b.Fatal(err)
			}
			for line := []byte{0}; len(line) > 0; {
				line, _, _ = in.ReadLine()
			}
			_, _ = in.Discard(2)
		}
	})
}
