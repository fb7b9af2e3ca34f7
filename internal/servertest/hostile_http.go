package servertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A HostileHTTP is an HTTP server that answers each request in the same invalid or harmful way.
type HostileHTTP struct {
	Name string
	URL  string
	sent atomic.Int64
}

// Sent returns the number of bytes that the server has written to all connections. If an answer
// never ends, this number stays small only if the client limits how much it reads.
func (h *HostileHTTP) Sent() int64 { return h.sent.Load() }

// Write counts the bytes of an answer.
func (h *HostileHTTP) Write(b []byte) (int, error) {
	h.sent.Add(int64(len(b)))
	return len(b), nil
}

// hostileEnd is how long a server holds a connection on which it sends nothing.
const hostileEnd = time.Minute

// StartHostileHTTP starts 20 servers that run until the end of the test. Some send answers that
// never end, that have a wrong length, or that are not HTTP. Others never answer.
func StartHostileHTTP(t testing.TB) []*HostileHTTP {
	t.Helper()
	var servers []*HostileHTTP
	for _, answer := range hostileAnswers() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		h := &HostileHTTP{Name: answer.name, URL: "http://" + l.Addr().String()}
		ending := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				running.Go(func() {
					defer c.Close()
					go func() {
						<-ending
						_ = c.Close()
					}()
					if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
						answer.write(io.MultiWriter(c, h), h.URL, ending)
					}
				})
			}
		})
		t.Cleanup(func() {
			close(ending)
			_ = l.Close()
			running.Wait()
		})
		servers = append(servers, h)
	}
	return servers
}

type hostileAnswer struct {
	name  string
	write func(w io.Writer, url string, ending <-chan struct{})
}

// hostileAnswers returns the 20 answers.
func hostileAnswers() []hostileAnswer {
	text := func(name, answer string) hostileAnswer {
		return hostileAnswer{name, func(w io.Writer, url string, _ <-chan struct{}) {
			_, _ = io.WriteString(w, strings.ReplaceAll(answer, "URL", url))
		}}
	}
	endless := func(name, head, part string) hostileAnswer {
		block := strings.Repeat(part, 1+4096/len(part))
		return hostileAnswer{name, func(w io.Writer, _ string, _ <-chan struct{}) {
			_, err := io.WriteString(w, head)
			for err == nil {
				_, err = io.WriteString(w, block)
			}
		}}
	}
	const ok, json = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, _ = packed.Write(make([]byte, 64<<20)) // a Buffer returns no error
	_ = packed.Close()
	return []hostileAnswer{
		text("closes", ""),
		text("no HTTP", "\x00\xff\x16\x03\x01 SSH-2.0-x\r\n\r\n"),
		text("cut head", ok+"Content-Ty"),
		text("version 9.9", "HTTP/9.9 200 OK\r\n\r\n{}"),
		text("status 999", "HTTP/1.1 999 Strange\r\nContent-Length: 0\r\n\r\n"),
		text("negative length", ok+"Content-Length: -5\r\n\r\n{}"),
		text("two lengths", ok+"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
		text("length that never comes", json+"Content-Length: 9223372036854775807\r\n\r\n{"),
		text("chunk too large", json+"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}"),
		text("cut chunk", json+"Transfer-Encoding: chunked\r\n\r\n10\r\n{"),
		text("deep JSON", json+"\r\n"+strings.Repeat("[", 200_000)),
		text("wrong types", json+"\r\n"+`{"issuer": 1, "jwks_uri": [], "token_endpoint": {}, "authorization_endpoint": null}`),
		text("redirects to itself", "HTTP/1.1 302 Found\r\nLocation: URL/.well-known/openid-configuration\r\nContent-Length: 0\r\n\r\n"),
		text("small gzip of 64 MB", json+"Content-Encoding: gzip\r\n\r\n"+bomb.String()),
		endless("endless header", ok+"X-Long: ", "x"),
		endless("endless headers", ok, "X-More: x\r\n"),
		endless("endless 1xx", "", "HTTP/1.1 103 Early Hints\r\n\r\n"),
		endless("endless body", json+"\r\n", " "),
		endless("endless chunks", json+"Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"),
		{"silent", func(_ io.Writer, _ string, ending <-chan struct{}) {
			select {
			case <-ending:
			case <-time.After(hostileEnd):
			}
		}},
	}
}
