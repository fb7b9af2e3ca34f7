package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/http1"
)

const chunkedHead = "POST /v1/check HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"

// A request with two framings gets an answer, and the request behind it none (RFC 9112,
// section 6.1), on a new connection and on one that net/http serves.
func TestTwoFramingsClose(t *testing.T) {
	t.Parallel()
	_, address := start(t, echo)
	const body = "\r\n2\r\n{}\r\n0\r\n\r\n"
	for _, first := range []string{"", "GET /v1/checks HTTP/1.1\r\nHost: h\r\n\r\n", usual("{}")} {
		for _, head := range []string{chunkedHead + "Content-Length: 5\r\n", "POST /a HTTP/1.1\r\nHost: h\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n"} {
			answers, _ := exchange(t, address, first+head+body+usual("{}"))
			want := 1
			if first != "" {
				want = 2
			}
			if len(answers) != want || !strings.Contains(answers[want-1], " true ") {
				t.Errorf("%q: answers %q", first+head, answers)
			}
		}
	}
}

// A chunk that announces more than a body may have ends the request at its size line,
// while the client has sent no data and waits.
func TestLargeChunk(t *testing.T) {
	t.Parallel()
	_, address := start(t, func(w http.ResponseWriter, r *http.Request) {
		var large *http.MaxBytesError
		if _, err := io.ReadAll(r.Body); errors.As(err, &large) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	for _, size := range []string{"100001", "7fffffffffffffff"} {
		c := dial(t, address)
		send(t, c, chunkedHead+"\r\n2\r\n{}\r\n"+size+"\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != http.StatusRequestEntityTooLarge || !r.Close {
			t.Errorf("size %s: %v, %v", size, r, err)
		}
	}
}

// A request in chunks that is not read to its end closes its connection.
func TestUnreadChunks(t *testing.T) {
	t.Parallel()
	_, address := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if answers, _ := exchange(t, address, chunkedHead+"\r\n2\r\n{}\r\n0\r\n\r\n"+usual("{}")); len(answers) != 1 {
		t.Errorf("answers %q", answers)
	}
}

// FuzzChunks holds the bodies that http1 reads against those of net/http.
func FuzzChunks(f *testing.F) {
	for _, text := range []string{
		"2\r\n{}\r\n0\r\n\r\n", "1;a=b\r\n{\r\n01 \r\n}\r\n0\r\nX: 1\r\n\r\n", "0\r\n\r\n", "+1\r\n", "_1\r\n", "\r\n", "0x1\r\n", "1\n{\n", "2\r\n{}x\r\n",
		"ffffffffffffffff\r\n", "2\r\n{", "1\r\n{\r\n", "g\r\n", "1;\r\r\n{\r\n0\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := io.ReadAll(http1.Chunks(bytes.NewReader(text)))
		if err != nil {
			return // stricter
		}
		want, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(text)))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q: got %q, want %q, %v", text, got, want, err)
		}
	})
}

// A client that does not send the body that its GET announces keeps the connection no longer
// than a client that sends none. The answer comes first.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	_, address := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	c := dial(t, address)
	send(t, c, "GET /livez HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx")
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second)) // less than the timeouts of the server
	all, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || !strings.HasPrefix(string(all), "HTTP/1.1 204") {
		t.Errorf("%v: %q", err, all)
	}
}

// What net/http answers to requests that it cannot parse has the headers of an API answer.
func TestUnreadableRequestsHaveHeaders(t *testing.T) {
	t.Parallel()
	_, address := start(t, echo)
	for _, request := range []string{
		"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", "POST /v1/check%zz HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/7.0\r\nHost: h\r\n\r\n", "nonsense\r\n\r\n",
	} {
		c := dial(t, address)
		send(t, c, request)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if r.StatusCode < 400 || err != nil || len(body) == 0 {
			t.Errorf("%q: %s %q %v", request, r.Status, body, err)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Type": "text/plain; charset=utf-8",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%q: %s is %q", request, name, got)
			}
		}
	}
}
