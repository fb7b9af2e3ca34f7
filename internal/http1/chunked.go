package http1

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type passedKey struct{}

// unchunk returns the handler of HTTP. The requests that it takes over are those with
// Transfer-Encoding: net/http does not show the size of a chunk, nor that the request
// also had a Content-Length.
//
// A connection closes after such a request, unless it is certain that the request had
// no Content-Length (RFC 9112, section 6.1). Then it returns to l.
func (s *Server) unchunk(l *listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(passedKey{}).(*passed)
		framedOnce := p != nil && p.framedOnce && p.requests == 0
		if p != nil {
			p.requests++
		}
		if len(r.TransferEncoding) == 0 {
			s.handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		switch r.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		default: // their bodies are not read, and their answers may be streams
			s.handler.ServeHTTP(w, r)
			return
		}
		inner, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil { // not from a Server
			s.handler.ServeHTTP(w, r)
			return
		}
		keep := framedOnce && len(p.unused) == 0 && !r.Close
		if keep {
			inner = p.Conn
		}
		c := newConn(s, l, inner)
		c.taken = true
		if !s.add(c) {
			_ = inner.Close()
			return
		}
		c.takeOver(r, buffered.Reader, keep)
	})
}

// takeOver answers a request whose body arrives in chunks from in. If keep is true,
// the connection then serves further requests.
func (c *conn) takeOver(r *http.Request, in *bufio.Reader, keep bool) {
	kept := false
	defer func() { // net/http logs a panic
		if !kept {
			c.server.remove(c)
			c.linger()
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(c.server.HTTP.ReadTimeout))
	body := &chunks{in: in, limit: math.MaxInt64}
	if c.server.MaxBody != nil {
		body.limit = c.server.MaxBody(r)
	}
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		body.before = func() { _, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n") }
	}
	r.Body = body
	c.answer.reset()
	if !keep {
		c.answer.header.Set("Connection", "close")
	}
	c.server.handler.ServeHTTP(&c.answer, r)
	whole := errors.Is(body.err, io.EOF)
	if !whole {
		c.answer.header.Set("Connection", "close")
	}
	wire, last := c.answer.encode(time.Now())
	_ = c.SetWriteDeadline(time.Now().Add(c.server.HTTP.WriteTimeout))
	if _, err := c.Write(wire); err != nil || last {
		return
	}
	c.pending = make([]byte, in.Buffered())
	_, _ = io.ReadFull(in, c.pending)
	c.head = []byte{} // it had a request
	if kept = c.server.giveBack(c); kept {
		go c.serve()
	}
}

// giveBack ends that a connection is taken. It returns false if the Server ends.
func (s *Server) giveBack(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.taken = false
	return s.ended == nil
}

// lingerFor is how long the end of a connection waits for a client that still sends:
// the reset that follows an unread byte would delete the answer.
const lingerFor = 500 * time.Millisecond

// linger closes the connection.
func (c *conn) linger() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(lingerFor))
		_, _ = io.CopyN(io.Discard, c.Conn, 256<<10)
	}
	_ = c.Conn.Close()
}

// chunks is a body in chunks. It reads the trailer and drops it.
type chunks struct {
	in     *bufio.Reader
	limit  int64  // of a chunk
	before func() // called before the first read; nil: nothing

	left     int64 // of the chunk
	begun    bool
	overhead int // bytes of size lines and trailers, less those that data of this size needs
	err      error
}

var errChunk = errors.New("malformed chunked body")

// maxOverhead bounds the bytes that are no data, as net/http does.
const maxOverhead = 16 << 10

// Read reads data.
func (b *chunks) Read(p []byte) (n int, err error) {
	if b.before != nil {
		b.before()
		b.before = nil
	}
	if b.err == nil && b.left == 0 && len(p) > 0 {
		b.err = b.next()
	}
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err = b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// next reads the size line of the next chunk, or the trailer.
func (b *chunks) next() error {
	if b.begun {
		if line, err := b.line(); err != nil || line != "" {
			return errors.Join(errChunk, err)
		}
	}
	b.begun = true
	line, err := b.line()
	if err != nil {
		return err
	}
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 16, 63)
	if err != nil {
		return errChunk
	}
	if b.left = int64(size); b.left > b.limit {
		return &http.MaxBytesError{Limit: b.limit}
	}
	if b.overhead -= 16 + int(min(2*size, maxOverhead)); b.overhead < 0 {
		b.overhead = 0
	}
	if size > 0 {
		return nil
	}
	for {
		if line, err = b.line(); err != nil {
			return err
		}
		if line == "" {
			return io.EOF
		}
	}
}

// line reads a line that ends with CR LF.
func (b *chunks) line() (string, error) {
	text, err := b.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return "", io.ErrUnexpectedEOF
	}
	line, ok := strings.CutSuffix(string(text), "\r\n")
	b.overhead += len(text)
	if err != nil || !ok || strings.Contains(line, "\r") || b.overhead > maxOverhead {
		return "", errors.Join(errChunk, err)
	}
	return line, nil
}

// Close does nothing.
func (b *chunks) Close() error { return nil }
